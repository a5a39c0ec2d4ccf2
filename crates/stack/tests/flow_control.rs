//! Windows, acknowledgements, Nagle and silence, packet by packet.

use crate::peer::primed::{AFTER, DATA, primed_by};
use crate::peer::{Got, LATE_MS, Peer, Seg, seg};
use firstflight_stack::{CloseReason, ConnId, Event, IoError, Readiness, StateName};
use firstflight_tcp::congestion::Algorithm;
use firstflight_tcp::{Config, Keepalive};
use std::time::Duration;

/// The peer's MSS: 1,000 makes numbers easy to read.
const MSS: u32 = 1_000;

fn open_with(syn: Seg, tune: impl FnOnce(&mut Config)) -> (Peer, ConnId) {
    let mut p = Peer::with(|c| {
        c.tcp.set_congestion(Algorithm::NewReno);
        tune(&mut c.tcp);
    });
    let listener = p.listen();
    let id = p.open_passive(listener, syn.mss(MSS as u16));
    (p, id)
}

fn open() -> (Peer, ConnId) {
    open_with(seg(), |_| {})
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

// --- windows -------------------------------------------------------------------------------------

/// RFC 6928 §2: ten segments. RFC 3465: slow start adds what was acknowledged, two segments at most.
//= rfc9293 MUST-19 test
#[test]
fn initial_window_and_slow_start() {
    let (mut p, id) = open();
    p.write(id, &[0; 50_000]);
    segments(p.drain(), 0..10);
    p.send(ack(2));
    assert_eq!(cwnd(&p, id), 12);
    segments(p.drain(), 10..14);
    p.send(ack(10));
    assert_eq!(cwnd(&p, id), 14);
    segments(p.drain(), 14..24);
}

/// RFC 9293 §3.8.6: no byte is sent beyond the peer's window.
//= rfc9293 MUST-38 test
//= rfc7323 2.4-d test
#[test]
fn the_peers_window_is_kept() {
    let (mut p, id) = open();
    p.send(seg().seq(1).ack(1).win(3_500));
    p.write(id, &[0; 50_000]);
    // Sender's silly-window avoidance (RFC 9293 §3.8.6.2.1) holds the odd 500 back.
    segments(p.drain(), 0..3);
    // The window moves with the acknowledgement.
    p.send(ack(1).win(3_500));
    segments(p.drain(), 3..4);
}

/// A peer whose data was lost repeats it, with a lower number than it has used, and with its newest window. If we
/// kept the old window with the new acknowledgement, we would send more than the peer offered, and the peer would
/// cut it off.
#[test]
fn the_window_of_repeated_data_counts() {
    let (mut p, id) = open();
    p.write(id, &[0; 8_000]);
    segments(p.drain(), 0..8);
    // The first of these is lost.
    p.send(seg().seq(1_001).ack(1).win(10_000).bytes(1_000));
    p.drain();
    p.send(seg().seq(1).ack(nth(8)).win(2_000).bytes(1_000));
    p.drain();
    p.write(id, &[0; 8_000]);
    segments(p.drain(), 8..10);
    // An old acknowledgement does not restore an old window.
    p.send(seg().seq(2_001).ack(nth(7)).win(10_000));
    p.send(seg().seq(1_001).ack(nth(8)).win(10_000).bytes(1_000));
    assert!(p.drain().iter().all(|got| got.data.is_empty()));
}

/// RFC 9293 §3.8.6.2.1 (3): at least half the largest window that the peer ever offered may be sent.
//= rfc9293 MUST-38 test
#[test]
fn half_the_largest_window_is_not_silly() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.window = 600;
    let id = p.open_passive(listener, seg().mss(1000));
    p.write(id, &[0; 5_000]);
    p.expect().len(600);
    p.send(seg().seq(1).ack(601).win(299));
    p.quiet();
    p.send(seg().seq(1).ack(601).win(300));
    p.expect().seq(601).len(300);
}

/// RFC 9293 §3.8.6.2.1, override timeout: a small segment is sent in the end.
//= rfc9293 MUST-60 test
#[test]
fn a_small_window_is_used_after_the_override_timeout() {
    let (mut p, id) = open();
    p.send(seg().seq(1).ack(1).win(100));
    p.write(id, &[0; 5_000]);
    p.quiet();
    p.at(1_000);
    p.expect().seq(1).len(100);
}

/// RFC 9293 §3.8.6.2.2: the window that we offer moves only by whole segments or half the buffer.
//= rfc9293 MUST-39 test
#[test]
fn receivers_silly_window_avoidance() {
    let (mut p, id) = open_with(seg(), |c| c.set_receive_buffer(4_000));
    for n in 0..4 {
        p.send(seg().seq(nth(n)).ack(1).bytes(1_000));
    }
    let full = p.drain().pop().unwrap();
    assert_eq!((full.ack, full.window), (4_001, 0));
    // Ten bytes were read: too few for a window update.
    let mut some = [0; 10];
    p.stack.read(id, &mut some, p.now).unwrap();
    p.quiet();
    // The peer probes, and the window is still closed.
    p.send(seg().seq(4_001).ack(1).bytes(1));
    p.expect().ack(4_001).win(0);
    p.read(id);
    assert_eq!(p.expect().is_ack().ack(4_001).window, 4_000);
}

/// RFC 9293 §3.8.6.1 (MUST-36, MUST-37): probes with backoff, for as long as they are answered.
//= rfc9293 MUST-36 MUST-37 SHLD-29 SHLD-30 test
#[test]
fn zero_window_probes_back_off_and_never_give_up_while_answered() {
    let (mut p, id) = open();
    p.send(seg().seq(1).ack(1).win(0));
    p.write(id, b"waits");
    p.quiet();
    let mut times = Vec::new();
    // Probes for hours: far more than the retransmissions that end a connection.
    while times.len() < 40 {
        p.pass(100);
        if let Some(probe) = p.drain().pop() {
            // The number is one below, so that the peer must answer (RFC 9293 §3.10.7.4, first check).
            times.push(probe.clone().is_ack().seq(0).at);
            p.send(seg().seq(1).ack(1).win(0));
        }
    }
    let gaps: Vec<u64> = times.windows(2).map(|w| w[1] - w[0]).collect();
    for (n, gap) in gaps.iter().take(8).enumerate() {
        let wanted = 400 << n;
        assert!((wanted..=wanted + 2 * LATE_MS + wanted / 50).contains(gap), "{gaps:?}");
    }
    assert!(gaps.iter().all(|g| *g <= 120_000 + LATE_MS), "{gaps:?}");
    assert_eq!(p.state(id), StateName::Established);
    p.send(seg().seq(1).ack(1).win(1_000));
    p.expect().seq(1).data(b"waits");
}

/// Unanswered probes are given up (R2, RFC 9293 §3.8.3).
//= rfc9293 MUST-20 test
#[test]
fn zero_window_probes_without_answer_are_given_up() {
    let (mut p, id) = open_with(seg(), |c| c.set_retries(4));
    p.send(seg().seq(1).ack(1).win(0));
    p.write(id, b"waits");
    p.at(600_000);
    assert_eq!((p.drain().len(), p.reason(id)), (4, Some(CloseReason::TimedOut)));
}

/// RFC 9293 §3.8.6.1: this also holds when the window shrinks below what is in flight (Linux: "receiver dastardly
/// shrinks window").
//= rfc9293 MUST-34 MUST-35 SHLD-16 SHLD-17 test
//= rfc7323 2.4-a test
#[test]
fn a_window_shrunk_to_zero_does_not_end_a_peer_that_answers() {
    let (mut p, id) = open_with(seg(), |c| c.set_retries(3));
    p.write(id, &[b'x'; 1_000]);
    p.expect().seq(1);
    let mut probes = 0;
    for _ in 0..20_000 {
        p.pass(100);
        for got in p.drain() {
            assert_eq!(got.seq, 1);
            probes += 1;
            p.send(seg().seq(1).ack(1).win(0));
        }
    }
    assert!(probes > 10, "{probes}");
    assert_eq!(p.state(id), StateName::Established);
    p.send(seg().seq(1).ack(1).win(1_000));
    p.pass(121_000);
    assert!(p.drain().iter().any(|g| g.data.len() == 1_000 || g.seq > 1));
}

// --- acknowledging -----------------------------------------------------------------------------------

/// RFC 5681 §4.2, RFC 9293 §3.8.6.3: every second full segment is acknowledged, and others after 40 ms.
//= rfc9293 SHLD-18 SHLD-19 MUST-40 test
#[test]
fn delayed_acknowledgements() {
    let (mut p, _) = open();
    p.send(seg().seq(nth(0)).ack(1).bytes(1_000));
    p.quiet();
    p.send(seg().seq(nth(1)).ack(1).bytes(1_000));
    p.expect().is_ack().ack(nth(2)).empty();
    p.send(seg().seq(nth(2)).ack(1).bytes(10));
    p.at(39);
    p.quiet();
    p.at(60);
    p.expect().is_ack().at(40);
    p.at(1_000);
    p.quiet();
}

/// RFC 5681 §4.2: segments out of order, duplicates, and segments that fill a hole are acknowledged at once.
//= rfc9293 SHLD-31 test
#[test]
fn immediate_acknowledgements() {
    let (mut p, _) = open();
    let at = |n: u32| seg().seq(nth(n)).ack(1).bytes(1_000);
    p.send(at(2));
    p.expect().is_ack().ack(1);
    p.send(at(4));
    p.expect().is_ack().ack(1);
    p.send(at(0));
    p.expect().is_ack().ack(nth(1));
    p.send(at(1));
    p.expect().is_ack().ack(nth(3));
    p.send(at(3));
    p.expect().is_ack().ack(nth(5));
    p.send(at(3));
    p.expect().is_ack().ack(nth(5));
    p.quiet();
}

/// An answer carries the acknowledgement, so no second segment is sent for it.
#[test]
fn answers_carry_the_acknowledgement() {
    let (mut p, id) = open();
    p.send(seg().seq(1).ack(1).data(b"question"));
    p.write(id, b"answer");
    p.expect().ack(9).data(b"answer");
    p.send(seg().seq(9).ack(7));
    p.at(1_000);
    p.quiet();
}

/// RFC 9293 §3.7.4 (Nagle): one small segment in flight; with nodelay, all of them.
//= rfc9293 SHLD-7 MUST-17 MUST-60 test
#[test]
fn nagle_on_and_off() {
    let (mut p, id) = open();
    p.write(id, b"a");
    p.expect().data(b"a");
    p.write(id, b"b");
    p.write(id, b"c");
    p.quiet();
    p.send(seg().seq(1).ack(2));
    p.expect().seq(2).data(b"bc");
    p.write(id, &[b'd'; 1_500]);
    // A full segment never waits.
    p.expect().seq(4).len(1_000);
    p.quiet();
    p.stack.set_nodelay(id, true, p.now);
    p.expect().seq(1_004).len(500);
    p.write(id, b"e");
    p.expect().data(b"e");
}

/// The FIN carries the last bytes, with or without Nagle.
#[test]
fn fin_carries_the_last_bytes() {
    let (mut p, id) = open();
    p.write(id, b"a");
    p.expect();
    p.write(id, b"b");
    p.quiet();
    p.shutdown(id);
    p.expect().is_fin().seq(2).data(b"b");
}

// --- silence ---------------------------------------------------------------------------------------

fn keepalive(c: &mut Config) {
    c.set_keepalive(Some(Keepalive {
        idle: Duration::from_secs(100),
        interval: Duration::from_secs(10),
        probes: 3,
    }));
}

/// RFC 9293 §3.8.4 (MUST-24 to MUST-28): probes only when idle. An answer restarts the idle time; silence ends the
/// connection.
//= rfc9293 MUST-24 MUST-26 MUST-27 MUST-29 SHLD-12 test
#[test]
fn keepalive_probes_and_gives_up() {
    let (mut p, id) = open_with(seg(), keepalive);
    p.at(99_000);
    p.quiet();
    p.at(100_100);
    p.expect().is_ack().seq(0).ack(1).empty().at(100_000);
    p.send(seg().seq(1).ack(1));
    p.at(199_000);
    p.quiet();
    let probes = p.sends_at(229_000, &[200_100, 210_100, 220_100]);
    assert!(probes.iter().all(|g| g.seq == 0));
    p.at(231_000);
    assert_eq!(p.reason(id), Some(CloseReason::TimedOut));
    p.expect().is_rst();
}

/// Off by default (MUST-25).
//= rfc9293 MUST-25 test
#[test]
fn keepalive_is_off_by_default() {
    let (mut p, id) = open();
    p.at(86_400_000);
    p.quiet();
    assert_eq!(p.state(id), StateName::Established);
}

/// The peer's keepalive is answered (RFC 9293 §3.10.7.4): with or without a garbage byte.
#[test]
fn the_peers_keepalive_is_answered() {
    let (mut p, id) = open();
    p.send(seg().seq(0).ack(1));
    p.expect().is_ack().seq(1).ack(1);
    p.send(seg().seq(0).ack(1).bytes(1));
    p.expect().is_ack().seq(1).ack(1);
    assert_eq!(p.read(id), b"");
}

/// RFC 9293 §3.9.1.2, user timeout: data that is unacknowledged for too long ends the connection.
//= rfc9293 MUST-21 test
#[test]
fn user_timeout() {
    let (mut p, id) = open_with(seg(), |c| c.set_user_timeout(Some(Duration::from_secs(5))));
    p.at(100_000);
    assert_eq!(p.state(id), StateName::Established);
    p.write(id, &[0; 2_000]);
    p.drain();
    p.at(104_000);
    p.send(ack(1));
    p.at(108_000);
    assert_eq!(p.state(id), StateName::Established);
    p.at(109_100);
    assert_eq!(p.reason(id), Some(CloseReason::TimedOut));
    assert!(p.drain().pop().is_some_and(|g| g.is_rst().seq == 2_001));
}

/// A client whose user timeout is 60 s.
fn impatient_client() -> Peer {
    Peer::with(|c| c.tcp.set_user_timeout(Some(Duration::from_secs(60))))
}

/// RFC 9293 §3.9.1.1: the user timeout is about data that waits. When the SYN and what it carried have arrived, nothing
/// does.
#[test]
fn the_user_timeout_of_a_syn_ends_when_everything_has_arrived() {
    let mut plain = impatient_client();
    let first = plain.open_active(seg().mss(1_000));
    let mut early = primed_by(impatient_client(), seg().mss(1_000), 10);
    let second = early.connect(DATA, true);
    early.pass(100);
    early.send(seg().syn().mss(1_000).ack(AFTER));
    let mut crossed = impatient_client();
    let third = crossed.connect(b"", false);
    crossed.send(seg().syn().mss(1_000));
    crossed.send(seg().seq(1).ack(1));
    let ends = [(plain, first), (early, second), (crossed, third)].map(|(mut p, id)| {
        p.drain();
        p.pass(600_000);
        p.quiet();
        (p.reason(id), p.state(id))
    });
    assert_eq!(ends, [(None, StateName::Established); 3]);
}

/// Data that was in the SYN and is not acknowledged has waited since the SYN left.
#[test]
fn the_user_timeout_of_a_syn_goes_on_for_data_that_it_did_not_deliver() {
    let mut p = primed_by(impatient_client(), seg().mss(1_000), 10);
    let start = p.ms();
    let id = p.connect(DATA, true);
    p.pass(1_000);
    p.send(seg().syn().mss(1_000).ack(1));
    p.at(start + 59_900);
    assert_eq!(p.reason(id), None);
    p.at(start + 60_100);
    assert_eq!(p.reason(id), Some(CloseReason::TimedOut));
}

/// RFC 9293 §3.9.1 and RFC 6429: the user timeout also ends a connection whose peer keeps its window closed and answers
/// every probe.
#[test]
fn user_timeout_ends_a_peer_that_keeps_its_window_closed() {
    let (mut p, id) = open_with(seg(), |c| c.set_user_timeout(Some(Duration::from_secs(30))));
    p.write(id, &[0; 5_000]);
    p.drain();
    p.at(1_000);
    // Everything in flight has arrived, and the window is closed.
    p.send(ack(5).win(0));
    p.write(id, &[0; 50_000]);
    while p.ms() < 30_900 {
        p.pass(100);
        for _ in p.drain() {
            p.send(ack(5).win(0));
        }
    }
    assert_eq!(p.state(id), StateName::Established);
    p.at(31_100);
    assert_eq!(p.reason(id), Some(CloseReason::TimedOut));
    assert!(p.drain().pop().is_some_and(|g| g.is_rst().seq == 5_001));
    assert_eq!(p.stack.buffer_bytes(), 0);
}

/// A single byte is not enough progress: the peer has to accept a full segment, or everything, within the user timeout.
#[test]
fn user_timeout_ends_a_peer_that_takes_a_byte_at_a_time() {
    let (mut p, id) = open_with(seg(), |c| c.set_user_timeout(Some(Duration::from_secs(30))));
    p.send(ack(0).win(1));
    p.write(id, &[0; 50_000]);
    let mut taken = 1;
    while p.ms() < 29_900 {
        p.pass(100);
        for got in p.drain() {
            taken = taken.max(got.seq + got.data.len() as u32);
            p.send(seg().seq(1).ack(taken).win(1));
        }
    }
    assert!((3..900).contains(&taken), "{taken}");
    assert_eq!(p.state(id), StateName::Established);
    p.at(30_100);
    assert_eq!(p.reason(id), Some(CloseReason::TimedOut));
}

/// The timeout does not end a slow peer that reads, however long the transfer takes, nor a peer that has
/// everything.
#[test]
fn user_timeout_leaves_a_slow_reader_and_an_idle_peer_alone() {
    let (mut p, id) = open_with(seg(), |c| c.set_user_timeout(Some(Duration::from_secs(30))));
    p.write(id, &[0; 20_000]);
    for n in 1..=20 {
        // One segment in 25 s, and a closed window between segments.
        p.drain();
        p.send(ack(n - 1).win(0));
        p.pass(25_000);
        p.send(ack(n - 1).win(1_000));
        p.drain();
        p.send(ack(n).win(0));
    }
    p.at(2_000_000);
    assert_eq!((p.state(id), p.stack.buffer_bytes()), (StateName::Established, 0));
}

/// The send buffer is small at first, and grows as the peer acknowledges.
#[test]
fn the_send_buffer_grows_with_what_the_peer_takes() {
    let (mut p, id) = open_with(seg(), |c| c.set_first_send_buffer(64 << 10));
    let mut written = 0;
    let mut fill = |p: &mut Peer| {
        while let Ok(n) = p.stack.write(id, &[0; 10_000], p.now) {
            written += n;
        }
        written
    };
    assert_eq!(fill(&mut p), 64 << 10);
    assert_eq!(p.stack.buffer_bytes(), 64 << 10);
    let mut acked = 0;
    for _ in 0..8 {
        let sent: u32 = p.drain().iter().map(|got| got.data.len() as u32).sum();
        assert!(sent > 0, "the buffer is never what holds it up");
        acked += sent;
        p.send(seg().seq(1).ack(1 + acked));
        let written = fill(&mut p);
        assert!(written >= (64 << 10) + 2 * acked as usize, "{written} {acked}");
    }
}

/// RFC 5681 §4.1: after an idle RTO the window starts small again.
#[test]
fn slow_start_restart_after_idle() {
    let (mut p, id) = open();
    p.write(id, &[0; 30_000]);
    for n in 1..=30 {
        p.send(ack(n));
    }
    p.drain();
    assert!(cwnd(&p, id) > 20);
    p.pass(10_000);
    p.write(id, &[0; 40_000]);
    segments(p.drain(), 30..40);
}

/// A full receive buffer drops data, and takes it when it is sent again.
#[test]
fn data_beyond_the_window_is_trimmed() {
    let (mut p, id) = open_with(seg(), |c| c.set_receive_buffer(1_500));
    p.send(seg().seq(1).ack(1).bytes(1_000));
    p.send(seg().seq(1_001).ack(1).bytes(1_000));
    p.pass(50);
    let last = p.drain().pop().unwrap();
    assert_eq!((last.ack, last.window), (1_501, 0));
    assert_eq!(p.read(id).len(), 1_500);
    p.drain();
    p.send(seg().seq(1_501).ack(1).bytes(500));
    assert_eq!(p.read(id).len(), 500);
}

/// An application that cannot write because the stack's memory is used up gets an event when other connections give
/// some back: nothing of its own is in flight that could cause one. It gets no repeated events before that.
#[test]
fn who_finds_no_memory_hears_when_there_is_some() {
    let mut p = Peer::with(|c| c.limits.buffer_bytes = 1 << 14);
    let listener = p.listen();
    let poor = p.open_passive(listener, seg().mss(1460));
    p.port += 1;
    let rich = p.open_passive(listener, seg().mss(1460));
    let written = p.write(rich, &[0; 20_000]) as u32;
    assert_eq!(written, 10_000, "a part, if there is no memory for all");
    let mut acked = p.drain().iter().map(|got| got.data.len() as u32).sum::<u32>();
    p.events.clear();
    for _ in 0..3 {
        assert_eq!(p.stack.write(poor, b"x", p.now), Err(IoError::WouldBlock));
        p.pump();
    }
    assert!(p.events.is_empty(), "{:?}", p.events);
    for _ in 0..10 {
        p.send(seg().seq(1).ack(1 + acked));
        acked += p.drain().iter().map(|got| got.data.len() as u32).sum::<u32>();
    }
    assert_eq!(acked, written);
    assert!(p.events.iter().any(|e| *e == Event::Ready(poor, Readiness::WRITABLE)), "{:?}", p.events);
    assert_eq!(p.stack.write(poor, b"x", p.now), Ok(1));
}

/// Who needs a large block is refused sooner than who needs a small one, and must not take its place.
#[test]
fn who_finds_no_memory_is_not_forgotten_for_one_who_wants_more() {
    let mut p = Peer::with(|c| c.limits.buffer_bytes = 1 << 14);
    let listener = p.listen();
    let open = |p: &mut Peer| {
        p.port += 1;
        p.open_passive(listener, seg().mss(1460))
    };
    let poor = open(&mut p);
    let large = open(&mut p);
    assert_eq!(p.write(large, &[0; 8_000]), 8_000);
    p.drain();
    let small: Vec<_> = std::iter::repeat_with(|| open(&mut p)).take(8).collect();
    let mut last = None;
    for id in small {
        if p.stack.write(id, b"x", p.now).is_ok() {
            last = Some(id);
        }
        p.pump();
    }
    while p.stack.write(large, &[0; 8_000], p.now).is_ok() {}
    p.pump();
    p.stack.write(large, &[0; 8_000], p.now).unwrap_err();
    p.events.clear();
    assert_eq!(p.stack.write(poor, b"x", p.now), Err(IoError::WouldBlock));
    // In the same turn another connection gives a little back, and one finds that too little.
    p.stack.abort(last.unwrap(), p.now);
    assert_eq!(p.stack.write(large, &[0; 8_000], p.now), Err(IoError::WouldBlock));
    p.pump();
    assert!(p.events.iter().any(|e| *e == Event::Ready(poor, Readiness::WRITABLE)), "{:?}", p.events);
    assert_eq!(p.stack.write(poor, b"x", p.now), Ok(1));
}

/// Data behind a gap will never be read once its connection is over. It does not keep the stack's memory from
/// others until the application releases that connection.
#[test]
fn what_lies_behind_a_gap_is_forgotten_with_its_connection() {
    let mut p = Peer::with(|c| c.limits.buffer_bytes = 1 << 14);
    let listener = p.listen();
    let poor = p.open_passive(listener, seg().mss(1460));
    p.port += 1;
    let dead = p.open_passive(listener, seg().mss(1460));
    // Its ring takes all memory at once, because it has to reach from the gap to here.
    p.send(seg().seq(9_001).ack(1).bytes(1_000));
    p.drain();
    assert_eq!(p.stack.write(poor, b"x", p.now), Err(IoError::WouldBlock));
    p.events.clear();
    p.send(seg().seq(1).rst());
    assert!(p.events.iter().any(|e| *e == Event::Ready(poor, Readiness::WRITABLE)), "{:?}", p.events);
    assert_eq!(p.stack.write(poor, b"x", p.now), Ok(1));
    assert_eq!(p.stack.read(dead, &mut [0; 10], p.now), Err(IoError::Closed(CloseReason::Reset)));
}

/// Data that arrived in order before a reset can still be read.
#[test]
fn what_came_in_order_outlives_its_connection() {
    let mut p = Peer::new();
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1460));
    p.send(seg().seq(1).ack(1).bytes(500));
    p.send(seg().seq(1_001).ack(1).bytes(500));
    p.send(seg().seq(501).rst());
    assert_eq!(p.stack.info(id).unwrap().state, StateName::Closed);
    let mut out = [0; 1_000];
    assert_eq!(p.stack.read(id, &mut out, p.now), Ok(500));
    assert_eq!(p.stack.buffer_bytes(), 0);
    assert_eq!(p.stack.read(id, &mut out, p.now), Err(IoError::Closed(CloseReason::Reset)));
}

/// The path takes smaller segments than the MSS, or the peer leaves room for options that it does not send. A
/// segment that does not end a write counts as full. The first ones are acknowledged at once, later ones two by
/// two.
#[test]
fn full_segments_shorter_than_the_mss_are_acknowledged_as_full_ones() {
    for len in [1_420, 700] {
        let mut p = Peer::with(|c| c.tcp.set_quick_acks(4));
        p.open_active(seg().mss(1_460));
        let mut next = 1;
        let mut send = |p: &mut Peer| {
            p.send(seg().seq(next).ack(1).part(len));
            next += len as u32;
            next
        };
        for _ in 0..4 {
            let next = send(&mut p);
            p.expect().is_ack().ack(next);
        }
        for _ in 0..10 {
            send(&mut p);
            p.quiet();
            let next = send(&mut p);
            p.expect().is_ack().ack(next);
        }
    }
}
