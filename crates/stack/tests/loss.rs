//! Losses: timeouts, fast retransmit, SACK, packet by packet.

use crate::peer::{Got, Peer, Seg, seg};
use firstflight_stack::{CloseReason, ConnId};
use firstflight_tcp::Config;
use firstflight_tcp::congestion::Algorithm;

/// The peer's MSS: 1,000 makes numbers easy to read.
const MSS: u32 = 1_000;

/// Round-trip time of the path with SACK, ms, because RACK uses times.
const RTT: u64 = 20;

fn open_with(syn: Seg, tune: impl FnOnce(&mut Config)) -> (Peer, ConnId) {
    open_path(syn, 0, tune)
}

fn open_path(syn: Seg, rtt: u64, tune: impl FnOnce(&mut Config)) -> (Peer, ConnId) {
    let mut p = Peer::with(|c| {
        c.tcp.set_congestion(Algorithm::NewReno);
        tune(&mut c.tcp);
    });
    p.handshake_ms = rtt;
    let listener = p.listen();
    let id = p.open_passive(listener, syn.mss(MSS as u16));
    (p, id)
}

fn open() -> (Peer, ConnId) {
    open_with(seg(), |_| {})
}

/// With SACK, on a path of [`RTT`] ms.
fn open_sack() -> (Peer, ConnId) {
    open_path(seg().sack_ok(), RTT, |_| {})
}

/// Number of the n-th full segment's first byte, counted from 0.
fn nth(n: u32) -> u32 {
    1 + n * MSS
}

fn ack(n: u32) -> Seg {
    seg().seq(1).ack(nth(n))
}

/// The segments with these indices and no others, each full.
#[track_caller]
fn segments(got: Vec<Got>, wanted: impl IntoIterator<Item = u32>) {
    let seqs: Vec<u32> = got.iter().map(|g| g.seq).collect();
    let wanted: Vec<u32> = wanted.into_iter().map(nth).collect();
    assert_eq!(seqs, wanted, "{got:?}");
    assert!(got.iter().all(|g| g.data.len() == MSS as usize), "{got:?}");
}

fn cwnd(p: &Peer, id: ConnId) -> u32 {
    p.stack.info(id).unwrap().cwnd / MSS
}

// --- timeouts ------------------------------------------------------------------------------------

/// RFC 6298 §2.3, §5.5–5.7: SRTT + max(G, 4·RTTVAR) with a floor, doubled each time, collapsed by
/// the acknowledgement of new data.
//= rfc6298 2.2-a 3-a 3-b 5-a 5-b 5.5-a test
//= rfc9293 MUST-18 MUST-19 test
#[test]
fn rto_backs_off_and_collapses() {
    let mut p = Peer::with(|c| c.tcp.set_congestion(Algorithm::NewReno));
    let listener = p.listen();
    p.send(seg().syn().mss(1000));
    p.expect().syn_ack();
    p.at(100);
    p.send(seg().seq(1).ack(1));
    let id = p.accept(listener);
    // First sample R = 100 ms: RTO = R + 4 · R/2 = 300 ms.
    p.write(id, &[0; 1000]);
    let sent = p.sends_at(5_000, &[100, 400, 1_000, 2_200, 4_600]);
    assert!(sent.into_iter().all(|g| g.seq == 1));
    assert_eq!(cwnd(&p, id), 1);
    p.send(ack(1));
    p.write(id, &[0; 1000]);
    let now = p.ms();
    // Karn: the acknowledgement was ambiguous, so it gave no sample.
    p.sends_at(now + 500, &[now, now + 300]);
}

/// R2 (RFC 9293 §3.8.3): the connection is given up silently after `retries` retransmissions in a row.
//= rfc9293 MUST-20 MUST-21 test
#[test]
fn data_is_given_up() {
    let (mut p, id) = open_with(seg(), |c| c.set_retries(3));
    p.write(id, b"x");
    let sent = p.sends_at(60_000, &[0, 200, 600, 1_400]);
    assert!(sent.into_iter().all(|g| g.seq == 1));
    assert_eq!(p.reason(id), Some(CloseReason::TimedOut));
    p.release(id);
    assert_eq!((p.stack.connections(), p.stack.buffer_bytes()), (0, 0));
}

/// RFC 5681 §3.1: one segment after a timeout, then slow start over what was lost.
//= rfc9293 MUST-19 test
#[test]
fn slow_start_after_a_timeout_sends_everything_again() {
    let (mut p, id) = open();
    p.write(id, &[0; 6_000]);
    segments(p.drain(), 0..6);
    p.at(250);
    segments(p.drain(), [0]);
    p.send(ack(1));
    segments(p.drain(), [1, 2]);
    p.send(ack(3));
    segments(p.drain(), [3, 4, 5]);
    p.send(ack(6));
    p.quiet();
    // ssthresh is half of the six segments in flight.
    p.write(id, &[0; 50_000]);
    assert!(cwnd(&p, id) <= 4, "{}", cwnd(&p, id));
}

/// A late acknowledgement after a timeout covers everything, so nothing more is sent twice.
#[test]
fn an_acknowledgement_of_everything_ends_the_timeout() {
    let (mut p, id) = open();
    p.write(id, &[0; 6_000]);
    p.drain();
    p.at(250);
    segments(p.drain(), [0]);
    p.send(ack(6));
    p.quiet();
    p.write(id, &[0; 1_000]);
    segments(p.drain(), [6]);
}

// --- fast retransmit without SACK -------------------------------------------------------------------

/// RFC 5681 §3.2: fast retransmit at the third duplicate. RFC 3042: the first two duplicates let new segments
/// leave.
#[test]
fn fast_retransmit_and_limited_transmit() {
    let (mut p, id) = open();
    p.write(id, &[0; 30_000]);
    segments(p.drain(), 0..10);
    p.send(ack(0));
    segments(p.drain(), [10]);
    p.send(ack(0));
    segments(p.drain(), [11]);
    p.send(ack(0));
    segments(p.drain(), [0]);
    // ssthresh = FlightSize / 2, with twelve segments in flight (RFC 5681 §3.2 excludes the ones that limited
    // transmit sent; this range covers both readings).
    assert!((5..=6).contains(&cwnd(&p, id)), "{}", cwnd(&p, id));
    // Inflation: each duplicate shows that a segment has arrived, which makes room in the end.
    for _ in 0..9 {
        p.send(ack(0));
    }
    let new = p.drain();
    assert!((3..=6).contains(&new.len()) && new[0].seq == nth(12), "{new:?}");
    // A full acknowledgement: recovery is over, and the window is deflated.
    p.send(ack(12 + new.len() as u32));
    assert!((5..=7).contains(&cwnd(&p, id)));
}

/// RFC 6582 §3.2: each partial acknowledgement means the next segment was lost too.
#[test]
fn newreno_partial_acknowledgements() {
    let (mut p, id) = open();
    p.write(id, &[0; 10_000]);
    segments(p.drain(), 0..10);
    // Lost: 0, 3, 6.
    for _ in 0..7 {
        p.send(ack(0));
    }
    segments(p.drain(), [0]);
    p.send(ack(3));
    segments(p.drain(), [3]);
    p.send(ack(6));
    segments(p.drain(), [6]);
    p.send(ack(10));
    p.quiet();
    assert_eq!(p.stack.info(id).unwrap().totals.retransmits, 3);
}

/// RFC 5681 §2: a duplicate has no data and the same window, while something is outstanding.
#[test]
fn other_segments_are_no_duplicates() {
    let (mut p, id) = open();
    p.write(id, &[0; 5_000]);
    segments(p.drain(), 0..5);
    // Data of the peer.
    for n in 0..4 {
        p.send(seg().seq(1 + n * 10).ack(1).bytes(10));
    }
    // Window updates.
    for n in 0..4 {
        p.send(seg().seq(41).ack(1).win(60_000 + n));
    }
    assert!(p.drain().iter().all(|g| g.data.is_empty()));
    assert_eq!(p.stack.info(id).unwrap().totals.retransmits, 0);
}

// --- with SACK --------------------------------------------------------------------------------------

/// RFC 6675 §5: only the holes are sent again.
//= rfc2018 5-a 5.1-a test
//= rfc6675 4-c 5-a test
//= rfc8985 3.3.2-a 4-a test
#[test]
fn sack_recovery_sends_exactly_the_holes() {
    let (mut p, id) = open_sack();
    // More than the window: without new data to send there would be a rescue retransmission, too.
    p.write(id, &[0; 40_000]);
    segments(p.drain(), 0..10);
    p.pass(RTT);
    // Lost: 0, 3.
    let blocks = |end: u32| {
        if end > 4 { vec![(nth(4), nth(end)), (nth(1), nth(3))] } else { vec![(nth(1), nth(end.min(3)))] }
    };
    for end in [2, 3, 5, 6, 7, 8, 9, 10] {
        p.send(ack(0).sack(&blocks(end)));
    }
    let (again, new): (Vec<Got>, Vec<Got>) = p.drain().into_iter().partition(|g| g.seq < nth(10));
    segments(again, [0, 3]);
    assert!(new.iter().map(|g| g.seq).eq((10..).take(new.len()).map(nth)), "{new:?}");
    p.send(ack(3).sack(&[(nth(4), nth(10))]));
    p.send(ack(10 + new.len() as u32));
    assert!(p.drain().iter().all(|g| g.seq >= nth(10)));
    assert_eq!(p.stack.info(id).unwrap().totals.retransmits, 2);
}

/// RFC 8985 §2.2: the tail of the flight was lost, too. The tail left before the retransmission, so the
/// retransmission's arrival shows the loss. Without it, only the timeout would find the loss.
//= rfc8985 4-b test
#[test]
fn rack_finds_a_lost_tail_when_the_repetition_arrives() {
    let (mut p, id) = open_sack();
    p.write(id, &[0; 10_000]);
    segments(p.drain(), 0..10);
    p.pass(RTT);
    // Lost: 0, 8, 9.
    for end in 2..=8 {
        p.send(ack(0).sack(&[(nth(1), nth(end))]));
    }
    segments(p.drain(), [0]);
    p.pass(RTT);
    p.send(ack(8));
    segments(p.drain(), [8, 9]);
    p.pass(RTT);
    p.send(ack(10));
    p.pass(3_000);
    p.quiet();
    assert_eq!(p.stack.info(id).unwrap().totals.retransmits, 3);
}

/// RFC 6675 §5: duplicates without new SACK information do not count.
#[test]
fn duplicates_without_sack_blocks_do_not_count_with_sack() {
    let (mut p, id) = open_sack();
    p.write(id, &[0; 5_000]);
    p.drain();
    p.pass(RTT);
    for _ in 0..6 {
        p.send(ack(0));
    }
    p.send(ack(0).sack(&[(nth(1), nth(2))]));
    p.send(ack(0).sack(&[(nth(1), nth(2))]));
    p.send(ack(0).sack(&[(nth(1), nth(2))]));
    p.quiet();
    assert_eq!(p.stack.info(id).unwrap().totals.retransmits, 0);
}

/// RFC 2018 §8 and RFC 2883: blocks beyond what was sent or below UNA are not believed.
#[test]
fn impossible_sack_blocks_are_ignored() {
    let (mut p, id) = open_sack();
    p.write(id, &[0; 5_000]);
    p.drain();
    for n in 0..5 {
        p.send(ack(0).sack(&[(nth(6 + n), nth(7 + n)), (nth(3), nth(2)), (0x8000_0000, 0x8000_1000)]));
    }
    p.send(ack(2).sack(&[(nth(0), nth(1))]));
    p.quiet();
    assert_eq!(p.stack.info(id).unwrap().totals.retransmits, 0);
}

/// A lost retransmission: only the timeout finds it (RFC 6675 §5.1), and SACKed segments are not sent again.
//= rfc2018 5-c 5-b 5.1-b test
//= rfc6675 5.1-a 5.1-e 5.1-f test
#[test]
fn timeout_after_a_lost_retransmission_skips_what_was_sacked() {
    let (mut p, id) = open_sack();
    p.write(id, &[0; 5_000]);
    segments(p.drain(), 0..5);
    p.pass(RTT);
    for end in 2..=4 {
        p.send(ack(0).sack(&[(nth(1), nth(end))]));
    }
    let first = p.drain();
    assert_eq!(first[0].seq, nth(0));
    p.at(400);
    let again = p.drain();
    assert_eq!(again[0].seq, nth(0), "{again:?}");
    p.send(ack(4));
    let rest = p.drain();
    assert!(rest.iter().all(|g| g.seq == nth(4)), "{rest:?}");
    p.send(ack(5));
    p.pass(3_000);
    p.quiet();
}

/// RFC 2018 §8: the receiver discarded SACKed data. After the timeout all of it is sent again.
//= rfc2018 5-c 8-d test
//= rfc6675 4-b test
#[test]
fn sack_reneging() {
    let (mut p, id) = open_sack();
    p.write(id, &[0; 4_000]);
    segments(p.drain(), 0..4);
    p.send(ack(0).sack(&[(nth(1), nth(4))]));
    p.drain();
    // The hole is filled, but the acknowledgement stops where the SACK block began, so the receiver reneged.
    p.send(ack(1).sack(&[]));
    p.at(600);
    let mut seen: Vec<u32> = Vec::new();
    for _ in 0..8 {
        for got in p.drain() {
            seen.push(got.seq);
            let next = (got.seq + got.data.len() as u32 - 1) / MSS;
            p.send(ack(next));
        }
        p.pass(700);
    }
    for n in 1..4 {
        assert!(seen.contains(&nth(n)), "{seen:?}");
    }
    assert_eq!(p.stack.info(id).unwrap().totals.bytes_acked, 4_000);
}

/// RFC 2018 §4: first the block of the segment that caused the ACK, then the most recent other blocks.
//= rfc2018 4-a 4-c 4-d 4-e 4-f 4-g 8-a test
#[test]
fn sack_blocks_most_recent_first() {
    let (mut p, _) = open_sack();
    let at = |n: u32| seg().seq(nth(n)).ack(1).bytes(1_000);
    p.send(at(2));
    p.expect().ack(1).sack(&[(nth(2), nth(3))]);
    p.send(at(6));
    p.expect().sack(&[(nth(6), nth(7)), (nth(2), nth(3))]);
    p.send(at(4));
    p.expect().sack(&[(nth(4), nth(5)), (nth(6), nth(7)), (nth(2), nth(3))]);
    p.send(at(3));
    p.expect().sack(&[(nth(2), nth(5)), (nth(6), nth(7))]);
    p.send(at(8));
    p.expect().sack(&[(nth(8), nth(9)), (nth(2), nth(5)), (nth(6), nth(7))]);
    p.send(at(0));
    p.expect().ack(nth(1)).sack(&[(nth(8), nth(9)), (nth(2), nth(5)), (nth(6), nth(7))]);
    p.send(at(1));
    p.expect().ack(nth(5)).sack(&[(nth(8), nth(9)), (nth(6), nth(7))]);
}

/// Without the peer's SACK-permitted, no blocks are sent (RFC 2018 §2).
//= rfc2018 4-b test
#[test]
fn no_sack_blocks_unless_permitted() {
    let (mut p, _) = open();
    p.send(seg().seq(nth(2)).ack(1).bytes(1_000));
    p.expect().ack(1).sack(&[]);
}

/// A flood of islands: memory and answers stay bounded, and the stream stays correct.
#[test]
fn many_islands_are_bounded() {
    let (mut p, id) = open_sack();
    for n in 0..2_000 {
        p.send(seg().seq(11 + n * 20).ack(1).bytes(10));
    }
    p.drain();
    for n in 0..4_001 {
        p.send(seg().seq(1 + n * 10).ack(1).bytes(10));
    }
    assert_eq!(p.read(id).len(), 40_010);
}

/// In loss recovery, an acknowledgement is sent with the highest number, because the peer may be ahead of UNA.
#[test]
fn bare_acks_after_a_timeout_use_the_highest_number() {
    let (mut p, id) = open();
    p.write(id, &[0; 3_000]);
    p.drain();
    p.at(250);
    segments(p.drain(), [0]);
    p.send(seg().seq(2).ack(1).bytes(5));
    p.expect().is_ack().empty().seq(3_001).ack(1);
}

/// RFC 4821 §7.7: a path drops large packets silently. After three timeouts smaller segments are sent, and later
/// larger ones are tried again.
#[test]
fn a_path_that_drops_large_segments_gets_smaller_ones() {
    let mut p = Peer::with(|c| c.tcp.set_congestion(Algorithm::NewReno));
    p.handshake_ms = RTT;
    let listener = p.listen();
    let id = p.open_passive(listener, seg().sack_ok().mss(1460));
    let data: Vec<u8> = (0..60_000u32).map(|i| (i / 7) as u8).collect();
    p.write(id, &data);
    let (mut got, mut next, mut small, mut large) = (vec![0; data.len()], 1, false, false);
    for _ in 0..3_000 {
        p.pass(RTT);
        let sent = p.drain();
        for g in sent.into_iter().filter(|g| !g.data.is_empty()) {
            large |= small && g.data.len() > 1_100;
            if g.data.len() > 1_100 {
                continue;
            }
            small = true;
            let at = g.seq as usize - 1;
            got[at..at + g.data.len()].copy_from_slice(&g.data);
            if g.seq <= next {
                next = next.max(g.seq + g.data.len() as u32);
                p.send(seg().seq(1).ack(next));
            } else {
                p.send(seg().seq(1).ack(next).sack(&[(g.seq, g.seq + g.data.len() as u32)]));
            }
        }
        if next as usize > data.len() {
            break;
        }
        if p.ms() > 40_000 && large {
            break;
        }
    }
    assert_eq!(next as usize, data.len() + 1, "at {} ms", p.ms());
    assert_eq!(got, data);
    assert!(p.ms() < 10_000, "{} ms", p.ms());
}

/// RFC 9438 §4.6: CUBIC keeps seven tenths of the window as soon as a loss shows. A window that is not filled does not
/// grow, neither in slow start nor behind it.
//= rfc9438 4.6-a 4.6-b 4.6-c test
#[test]
fn a_window_falls_at_a_loss_and_grows_only_if_it_is_filled() {
    for (algorithm, left) in [(Algorithm::Cubic, 7_000), (Algorithm::NewReno, 5_000)] {
        for lost in [false, true] {
            let (mut p, id) = open_path(seg().sack_ok(), RTT, |c| c.set_congestion(algorithm));
            let cwnd = |p: &Peer| p.stack.info(id).unwrap().cwnd;
            let mut acked = 0;
            if lost {
                p.write(id, &[0; 10_000]);
                segments(p.drain(), 0..10);
                p.pass(RTT);
                p.send(ack(0).sack(&[(nth(1), nth(10))]));
                segments(p.drain(), [0]);
                assert_eq!(cwnd(&p), left, "{algorithm}");
                p.pass(RTT);
                acked = 10;
                p.send(ack(acked));
            }
            let before = cwnd(&p);
            for _ in 0..5 {
                p.write(id, &[0; 2_000]);
                segments(p.drain(), acked..acked + 2);
                p.pass(RTT);
                acked += 2;
                p.send(ack(acked));
            }
            assert_eq!(cwnd(&p), before, "{algorithm}, lost: {lost}");
        }
    }
}

/// RFC 7661: a window that was not used for longer than a timeout is not kept. The threshold remembers it.
#[test]
fn an_unused_window_comes_down() {
    let (mut p, id) = open_sack();
    // Grow it: each round trip uses all of it.
    let mut acked = 0;
    for _ in 0..3 {
        p.write(id, &vec![0; (cwnd(&p, id) * MSS) as usize]);
        let sent = p.drain().len() as u32;
        p.pass(RTT);
        for _ in 0..sent {
            acked += 1;
            p.send(ack(acked));
        }
    }
    let grown = cwnd(&p, id);
    assert!(grown >= 40, "{grown}");
    // One segment in a round trip, for a second.
    for _ in 0..50 {
        p.write(id, &[0; MSS as usize]);
        p.drain();
        acked += 1;
        p.pass(RTT);
        p.send(ack(acked));
    }
    assert!(cwnd(&p, id) < grown / 2 && cwnd(&p, id) >= 10, "{} of {grown}", cwnd(&p, id));
}

/// A SYN-ACK that was retransmitted only because the first one was slow costs no window (the idea of RFC 3522).
#[test]
fn a_slow_syn_ack_costs_no_window() {
    for (echo_first, window) in [(true, 10), (false, 1)] {
        let mut p = Peer::new();
        let listener = p.listen();
        p.send(seg().syn().mss(MSS as u16).ts(1));
        let first = p.expect().syn_ack().ts.unwrap().value;
        p.pass(1_100);
        let second = p.expect().syn_ack().ts.unwrap().value;
        assert_ne!(first, second);
        let echo = if echo_first { first } else { second };
        p.send(seg().seq(1).ack(1).ts_echo(2, echo));
        let id = p.accept(listener);
        assert_eq!(p.stack.info(id).unwrap().cwnd / (MSS - 12).max(1) >= 9, window == 10, "{echo_first}");
    }
}

/// Duplicates after a timeout answer retransmissions for which the peer has no memory. If each of them caused
/// another retransmission, this would never end.
#[test]
fn duplicates_after_a_timeout_bring_out_nothing() {
    let (mut p, id) = open();
    p.write(id, &[0; 5_000]);
    p.drain();
    p.pass(300);
    segments(p.drain(), [0]);
    for _ in 0..20 {
        p.send(ack(0));
    }
    p.quiet();
    p.pass(500);
    segments(p.drain(), [0]);
}

/// RFC 5682 §2.1 step 2: without SACK, a number that moves past the retransmission also covers what arrived before the
/// timeout. That is no sign of a timeout that came too early.
#[test]
fn without_sack_what_waited_behind_a_repaired_loss_proves_nothing() {
    for covered in [3, 4] {
        let (mut p, id) = open();
        p.write(id, &[0; 4_000]);
        segments(p.drain(), 0..4);
        // Segment 1 is lost. The next ones arrive.
        p.send(ack(1));
        let before = cwnd(&p, id);
        p.send(ack(1));
        p.pass(300);
        segments(p.drain(), [1]);
        p.send(ack(covered));
        assert!(cwnd(&p, id) < before / 2, "{} of {before}", cwnd(&p, id));
    }
}

/// §2.1 step 3b: an acknowledgement of segments that were all sent once is the sign.
#[test]
fn without_sack_originals_alone_show_that_a_timeout_came_too_early() {
    let (mut p, id) = open();
    p.write(id, &[0; 30_000]);
    segments(p.drain(), 0..10);
    p.pass(300);
    segments(p.drain(), [0]);
    assert_eq!(cwnd(&p, id), 1);
    p.send(ack(1));
    segments(p.drain(), [10, 11]);
    p.send(ack(2));
    assert!(cwnd(&p, id) >= 10, "{}", cwnd(&p, id));
}

/// 4096 ranges are kept. Data that would start another range is not kept, and not reported as a duplicate either.
#[test]
fn what_is_not_kept_is_no_duplicate() {
    let (mut p, _) = open_sack();
    for n in 0..4100 {
        p.send(seg().seq(11 + n * 10).ack(1).bytes(5));
        let got = p.expect();
        assert!(n >= 4096 || got.sack[0] == (11 + n * 10, 16 + n * 10), "{got:?}");
        assert!(n < 4096 || got.sack[0].0 < 11 + 4096 * 10, "{got:?}");
    }
}
