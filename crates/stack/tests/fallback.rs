//! The fallback sequence: what a connect whose data may run twice tries when no answer comes, packet by packet.

use crate::peer::primed::{AFTER, DATA, outcome, primed_by, with_cookie};
use crate::peer::{Got, Peer, Seg, seg};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::{CloseReason, Config, ConnId, ConnectConfig, Readiness, StateName};
use firstflight_wire::tcp::Flags;

/// First timeout of a SYN to the primed peer, whose round trips take 10 ms.
const T6: u64 = 50;
/// Timers fire at most this late.
const TICK: u64 = 2;

fn world_with(tune: impl FnOnce(&mut Config)) -> Peer {
    primed_by(Peer::with(tune), seg().mss(1460), 10)
}

fn world() -> Peer {
    world_with(|_| {})
}

fn connect(p: &mut Peer, data: &[u8]) -> ConnId {
    let config = ConnectConfig::default().fast_open(true).replay_safe(true);
    p.connect_with(data, &config)
}

/// One attempt: the SYN and the local port.
struct Attempt {
    syn: Got,
    port: u16,
}

impl Attempt {
    fn of(p: &mut Peer) -> Self {
        let syn = p.expect().is_syn();
        Self { syn, port: p.local_port }
    }

    /// From now on, the peer answers this attempt.
    fn answered(&self, p: &mut Peer, n: u32) -> Seg {
        p.local_port = self.port;
        seg().syn().raw_ack(self.syn.raw_seq + n).mss(1460)
    }
}

/// Runs the fallback sequence up to step 3. Returns the connection, the first attempt and the second one.
fn fallen_back(p: &mut Peer, data: &[u8]) -> (ConnId, Attempt, Attempt) {
    let id = connect(p, data);
    let first = Attempt::of(p);
    p.pass(2 * T6 + TICK);
    p.expect().is_syn().empty().no_fast_open();
    let second = Attempt::of(p);
    assert_ne!(first.port, second.port);
    (id, first, second)
}

fn local_port(p: &Peer, id: ConnId) -> u16 {
    p.stack.info(id).unwrap().local.port()
}

fn failures(p: &Peer) -> u32 {
    p.stack.credentials().iter().next().unwrap().2.failures.count
}

/// No state of the connection is left after the peer has reset it and time has passed.
fn nothing_is_left(p: &mut Peer) {
    p.pass(1);
    p.drain();
    assert_eq!((p.stack.connections(), p.stack.buffer_bytes()), (0, 0));
    assert_eq!(p.stack.poll_timeout(), None);
}

#[test]
fn the_three_steps() {
    let mut p = world();
    let start = p.ms();
    let id = connect(&mut p, DATA);
    with_cookie(p.expect()).at(start).data(DATA);
    let port = p.local_port;
    p.pass(T6 + TICK);
    p.expect().is_syn().at(start + T6).empty().no_fast_open();
    assert_eq!(p.local_port, port, "the same four-tuple");
    p.pass(T6);
    p.expect().is_syn().at(start + 2 * T6).empty().no_fast_open();
    assert_ne!(p.local_port, port, "another port");
    assert_eq!(p.stack.counters().second_attempts, 1);
    assert_eq!((outcome(&p, id), local_port(&p, id)), (Outcome::Undecided, port));
    p.pass(900);
    p.quiet();
}

/// RFC 7413 §6.1: data that may have been executed is not sent on another connection unless it may run twice.
#[test]
fn without_leave_there_is_no_other_port() {
    let mut p = world();
    let start = p.ms();
    p.connect(DATA, true);
    p.sends_at(start + 3_000, &[start, start + T6, start + T6 + 1_000]);
    assert_eq!(p.stack.counters().second_attempts, 0);
    // Nor with a fixed local port, nor beyond the connection limit.
    let mut p = world();
    let local = Some("10.0.0.1:5555".parse().unwrap());
    let config = ConnectConfig::default().fast_open(true).replay_safe(true).local(local);
    let start = p.ms();
    p.connect_with(DATA, &config);
    p.sends_at(start + 1_000, &[start, start + T6]);
    let mut p = world_with(|c| c.limits.connections = 1);
    let start = p.ms();
    connect(&mut p, DATA);
    p.sends_at(start + 1_000, &[start, start + T6]);
}

#[test]
fn the_second_attempt_wins() {
    let mut p = world();
    let (id, first, second) = fallen_back(&mut p, DATA);
    let answer = second.answered(&mut p, 1);
    p.send(answer.mss(1_400));
    p.expect().is_ack().seq(1).ack(1).data(DATA);
    p.quiet();
    assert_eq!(local_port(&p, id), second.port);
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::SynTimedOut));
    assert_eq!(p.stack.info(id).unwrap().handshake_retransmits, 2);
    assert!(p.saw(id, Readiness::CONNECTED));
    assert_eq!((p.stack.connections(), failures(&p)), (1, 1));
    assert_eq!(p.stack.credentials().iter().next().unwrap().2.mss, Some(1_400));
    // A late SYN-ACK for the losing attempt is answered only with a RST.
    let late = first.answered(&mut p, AFTER);
    p.send(late);
    let reset = p.expect();
    assert!(reset.flags.contains(Flags::RST) && reset.raw_seq == first.syn.raw_seq + AFTER, "{reset:?}");
    // The winning attempt continues.
    p.local_port = second.port;
    p.send(seg().seq(1).ack(AFTER).data(b"answer"));
    assert_eq!(p.read(id), b"answer");
    p.drain();
    p.send(seg().seq(7).rst());
    p.release(id);
    nothing_is_left(&mut p);
}

#[test]
fn the_first_attempt_wins() {
    // The plain SYN of the first attempt is answered, or late its SYN with the data.
    for (acked, result) in [(1, Outcome::Handshake(Reason::SynTimedOut)), (AFTER, Outcome::Accepted)] {
        let mut p = world();
        let (id, first, second) = fallen_back(&mut p, DATA);
        let answer = first.answered(&mut p, acked);
        p.send(answer);
        let reply = p.expect().is_ack();
        assert_eq!(reply.data.len(), (AFTER - acked) as usize);
        assert_eq!((outcome(&p, id), local_port(&p, id)), (result, first.port));
        assert_eq!(p.stack.connections(), 1);
        let late = second.answered(&mut p, 1);
        p.send(late);
        assert!(p.expect().flags.contains(Flags::RST));
        p.pass(900);
        p.abort(id);
        p.release(id);
        nothing_is_left(&mut p);
    }
}

/// What the application wrote and set meanwhile belongs to the winning attempt, in order and once.
#[test]
fn the_stream_moves_to_the_winner() {
    let mut p = world_with(|c| c.tcp.set_nodelay(true));
    let (id, _, second) = fallen_back(&mut p, DATA);
    p.write(id, b" more");
    p.shutdown(id);
    p.quiet();
    let answer = second.answered(&mut p, 1);
    p.send(answer);
    let sent = p.drain();
    let stream: Vec<u8> = sent.iter().flat_map(|g| g.data.clone()).collect();
    assert_eq!(stream, [DATA, b" more"].concat());
    assert!(sent.last().unwrap().flags.contains(Flags::FIN));
    assert_eq!(p.state(id), StateName::FinWait1);
    let end = AFTER + 5 + 1;
    p.send(seg().seq(1).ack(end).fin());
    p.drain();
    assert_eq!(p.stack.time_waits(), 1);
}

/// The SYN-ACK of either attempt may carry the response.
#[test]
fn data_in_the_second_syn_ack() {
    let mut p = world();
    let (id, _, second) = fallen_back(&mut p, DATA);
    let answer = second.answered(&mut p, 1);
    p.send(answer.data(b"hello"));
    p.expect().is_ack().ack(6).data(DATA);
    assert_eq!(p.read(id), b"hello");
}

#[test]
fn giving_up_ends_both_attempts() {
    for release in [true, false] {
        let mut p = world();
        let (id, first, second) = fallen_back(&mut p, DATA);
        if !release {
            p.abort(id);
        }
        p.release(id);
        nothing_is_left(&mut p);
        for attempt in [&first, &second] {
            let late = attempt.answered(&mut p, 1);
            p.send(late);
            assert!(p.expect().flags.contains(Flags::RST));
        }
    }
}

#[test]
fn nobody_ever_answers() {
    let mut p = world();
    let (id, ..) = fallen_back(&mut p, DATA);
    p.pass(300_000);
    p.drain();
    assert_eq!(p.reason(id), Some(CloseReason::TimedOut));
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::Unknown));
    p.release(id);
    nothing_is_left(&mut p);
}

/// A refusal of the second attempt ends that attempt; a refusal of the first one ends the connect.
#[test]
fn refusals() {
    let mut p = world();
    let (id, first, second) = fallen_back(&mut p, DATA);
    p.local_port = second.port;
    p.send(seg().rst().raw_ack(second.syn.raw_seq + 1));
    assert_eq!((p.stack.connections(), p.state(id)), (1, StateName::SynSent));
    p.local_port = first.port;
    p.send(seg().rst().raw_ack(first.syn.raw_seq + 1));
    assert_eq!(p.reason(id), Some(CloseReason::Refused));
    p.release(id);
    nothing_is_left(&mut p);
}

/// The peer's own SYN on the second attempt's ports opens nothing.
#[test]
fn a_crossing_syn_is_not_for_the_second_attempt() {
    let mut p = world();
    let (id, _, second) = fallen_back(&mut p, DATA);
    p.local_port = second.port;
    p.send(seg().syn().mss(1460));
    p.quiet();
    let answer = second.answered(&mut p, 1);
    p.send(answer);
    p.expect().data(DATA);
    assert_eq!(p.state(id), StateName::Established);
}

// --- an open connection that stays silent ------------------------------------------------------------

/// If the second attempt continued, it would take the stream of the next connection in the same slot.
#[test]
fn giving_up_a_silent_connection_ends_its_second_attempt() {
    let (mut p, id, _, second) = eager();
    p.pass(6_000);
    p.abort(id);
    p.release(id);
    p.drain();
    connect(&mut p, b"for another server");
    p.drain();
    let late = second.answered(&mut p, 1);
    p.send(late);
    p.expect().is_rst().empty();
}

/// A connection whose first flight was accepted, and its port. An earlier one was answered, so the path is known to be
/// good.
fn taken() -> (Peer, ConnId, Attempt) {
    let (mut p, id, _) = taken_first();
    p.send(seg().seq(1).ack(AFTER).data(b"answer"));
    assert_eq!(p.read(id), b"answer");
    p.abort(id);
    p.release(id);
    p.drain();
    taken_by(p)
}

/// The first connection of all whose first flight was accepted.
fn taken_first() -> (Peer, ConnId, Attempt) {
    // The trace would show that the two connections change places, which is in no transition table.
    taken_by(world_with(|c| c.limits.trace = 0))
}

fn taken_by(mut p: Peer) -> (Peer, ConnId, Attempt) {
    let id = connect(&mut p, DATA);
    let first = Attempt::of(&mut p);
    p.pass(10);
    let answer = first.answered(&mut p, AFTER);
    p.send(answer);
    p.expect().is_ack().seq(AFTER);
    (p, id, first)
}

/// A server that takes time to respond answers the probes, and gets no second attempt.
#[test]
fn a_server_that_thinks_is_not_asked_twice() {
    let (mut p, id, _) = taken();
    let mut waits = Vec::new();
    let mut last = p.ms();
    for _ in 0..200 {
        p.pass(500);
        for got in p.drain() {
            got.clone().seq(AFTER - 1).empty();
            waits.push((got.at - last + 10) / 500);
            last = got.at;
            p.send(seg().seq(1).ack(AFTER));
        }
    }
    assert_eq!(waits, [1, 1, 2, 4, 8, 16, 32]);
    assert_eq!(p.stack.counters().second_attempts, 0);
    p.send(seg().seq(1).ack(AFTER).data(b"answer"));
    assert_eq!(p.read(id), b"answer");
    assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Accepted, 0));
}

/// The source port of a packet.
fn source(got: &Got) -> u16 {
    u16::from_be_bytes([got.packet[20], got.packet[21]])
}

/// On a path that is new to first flights, silence is probed at once, and a second attempt is prepared.
fn eager() -> (Peer, ConnId, Attempt, Attempt) {
    let (mut p, id, first) = taken_first();
    // Two steps of the shortest length.
    p.pass(60);
    let sent = p.drain();
    let probes = sent.iter().filter(|g| source(g) == first.port && g.data.is_empty()).count();
    assert_eq!((probes, sent.len()), (2, 3), "{sent:?}");
    let syn = sent.into_iter().find(|g| source(g) != first.port).unwrap().is_syn().empty().no_fast_open();
    let port = source(&syn);
    (p, id, first, Attempt { syn, port })
}

/// The server answers the probes, so it only takes time to respond. The data is not sent again.
#[test]
fn on_a_new_path_a_server_that_thinks_is_not_asked_twice_either() {
    let (mut p, id, first, second) = eager();
    let to_first = |seg: Seg| seg.raw_ack(first.syn.raw_seq + AFTER);
    p.local_port = first.port;
    p.send(to_first(seg().seq(1).ack(1)));
    let answer = second.answered(&mut p, 1);
    p.send(answer);
    p.expect().is_rst();
    p.local_port = first.port;
    p.send(to_first(seg().seq(1).ack(1).data(b"answer")));
    assert_eq!(p.read(id), b"answer");
    assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Accepted, 0));
}

/// No probe is answered: the data is sent with the second attempt's ACK.
#[test]
fn on_a_new_path_silence_moves_the_stream_with_the_second_syn_ack() {
    let (mut p, id, _, second) = eager();
    let answer = second.answered(&mut p, 1);
    p.send(answer);
    let sent = p.drain();
    assert!(sent.iter().any(|g| source(g) == second.port && g.data == DATA), "{sent:?}");
    assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Handshake(Reason::Unknown), 1));
}

/// The answer to a probe has a number after what was received, so a response was sent and did not arrive. The
/// request is sent again, from another port and with an ordinary handshake.
#[test]
fn a_response_that_does_not_arrive_is_asked_for_again() {
    for answers in [true, false] {
        let (mut p, id, first) = taken();
        p.write(id, b"+");
        p.drain();
        p.pass(500 + TICK);
        if answers {
            p.send(seg().seq(501).ack(AFTER));
        }
        p.pass(500 + TICK);
        let syn = p.drain().into_iter().find(|g| g.flags.contains(Flags::SYN)).expect("no second attempt");
        let second = Attempt { syn, port: p.local_port };
        assert_ne!(first.port, second.port);
        let answer = second.answered(&mut p, 1);
        p.send(answer);
        let sent = p.drain();
        assert!(sent.iter().any(|g| g.flags.contains(Flags::RST)), "the loser gets a RST");
        let data: Vec<u8> = sent.iter().flat_map(|g| g.data.clone()).collect();
        assert_eq!(data, [DATA, b"+"].concat());
        assert_eq!(local_port(&p, id), second.port);
        assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Handshake(Reason::Unknown), 1));
        p.send(seg().seq(1).ack(AFTER + 1).data(b"answer"));
        assert_eq!(p.read(id), b"answer");
        p.drain();
        p.send(seg().seq(7).rst());
        p.release(id);
        nothing_is_left(&mut p);
    }
}

/// The beginning of the response was lost, by chance or because its segments are too large for the path, and its end
/// arrived. The path passes data, so the server's retransmission comes here, and the request does not run twice.
#[test]
fn the_end_of_a_response_shows_that_the_connection_works() {
    for new_path in [false, true] {
        let (mut p, id, first) = if new_path { taken_first() } else { taken() };
        let at = |p: &mut Peer| p.local_port = first.port;
        at(&mut p);
        p.send(seg().seq(2_801).ack(AFTER).bytes(200).fin());
        p.expect().is_ack().ack(1);
        // For longer than any probe or second attempt waits.
        for _ in 0..30 {
            p.pass(100);
            let sent = p.drain();
            assert!(sent.iter().all(|got| source(got) == first.port), "new path: {new_path}, {sent:?}");
            at(&mut p);
            p.send(seg().seq(3_002).ack(AFTER));
        }
        p.drain();
        assert_eq!(p.stack.counters().second_attempts, 0, "new path: {new_path}");
        p.send(seg().seq(1).ack(AFTER).bytes(1_400));
        p.send(seg().seq(1_401).ack(AFTER).bytes(1_400));
        assert_eq!(p.read(id).len(), 3_000);
        assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Accepted, 0), "new path: {new_path}");
    }
}

/// As above, but the end of the response comes when the second attempt's SYN is already under way.
#[test]
fn the_end_of_a_response_overtakes_the_second_attempt() {
    let (mut p, id, first, second) = eager();
    for end in [seg().seq(2_801).bytes(200), seg().seq(3_001)] {
        p.local_port = first.port;
        p.send(end.raw_ack(first.syn.raw_seq + AFTER));
    }
    p.drain();
    let answer = second.answered(&mut p, 1);
    p.send(answer);
    let sent = p.drain();
    assert!(sent.iter().any(|got| source(got) == second.port && got.flags.contains(Flags::RST)), "{sent:?}");
    assert!(sent.iter().all(|got| got.data.is_empty()), "{sent:?}");
    assert_eq!((local_port(&p, id), outcome(&p, id)), (first.port, Outcome::Accepted));
}

/// The server took more than the first flight, and only the first flight is kept. Data that is not kept cannot be
/// sent again.
#[test]
fn a_connection_that_takes_more_than_is_kept_is_left_alone() {
    let (mut p, id, first) = taken();
    p.write(id, b"+");
    p.drain();
    p.send(seg().seq(501).ack(AFTER + 1));
    p.pass(30_000);
    p.quiet();
    assert_eq!((local_port(&p, id), p.stack.counters().second_attempts), (first.port, 0));
}

/// The server takes more than is kept while the second attempt waits for its SYN-ACK. The second attempt would send
/// a stream without that part.
#[test]
fn a_second_attempt_does_not_take_a_stream_whose_beginning_is_gone() {
    let (mut p, id, first) = taken();
    p.write(id, b"+-");
    p.drain();
    p.pass(1_000 + 2 * TICK);
    let syn = p.drain().into_iter().find(|g| g.flags.contains(Flags::SYN)).expect("no second attempt");
    let second = Attempt { port: source(&syn), syn };
    p.local_port = first.port;
    p.send(seg().seq(1).raw_ack(first.syn.raw_seq + AFTER + 1));
    p.drain();
    let late = second.answered(&mut p, 1);
    p.send(late);
    let sent = p.drain();
    let of_second = |got: &&Got| source(got) == second.port;
    assert!(sent.iter().filter(of_second).all(|got| got.flags.contains(Flags::RST)), "{sent:?}");
    assert!(sent.iter().any(|got| of_second(&got)), "the second attempt gets a RST");
    assert_eq!((local_port(&p, id), outcome(&p, id)), (first.port, Outcome::Accepted));
    p.local_port = first.port;
    p.send(seg().seq(1).raw_ack(first.syn.raw_seq + AFTER + 2).data(b"answer"));
    assert_eq!(p.read(id), b"answer");
    assert_eq!(p.stack.connections(), 1);
}

/// The response overtakes the second attempt's SYN-ACK: the first connection stays.
#[test]
fn a_late_response_wins() {
    let (mut p, id, first) = taken();
    p.pass(2_000 + TICK);
    let syn = p.drain().into_iter().find(|g| g.flags.contains(Flags::SYN)).expect("no second attempt");
    let second = Attempt { syn, port: p.local_port };
    p.local_port = first.port;
    p.send(seg().seq(1).raw_ack(first.syn.raw_seq + AFTER).data(b"answer"));
    assert_eq!(p.read(id), b"answer");
    p.drain();
    let late = second.answered(&mut p, 1);
    p.send(late);
    assert!(p.drain().iter().any(|g| g.flags.contains(Flags::RST)));
    assert_eq!((local_port(&p, id), outcome(&p, id)), (first.port, Outcome::Accepted));
    assert_eq!(p.stack.connections(), 1);
}

/// If the data must not run twice, a silent connection is not probed.
#[test]
fn without_leave_nothing_is_probed() {
    let mut p = world();
    p.connect(DATA, true);
    p.expect();
    p.send(seg().syn().ack(AFTER).mss(1460));
    p.expect().is_ack();
    p.pass(60_000);
    p.quiet();
}
