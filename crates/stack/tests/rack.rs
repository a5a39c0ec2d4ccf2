//! RACK-TLP (RFC 8985), proportional rate reduction (RFC 9937) and the detection of needless reductions (RFC 3522,
//! RFC 3708, RFC 5682), packet by packet.

use crate::peer::{Got, Peer, Seg, seg};
use firstflight_stack::ConnId;
use firstflight_tcp::congestion::Algorithm;

const MSS: u32 = 1_000;
/// Round-trip time of the path, ms.
const RTT: u64 = 100;

/// An open connection with SACK, and with timestamps if `ts`.
fn open(ts: bool) -> (Peer, ConnId) {
    let mut p = Peer::with(|c| c.tcp.set_congestion(Algorithm::NewReno));
    p.handshake_ms = RTT;
    let listener = p.listen();
    let mut syn = seg().mss(MSS as u16).sack_ok();
    if ts {
        syn = syn.ts(1);
    }
    let id = p.open_passive(listener, syn);
    (p, id)
}

fn nth(n: u32) -> u32 {
    1 + n * MSS
}

fn ack(n: u32) -> Seg {
    seg().seq(1).ack(nth(n))
}

fn sack(n: u32, blocks: &[(u32, u32)]) -> Seg {
    let blocks: Vec<_> = blocks.iter().map(|b| (nth(b.0), nth(b.1))).collect();
    ack(n).sack(&blocks)
}

#[track_caller]
fn segments(got: &[Got], wanted: impl IntoIterator<Item = u32>) {
    let seqs: Vec<u32> = got.iter().map(|g| g.seq).collect();
    assert_eq!(seqs, wanted.into_iter().map(nth).collect::<Vec<_>>(), "{got:?}");
}

fn cwnd(p: &Peer, id: ConnId) -> u32 {
    p.stack.info(id).unwrap().cwnd / MSS
}

// --- tail loss probes --------------------------------------------------------------------------

/// RFC 8985 §7.2: two round trips after the last segment of an unacknowledged flight, that segment is sent again.
/// The answer shows the other losses.
//= rfc8985 7.2-a 7.3-d 7.3-e test
#[test]
fn a_probe_repairs_a_lost_tail_without_a_timeout() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 5_000]);
    segments(&p.drain(), 0..5);
    p.pass(RTT);
    p.send(ack(3));
    // 2 · SRTT and 2 ms.
    let now = p.ms();
    let probe = p.sends_at(now + 250, &[now + 202]);
    segments(&probe, [4]);
    p.pass(RTT);
    p.send(sack(3, &[(4, 5)]));
    // The other lost segment left before it, so RACK's time shows that it is lost.
    segments(&p.drain(), [3]);
    p.pass(RTT);
    p.send(ack(5));
    p.pass(5_000);
    p.quiet();
    // It was a loss, so congestion control reacts.
    assert!(cwnd(&p, id) < 10, "{}", cwnd(&p, id));
}

/// §7.3: new data makes a better probe.
//= rfc8985 7.3-c test
#[test]
fn a_probe_takes_new_data_if_there_is_any() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 15_000]);
    segments(&p.drain(), 0..10);
    let now = p.ms();
    segments(&p.sends_at(now + 250, &[now + 202]), [10]);
}

/// §7.4.1: a single segment waits for a delayed acknowledgement. The probe is sent at the time of the timeout, and
/// an acknowledgement that comes twice shows that nothing was lost.
#[test]
fn a_probe_for_nothing_costs_no_window() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 1_000]);
    p.drain();
    let now = p.ms();
    // RTO = 100 + 4 · 50 = 300 ms.
    segments(&p.sends_at(now + 310, &[now + 300]), [0]);
    p.send(ack(1));
    p.send(sack(1, &[(0, 1)]));
    p.write(id, &[0; 9_000]);
    p.drain();
    p.pass(RTT);
    p.send(ack(10));
    assert!(cwnd(&p, id) >= 10);
}

/// §6.2 step 3: a segment was overtaken if a later one was acknowledged before it, but not if one acknowledgement
/// covers both, whatever it names first.
#[test]
fn what_one_acknowledgement_tells_of_was_not_overtaken() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 10_000]);
    segments(&p.drain(), 0..10);
    p.pass(RTT);
    // Without reordering three SACKed segments prove a loss at once.
    p.send(sack(1, &[(6, 10), (3, 4)]));
    segments(&p.drain(), [1, 2, 4, 5]);
    assert_eq!(p.stack.connection(id).unwrap().reordering(), 3);
}

/// §7.2: a probe that is due at the time of the timeout is sent instead of it, and the timeout restarts. Only after
/// it the time doubles.
//= rfc8985 7.2-c test
#[test]
fn a_probe_goes_instead_of_the_timeout() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 1_000]);
    p.drain();
    let now = p.ms();
    let sent = p.sends_at(now + 1_500, &[now + 300, now + 600, now + 1_200]);
    segments(&sent, [0, 0, 0]);
}

/// §7.3: a path that became longer than two round trips is not probed for each flight: without a new measurement,
/// there is no other probe.
//= rfc8985 7.3-a 7.3-b test
#[test]
fn a_longer_path_is_not_probed_for_each_flight() {
    let (mut p, id) = open(false);
    for n in 1..=4 {
        p.write(id, &[0; 2_000]);
        p.drain();
        p.pass(260);
        p.send(ack(2 * n));
        p.pass(100);
        p.send(sack(2 * n, &[(2 * n - 1, 2 * n)]));
        p.drain();
    }
    // Probes for the first and the third flight: one measurement of 260 ms makes SRTT 120.
    assert_eq!(p.stack.info(id).unwrap().totals.retransmits, 2);
}

/// §7.4.2: the probe repaired a loss. Without a D-SACK the window is halved.
//= rfc8985 7.4.2-a 7.4.2-b test
#[test]
fn a_probe_that_repaired_a_loss_is_congestion() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 10_000]);
    p.drain();
    p.pass(RTT);
    p.send(ack(9));
    let before = cwnd(&p, id);
    p.pass(320);
    segments(&p.drain(), [9]);
    p.pass(RTT);
    p.send(ack(10));
    p.write(id, &[0; 1_000]);
    p.drain();
    p.pass(RTT);
    p.send(ack(11));
    assert!(cwnd(&p, id) < before, "{} of {before}", cwnd(&p, id));
    assert_eq!(p.stack.info(id).unwrap().totals.retransmits, 1);
}

/// §7.2: at most one probe in flight, then the timeout.
//= rfc8985 7.3-f test
#[test]
fn after_the_probe_the_timeout() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 2_000]);
    segments(&p.drain(), 0..2);
    let now = p.ms();
    let sent = p.sends_at(now + 1_000, &[now + 202, now + 502]);
    segments(&sent, [1, 0]);
    assert_eq!(cwnd(&p, id), 1);
}

// --- RACK ----------------------------------------------------------------------------------------

/// RFC 8985 §6.2: fewer than three segments show that something is missing. A quarter of the round-trip time later
/// it counts as lost.
//= rfc8985 3.3.2-b 6.2-b test
#[test]
fn two_segments_after_a_loss_are_enough_with_time() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 3_000]);
    segments(&p.drain(), 0..3);
    p.pass(RTT);
    p.send(sack(0, &[(1, 3)]));
    let now = p.ms();
    segments(&p.sends_at(now + 60, &[now + 25]), [0]);
}

/// RFC 8985 §6.2 step 5: the wait for late segments goes on, whatever else the peer sends meanwhile.
//= rfc8985 6.2-b test
#[test]
fn an_acknowledgement_without_news_does_not_end_the_wait() {
    let same = || sack(0, &[(1, 3)]);
    for (n, other) in [same(), same().win(64_000), same().data(b"data"), ack(0)].into_iter().enumerate() {
        let (mut p, id) = open(false);
        p.write(id, &[0; 3_000]);
        segments(&p.drain(), 0..3);
        p.pass(RTT);
        p.send(same());
        let now = p.ms();
        p.pass(10);
        p.send(other);
        p.at(now + 30);
        let mut sent = p.drain();
        sent.retain(|got| !got.data.is_empty());
        assert_eq!(sent.iter().map(|got| got.seq).collect::<Vec<_>>(), [nth(0)], "{n}");
        sent.remove(0).at(now + 25);
        assert!(cwnd(&p, id) < 10, "{}", cwnd(&p, id));
    }
}

/// §7.2: once the late segment has arrived, the wait is over, and the rest of the flight gets its probe.
#[test]
fn a_probe_follows_when_the_late_segment_has_arrived() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 4_000]);
    segments(&p.drain(), 0..4);
    p.pass(RTT);
    p.send(sack(0, &[(1, 2)]));
    p.pass(10);
    p.send(ack(2));
    let now = p.ms();
    let sent = p.sends_at(now + 250, &[now + 204]);
    segments(&sent, [3]);
}

/// A segment that is only late is not sent again, and the window stays.
#[test]
fn reordering_within_the_window_costs_nothing() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 3_000]);
    p.drain();
    p.pass(RTT);
    p.send(sack(0, &[(1, 3)]));
    p.pass(20);
    p.send(ack(3));
    p.pass(1_000);
    p.quiet();
    assert!(cwnd(&p, id) >= 10);
}

/// §6.2 step 2: once reordering was seen, three segments prove nothing; only time does.
//= rfc8985 3.3.2-b 9.2-a test
#[test]
fn seen_reordering_makes_patient() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 30_000]);
    segments(&p.drain(), 0..10);
    p.pass(RTT);
    p.send(sack(0, &[(1, 2)]));
    p.send(ack(2));
    p.drain();
    // Segment 2 is missing, and four segments after it have arrived.
    p.send(sack(2, &[(3, 7)]));
    assert!(p.drain().iter().all(|g| g.seq >= nth(10)));
    p.pass(24);
    assert!(p.drain().iter().all(|g| g.seq >= nth(10)));
    p.pass(2);
    assert!(p.drain().iter().any(|g| g.seq == nth(2)));
}

/// §6.2: a lost retransmission is found by what was sent after it.
//= rfc8985 4-b test
#[test]
fn a_lost_repetition_is_found_without_a_timeout() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 30_000]);
    segments(&p.drain(), 0..10);
    p.pass(RTT);
    p.send(sack(0, &[(1, 10)]));
    let sent = p.drain();
    assert_eq!(sent[0].seq, nth(0));
    assert!(sent.len() > 1, "{sent:?}");
    p.pass(RTT);
    // Everything but the retransmission has arrived.
    p.send(sack(0, &[(1, 9 + sent.len() as u32)]));
    let again: Vec<_> = p.drain().into_iter().filter(|g| g.seq == nth(0)).collect();
    assert_eq!(again.len(), 1);
}

// --- proportional rate reduction -------------------------------------------------------------------

/// RFC 9937: in recovery, half of what arrives is sent, and the window is the threshold in the end.
//= rfc8985 9.3-a 9.3-b test
#[test]
fn what_leaves_follows_what_arrives() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 60_000]);
    segments(&p.drain(), 0..10);
    p.pass(RTT);
    let mut sent = 0;
    for end in 2..=10 {
        p.send(sack(0, &[(1, end)]));
        sent += p.drain().len();
    }
    // Before recovery, two by limited transmit; then half of those in flight; and the first one again.
    assert!((5..=7).contains(&sent), "{sent}");
    p.pass(RTT);
    p.send(ack(10));
    p.drain();
    assert!((4..=7).contains(&cwnd(&p, id)), "{}", cwnd(&p, id));
}

// --- needless reductions --------------------------------------------------------------------------

/// RFC 3708: every retransmission is reported as a duplicate, so the window is restored.
#[test]
fn a_duplicate_report_undoes_a_fast_recovery() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 10_000]);
    p.drain();
    p.pass(RTT);
    for end in 2..=5 {
        p.send(sack(0, &[(1, end)]));
    }
    segments(&p.drain(), [0]);
    p.send(ack(10));
    assert!(cwnd(&p, id) < 10);
    p.pass(RTT);
    p.send(sack(10, &[(0, 1)]));
    p.write(id, &[0; 1_000]);
    p.drain();
    p.pass(RTT);
    p.send(sack(11, &[(0, 1)]));
    assert!(cwnd(&p, id) >= 10, "{}", cwnd(&p, id));
}

/// Packets that the network duplicates say nothing about our retransmissions: the loss was real.
#[test]
fn what_the_network_doubles_undoes_nothing() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 10_000]);
    p.drain();
    p.pass(RTT);
    for end in 2..=5 {
        p.send(sack(0, &[(1, end)]));
    }
    segments(&p.drain(), [0]);
    p.send(ack(10));
    let reduced = cwnd(&p, id);
    // The third segment arrived twice, but was sent once.
    p.send(sack(10, &[(2, 3)]));
    p.write(id, &[0; 1_000]);
    p.drain();
    p.pass(RTT);
    p.send(ack(11));
    assert!(reduced < 10 && cwnd(&p, id) <= reduced + 1, "{} of {reduced}", cwnd(&p, id));
}

/// RFC 2883 §4: a duplicate report is no SACK: the segment that it names was sent again and measures nothing.
#[test]
fn a_report_of_a_duplicate_measures_nothing() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 2_000]);
    p.drain();
    // All acknowledgements are lost. The probe and the timeout follow, and then an ACK reports that the first one
    // came twice.
    p.pass(3_000);
    p.drain();
    p.send(sack(2, &[(0, 1)]));
    let srtt = p.stack.info(id).unwrap().rtt.unwrap();
    assert_eq!(srtt.as_millis(), u128::from(RTT));
}

/// RFC 3522: the acknowledgement echoes a time before the retransmission, so the original was late.
#[test]
fn an_early_echo_undoes_a_fast_recovery() {
    let (mut p, id) = open(true);
    p.write(id, &[0; 9_880]);
    let first = p.drain();
    let sent_at = first[0].ts.unwrap().value;
    let len = first[0].data.len() as u32;
    assert_eq!(first.len(), 10);
    p.pass(RTT);
    for end in 2..=5 {
        p.send(seg().seq(1).ack(1).ts_echo(2, sent_at).sack(&[(1 + len, 1 + end * len)]));
    }
    assert_eq!(p.drain()[0].seq, 1);
    assert!(p.stack.info(id).unwrap().cwnd < 10_000);
    p.pass(5);
    p.send(seg().seq(1).ack(9_881).ts_echo(3, sent_at));
    assert!(p.stack.info(id).unwrap().cwnd >= 10_000);
}

/// RFC 5682 §3.1: after a timeout the originals arrive. New data is sent instead of retransmissions, and the window
/// is restored.
#[test]
fn f_rto_finds_a_timeout_that_came_too_early() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 30_000]);
    segments(&p.drain(), 0..10);
    // The probe, then the timeout.
    p.pass(700);
    segments(&p.drain(), [10, 0]);
    assert_eq!(cwnd(&p, id), 1);
    // The delay ends: the originals arrive one by one.
    p.send(ack(1));
    segments(&p.drain(), [11, 12]);
    p.send(ack(2));
    let sent = p.drain();
    assert!(sent.iter().all(|g| g.seq > nth(12)), "{sent:?}");
    assert!(cwnd(&p, id) >= 10, "{}", cwnd(&p, id));
    assert_eq!(p.stack.info(id).unwrap().totals.retransmits, 1);
}

/// §3.1 step 3a: duplicates after the new data show that the loss was real.
#[test]
fn f_rto_falls_back_when_the_loss_was_real() {
    let (mut p, id) = open(false);
    p.write(id, &[0; 30_000]);
    segments(&p.drain(), 0..10);
    p.pass(700);
    segments(&p.drain(), [10, 0]);
    p.send(ack(1));
    segments(&p.drain(), [11, 12]);
    p.pass(RTT);
    p.send(sack(1, &[(11, 12)]));
    let sent = p.drain();
    assert_eq!(sent[0].seq, nth(1), "{sent:?}");
}

/// Without SACK, each duplicate stands for a segment that arrived. When the number moves on, that segment does not
/// count again.
#[test]
fn what_duplicates_told_does_not_open_the_window_again() {
    let mut p = Peer::with(|c| c.tcp.set_congestion(Algorithm::NewReno));
    p.handshake_ms = RTT;
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(MSS as u16));
    p.write(id, &[0; 15_000]);
    segments(&p.drain(), 0..10);
    p.pass(RTT);
    p.send(ack(0));
    segments(&p.drain(), [10]);
    p.send(ack(0));
    segments(&p.drain(), [11]);
    p.send(ack(3));
    segments(&p.drain(), [12, 13]);
    assert_eq!(cwnd(&p, id), 11);
}
