//! A receiver that closes its window and opens it again, packet by packet.

use crate::peer::{LATE_MS, Peer, Seg, seg};
use firstflight_stack::{CloseReason, ConnId, StateName};

// --- closed ---------------------------------------------------------------------------------------

/// A connection whose peer has filled our window of 2,000 bytes.
fn closed() -> (Peer, ConnId) {
    let mut p = Peer::with(|c| c.tcp.set_receive_buffer(2_000));
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1_000));
    p.send(seg().seq(1).ack(1).bytes(1_000));
    p.send(seg().seq(1_001).ack(1).bytes(1_000));
    let full = p.drain().pop().unwrap();
    assert_eq!((full.ack, full.window), (2_001, 0));
    (p, id)
}

/// A FIN needs no room in the buffer, so it is taken into a closed window, although RFC 9293 §3.10.7.4 takes no numbers
/// then. Its sender need not repeat it, and the application sees the end as soon as it has read everything.
#[test]
fn a_fin_into_a_closed_window_is_taken() {
    let (mut p, id) = closed();
    // Data does not fit, with or without a FIN after it.
    p.send(seg().seq(2_001).ack(1).bytes(10).fin());
    p.expect().is_ack().ack(2_001).win(0);
    assert_eq!(p.state(id), StateName::Established);
    // The FIN alone fits.
    p.send(seg().seq(2_001).ack(1).fin());
    p.expect().is_ack().ack(2_002).win(0);
    assert_eq!(p.state(id), StateName::CloseWait);
    // It is repeated, because the acknowledgement was lost.
    p.send(seg().seq(2_001).ack(1).fin());
    p.expect().is_ack().ack(2_002);
    let mut out = [0; 3_000];
    assert_eq!(p.stack.read(id, &mut out, p.now), Ok(2_000));
    assert_eq!(p.stack.read(id, &mut out, p.now), Ok(0), "the end");
    p.shutdown(id);
    p.expect().is_fin().seq(1).ack(2_002);
    p.send(seg().seq(2_002).ack(2));
    assert_eq!((p.reason(id), p.stack.buffer_bytes()), (Some(CloseReason::Finished), 0));
}

/// The FIN is also taken with old text in front of it, whose acknowledgement was lost.
#[test]
fn a_fin_behind_old_text_is_taken_into_a_closed_window() {
    let (mut p, id) = closed();
    p.send(seg().seq(1_001).ack(1).bytes(1_000).fin());
    p.expect().is_ack().ack(2_002).win(0);
    assert_eq!((p.state(id), p.read(id).len()), (StateName::CloseWait, 2_000));
}

/// Behind the FIN nothing waits for the window to open.
#[test]
fn no_update_is_repeated_behind_a_fin() {
    let (mut p, id) = closed();
    for _ in 0..2 {
        p.send(seg().seq(2_001).ack(1).fin());
        p.expect().is_ack().ack(2_002).win(0);
    }
    assert_eq!(p.read(id).len(), 2_000);
    p.quiet();
    p.send(seg().seq(2_001).ack(1).fin());
    p.expect().is_ack().ack(2_002).win(2_000);
    p.at(1_000_000);
    p.quiet();
}

/// A segment outside a closed window, also a forged one, makes the stack repeat its window updates. Those share a timer
/// with the delayed acknowledgement of the data that filled the window, and must not make it later.
#[test]
fn forged_segments_do_not_postpone_a_delayed_acknowledgement() {
    let mut p = Peer::with(|c| c.tcp.set_receive_buffer(2_000));
    let listener = p.listen();
    p.open_passive(listener, seg().mss(1_000));
    p.send(seg().seq(1).ack(1).bytes(1_000));
    p.send(seg().seq(1_001).ack(1).bytes(900));
    p.drain();
    let forged = || seg().seq(50_000).ack(1).bytes(1);
    // The number of challenge ACKs that are sent in a second.
    (0..20).for_each(|_| p.send(forged()));
    p.drain();
    p.send(seg().seq(1_901).ack(1).bytes(100));
    p.quiet();
    for _ in 0..10 {
        p.pass(4);
        p.send(forged());
    }
    p.pass(1);
    p.expect().is_ack().ack(2_001).win(0);
}

// --- opened ---------------------------------------------------------------------------------------

/// A window probe of the peer, with a number that we already have (as Linux sends it; RFC 9293 §3.8.6.1 allows a byte
/// that does not fit).
fn probe() -> Seg {
    seg().seq(2_000).ack(1)
}

/// Without repetition, a lost update would delay the peer until its next probe, up to two minutes.
#[test]
fn an_update_that_the_peer_waits_for_is_repeated() {
    for probe in [probe(), seg().seq(2_001).ack(1).bytes(1), seg().seq(1_001).ack(1).bytes(1_000)] {
        let (mut p, id) = closed();
        p.at(5_000);
        p.send(probe);
        p.expect().is_ack().ack(2_001).win(0);
        p.at(10_000);
        p.quiet();
        assert_eq!(p.read(id).len(), 2_000);
        p.expect().is_ack().seq(1).ack(2_001).win(2_000);
        // The RTO is 200 ms. The interval doubles, and the repetition ends.
        let again = p.sends_at(10_000_000, &[10_200, 10_600, 11_400, 13_000, 16_200, 22_600, 35_400, 61_000]);
        assert!(
            again.iter().all(|g| (g.seq, g.ack, g.window, g.data.len()) == (1, 2_001, 2_000, 0)),
            "{again:?}"
        );
    }
}

/// Repetition stops with the first new byte, whose acknowledgement is delayed as usual.
#[test]
fn an_update_is_repeated_until_the_peer_goes_on() {
    let (mut p, id) = closed();
    p.send(probe());
    p.expect().win(0);
    p.read(id);
    p.expect().win(2_000);
    p.sends_at(250, &[200]);
    p.send(seg().seq(2_001).ack(1).bytes(500));
    p.sends_at(100_000, &[290]);
    assert_eq!(p.read(id).len(), 500);
    // A probe at the next number does not start it again.
    p.send(seg().seq(2_500).ack(1));
    p.expect().is_ack().ack(2_501).win(1_500);
    p.at(1_000_000);
    p.quiet();
}

/// A peer that has sent nothing into the closed window gets one update.
#[test]
fn a_peer_that_sent_nothing_into_the_closed_window_is_told_once() {
    let (mut p, id) = closed();
    p.at(5_000);
    p.read(id);
    p.expect().is_ack().ack(2_001).win(2_000);
    p.at(1_000_000);
    p.quiet();
    // The answer to the first keepalive is repeated, because the peer may not know of the update. Later ones are
    // answered once.
    p.send(probe());
    p.expect().is_ack().ack(2_001).win(2_000);
    let again = [200, 600, 1_400, 3_000, 6_200, 12_600, 25_400, 51_000].map(|ms| 1_000_000 + ms);
    p.sends_at(2_000_000, &again);
    for ms in [2_000_000, 3_000_000] {
        p.at(ms);
        p.send(probe());
        p.expect().is_ack().ack(2_001).win(2_000);
    }
    p.at(4_000_000);
    p.quiet();
}

/// Our data carries the window too, and is sent again until it is acknowledged.
#[test]
fn data_that_follows_an_update_takes_its_place() {
    let (mut p, id) = closed();
    p.send(probe());
    p.expect().win(0);
    p.read(id);
    p.expect().win(2_000);
    p.write(id, b"answer");
    p.expect().seq(1).ack(2_001).win(2_000).data(b"answer");
    p.pass(50);
    p.send(seg().seq(2_001).ack(7));
    p.at(1_000_000);
    p.quiet();
}

// --- the peer's window is closed ------------------------------------------------------------------

/// A connection with data to send into a closed window, when the peer has answered `answered` probes.
fn held(answered: u32) -> (Peer, ConnId) {
    let mut p = Peer::new();
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1_000));
    p.send(seg().seq(1).ack(1).win(0));
    p.write(id, b"waits");
    for _ in 0..answered {
        next_probe(&mut p);
        p.send(seg().seq(1).ack(1).win(0));
    }
    (p, id)
}

/// Lets time pass until the next probe leaves, and returns that time.
fn next_probe(p: &mut Peer) -> u64 {
    for _ in 0..13_000 {
        p.pass(10);
        if let Some(got) = p.drain().pop() {
            return got.is_ack().seq(0).empty().at;
        }
    }
    panic!("no probe");
}

/// The interval doubles with each probe that is answered. A lost probe is repeated soon, because it says nothing about
/// how long the window will stay closed.
//= rfc9293 SHLD-30 test
#[test]
fn a_lost_probe_does_not_delay_the_next() {
    let (mut p, id) = held(6);
    let about = |gap: u64, wanted: u64| (wanted..=wanted + 2 * LATE_MS + wanted / 50).contains(&gap);
    let lost = next_probe(&mut p);
    let mut last = lost;
    for wanted in [400, 800, 1_600] {
        let at = next_probe(&mut p);
        assert!(about(at - last, wanted), "{} {wanted}", at - last);
        last = at;
    }
    // Once a probe is answered, the interval counts again: 200 ms, doubled seven times.
    p.send(seg().seq(1).ack(1).win(0));
    let gap = next_probe(&mut p) - last;
    assert!((25_600..=27_500).contains(&gap), "{gap}");
    // The window update was lost; the answer to this probe is not.
    p.send(seg().seq(1).ack(1).win(1_000));
    p.expect().seq(1).data(b"waits");
    assert_eq!(p.state(id), StateName::Established);
}

/// A peer that is gone is given up after as many probes as retransmissions of data, however long it had kept its window
/// closed before.
#[test]
fn a_peer_that_is_gone_is_probed_as_data_is_sent_again() {
    for answered in [0, 3, 12] {
        let (mut p, id) = held(answered);
        let mut times = vec![next_probe(&mut p)];
        times.extend((1..15).map(|_| next_probe(&mut p)));
        p.pass(121_000);
        assert_eq!((p.reason(id), p.drain().len()), (Some(CloseReason::TimedOut), 0));
        let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().zip(0..).all(|(gap, n)| *gap >= (400 << n).min(120_000)), "{gaps:?}");
        assert!(gaps.iter().sum::<u64>() < 900_000, "{gaps:?}");
    }
}
