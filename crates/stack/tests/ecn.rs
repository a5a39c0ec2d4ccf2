//! Explicit congestion notification (RFC 3168), packet by packet.

use crate::peer::{Got, Peer, Seg, seg};
use firstflight_stack::{Config, ConnId};
use firstflight_tcp::EcnPolicy;
use firstflight_tcp::congestion::Algorithm;
use firstflight_wire::ip::{Ecn, Packet};
use firstflight_wire::tcp::Flags;

const MSS: u32 = 1_000;
const RTT: u64 = 100;

fn set(algorithm: Algorithm, policy: EcnPolicy) -> impl FnOnce(&mut Config) {
    move |c| {
        c.tcp.set_congestion(algorithm);
        c.tcp.set_ecn(policy);
    }
}

fn with(policy: EcnPolicy) -> Peer {
    Peer::with(set(Algorithm::NewReno, policy))
}

fn open() -> (Peer, ConnId) {
    opened(with(EcnPolicy::Accept))
}

/// A client that asks for ECN has opened a connection.
fn opened(mut p: Peer) -> (Peer, ConnId) {
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
    assert_eq!(mark(&syn), Ecn::NotEct);
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
//= rfc9293 SHLD-8 test
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
//= rfc9293 SHLD-8 test
#[test]
fn only_new_data_may_be_marked() {
    let tune = || set(Algorithm::NewReno, EcnPolicy::Accept);
    for p in [Peer::with(tune()), Peer::v6(tune())] {
        let (mut p, id) = opened(p);
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
}

/// §6.1.3: a mark is echoed on every segment until the peer reports that it slowed down.
//= rfc9293 SHLD-8 test
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

/// §6.1.2: an echo halves the window once in a round trip, and the next new data reports it. CUBIC keeps seven tenths.
//= rfc9293 SHLD-8 test
#[test]
fn an_echo_halves_the_window_once() {
    for (algorithm, left) in [(Algorithm::NewReno, 5), (Algorithm::Cubic, 7)] {
        let (mut p, id) = opened(Peer::with(set(algorithm, EcnPolicy::Accept)));
        p.write(id, &[0; 60_000]);
        assert_eq!(p.drain().len(), 10);
        p.pass(RTT);
        let mut new = Vec::new();
        for n in 1..=10 {
            p.send(ack(n).ece());
            new.extend(p.drain());
        }
        assert!((left..=left + 1).contains(&new.len()), "{new:?}");
        let cwr: Vec<bool> = new.iter().map(|g| g.flags.contains(Flags::CWR)).collect();
        assert_eq!(cwr.iter().position(|c| *c), Some(0), "{new:?}");
        assert_eq!(cwr.iter().filter(|c| **c).count(), 1);
        assert_eq!(p.stack.info(id).unwrap().totals.retransmits, 0);
        p.pass(RTT);
        p.send(ack(11));
        assert!(cwnd(&p, id).abs_diff(left as u32) <= 1, "{}", cwnd(&p, id));
    }
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

/// A segment that seemed lost and was only late undoes the reduction for it, but not the one for a mark, whichever came
/// first.
//= rfc9293 SHLD-8 test
#[test]
fn a_reduction_for_a_mark_is_not_undone() {
    let hole = |n: u32| ack(1).sack(&[(nth(2), nth(n))]);
    for (segs, undone) in
        [([hole(6), hole(7)], true), ([ack(1).ece(), hole(6)], false), ([hole(6), hole(7).ece()], false)]
    {
        let (mut p, id) = open();
        p.write(id, &[0; 10_000]);
        p.drain();
        p.pass(RTT);
        for seg in segs {
            p.send(seg);
        }
        assert!(p.drain().iter().any(|got| got.seq == nth(1)), "nothing went again");
        p.pass(RTT);
        // It arrived twice.
        p.send(ack(10).sack(&[(nth(1), nth(2))]));
        assert_eq!(cwnd(&p, id) >= 10, undone, "{} segments", cwnd(&p, id));
    }
}

/// BBR's window doubles in each round trip of its startup, which a mark ends.
//= rfc9293 SHLD-8 test
#[test]
fn an_echo_ends_the_startup_of_bbr() {
    let grown = |marked: bool| {
        let (mut p, id) = opened(Peer::with(set(Algorithm::Bbr, EcnPolicy::Accept)));
        let mut sent = 0;
        for round in 0..4 {
            p.write(id, &[0; 100_000]);
            p.pass(RTT);
            sent += p.drain().len() as u32;
            p.send(if marked && round == 1 { ack(sent).ece() } else { ack(sent) });
        }
        cwnd(&p, id)
    };
    assert!(grown(true) < grown(false) * 2 / 3, "{} of {}", grown(true), grown(false));
}
