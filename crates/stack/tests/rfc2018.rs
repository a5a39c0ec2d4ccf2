//! Which SACK blocks a receiver sends (RFC 2018 §4, §8).

use crate::peer::{Peer, Seg, seg};

/// An open connection with SACK.
fn open() -> Peer {
    let mut p = Peer::new();
    let listener = p.listen();
    p.open_passive(listener, seg().mss(1460).sack_ok());
    p
}

/// The n-th hundred bytes of the peer's stream, counted from 0.
fn at(n: u32) -> Seg {
    seg().seq(1 + 100 * n).ack(1).bytes(100)
}

/// The block of these hundreds.
fn block(from: u32, to: u32) -> (u32, u32) {
    (1 + 100 * from, 1 + 100 * to)
}

/// The first block is that of the newest segment, also if that segment was there before (its D-SACK block comes
/// first).
//= rfc2018 4-e 8-a test
#[test]
fn a_duplicate_behind_a_hole_is_reported_first() {
    let mut p = open();
    p.send(at(2));
    p.expect().sack(&[block(2, 3)]);
    p.send(at(6));
    p.expect().sack(&[block(6, 7), block(2, 3)]);
    p.send(at(2));
    p.expect().sack(&[block(2, 3), block(2, 3), block(6, 7)]);
    p.send(at(0));
    p.expect().ack(101).sack(&[block(2, 3), block(6, 7)]);
}

/// A block that grows is one block. The other blocks keep their order after it.
//= rfc2018 4-g test
#[test]
fn a_growing_block_does_not_push_others_out() {
    let mut p = open();
    for n in [2, 20, 6, 7, 8] {
        p.send(at(n));
    }
    let last = p.drain().pop().unwrap();
    last.sack(&[block(6, 9), block(20, 21), block(2, 3)]);
}

/// Data without memory counts as lost on the path: it is not reported as received.
//= rfc2018 8-c test
#[test]
fn what_found_no_memory_is_not_reported() {
    let mut p = Peer::with(|c| c.limits.buffer_bytes = 0);
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1460).sack_ok());
    p.send(at(2));
    p.expect().is_ack().ack(1).sack(&[]);
    p.send(at(0));
    p.expect().is_ack().ack(1).sack(&[]);
    assert_eq!(p.read(id), b"");
}

/// 4096 islands are kept. Data that would start another island counts as lost on the path: it is reported neither
/// as received nor as a duplicate.
//= rfc2018 8-c test
#[test]
fn an_island_too_many_is_not_reported() {
    let mut p = open();
    let island = |n: u32| (201 + 2 * n, 202 + 2 * n);
    for n in 1..=4097 {
        p.send(seg().seq(island(n).0).ack(1).bytes(1));
    }
    let last = p.drain().pop().unwrap();
    last.sack(&[island(4096), island(4095), island(4094), island(1)]);
}
