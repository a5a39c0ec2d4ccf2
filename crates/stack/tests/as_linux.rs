//! Times and choices in which the stack does what Linux does, found with packetdrill's scripts.

use crate::peer::primed::{AFTER, DATA, primed_by, with_cookie};
use crate::peer::{PORT, Peer, key, policy, seg};
use firstflight_stack::{CloseReason, ConnId, ConnectConfig, StateName};
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::tcp::Flags;

const MSS: usize = 536;

/// An open connection whose segments hold `MSS` bytes.
fn open() -> (Peer, ConnId) {
    let mut p = Peer::with(|config| config.tcp.set_timestamps(false));
    let id = p.open_active(seg().mss(MSS as u16));
    (p, id)
}

/// For each segment sent, whether it has PSH.
fn pushes(p: &mut Peer) -> Vec<bool> {
    p.drain().iter().map(|got| got.flags.contains(Flags::PSH)).collect()
}

// --- acknowledging ---------------------------------------------------------------------------------

/// `Config::quick_delay`, a millisecond, and a tick of the timer wheel; in milliseconds.
const QUICK: u64 = 2;

/// A peer may hold its next short segment back until this one is acknowledged (Nagle's algorithm). It waits for a
/// millisecond, not for the 40 of a delayed acknowledgement.
#[test]
fn the_first_short_segments_are_acknowledged_almost_at_once() {
    let mut p = Peer::with(|config| config.tcp.set_quick_acks(16));
    p.open_active(seg().mss(1460));
    for n in 0..16 {
        p.send(seg().seq(1 + 10 * n).ack(1).bytes(10));
        p.quiet();
        p.pass(QUICK);
        p.expect().is_ack().ack(11 + 10 * n).empty();
    }
    p.send(seg().seq(161).ack(1).bytes(10));
    p.pass(QUICK);
    p.quiet();
    p.pass(40 - QUICK + 1);
    p.expect().is_ack().ack(171).empty();
}

#[test]
fn the_first_full_segments_are_acknowledged_at_once() {
    let mut p = Peer::with(|config| config.tcp.set_quick_acks(16));
    p.open_active(seg().mss(1460));
    p.send(seg().seq(1).ack(1).bytes(1_460));
    p.expect().is_ack().ack(1_461).empty();
}

/// The delay of a millisecond saves a packet, because the answer carries the acknowledgement.
#[test]
fn an_answer_at_once_takes_the_first_acknowledgement_along() {
    let mut p = Peer::with(|config| config.tcp.set_quick_acks(16));
    let id = p.open_active(seg().mss(1460));
    p.send(seg().seq(1).ack(1).data(b"question"));
    p.write(id, b"answer");
    p.expect().is_ack().ack(9).data(b"answer");
    p.pass(QUICK);
    p.quiet();
}

/// The peer answers a request with three full segments, or with three short ones, 10 ms later. Each is acknowledged
/// before the next one comes. `behind` is the number after the request.
fn each_segment_of_a_response_is_acknowledged(p: &mut Peer, behind: u32, len: u32) {
    for n in 0..3 {
        p.pass(10);
        p.send(seg().seq(1 + n * len).ack(behind).bytes(len as usize));
        p.pass(QUICK);
        p.expect().is_ack().seq(behind).ack(1 + (n + 1) * len).empty();
        p.quiet();
    }
}

/// Linux' client acknowledges each of a response's first segments at once, whatever carried the request: the peer's
/// window is small, and its next short segment may wait for the acknowledgement. Google's scripts
/// `fastopen/client/*` have these packets.
#[test]
fn a_response_is_acknowledged_segment_by_segment_however_the_request_left() {
    let quick = |config: &mut firstflight_stack::Config| {
        config.tcp.set_quick_acks(16);
        config.tcp.set_timestamps(false);
    };
    let granted = || {
        let mut p = primed_by(Peer::with(quick), seg().mss(1460), 10);
        p.pass(10);
        p
    };
    for len in [1_460, 500] {
        // It was written behind the handshake.
        let mut p = Peer::with(quick);
        let id = p.open_active(seg().mss(1460));
        p.write(id, DATA);
        p.expect().is_ack().data(DATA);
        each_segment_of_a_response_is_acknowledged(&mut p, AFTER, len);

        // It waited for the handshake, which asked for a cookie.
        let mut p = Peer::with(quick);
        p.connect(DATA, true);
        p.expect().is_syn().empty();
        p.pass(10);
        p.send(seg().syn().ack(1).mss(1460));
        p.expect().is_ack().data(DATA);
        each_segment_of_a_response_is_acknowledged(&mut p, AFTER, len);

        // It left in the SYN, and was accepted.
        let mut p = granted();
        p.connect(DATA, true);
        with_cookie(p.expect()).data(DATA);
        p.pass(10);
        p.send(seg().syn().ack(AFTER).mss(1460));
        p.expect().is_ack().seq(AFTER).ack(1).empty();
        each_segment_of_a_response_is_acknowledged(&mut p, AFTER, len);

        // It left in the SYN, and was refused.
        let mut p = granted();
        p.connect(DATA, true);
        with_cookie(p.expect()).data(DATA);
        p.pass(10);
        p.send(seg().syn().ack(1).mss(1460));
        p.expect().is_ack().seq(1).data(DATA);
        each_segment_of_a_response_is_acknowledged(&mut p, AFTER, len);

        // A part of it left in the SYN. The rest waited for the SYN-ACK.
        let mut p = granted();
        let request = [7; 2_000];
        p.connect(&request, true);
        let rode = with_cookie(p.expect()).data.len() as u32;
        assert!((1_000..1_500).contains(&rode));
        p.pass(10);
        p.send(seg().syn().ack(1 + rode).mss(1460));
        p.expect().is_ack().seq(1 + rode).ack(1);
        each_segment_of_a_response_is_acknowledged(&mut p, 2_001, len);
    }
}

/// A server may send the beginning of its response with the SYN-ACK and right behind it (Google's `synack-data`).
#[test]
fn a_response_with_the_syn_ack_is_acknowledged_segment_by_segment() {
    let mut p = primed_by(Peer::with(|config| config.tcp.set_quick_acks(16)), seg().mss(1460), 10);
    p.connect(DATA, true);
    with_cookie(p.expect()).data(DATA);
    p.pass(10);
    p.send(seg().syn().ack(AFTER).mss(1460).bytes(1_400));
    p.expect().is_ack().seq(AFTER).ack(1_401).empty();
    p.send(seg().seq(1_401).ack(AFTER).bytes(1_400));
    p.pass(QUICK);
    p.expect().is_ack().ack(2_801).empty();
    p.send(seg().seq(2_801).ack(AFTER).bytes(200));
    p.pass(QUICK);
    p.expect().is_ack().ack(3_001).empty();
}

#[test]
fn after_an_answer_acknowledgements_wait_for_the_next() {
    let mut p = Peer::with(|config| config.tcp.set_quick_acks(16));
    let id = p.open_active(seg().mss(1460));
    p.pass(100);
    p.send(seg().seq(1).ack(1).data(b"question"));
    p.pass(QUICK);
    p.expect().is_ack().ack(9).empty();
    p.write(id, b"answer");
    p.expect().data(b"answer");
    p.send(seg().seq(9).ack(7).data(b"question"));
    p.pass(QUICK);
    p.quiet();
}

// --- sending ---------------------------------------------------------------------------------------

#[test]
fn every_write_ends_with_psh_and_nothing_else_has_it() {
    let (mut p, id) = open();
    p.send(seg().seq(1).ack(1).win(0));
    p.write(id, &[1; MSS]);
    p.write(id, &[2; 2 * MSS]);
    p.send(seg().seq(1).ack(1));
    assert_eq!(pushes(&mut p), [true, false, true]);
}

/// What Linux leaves to the network card to cut: half a window of ten segments. A receiver that merges segments
/// passes the end of the window to its application when it sees PSH.
#[test]
fn bursts_end_with_psh() {
    let (mut p, id) = open();
    p.write(id, &[1; 20 * MSS]);
    let five = [false, false, false, false, true];
    assert_eq!(pushes(&mut p), [five, five].concat());
}

#[test]
fn psh_can_be_kept_for_the_ends_of_writes() {
    let mut p = Peer::with(|config| {
        config.tcp.set_timestamps(false);
        config.tcp.set_push_bursts(None);
    });
    let id = p.open_active(seg().mss(MSS as u16));
    p.write(id, &[1; 9 * MSS]);
    assert_eq!(pushes(&mut p), [vec![false; 8], vec![true]].concat());
}

/// Bursts are retransmitted as they were sent, unless the peer already has a part of one.
#[test]
fn bursts_are_repeated_with_psh_at_their_ends() {
    let mut p = Peer::with(|config| config.tcp.set_timestamps(false));
    let id = p.open_active(seg().mss(MSS as u16).sack_ok());
    p.write(id, &[1; 10 * MSS]);
    assert_eq!(p.drain().len(), 10);
    p.pass(1);
    let nth = |n: u32| 1 + n * MSS as u32;
    p.send(seg().seq(1).ack(1).sack(&[(nth(2), nth(4)), (nth(6), nth(10))]));
    let again: Vec<_> = p.drain().iter().map(|got| (got.seq, got.flags.contains(Flags::PSH))).collect();
    // The fifth segment ends a burst; the sixth belongs to the next one.
    assert_eq!(again, [(nth(0), false), (nth(1), true), (nth(4), false), (nth(5), false)]);
}

/// Minshall's variant of Nagle's algorithm (RFC 9293 §3.7.4).
#[test]
fn a_small_segment_waits_only_for_an_earlier_small_one() {
    let (mut p, id) = open();
    p.write(id, &[1; 2 * MSS + 100]);
    let lens: Vec<usize> = p.drain().iter().map(|got| got.data.len()).collect();
    assert_eq!(lens, [MSS, MSS, 100]);
    p.write(id, b"more");
    p.quiet();
    p.send(seg().seq(1).ack(1 + (2 * MSS + 100) as u32));
    p.expect().data(b"more");
}

#[test]
fn what_is_corked_waits_until_it_is_not() {
    let (mut p, id) = open();
    p.stack.set_cork(id, true, false, None);
    p.write(id, b"a");
    p.write(id, &[b'b'; MSS]);
    p.expect().len(MSS);
    p.quiet();
    p.stack.set_cork(id, false, false, Some(p.now));
    p.pump();
    p.expect().data(b"b");
}

#[test]
fn no_segment_crosses_the_end_of_a_record() {
    let (mut p, id) = open();
    p.send(seg().seq(1).ack(1).win(0));
    p.write(id, b"one");
    p.stack.end_record(id);
    p.write(id, b"two");
    p.send(seg().seq(1).ack(1));
    p.expect().data(b"one");
    p.send(seg().seq(1).ack(4));
    p.expect().data(b"two");
}

/// The SYN takes a sequence number, but no room in the peer's window.
#[test]
fn the_first_answer_fills_the_window_of_the_syn() {
    let mut p = Peer::with(|config| config.tcp.set_timestamps(false));
    let listener = p.listen_with(|config| config.fast_open = Some(policy(key(1), 8)));
    let cookie = p.cookie_of(key(1));
    p.send(seg().syn().mss(1460).win(1_000).cookie(cookie.as_bytes()).data(b"question"));
    p.expect().syn_ack();
    let id = p.accept(listener);
    p.write(id, &[1; 2_000]);
    p.expect().len(1_000);
    p.quiet();
}

#[test]
fn a_fin_alone_does_not_wait_for_the_congestion_window() {
    let (mut p, id) = open();
    p.write(id, &[1; 10 * MSS]);
    assert_eq!(p.drain().len(), 10);
    p.shutdown(id);
    p.expect().is_fin().seq(1 + 10 * MSS as u32).empty();
}

/// RFC 5681 §4.1: a connection is idle if no data was sent. The idle time also ends when the peer's window opens.
#[test]
fn probes_of_a_closed_window_do_not_keep_the_congestion_window() {
    let (mut p, id) = open();
    for n in 0..2 {
        p.write(id, &[1; 10 * MSS]);
        p.drain();
        p.send(seg().seq(1).ack(1 + (n + 1) * 10 * MSS as u32).win(if n == 1 { 0 } else { 60_000 }));
    }
    assert!(p.stack.info(id).unwrap().cwnd > 15 * MSS as u32);
    p.write(id, &[1; 30 * MSS]);
    p.pass(5_000);
    assert!(p.drain().len() > 2);
    p.send(seg().seq(1).ack(1 + 20 * MSS as u32).win(60_000));
    assert_eq!(p.drain().len(), 10);
}

// --- opening ---------------------------------------------------------------------------------------

/// The echo of a time at which no SYN was sent answers another connection.
#[test]
fn a_syn_ack_that_echoes_nothing_of_ours_is_reset() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    let syn = p.expect().is_syn();
    let sent = syn.ts.unwrap().value;
    p.send(seg().syn().ack(1).ts_echo(1, sent.wrapping_add(9_999)));
    p.expect().is_rst();
    assert_eq!(p.state(id), StateName::SynSent);
    p.send(seg().syn().ack(1).ts_echo(1, sent));
    p.expect().is_ack().ack(1);
    assert_eq!(p.state(id), StateName::Established);
}

/// In a simultaneous open, the peer may acknowledge the data of our SYN after it first acknowledged the SYN alone.
#[test]
fn what_a_crossed_syn_carried_can_be_acknowledged() {
    for taken in [0, 5] {
        let mut p = Peer::with(|config| config.tcp.set_timestamps(false));
        let config = ConnectConfig::default().fast_open(true).no_cookie(true);
        let id = p.connect_with(b"first", &config);
        p.expect().is_syn().data(b"first");
        p.send(seg().syn().mss(1460));
        p.expect().syn_ack().seq(0).ack(1);
        p.send(seg().syn().ack(1 + taken).mss(1460));
        if taken == 0 {
            p.expect().is_ack().seq(1).ack(1).data(b"first");
        } else {
            p.expect().is_ack().seq(6).ack(1).empty();
        }
        assert_eq!(p.state(id), StateName::Established);
        p.quiet();
    }
}

/// A middlebox may remove the option from a connection under way (RFC 7323 §3.2 would have such segments dropped).
#[test]
fn segments_without_the_agreed_timestamps_are_taken() {
    let mut p = Peer::new();
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1460).ts(1_000));
    p.send(seg().seq(1).ack(1).data(b"bare"));
    assert_eq!(p.read(id), b"bare");
}

#[test]
fn an_unreachable_host_can_end_a_handshake() {
    let mut p = Peer::with(|config| config.unreachable_ends_handshakes = true);
    let id = p.connect(b"", false);
    let syn = p.expect().is_syn();
    p.icmp(IcmpErrorKind::HostUnreachable, &syn.packet);
    assert_eq!(p.reason(id), Some(CloseReason::Unreachable));
    p.quiet();
}

#[test]
fn data_can_ride_without_a_cookie() {
    let mut p = Peer::new();
    let config = ConnectConfig::default().fast_open(true).no_cookie(true);
    let id = p.connect_with(b"question", &config);
    p.expect().is_syn().data(b"question").no_fast_open();
    // A cookie that was not requested is not kept.
    p.send(seg().syn().ack(9).cookie(&[5; 8]));
    p.expect().is_ack().seq(9).ack(1);
    assert!(p.stack.info(id).unwrap().outcome.is_accepted());
    p.connect(b"again", true);
    p.expect().is_syn().empty();
}

#[test]
fn a_listener_begins_to_take_first_flights() {
    let mut p = Peer::new();
    let listener = p.listen();
    let cookie = p.cookie_of(key(1));
    let syn = |port| (port, seg().syn().mss(1460).cookie(cookie.as_bytes()).data(b"question"));
    for (n, (port, syn)) in [syn(2_001), syn(2_002), syn(2_003)].into_iter().enumerate() {
        p.flow(port, 1_000_000);
        p.stack.set_fast_open(listener, (n == 1).then(|| policy(key(1), 8)));
        p.send(syn);
        p.expect().syn_ack().ack(if n == 1 { 9 } else { 1 });
    }
}

/// RFC 9293 §3.10.7.4 asks for an answer, which is the default.
#[test]
fn an_acknowledgement_of_what_was_never_sent_may_go_unanswered() {
    for answered in [true, false] {
        let mut p = Peer::with(|config| config.tcp.set_answer_unsent_acks(answered));
        p.open_active(seg().mss(1460));
        p.send(seg().seq(1).ack(9_999).data(b"strange"));
        assert_eq!(p.drain().len(), usize::from(answered));
    }
}

#[test]
fn the_window_can_begin_small_and_grows_with_what_arrives() {
    let mut p = Peer::with(|config| {
        config.tcp.set_first_window(Some(10_000));
        config.tcp.set_scale(Some(0));
        config.tcp.set_timestamps(false);
    });
    let id = p.connect(b"", false);
    p.expect().is_syn().win(10_000);
    p.send(seg().syn().mss(1460).ack(1));
    p.expect().is_ack().win(10_000);
    let mut windows = [0; 3];
    for (n, window) in (0..).zip(&mut windows) {
        p.send_all((2 * n..2 * n + 2).map(|n| seg().seq(1 + 1_460 * n).ack(1).bytes(1_460)));
        *window = p.expect().is_ack().window;
        p.read(id);
    }
    assert_eq!(windows, [10_000, 10_000 + 4 * 1_460, 10_000 + 8 * 1_460]);
}

/// RFC 9293 §3.8.6.2.2: the receiver waits for half of what it offers, not for more than it ever offers. And of less
/// than a step of the window scale, nothing can be offered.
#[test]
fn a_window_that_begins_below_a_segment_opens_all_the_same() {
    for (first, scale, late) in [(1_000, 0, false), (1_000, 0, true), (1, 0, true), (1_000, 10, true)] {
        let mut p = Peer::with(|config| {
            config.tcp.set_first_window(Some(first.into()));
            config.tcp.set_scale(Some(scale));
            config.tcp.set_timestamps(false);
        });
        let id = p.connect(b"", false);
        p.expect().is_syn().win(first);
        p.send(seg().syn().mss(1460).scale(0).ack(1));
        let mut seq = 1;
        let mut window = u32::from(p.expect().is_ack().window) << scale;
        for n in 0..30 {
            let len = window.min(1_460);
            assert!(len > 0, "closed after {n} segments, {first} {scale} {late}");
            p.send(seg().seq(seq).ack(1).bytes(len as usize));
            seq += len;
            if late {
                // The application reads after the acknowledgement.
                p.pass(1_000);
            }
            p.read(id);
            assert!(n > 0 || !p.sent.is_empty(), "the peer has filled the window and waits");
            p.pass(1_000);
            window = p.drain().pop().map_or(0, |got| u32::from(got.ack(seq).window) << scale);
        }
        assert!(window >= 2 * 1_460, "{window}");
    }
}

// --- open connections ------------------------------------------------------------------------------

#[test]
fn what_is_looked_at_is_still_there() {
    let (mut p, id) = open();
    p.send(seg().seq(1).ack(1).data(b"look"));
    let mut out = [0; 3];
    assert_eq!((p.stack.peek(id, &mut out), &out), (3, b"loo"));
    assert_eq!(p.read(id), b"look");
}

#[test]
fn the_timeout_can_be_kept_short() {
    let mut p = Peer::with(|config| config.tcp.set_max_rto(std::time::Duration::from_secs(2)));
    p.connect(b"", false);
    p.expect();
    let now = p.ms();
    p.sends_at(now + 7_500, &[now + 1_000, now + 3_000, now + 5_000, now + 7_000]);
}

#[test]
fn a_user_timeout_that_is_set_later_counts() {
    let (mut p, id) = open();
    let mut config = p.stack.connection(id).unwrap().config().as_ref().clone();
    config.set_user_timeout(Some(core::time::Duration::from_secs(3)));
    p.stack.set_tcp_config(id, config.into(), p.now);
    p.write(id, b"x");
    p.pass(2_900);
    assert_eq!(p.reason(id), None);
    p.pass(200);
    assert_eq!(p.reason(id), Some(CloseReason::TimedOut));
}

#[test]
fn what_the_peer_has_is_counted() {
    let (mut p, id) = open();
    assert_eq!(p.stack.info(id).unwrap().totals.delivered, 1);
    p.write(id, &[1; 3 * MSS]);
    p.send(seg().seq(1).ack(1 + 2 * MSS as u32));
    assert_eq!(p.stack.info(id).unwrap().totals.delivered, 3);
}

// --- refusals ----------------------------------------------------------------------------------------

/// A RST in answer to a SYN with an option ends the connect, as in Linux.
#[test]
fn a_refusal_can_be_final() {
    let mut p = Peer::with(|config| config.tcp.set_retry_refused(false));
    p.port = PORT;
    let id = p.connect(b"", true);
    p.expect().is_syn();
    p.send(seg().rst().ack(1));
    p.quiet();
    assert_eq!(p.reason(id), Some(CloseReason::Refused));
}
