//! Window scaling and timestamps (RFC 7323).

use crate::peer::{Got, Peer, Seg, seg};
use firstflight_stack::{ConnId, StateName, Trace};
use firstflight_tcp::{Config, DropReason};

fn with(tune: impl FnOnce(&mut Config)) -> Peer {
    Peer::with(|c| tune(&mut c.tcp))
}

/// An open connection with timestamps. The peer's clock is at 1,000.
fn open_ts() -> (Peer, ConnId) {
    let mut p = Peer::new();
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1460).ts(1_000));
    (p, id)
}

/// RFC 7323 §2.2: windows of SYNs are not scaled, those after them are, in both directions.
//= rfc7323 2.2-a 2.2-d 2.3-b 2.3-c 2.3-e 2.3-f test
//= rfc9293 MUST-1 REC-1 test
#[test]
fn window_scaling_when_both_offer_it() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    let syn = p.expect().is_syn().win(65_535);
    // The receive buffer is 8 MiB at most, 1 MiB at first.
    assert_eq!(syn.scale, Some(8));
    p.send(seg().syn().ack(1).mss(1460).scale(3).win(2_000));
    assert_eq!(p.expect().is_ack().window, 4096);
    p.write(id, &[0; 60_000]);
    // The window of 2,000 in the SYN-ACK is not scaled.
    let first: usize = p.drain().iter().map(|g| g.data.len()).sum();
    assert!(first <= 2_000, "{first}");
    p.send(seg().seq(1).ack(1 + first as u32).win(2_000));
    let then: usize = p.drain().iter().map(|g| g.data.len()).sum();
    assert!((10_000..=16_000).contains(&then), "{then}");
}

/// RFC 7323 §2.2: the window of a SYN-ACK that ends a simultaneous open is not scaled either.
#[test]
fn the_window_of_a_crossed_syn_ack_is_not_scaled() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    p.expect().is_syn();
    p.send(seg().syn().mss(1460).scale(3).win(1_000));
    p.expect().syn_ack();
    p.send(seg().syn().ack(1).mss(1460).scale(3).win(1_000));
    p.write(id, &[0; 5_000]);
    let bytes: usize = p.drain().iter().map(|g| g.data.len()).sum();
    assert!(bytes <= 1_000, "{bytes}");
}

/// RFC 7323 §2.2: without the peer's option, neither side scales, and the SYN-ACK has no option.
//= rfc7323 2.2-b 2.3-d test
#[test]
fn no_window_scaling_without_the_peers_option() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460).win(1_000));
    assert_eq!(p.expect().syn_ack().win(65_535).scale, None);
    p.send(seg().seq(1).ack(1).win(1_000));
    let id = p.accept(listener);
    p.write(id, &[0; 60_000]);
    let bytes: usize = p.drain().iter().map(|g| g.data.len()).sum();
    assert!(bytes <= 1_000);
    p.send(seg().seq(1).ack(1 + bytes as u32).data(b"x"));
    assert!(p.drain()[0].window > 60_000);
}

/// The option is answered even if our shift is 0. Otherwise the peer's windows would not count as scaled.
//= rfc7323 2.3-a test
#[test]
fn a_small_buffer_still_answers_the_scale_option() {
    let mut p = with(|c| c.set_receive_buffer(8_000));
    p.listen();
    p.send(seg().syn().mss(1460).scale(7));
    assert_eq!(p.expect().syn_ack().scale, Some(0));
}

/// Switched-off options are never offered and never accepted.
#[test]
fn switched_off_options_are_neither_offered_nor_answered() {
    let mut p = with(|c| {
        c.set_window_scaling(false);
        c.set_timestamps(false);
        c.set_sack(false);
    });
    p.listen();
    p.send(seg().syn().mss(1460).scale(7).ts(1).sack_ok());
    let answer = p.expect().syn_ack();
    assert_eq!((answer.scale, answer.ts, answer.sack_ok), (None, None, false));
    let mut p = with(|c| {
        c.set_window_scaling(false);
        c.set_timestamps(false);
        c.set_sack(false);
    });
    p.connect(b"", false);
    let syn = p.expect().is_syn();
    assert_eq!((syn.scale, syn.ts, syn.sack_ok), (None, None, false));
}

/// RFC 7323 §2.3: a shift above 14 counts as 14.
//= rfc7323 2.3-h test
#[test]
fn a_shift_above_14_counts_as_14() {
    let mut p = Peer::new();
    let id = p.open_active(seg().mss(1460).option(&[3, 3, 200]));
    p.send(seg().seq(1).ack(1).win(1));
    p.write(id, &[0; 30_000]);
    let bytes: usize = p.drain().iter().map(|g| g.data.len()).sum();
    // The initial window (14,600) is the limit, not 1 << 14 = 16,384, and not 1 << 200 % 32.
    assert_eq!(bytes, 14_600);
}

fn echo(got: Got) -> u32 {
    got.ts.unwrap_or_default().echo
}

/// RFC 7323 §3.2: once agreed, every segment has a timestamp.
//= rfc7323 3.2-b 3.2-d 3.2-f test
#[test]
fn timestamps_on_every_segment_once_agreed() {
    let (mut p, id) = open_ts();
    p.write(id, b"x");
    assert_eq!(echo(p.expect().seq(1)), 1_000);
    p.send(seg().seq(1).ack(2).ts(1_005).fin());
    assert_eq!(echo(p.expect().is_ack()), 1_005);
    p.shutdown(id);
    assert_eq!(echo(p.expect().is_fin()), 1_005);
    // This includes a challenge ACK.
    p.send(seg().seq(2).ack(0x1000).ts(1_006));
    assert!(p.expect().ts.is_some());
}

/// RFC 7323 §3.2: if [`require_timestamps`](firstflight_tcp::Config::require_timestamps) is set, a segment without
/// the option is dropped, but a RST is not.
//= rfc7323 3.2-g 3.2-h test
#[test]
fn missing_timestamps_are_dropped_silently_except_on_rst() {
    let mut p = Peer::with(|config| config.tcp.set_require_timestamps(true));
    let id = p.open_active(seg().mss(1460).ts(1_000));
    p.send(seg().seq(1).ack(1).data(b"bare"));
    p.quiet();
    assert_eq!(p.read(id), b"");
    p.send(seg().seq(1).rst());
    assert_eq!(p.state(id), StateName::Closed);
}

/// RFC 7323 §3.2: this includes the SYN-ACK that ends a simultaneous open.
#[test]
fn a_crossed_syn_ack_without_the_agreed_timestamps_is_dropped() {
    let mut p = Peer::with(|config| config.tcp.set_require_timestamps(true));
    let id = p.connect(b"", false);
    p.expect().is_syn();
    p.send(seg().syn().mss(1460).ts(1_000));
    p.expect().syn_ack();
    p.send(seg().syn().ack(1).mss(1460));
    p.quiet();
    assert_eq!(p.state(id), StateName::SynRcvd);
    p.send(seg().syn().ack(1).mss(1460).ts(1_001));
    assert_eq!(p.state(id), StateName::Established);
}

/// RFC 7323 §5.3 R1: a segment with an old timestamp is acknowledged and dropped.
//= rfc7323 5.2-a 5.3-a test
#[test]
fn paws_drops_old_segments_and_answers() {
    let (mut p, id) = open_ts();
    p.send(seg().seq(1).ack(1).ts(999).data(b"old"));
    p.expect().is_ack().seq(1).ack(1);
    assert_eq!(p.read(id), b"");
    // Across the wrap: more than 0x8000_0000 ahead counts as old, less counts as new.
    p.send(seg().seq(1).ack(1).ts(1_000_u32.wrapping_add(0x8000_0001)).data(b"old"));
    p.expect().is_ack().ack(1);
    p.send(seg().seq(1).ack(1).ts(1_000).data(b"same"));
    assert_eq!(p.read(id), b"same");
}

/// RFC 7323 §5.2: RSTs are not subject to PAWS.
//= rfc7323 5.2-e test
#[test]
fn paws_does_not_stop_a_rst() {
    let (mut p, id) = open_ts();
    p.send(seg().seq(1).ts(1).rst());
    assert_eq!(p.state(id), StateName::Closed);
}

/// RFC 7323 §5.5: after 24 days of silence TS.Recent is invalid, and a new one is accepted.
//= rfc7323 5.3-a test
#[test]
fn paws_forgets_after_24_days() {
    let (mut p, id) = open_ts();
    let day = 86_400_000;
    let old = 1_000_u32.wrapping_sub(5);
    p.pass(23 * day);
    p.send(seg().seq(1).ack(1).ts(old).data(b"no"));
    p.expect().is_ack().ack(1);
    p.pass(2 * day);
    p.send(seg().seq(1).ack(1).ts(old).data(b"yes"));
    assert_eq!(p.read(id), b"yes");
    p.pass(100);
    assert_eq!(echo(p.expect()), old);
    // From here on, it protects again.
    p.send(seg().seq(4).ack(1).ts(old - 1).data(b"no"));
    assert_eq!(p.read(id), b"");
}

/// RFC 7323 §4.3 (2): the echo is that of the segment that advanced the left edge, not that of the newest segment.
//= rfc7323 4.3-a 4.3-b 4.3-c test
#[test]
fn echo_is_of_the_earliest_unacknowledged_segment() {
    let (mut p, _) = open_ts();
    // Two segments in order within the delay of the ACK: the second arrives before the first is acknowledged.
    p.send_all([seg().seq(1).ack(1).ts(1_010).bytes(100), seg().seq(101).ack(1).ts(1_020).bytes(100)]);
    p.pass(100);
    assert_eq!(echo(p.expect().ack(201)), 1_010);
    // A hole: the echo stays that of the last in-order segment.
    p.send(seg().seq(301).ack(1).ts(1_040).bytes(100));
    assert_eq!(echo(p.expect().ack(201)), 1_010);
    // The hole is filled: the echo is that of the segment that filled it.
    p.send(seg().seq(201).ack(1).ts(1_050).bytes(100));
    assert_eq!(echo(p.expect().ack(401)), 1_050);
}

/// RFC 7323 §4.3 with RFC 5961 §5: a segment whose ACK is not acceptable does not set TS.Recent. Otherwise one
/// blind segment would make PAWS drop everything that follows.
#[test]
fn a_blind_segment_does_not_poison_ts_recent() {
    let (mut p, id) = open_ts();
    p.send(seg().seq(1).ack(0x5000_0000).ts(0x4000_0000).data(b"evil"));
    p.expect().is_ack().ack(1);
    p.send(seg().seq(1).ack(1).ts(1_001).data(b"good"));
    assert_eq!(p.read(id), b"good");
}

/// RFC 7323 appendix A: timestamps take 12 bytes of every segment.
//= rfc9293 MUST-16 test
#[test]
fn timestamps_take_room_in_full_segments() {
    let (mut p, id) = open_ts();
    p.write(id, &[0; 5_000]);
    p.expect().len(1448);
}

/// RFC 5681 §4.2: every second full segment is acknowledged. Full means 1,448 bytes here.
//= rfc9293 SHLD-19 test
#[test]
fn every_second_segment_with_timestamps_is_acknowledged() {
    let (mut p, _) = open_ts();
    let full = |n: u32| -> Seg { seg().seq(1 + n * 1448).ack(1).ts(1_001).bytes(1448) };
    p.send(full(0));
    p.quiet();
    p.send(full(1));
    p.expect().is_ack().ack(1 + 2 * 1448);
}

/// RFC 7323 §4.1: round-trip times are measured from echoes, also for segments that were sent twice.
//= rfc7323 4.1-a test
//= rfc6298 3-b test
#[test]
fn echoes_measure_retransmitted_segments() {
    let (mut p, id) = open_ts();
    p.write(id, b"lost");
    p.expect();
    p.at(220);
    p.expect().seq(1);
    p.at(250);
    // The echo is that of the second copy: about 30 ms, not 250.
    p.send(seg().seq(1).ack(5).ts(1_100));
    let rtt = p.stack.info(id).unwrap().rtt.unwrap();
    assert!(rtt.as_millis() < 60, "{rtt:?}");
}

/// RFC 7323 §3.2: the echo field of a segment without ACK is ignored.
//= rfc7323 3.2-c test
#[test]
fn an_echo_without_ack_measures_nothing() {
    let mut p = Peer::new();
    p.listen();
    p.at(500);
    // Another connection shows the time of the stack's clock.
    p.connect(b"", false);
    let now = p.expect().is_syn().ts.unwrap().value;
    p.flow(crate::peer::CLIENT_PORT, 1);
    p.local_port = crate::peer::PORT;
    p.send(seg().syn().mss(1460).ts_echo(1_000, now.wrapping_sub(30)));
    p.expect().syn_ack().at(500);
    // The timeout is 1 s as long as nothing was measured.
    p.at(1_450);
    assert!(p.drain().iter().all(|g| g.port != crate::peer::CLIENT_PORT));
    p.at(1_510);
    assert!(p.drain().iter().any(|g| g.port == crate::peer::CLIENT_PORT));
}

/// RFC 7323 §3.2: timestamps that were not agreed are ignored, and the segment is accepted.
//= rfc7323 3.2-i test
#[test]
fn timestamps_that_were_not_agreed_are_ignored() {
    let mut p = Peer::new();
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1460));
    for (n, ts) in [5_000, 4_000, 1].into_iter().enumerate() {
        p.send(seg().seq(1 + n as u32).ack(1).ts(ts).data(b"x"));
    }
    assert_eq!(p.read(id), b"xxx");
    p.pass(100);
    assert!(p.drain().iter().all(|g| g.ts.is_none()));
}

/// RFC 7323 §3.2, §5.2: the RST of an abort carries timestamps.
//= rfc7323 3.2-e 5.2-d test
#[test]
fn the_reset_of_an_abort_carries_timestamps() {
    let (mut p, id) = open_ts();
    p.abort(id);
    assert_eq!(p.expect().is_rst().ts.map(|ts| ts.echo), Some(1_000));
}

/// RFC 7323 §5.2: the timestamp of a RST changes nothing.
//= rfc7323 5.2-f test
#[test]
fn the_timestamp_of_a_reset_is_not_taken() {
    let (mut p, id) = open_ts();
    // The number is in the window but not at its edge, so the RST is challenged.
    p.send(seg().seq(2).ts(0x4000_0000).rst());
    assert_eq!(echo(p.expect().is_ack()), 1_000);
    p.send(seg().seq(1).ack(1).ts(1_001).data(b"x"));
    assert_eq!(p.read(id), b"x");
}

/// RFC 7323 §5.3: a timestamp is checked when its segment arrives, in sequence or not, and before the numbers.
//= rfc7323 5.3-b 5.3-c test
#[test]
fn paws_comes_before_the_numbers_and_also_behind_a_hole() {
    let (mut p, id) = open_ts();
    p.send(seg().seq(3).ack(1).ts(999).data(b"old"));
    p.expect().is_ack().ack(1);
    // The number is outside the window as well, but the timestamp is the reason for the drop.
    p.send(seg().seq(0x4000_0000).ack(1).ts(999).data(b"old"));
    p.expect().is_ack().ack(1);
    let reasons =
        p.traces.iter().filter_map(|t| if let Trace::Segment(_, why) = t { Some(*why) } else { None });
    assert_eq!(reasons.collect::<Vec<_>>(), [DropReason::OldTimestamp; 2]);
    // The segment is kept behind the hole, and accepted when the hole is filled, although newer timestamps came
    // meanwhile.
    p.send(seg().seq(3).ack(1).ts(1_001).data(b"cd"));
    p.expect().is_ack().ack(1);
    p.send(seg().seq(1).ack(1).ts(1_900).data(b"ab"));
    assert_eq!(p.read(id), b"abcd");
}

/// RFC 7323 §5.4: a clock of milliseconds, so that it ticks often enough for any rate and wraps after 49 days.
//= rfc7323 4.1-a 5.4-a 5.4-b 5.4-c test
#[test]
fn the_timestamp_clock_ticks_every_millisecond() {
    let (mut p, id) = open_ts();
    let stamp = |p: &mut Peer| {
        p.write(id, b"x");
        p.expect().ts.unwrap().value
    };
    let first = stamp(&mut p);
    p.send(seg().seq(1).ack(2).ts(1_001));
    p.pass(1);
    assert_eq!(stamp(&mut p).wrapping_sub(first), 1);
    p.send(seg().seq(1).ack(3).ts(1_002));
    p.pass(86_400_000);
    assert_eq!(stamp(&mut p).wrapping_sub(first), 86_400_001);
}

/// RFC 7323 §2.4: what any ACK offered stays valid, and is never taken back by rounding.
//= rfc7323 2.4-b 2.4-c test
#[test]
fn what_an_earlier_ack_offered_is_taken() {
    let mut p = with(|c| c.set_receive_buffer(200_000));
    let listener = p.listen();
    p.send(seg().syn().mss(1460).scale(7));
    let scale = p.expect().syn_ack().scale.unwrap();
    assert!(scale >= 2);
    p.send(seg().seq(1).ack(1));
    let id = p.accept(listener);
    let edge = |got: Got| got.ack + (u32::from(got.window) << scale);
    // The whole buffer was offered once. An odd byte behind it does not move the edge back.
    p.send(seg().seq(1).ack(1).bytes(1_448));
    p.pass(50);
    let offered = edge(p.expect());
    p.send(seg().seq(1_449).ack(1).bytes(1));
    p.pass(50);
    let rounded = edge(p.expect());
    assert!((offered..offered + (1 << scale)).contains(&rounded), "{rounded} {offered}");
    p.send(seg().seq(offered - 1).ack(1).bytes(1));
    p.expect().is_ack();
    let mut at = 1_450;
    while at < offered - 1 {
        let n = (offered - 1 - at).min(1_448);
        p.send(seg().seq(at).ack(1).bytes(n as usize));
        at += n;
    }
    assert_eq!(p.read(id).len() as u32, offered - 1);
}
