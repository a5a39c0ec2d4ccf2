//! Explicit congestion notification (RFC 3168), packet by packet.

use crate::peer::{Got, Peer, Seg, seg};
use firstflight_stack::ConnId;
use firstflight_tcp::EcnPolicy;
use firstflight_tcp::congestion::Algorithm;
use firstflight_wire::ip::{Ecn, Packet};
use firstflight_wire::tcp::Flags;

const MSS: u32 = 1_000;
const RTT: u64 = 100;

fn with(policy: EcnPolicy) -> Peer {
    let mut p = Peer::with(|c| {
        c.tcp.congestion = Algorithm::NewReno;
        c.tcp.ecn = policy;
    });
    p.handshake_ms = RTT;
    p
}

/// A client that asks for ECN has opened a connection.
fn open() -> (Peer, ConnId) {
    let mut p = with(EcnPolicy::Accept);
    let listener = p.listen();
    p.send(seg().syn().ece().cwr().mss(MSS as u16).sack_ok());
    let answer = p.sent.pop_front().unwrap();
    assert_eq!(answer.flags, Flags::SYN.union(Flags::ACK).union(Flags::ECE), "{answer:?}");
    assert_eq!(mark(&answer), Ecn::NotEct);
    p.pass(RTT);
    p.send(seg().seq(1).ack(1));
    let id = p.accept(listener);
    (p, id)
}

fn mark(got: &Got) -> Ecn {
    Packet::parse(&got.packet).unwrap().ecn
}

fn nth(n: u32) -> u32 {
    1 + n * MSS
}

fn ack(n: u32) -> Seg {
    seg().seq(1).ack(nth(n))
}

fn cwnd(p: &Peer, id: ConnId) -> u32 {
    p.stack.info(id).unwrap().cwnd / MSS
}

/// §6.1.1: which SYNs ask for ECN, and which SYN-ACKs agree.
//= rfc9293 SHLD-8 test
#[test]
fn both_ends_must_want_it() {
    let mut p = with(EcnPolicy::Ask);
    p.connect(b"", false);
    let syn = p.sent.pop_front().unwrap();
    assert_eq!(syn.flags, Flags::SYN.union(Flags::ECE).union(Flags::CWR));
    // A path that loses such SYNs gets one without the request (§6.1.1.1).
    p.pass(1_010);
    assert_eq!(p.sent.pop_front().unwrap().flags, Flags::SYN);
    for (policy, syn, wanted) in [
        (EcnPolicy::Off, seg().ece().cwr(), false),
        (EcnPolicy::Accept, seg(), false),
        (EcnPolicy::Accept, seg().ece(), false),
        (EcnPolicy::Accept, seg().ece().cwr(), true),
    ] {
        let mut p = with(policy);
        p.listen();
        p.send(syn.syn());
        assert_eq!(p.sent.pop_front().unwrap().flags.contains(Flags::ECE), wanted);
    }
}

/// A SYN-ACK with both flags comes from a peer that copies them (§6.1.1).
#[test]
fn a_syn_ack_that_only_copies_is_no_agreement() {
    for (answer, wanted) in [(seg().ece(), Ecn::Ect0), (seg().ece().cwr(), Ecn::NotEct), (seg(), Ecn::NotEct)]
    {
        let mut p = with(EcnPolicy::Ask);
        let id = p.connect(b"", false);
        p.drain();
        p.send(answer.syn().ack(1));
        p.drain();
        p.write(id, b"data");
        assert_eq!(mark(&p.sent[0]), wanted);
    }
}

/// §6.1.4, §6.1.5: new data may be marked. Retransmissions and bare acknowledgements may not.
#[test]
fn only_new_data_may_be_marked() {
    let (mut p, id) = open();
    p.write(id, &[0; 3_000]);
    assert!(p.drain().iter().all(|g| mark(g) == Ecn::Ect0));
    p.pass(800);
    let again = p.drain();
    assert!(!again.is_empty() && again.iter().all(|g| mark(g) == Ecn::NotEct), "{again:?}");
    p.send(ack(3));
    p.send(seg().seq(1).ack(nth(3)).bytes(1_000));
    p.pass(100);
    assert_eq!(mark(&p.sent[0]), Ecn::NotEct);
}

/// §6.1.3: a mark is echoed on every segment until the peer reports that it slowed down.
#[test]
fn a_mark_is_echoed_until_cwr() {
    let (mut p, id) = open();
    p.ecn = Ecn::Ce;
    p.send(seg().seq(1).ack(1).bytes(100));
    p.ecn = Ecn::Ect0;
    let first = p.sent.pop_front().expect("at once");
    assert_eq!(first.flags, Flags::ACK.union(Flags::ECE));
    p.write(id, b"x");
    assert!(p.sent.pop_front().unwrap().flags.contains(Flags::ECE));
    p.send(seg().seq(101).ack(2).cwr().bytes(100));
    p.pass(100);
    assert!(p.drain().iter().all(|g| !g.flags.contains(Flags::ECE)));
    // A mark on the segment with that report counts again.
    p.ecn = Ecn::Ce;
    p.send(seg().seq(201).ack(2).cwr().bytes(100));
    assert!(p.sent.pop_front().unwrap().flags.contains(Flags::ECE));
}

/// §6.1.2: an echo halves the window once in a round trip, and the next new data reports it.
//= rfc9293 SHLD-8 test
#[test]
fn an_echo_halves_the_window_once() {
    let (mut p, id) = open();
    p.write(id, &[0; 60_000]);
    assert_eq!(p.drain().len(), 10);
    p.pass(RTT);
    let mut new = Vec::new();
    for n in 1..=10 {
        p.send(ack(n).ece());
        new.extend(p.drain());
    }
    assert!((5..=6).contains(&new.len()), "{new:?}");
    let cwr: Vec<bool> = new.iter().map(|g| g.flags.contains(Flags::CWR)).collect();
    assert_eq!(cwr.iter().position(|c| *c), Some(0), "{new:?}");
    assert_eq!(cwr.iter().filter(|c| **c).count(), 1);
    assert_eq!(p.stack.info(id).unwrap().totals.retransmits, 0);
    p.pass(RTT);
    p.send(ack(11));
    assert!((4..=6).contains(&cwnd(&p, id)), "{}", cwnd(&p, id));
}

/// This also holds if the echo acknowledges everything in flight.
//= rfc9293 SHLD-8 test
#[test]
fn an_echo_counts_though_nothing_is_left_under_way() {
    let (mut p, id) = open();
    p.write(id, &[0; 8_000]);
    assert_eq!(p.drain().len(), 8);
    p.pass(RTT);
    p.send(ack(8).ece());
    p.write(id, &[0; 60_000]);
    let new = p.drain();
    assert!(new[0].flags.contains(Flags::CWR), "{new:?}");
    p.pass(RTT);
    let sent = 8 + new.len() as u32;
    p.send(ack(sent));
    assert!((3..=5).contains(&cwnd(&p, id)), "{}", cwnd(&p, id));
}

/// §6.1.2: the next new data also reports a reduction for a loss, whether SACK shows it, a timeout, or the answer to a
/// tail loss probe.
//= rfc9293 SHLD-8 test
#[test]
fn a_reduction_for_a_loss_is_reported() {
    let sacked = |p: &mut Peer, _: ConnId| {
        p.send(ack(0).sack(&[(nth(1), nth(9))]));
        p.pass(RTT);
        p.send(ack(9));
    };
    let timed_out = |p: &mut Peer, _: ConnId| {
        p.pass(3_000);
        p.send(ack(9));
    };
    let probed = |p: &mut Peer, id: ConnId| {
        p.send(ack(8));
        p.pass(320);
        p.send(ack(9));
        p.write(id, &[0; 1_000]);
        p.pass(RTT);
        p.send(ack(10));
    };
    for (lose, n) in [(sacked as fn(&mut Peer, ConnId), 9), (timed_out, 9), (probed, 10)] {
        let (mut p, id) = open();
        p.write(id, &[0; 9_000]);
        p.pass(RTT);
        lose(&mut p, id);
        let before = p.drain();
        assert!(before.iter().any(|got| got.seq < nth(9) && mark(got) == Ecn::NotEct), "nothing went again");
        assert!(before.iter().all(|got| !got.flags.contains(Flags::CWR)), "{before:?}");
        p.write(id, &[0; 2_000]);
        let cwr: Vec<bool> = p.drain().iter().map(|got| got.flags.contains(Flags::CWR)).collect();
        assert_eq!(cwr, [true, false], "behind {n} segments");
    }
}
