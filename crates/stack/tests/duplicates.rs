//! Segments that arrive twice are reported (D-SACK, RFC 2883), packet by packet.

use crate::peer::{Peer, Seg, seg};
use firstflight_stack::ConnId;

const MSS: u32 = 1_000;

fn open(syn: Seg) -> (Peer, ConnId) {
    let mut p = Peer::new();
    let listener = p.listen();
    let id = p.open_passive(listener, syn.mss(MSS as u16));
    (p, id)
}

fn nth(n: u32) -> u32 {
    1 + n * MSS
}

fn data(n: u32) -> Seg {
    seg().seq(nth(n)).ack(1).bytes(1_000)
}

/// RFC 2883 §4.1: a whole segment that arrives again is reported once.
#[test]
fn a_segment_below_the_window() {
    let (mut p, _) = open(seg().sack_ok());
    p.send(data(0));
    p.send(data(1));
    p.expect().ack(nth(2)).sack(&[]);
    p.send(data(0));
    p.expect().ack(nth(2)).sack(&[(nth(0), nth(1))]);
    p.send(data(2));
    p.send(data(3));
    p.expect().ack(nth(4)).sack(&[]);
}

/// §4.1, third example: a segment above a hole arrives again. Its block comes first, then the block that contains
/// it.
#[test]
fn a_segment_above_a_hole() {
    let (mut p, _) = open(seg().sack_ok());
    p.send(data(1));
    p.expect().ack(1).sack(&[(nth(1), nth(2))]);
    p.send(data(2));
    p.expect().ack(1).sack(&[(nth(1), nth(3))]);
    p.send(data(1));
    p.expect().ack(1).sack(&[(nth(1), nth(2)), (nth(1), nth(3))]);
    p.send(data(4));
    p.expect().ack(1).sack(&[(nth(4), nth(5)), (nth(1), nth(3))]);
    p.send(data(4));
    p.expect().ack(1).sack(&[(nth(4), nth(5)), (nth(4), nth(5)), (nth(1), nth(3))]);
}

/// The original that arrives after its retransmission has an older timestamp (PAWS, RFC 7323 §5.3). It is still
/// reported, as in Linux, however many arrive. Nothing else shows the sender that it slowed down without need.
#[test]
fn originals_that_their_repetitions_overtook() {
    let (mut p, id) = open(seg().sack_ok().ts(100));
    for n in 0..20 {
        p.send(data(n).ts(120 + n));
        p.drain();
    }
    for n in (0..20).rev() {
        p.send(data(n).ts(110));
        p.expect().ack(nth(20)).sack(&[(nth(n), nth(n + 1))]);
    }
    p.quiet();
    assert_eq!(p.read(id).len(), 20 * MSS as usize, "once");
}

/// §4.2: of a segment that is new in part, only the rest is reported.
#[test]
fn the_part_of_a_segment() {
    let (mut p, _) = open(seg().sack_ok());
    p.send(data(0));
    p.send(data(1));
    p.expect().ack(nth(2));
    p.send(seg().seq(nth(1) + 500).ack(1).bytes(1_000));
    p.at(100);
    p.expect().ack(nth(2) + 500).sack(&[(nth(1) + 500, nth(2))]);
}

/// A peer that did not ask for SACK gets no block (RFC 2018 §2).
#[test]
fn the_first_of_several_that_a_segment_reaches_over() {
    let (mut p, _) = open(seg().sack_ok());
    for n in [1, 2, 4, 7] {
        p.send(data(n));
        p.expect().ack(nth(0));
    }
    p.send(seg().seq(nth(0)).ack(1).bytes(6_000));
    p.expect().ack(nth(6)).sack(&[(nth(1), nth(3)), (nth(7), nth(8))]);
    // The segment repeats old data, and its end lies behind the end of that data.
    p.send(seg().seq(nth(6)).ack(1).bytes(1_500));
    p.expect().ack(nth(8)).sack(&[(nth(7), nth(7) + 500)]);
}

#[test]
fn nothing_without_sack() {
    let (mut p, _) = open(seg());
    p.send(data(0));
    p.send(data(1));
    p.drain();
    p.send(data(0));
    p.expect().ack(nth(2)).sack(&[]);
}
