//! Several answers on one connection, one of which loses a segment: what that costs, in virtual time.

use crate::pair::{End, Pair};
use firstflight_link::path::PathConfig;
use firstflight_stack::ConnId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Full segments in an answer that fills the window, and in a short one.
const LONG: usize = 100;
const SHORT: usize = 3;
const MSS: usize = 1_448;

struct Answers {
    pair: Pair,
    client: ConnId,
    server: ConnId,
    /// This number of full segments, and of last segments of answers, are lost next.
    lost: [Arc<AtomicUsize>; 2],
}

impl Answers {
    /// On a path with a round-trip time of 100 ms. The client's first `acks` ACKs are lost.
    fn new(udp: bool, mut acks: usize) -> Self {
        let path = PathConfig::with_delay(Duration::from_millis(50));
        let mut pair = if udp { Pair::in_udp(path, 1, false) } else { Pair::new(path, 1, false, |_, _| {}) };
        let listener = pair.listen(None);
        let client = pair.connect(b"", false);
        let lost = [Arc::default(), Arc::default()];
        let left: [Arc<AtomicUsize>; 2] = lost.clone();
        let mut sent = 0;
        pair.middlebox = Some(Box::new(move |end, packet| {
            sent += usize::from(end == End::Client);
            if end == End::Client && sent > 1 && acks > 0 {
                acks -= 1;
                return false;
            }
            let kind = match packet.len() {
                1_001.. => 0,
                // Only the last segment of an answer is shorter.
                400.. => 1,
                _ => return true,
            };
            let take = |left: usize| left.checked_sub(1);
            end == End::Client || left[kind].fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err()
        }));
        let server = pair.accept(listener);
        Self { pair, client, server, lost }
    }

    /// The time until an answer of `segments` full segments and a short one has arrived, ms.
    fn answer(&mut self, segments: usize) -> u128 {
        let (began, size) = (self.pair.now, segments * MSS + 500);
        assert_eq!(self.pair.server.write(self.server, &vec![7; size], began), Ok(size));
        let (client, mut got) = (self.client, 0);
        self.pair.run(Duration::from_secs(600), |pair| {
            got += pair.client_reads(client).len();
            got == size
        });
        let took = (self.pair.now - began).as_millis();
        // Its last ACK arrives.
        self.pair.idle(Duration::from_millis(60));
        took
    }
}

/// The window says what fits the path, and not how little the application had left when a segment was lost. Computed
/// from that (FlightSize), it would be two or three segments, and the next answer would take 0.9 to 1.9 s.
#[test]
fn a_loss_in_a_short_answer_does_not_cost_the_next_answer_its_window() {
    for udp in [false, true] {
        let mut answers = Answers::new(udp, 0);
        answers.answer(LONG);
        let most = answers.answer(LONG);
        assert!(most < 200, "{most} ms without a loss");
        let mut next = |full: usize, last: usize, took: std::ops::Range<u128>| {
            answers.lost[0].store(full, Ordering::Relaxed);
            answers.lost[1].store(last, Ordering::Relaxed);
            let short = answers.answer(SHORT);
            assert!(took.contains(&short), "{short} ms, udp: {udp}");
            answers.answer(LONG)
        };
        // SACKs show the loss.
        let after = next(1, 0, 100..200);
        assert!(after < 400, "{after} ms after a fast recovery, udp: {udp}");
        // The probe repairs it. It leaves 300 ms after the last ACK, at the time of the timeout (RFC 8985 §7.2).
        let after = next(0, 1, 400..500);
        assert!(after < 500, "{after} ms after a probe, udp: {udp}");
        // The probe is lost, too. After the timeout slow start leads back to the window.
        let after = next(0, 2, 600..1_200);
        assert!(after < 900, "{after} ms after a timeout, udp: {udp}");
    }
}

/// The client's first ACK is lost, so that the SYN-ACK goes again. The echo of the next ACK shows a second more than
/// the path takes, and must not decide how long a lost tail waits for its probe.
#[test]
fn a_lost_ack_of_the_handshake_does_not_delay_the_repair_of_a_tail() {
    let mut answers = Answers::new(false, 1);
    answers.answer(SHORT);
    answers.lost[1].store(1, Ordering::Relaxed);
    let took = answers.answer(SHORT);
    assert!((400..500).contains(&took), "{took} ms");
}
