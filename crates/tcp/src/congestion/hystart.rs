//! HyStart++ (RFC 9406): ends slow start when round trips take longer, before the queue overflows.

use super::AckSample;

/// Number of round-trip times needed for the minimum of a round (N_RTT_SAMPLE).
const SAMPLES: u8 = 8;
/// A rise by an eighth of the round-trip time means a queue (MIN_RTT_DIVISOR).
const DIVISOR: u16 = 8;
/// Limits of that rise: at least 4 ms, at most 16 ms (MIN_RTT_THRESH, MAX_RTT_THRESH).
const LEAST: u16 = 4_000 / UNIT_US as u16;
const MOST: u16 = 16_000 / UNIT_US as u16;
/// Number of rounds of conservative slow start (CSS_ROUNDS).
const ROUNDS: u8 = 5;
/// Conservative slow start grows by this part of slow start's growth (CSS_GROWTH_DIVISOR).
const GROWTH_DIVISOR: u32 = 4;

/// Unit of the stored round-trip times, microseconds: 16 bits reach up to 4 s. Longer ones never seem to rise.
const UNIT_US: u32 = 64;
/// The value for no round-trip time.
const NONE: u16 = u16::MAX;

/// State of the rounds of a slow start.
#[derive(Debug, Clone, Copy)]
pub(super) struct HyStart {
    /// Bytes that were under way when the round began and are not acknowledged yet.
    left: u32,
    /// The smallest round-trip time of this round (currentRoundMinRTT).
    now: u16,
    /// The smallest round-trip time of the last round (lastRoundMinRTT).
    last: u16,
    /// The smallest round-trip time when conservative slow start began (cssBaselineMinRtt); `NONE` outside it.
    baseline: u16,
    /// Number of round-trip times in this round.
    samples: u8,
    /// Number of rounds of conservative slow start.
    rounds: u8,
}

impl HyStart {
    pub(super) const NEW: Self =
        Self { left: 0, now: NONE, last: NONE, baseline: NONE, samples: 0, rounds: 0 };

    /// Growth of the window for what `ack` acknowledges; `None` if slow start is over.
    pub(super) fn growth(&mut self, ack: &AckSample) -> Option<u32> {
        if let Some(rtt) = ack.rtt {
            self.now = self.now.min(units(rtt));
            self.samples = self.samples.saturating_add(1);
            if self.samples >= SAMPLES {
                self.judge();
            }
        }
        self.left = self.left.min(ack.in_flight).saturating_sub(ack.acked);
        if self.left == 0 {
            self.left = ack.in_flight.saturating_sub(ack.acked);
            (self.last, self.now, self.samples) = (self.now, NONE, 0);
            self.rounds += u8::from(self.is_conservative());
            if self.rounds >= ROUNDS {
                return None;
            }
        }
        Some(if self.is_conservative() { ack.acked / GROWTH_DIVISOR } else { ack.acked })
    }

    fn is_conservative(&self) -> bool {
        self.baseline != NONE
    }

    /// Checks whether round trips take longer, or no longer do.
    fn judge(&mut self) {
        if self.is_conservative() {
            if self.now < self.baseline {
                // There was no queue: slow start continues.
                (self.baseline, self.rounds) = (NONE, 0);
            }
        } else if self.last != NONE {
            let rise = (self.last / DIVISOR).clamp(LEAST, MOST);
            if self.now >= self.last.saturating_add(rise) {
                self.baseline = self.now;
            }
        }
    }
}

/// Converts nanoseconds to units; never `NONE`.
fn units(nanos: u64) -> u16 {
    let units = nanos / 1000 / u64::from(UNIT_US);
    units.min(u64::from(NONE) - 1) as u16
}

#[cfg(test)]
mod tests {
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
}
