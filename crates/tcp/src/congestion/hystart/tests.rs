use super::*;
use firstflight_wire::Instant;
use std::collections::VecDeque;
use std::vec::Vec;

const MSS: u32 = 1000;

/// A sender in slow start, with the round-trip times of the segments under way.
struct Sender {
    hystart: HyStart,
    cwnd: u32,
    flight: VecDeque<u64>,
}

impl Sender {
    /// Runs a round whose segments take `ms` each: everything under way is acknowledged, and new segments
    /// leave. Returns the growth of the window in percent; `None` if slow start is over.
    fn round(&mut self, ms: u64) -> Option<u32> {
        let before = self.cwnd;
        for _ in 0..self.flight.len() {
            let ack = AckSample {
                now: Instant::ZERO,
                acked: MSS,
                in_flight: self.flight.len() as u32 * MSS,
                srtt: None,
                rtt: self.flight.pop_front().map(|ms| ms * 1_000_000),
                cwnd_limited: true,
            };
            self.cwnd += self.hystart.growth(&ack)?;
            self.fill(ms);
        }
        Some((self.cwnd - before) * 100 / before)
    }

    fn fill(&mut self, ms: u64) {
        let segments = (self.cwnd / MSS) as usize;
        self.flight.resize(segments.max(self.flight.len()), ms);
    }
}

/// A window of 64 segments after rounds of `ms`.
fn sender(ms: u64) -> Sender {
    let mut s = Sender { hystart: HyStart::NEW, cwnd: 16_000, flight: VecDeque::new() };
    s.fill(ms);
    assert_eq!((s.round(ms), s.round(ms)), (Some(100), Some(100)));
    s
}

#[test]
fn a_window_doubles_while_round_trips_take_as_long() {
    let mut s = sender(40);
    for ms in [42, 45, 49, 54, 59] {
        assert_eq!(s.round(ms), Some(100));
    }
}

/// RFC 9406 §4.2: when round trips take more than an eighth longer, growth is a quarter as fast for five
/// rounds, then slow start is over.
//= rfc9438 4.10-b test
#[test]
fn round_trips_that_take_longer_end_it_five_rounds_later() {
    let mut s = sender(40);
    assert_eq!(s.round(46), Some(100), "not acknowledged yet");
    let growth: Vec<u32> = core::iter::from_fn(|| s.round(60)).collect();
    let (learning, slow) = growth.split_at(growth.iter().position(|g| *g < 50).unwrap());
    assert!(learning.len() <= 2, "{growth:?}");
    assert!((3..=5).contains(&slow.len()), "{growth:?}");
    assert!(slow.iter().skip(1).all(|g| (20..=25).contains(g)), "{growth:?}");
}

/// RFC 9406 §4.2: if there was no queue, conservative slow start ends.
#[test]
fn round_trips_that_get_shorter_let_it_go_on() {
    let mut s = sender(40);
    let growth: Vec<u32> =
        [50, 50, 50, 41, 41, 41, 41, 41, 41].iter().filter_map(|ms| s.round(*ms)).collect();
    assert!(growth.iter().any(|g| *g < 40), "{growth:?}");
    assert!(growth[6..].iter().all(|g| *g >= 99), "{growth:?}");
}

#[test]
fn little_is_no_queue_and_longer_than_four_seconds_is_not_known() {
    for (before, after) in [(1, 4), (200, 215), (5_000, 9_000_000)] {
        let mut s = sender(before);
        assert_eq!((s.round(after), s.round(after)), (Some(100), Some(100)), "{before}, {after} ms");
    }
    assert!(size_of::<HyStart>() <= 12);
}
