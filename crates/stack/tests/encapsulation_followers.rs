//! What follows the SYN of a first flight in UDP, segment by segment.

use crate::certified::{Request, certificate, identity};
use crate::flights::{AFTER, DATA, Server, server_with, syn};
use crate::peer::{CLIENT_PORT, Got, PEER_ISN, Peer, Seg, key, policy, seg};
use crate::visitor::{Visit, visit_with};
use firstflight_credential::Outcome;
use firstflight_credential::asap::ClientCertificate;
use firstflight_stack::{
    Config, ConnId, EncapsulationConfig, ListenConfig, ResponsePolicy, StateName, Trace,
};
use firstflight_wire::Instant;
use firstflight_wire::asap::{AsapOption, BLOCK_LEN, Encapsulation, Reply, Status};
use firstflight_wire::encapsulation::{Carried, FOLLOWER_BYTES, FOLLOWERS};
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, OptionBytes, Segment};
use firstflight_wire::udp::Datagram;

/// The stack's UDP port.
const OURS: u16 = 4433;
/// The peer's UDP port.
const THEIRS: u16 = 5000;

fn encapsulation(config: &mut Config) {
    config.encapsulation = Some(EncapsulationConfig::new(OURS).probe(false));
}

fn stream(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

// --- the server ------------------------------------------------------------------------------------

fn server_on(stack: impl FnOnce(&mut Config), listen: impl FnOnce(&mut ListenConfig)) -> Server {
    let tune = |config: &mut Config| {
        encapsulation(config);
        stack(config);
    };
    let both = |config: &mut ListenConfig| {
        config.fast_open = Some(policy(key(1), 16));
        listen(config);
    };
    let mut server = server_with(tune, |_| {}, both);
    server.p.outer = Some((THEIRS, OURS));
    server
}

fn server() -> Server {
    server_on(|_| {}, |_| {})
}

/// A SYN with [`DATA`] and a certificate, for the encapsulation: request number `id`.
fn flight(by: u8, id: u8) -> Seg {
    let certificate: ClientCertificate = certificate(by, 2, crate::flights::CLIENT.parse().unwrap());
    let block = certificate.request(Encapsulation::Udp, &identity(), DATA, [id; 8], Instant::ZERO);
    let option = AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 };
    let option = OptionBytes::from(option).as_slice().to_vec();
    syn(&Request { option, payload: [&block.to_bytes()[..], DATA].concat() })
}

/// The follower with `len` bytes from byte `at` of `data`.
fn follower(data: &[u8], at: usize, len: usize) -> Seg {
    seg().seq(AFTER + at as u32).data(&data[at..(at + len).min(data.len())])
}

fn all(data: &[u8]) -> Vec<u8> {
    [DATA, data].concat()
}

fn drops(server: &mut Server) -> usize {
    let follower = |trace: &Trace| matches!(trace, Trace::Dropped(firstflight_stack::PacketDrop::Follower));
    let count = server.p.traces.iter().filter(|trace| follower(trace)).count();
    server.p.traces.clear();
    count
}

/// What a SYN-ACK says about the block.
fn status(got: &Got) -> Option<Status> {
    let ip = Packet::parse(&got.packet).unwrap();
    let Ok(Carried::Segment(bytes)) = Carried::parse(Datagram::parse(ip.payload).unwrap().payload) else {
        panic!("no segment");
    };
    Segment::parse(bytes).unwrap().options.asap().and_then(Reply::parse).map(|reply| reply.status)
}

#[test]
fn what_follows_a_syn_that_waits_is_held_in_any_order_and_once() {
    let data = stream(3000);
    let mut s = server();
    s.p.send(flight(1, 1));
    for at in [2000, 0, 2000, 1000, 0] {
        s.p.send(follower(&data, at, 1000));
    }
    s.p.quiet();
    assert_eq!(drops(&mut s), 2, "those that came twice");
    s.verify();
    let got = s.p.expect().syn_ack().ack(AFTER + 3000);
    assert_eq!(status(&got), Some(Status::Accepted));
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), all(&data));
    assert_eq!(s.p.stack.info(id).unwrap().totals.early, 3000 + DATA.len() as u32);
    // The client's SYN again gets the same answer.
    s.p.pass(600);
    s.p.drain();
    s.p.send(flight(1, 1));
    s.p.expect().syn_ack().ack(AFTER + 3000);
    s.p.nothing_to_accept(s.listener);
}

#[test]
fn a_hole_is_told_at_once() {
    let data = stream(3000);
    let mut s = server();
    s.p.send(flight(1, 1).sack_ok());
    s.p.send(follower(&data, 2000, 1000));
    s.verify();
    s.p.expect().syn_ack().ack(AFTER);
    s.p.expect().is_ack().ack(AFTER).sack(&[(AFTER + 2000, AFTER + 3000)]);
    s.p.send(follower(&data, 0, 2000));
    s.p.expect().is_ack().ack(AFTER + 3000);
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), all(&data));
}

fn by_cookie(s: &Server) -> Seg {
    seg().syn().mss(1176).cookie(s.p.cookie_of(key(1)).as_bytes()).data(DATA)
}

/// The number after the data of a SYN with a cookie.
const COOKIE_AFTER: u32 = 1 + DATA.len() as u32;

#[test]
fn what_follows_a_syn_with_a_cookie_is_taken_before_the_ack() {
    for timestamps in [false, true] {
        let data = stream(2400);
        let mut s = server();
        let syn = by_cookie(&s);
        s.p.send(if timestamps { syn.ts(1) } else { syn });
        s.p.expect().syn_ack().ack(COOKIE_AFTER);
        for at in [0, 1200] {
            s.p.send(seg().seq(COOKIE_AFTER + at).data(&data[at as usize..at as usize + 1200]));
        }
        s.p.expect().is_ack().ack(COOKIE_AFTER + 2400);
        let id = s.p.accept(s.listener);
        assert_eq!(s.p.read(id), all(&data));
        assert_eq!(s.p.state(id), StateName::SynRcvd, "it proves nothing");
        let ack = seg().seq(COOKIE_AFTER + 2400).ack(1);
        s.p.send(if timestamps { ack.ts(2) } else { ack });
        assert_eq!(s.p.state(id), StateName::Established);
        // From now on, RFC 9293 applies.
        let late = seg().seq(COOKIE_AFTER + 2400).data(b"late");
        s.p.send(if timestamps { late.ts(3) } else { late });
        s.p.quiet();
        assert!(s.p.read(id).is_empty());
    }
}

#[test]
fn before_its_syn_it_is_dropped_in_silence() {
    let data = stream(1000);
    let mut s = server();
    s.p.send(follower(&data, 0, 1000));
    s.p.quiet();
    assert_eq!(drops(&mut s), 1);
    s.p.send(flight(1, 1));
    s.verify();
    s.p.expect().syn_ack().ack(AFTER);
    s.p.send(follower(&data, 0, 1000).ack(1));
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), all(&data));
    // There is no listener at that port, so the answer is the usual one.
    let mut p = Peer::with(encapsulation);
    p.outer = Some((THEIRS, OURS));
    p.send(seg().seq(1).data(b"x"));
    p.expect().is_rst();
}

#[test]
fn what_follows_a_refused_syn_is_dropped() {
    let data = stream(1000);
    // The SYN is accepted at once, or by a verdict.
    for waits in [false, true] {
        let mut s = server();
        if waits {
            s.p.flow(CLIENT_PORT + 1, PEER_ISN);
            s.p.send(flight(1, 1));
            s.p.flow(CLIENT_PORT, PEER_ISN);
        }
        s.p.send(flight(if waits { 1 } else { 9 }, 1));
        let early = follower(&data, 0, 1000);
        if waits {
            s.p.send(early.clone());
            s.verify();
            assert_eq!(s.p.stack.counters().first_flights_accepted, 1, "one of the two");
            let _accepted = s.p.expect().syn_ack();
            s.p.accept(s.listener);
        }
        s.p.expect().syn_ack().ack(1);
        s.p.send(early);
        s.p.quiet();
        // All of it comes after the handshake, with other numbers.
        for (i, part) in all(&data).chunks(600).enumerate() {
            s.p.send(seg().seq(1 + 600 * i as u32).ack(1).data(part));
        }
        let id = s.p.accept(s.listener);
        assert_eq!(s.p.read(id), all(&data));
        assert_eq!(s.p.stack.info(id).unwrap().totals.early, 0);
    }
}

#[test]
fn a_plain_syn_takes_what_is_held_away() {
    let data = stream(1000);
    let mut s = server();
    s.p.send(flight(1, 1));
    s.p.send(follower(&data, 0, 1000));
    // It does not directly follow.
    s.p.pass(6);
    s.p.send(seg().syn().mss(1176));
    s.p.expect().syn_ack().ack(1);
    s.verify();
    s.p.quiet();
    s.p.send(seg().seq(1).ack(1).data(b"other"));
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), b"other");
}

#[test]
fn no_more_is_held_than_nine_segments_and_16_kib() {
    for (len, count, kept) in
        [(100, FOLLOWERS + 3, FOLLOWERS), (2000, FOLLOWERS, FOLLOWER_BYTES as usize / 2000)]
    {
        let data = stream(len * count);
        let mut s = server();
        s.p.send(flight(1, 1));
        for i in 0..count {
            s.p.send(follower(&data, i * len, len));
        }
        assert_eq!(drops(&mut s), count - kept);
        s.verify();
        s.p.expect().syn_ack().ack(AFTER + (kept * len) as u32);
        let id = s.p.accept(s.listener);
        assert_eq!(s.p.read(id), all(&data[..kept * len]));
    }
}

/// The memory for waiting bytes is small and shared. One SYN cannot fill it by sending the same numbers again.
#[test]
fn what_overlaps_is_no_way_to_more() {
    let data = stream(9000);
    let mut s = server();
    s.p.send(flight(1, 1));
    for i in 0..FOLLOWERS {
        s.p.send(follower(&data, i, 8000));
    }
    assert_eq!(drops(&mut s), FOLLOWERS - 2);
    s.verify();
    s.p.expect().syn_ack().ack(AFTER + 8001);
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), all(&data[..8001]));
}

#[test]
fn an_accepted_syn_has_16_kib_behind_it() {
    let data = stream(2000 * 12);
    let mut s = server();
    s.p.send(by_cookie(&s));
    for i in 0..12 {
        s.p.send(seg().seq(COOKIE_AFTER + 2000 * i).data(&data[2000 * i as usize..][..2000]));
    }
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), all(&data[..16_000]));
}

#[test]
fn what_is_held_counts_among_the_bytes_that_wait() {
    let data = stream(2000);
    let mut s = server_on(|config| config.limits.deferred_bytes = 1500, |_| {});
    s.p.send(flight(1, 1));
    s.p.send(follower(&data, 0, 1000));
    s.p.send(follower(&data, 1000, 1000));
    assert_eq!(drops(&mut s), 1);
    s.verify();
    s.p.expect().syn_ack().ack(AFTER + 1000);
    // The memory is given back.
    s.p.flow(CLIENT_PORT + 1, PEER_ISN);
    s.p.send(flight(1, 2));
    s.p.send(follower(&data, 0, 1000));
    assert_eq!(drops(&mut s), 0);
}

/// The many first flights of one client leave half of the room for others.
#[test]
fn a_client_that_borrows_places_may_fill_half_of_the_room() {
    let data = stream(3000);
    let mut s = server_on(|config| config.limits.deferred_bytes = 8000, |_| {});
    for n in 0..9 {
        s.p.flow(CLIENT_PORT + n, PEER_ISN);
        s.p.send(flight(1, 1 + n as u8));
    }
    let deferred = 8000 - 9 * 260;
    assert!(deferred > 5000, "nine SYNs take less than half");
    for (offset, dropped) in [(0, 0), (1000, 1)] {
        s.p.send(follower(&data, offset, 1000));
        assert_eq!(drops(&mut s), dropped, "of the ninth, at {offset}");
    }
    // The first one has its own permit.
    s.p.flow(CLIENT_PORT, PEER_ISN);
    for offset in [0, 1000, 2000] {
        s.p.send(follower(&data, offset, 1000));
    }
    assert_eq!(drops(&mut s), 0);
}

#[test]
fn what_is_odd_is_not_held() {
    let data = stream(100);
    let mut s = server();
    s.p.send(flight(1, 1));
    for odd in [
        seg().seq(AFTER - 1).data(&data),
        seg().seq(0u32.wrapping_sub(50)).data(&data),
        seg().seq(AFTER + FOLLOWER_BYTES).data(&data),
        seg().seq(AFTER + (1 << 31)).data(&data),
    ] {
        s.p.send(odd);
    }
    assert_eq!(drops(&mut s), 4);
    s.p.quiet();
    s.verify();
    s.p.expect().syn_ack().ack(AFTER);
}

#[test]
fn the_ack_of_it_is_within_what_may_be_sent_before_the_clients() {
    let data = stream(2400);
    let mut s = server_on(|_| {}, |config| config.response = ResponsePolicy::AfterHandshake);
    s.p.send(by_cookie(&s));
    s.p.expect().syn_ack().ack(COOKIE_AFTER);
    for at in [0, 1200] {
        s.p.send(seg().seq(COOKIE_AFTER + at).data(&data[at as usize..at as usize + 1200]));
    }
    s.p.pass(200);
    s.p.quiet();
    s.p.send(seg().seq(COOKIE_AFTER).ack(1));
    s.p.expect().is_ack().ack(COOKIE_AFTER + 2400);
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), all(&data));
}

#[test]
fn on_raw_ip_nothing_is_held_or_taken() {
    let data = stream(1000);
    let mut s = server();
    s.p.outer = None;
    s.p.send(by_cookie(&s));
    s.p.expect().syn_ack().ack(COOKIE_AFTER);
    s.p.send(seg().seq(COOKIE_AFTER).data(&data));
    s.p.quiet();
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), DATA);
    // Such a segment is dropped, whether a SYN waits or not (RFC 9293 §3.10.7.2, fourth step).
    s.p.flow(CLIENT_PORT + 1, PEER_ISN);
    s.p.send(crate::flights::flight(1));
    s.p.send(follower(&data, 0, 1000));
    s.p.quiet();
    s.verify();
    s.p.expect().syn_ack().ack(AFTER);
}

// --- the client ------------------------------------------------------------------------------------

/// A visit with `data`, and the segments that follow its SYN.
fn visits(data: &[u8]) -> (Peer, Visit, Vec<Got>) {
    let mut p = Peer::with(|config| {
        encapsulation(config);
        config.tcp.set_nodelay(true);
    });
    p.outer = Some((THEIRS, OURS));
    let visit = visit_with(&mut p, data, |config| config.encapsulation = Some(THEIRS));
    p.local_port = visit.port;
    let followers = p.drain();
    (p, visit, followers)
}

/// The part of the data that the SYN carries after the block.
const RIDES: usize = 1176 - 40 - BLOCK_LEN;
/// The number after it.
const BEHIND: u32 = 1 + (BLOCK_LEN + RIDES) as u32;

fn accepts(visit: &Visit) -> Seg {
    seg().syn().mss(1176).sack_ok().option(&visit.accepted())
}

fn outcome(p: &Peer, id: ConnId) -> Outcome {
    p.stack.info(id).unwrap().outcome
}

/// The payloads joined, from number `from` on.
fn joined(segments: &[Got], from: u32) -> Vec<u8> {
    let mut all = Vec::new();
    for got in segments {
        assert_eq!(got.seq, from + all.len() as u32, "{got:?}");
        all.extend_from_slice(&got.data);
    }
    all
}

#[test]
fn at_most_an_initial_window_follows_in_nine_segments_without_ack() {
    let data = stream(20_000);
    let (p, _, followers) = visits(&data);
    assert_eq!(followers.len(), FOLLOWERS);
    for (i, got) in followers.iter().enumerate() {
        let last = if i + 1 == FOLLOWERS { Flags::PSH } else { Flags::EMPTY };
        assert_eq!((got.flags, got.data.len(), got.ts), (last, 1164, None));
        assert_eq!(got.outer, Some((THEIRS, OURS)));
    }
    assert_eq!(joined(&followers, BEHIND), data[RIDES..RIDES + 9 * 1164]);
    assert!(p.sent.is_empty());
}

#[test]
fn what_fits_into_the_syn_needs_nothing_behind_it() {
    let (_, visit, followers) = visits(&stream(RIDES));
    assert_eq!((visit.syn.data.len(), followers.len()), (BLOCK_LEN + RIDES, 0));
    let (_, _, followers) = visits(&stream(RIDES + 1));
    assert_eq!(followers.len(), 1);
    assert_eq!(followers[0].flags, Flags::PSH);
}

#[test]
fn what_came_behind_the_syn_ack_is_waited_for() {
    let data = stream(3000);
    let (mut p, visit, _) = visits(&data);
    p.pass(50);
    p.send(accepts(&visit).ack(BEHIND));
    p.expect().is_ack().seq(BEHIND + (3000 - RIDES) as u32).empty();
    assert_eq!(outcome(&p, visit.id), Outcome::Accepted);
    p.send(seg().seq(1).ack(BEHIND + 1164));
    p.send(seg().seq(1).ack(BEHIND + (3000 - RIDES) as u32));
    p.pass(5_000);
    p.quiet();
    let totals = p.stack.info(visit.id).unwrap().totals;
    assert_eq!((totals.bytes_acked, totals.retransmits), (3000, 0));
}

#[test]
fn a_syn_ack_may_acknowledge_some_of_it_or_all() {
    let data = stream(3000);
    for acked in [1, 1164, 1165, 3000 - RIDES as u32] {
        let (mut p, visit, _) = visits(&data);
        p.pass(50);
        p.send(accepts(&visit).ack(BEHIND + acked));
        p.expect().is_ack().empty();
        assert_eq!(outcome(&p, visit.id), Outcome::Accepted);
        assert_eq!(p.stack.info(visit.id).unwrap().totals.bytes_acked, RIDES as u64 + u64::from(acked));
        // Missing data is retransmitted if nothing acknowledges it.
        p.pass(1_000);
        // The ACK is retransmitted with it, because no answer comes.
        let again: Vec<_> = p.drain().into_iter().filter(|got| !got.data.is_empty()).collect();
        assert_eq!(again.is_empty(), acked == 3000 - RIDES as u32);
        if let Some(first) = again.first() {
            assert!(first.flags.contains(Flags::ACK) && first.seq == BEHIND + acked);
            assert_eq!(first.data[..10], data[RIDES + acked as usize..][..10]);
        }
    }
}

#[test]
fn a_number_behind_all_that_was_sent_is_no_answer() {
    let (mut p, visit, _) = visits(&stream(3000));
    p.send(accepts(&visit).ack(BEHIND + (3000 - RIDES) as u32 + 1));
    p.expect().is_rst();
    assert_eq!(p.state(visit.id), StateName::SynSent);
}

#[test]
fn a_refusal_sends_all_again_at_once_under_the_handshakes_numbers() {
    let data = stream(8192);
    let (mut p, visit, followers) = visits(&data);
    assert_eq!(followers.len(), 7);
    p.pass(50);
    let refusal = crate::visitor::reply_with(Status::UnknownVerifier, visit.tag);
    p.send(seg().syn().mss(1176).option(&refusal).ack(1));
    let again = p.drain();
    assert!(again.iter().all(|got| got.flags.contains(Flags::ACK)));
    assert_eq!(joined(&again, 1), data);
    let info = p.stack.info(visit.id).unwrap();
    assert_eq!((info.cwnd, info.totals.retransmits), (11_760, 0));
}

#[test]
fn a_syn_that_goes_again_goes_alone_and_plain() {
    let data = stream(3000);
    let (mut p, visit, _) = visits(&data);
    p.pass(1_100);
    p.expect().is_syn().empty();
    p.quiet();
    // The segments that followed the first SYN were lost with it. They are retransmitted with the ACK, at once.
    p.send(accepts(&visit).ack(BEHIND));
    let rest = p.drain();
    assert!(rest.iter().all(|got| got.flags.contains(Flags::ACK)));
    assert_eq!(joined(&rest, BEHIND), data[RIDES..]);
    assert_eq!(p.stack.info(visit.id).unwrap().cwnd, 11_760);
    // An acknowledgement of followers that arrived after all does not count as one of data that was never sent.
    p.send(seg().seq(1).ack(BEHIND + (3000 - RIDES) as u32));
    p.pass(5_000);
    p.quiet();
}

/// A router passes neither the SYN nor its followers. A plain SYN follows at once, alone, and the data follows in
/// small segments.
#[test]
fn a_router_that_takes_less_gets_a_plain_syn() {
    let data = stream(3000);
    let (mut p, visit, followers) = visits(&data);
    for too_big in [&visit.syn, &followers[0]] {
        p.icmp(IcmpErrorKind::PacketTooBig { mtu: 1000 }, &too_big.packet);
    }
    let plain = p.expect().is_syn().empty();
    assert_eq!(plain.mss, Some(1000 - 52));
    p.quiet();
    p.send(seg().syn().mss(1176).sack_ok().ack(1));
    let sent: Vec<Got> = p.drain().into_iter().filter(|got| !got.data.is_empty()).collect();
    assert!(sent.iter().all(|got| got.data.len() <= 1000 - 52));
    assert_eq!(joined(&sent, 1), data);
}
