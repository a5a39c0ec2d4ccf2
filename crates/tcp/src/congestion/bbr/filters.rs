//! The filters that decide which of its measurements BBR keeps, and for how long.

use core::time::Duration;
use firstflight_wire::Instant;

/// The largest value of the current time slot and the one before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TwoSlots<T> {
    now: T,
    before: T,
}

impl<T: Copy + Ord + Default> TwoSlots<T> {
    /// Adds a value.
    pub(super) fn take(&mut self, value: T) {
        self.now = self.now.max(value);
    }

    /// Begins the next slot.
    pub(super) fn advance(&mut self) {
        self.before = core::mem::take(&mut self.now);
    }

    /// The largest value of both slots.
    pub(super) fn max(&self) -> T {
        self.now.max(self.before)
    }
}

/// BBR.extra_acked (§5.5.9): how much more is acknowledged at once than the rate explains.
#[derive(Debug, Clone, Default)]
pub(super) struct Aggregation {
    interval_start: Instant,
    delivered: u64,
    largest: TwoSlots<u32>,
    /// Rounds in the current slot.
    rounds: u32,
}

impl Aggregation {
    /// Half of BBR.ExtraAckedFilterLen, rounds.
    const SLOT: u32 = 5;

    /// Starts to count at `now`.
    pub(super) fn restart(&mut self, now: Instant) {
        self.interval_start = now;
        self.delivered = 0;
    }

    /// A round began. Until the pipe is full, only the last round is kept.
    pub(super) fn round(&mut self, full: bool) {
        self.rounds += 1;
        if self.rounds >= if full { Self::SLOT } else { 1 } {
            self.rounds = 0;
            self.largest.advance();
        }
    }

    /// `acked` bytes arrived at `now`, where `bw` bytes a second were expected. At most `most` bytes count.
    pub(super) fn acked(&mut self, acked: u32, bw: u64, most: u32, now: Instant) {
        let mut expected = volume(bw, now - self.interval_start);
        if self.delivered <= expected {
            self.restart(now);
            expected = 0;
        }
        self.delivered += u64::from(acked);
        let extra = self.delivered.saturating_sub(expected).min(u64::from(most));
        self.largest.take(extra as u32);
    }

    /// The largest recent value.
    pub(super) fn extra(&self) -> u32 {
        self.largest.max()
    }
}

/// The bytes that arrive in `time` at `rate` bytes a second.
pub(super) fn volume(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    bytes.min(u128::from(u64::MAX)) as u64
}

/// A small random generator (splitmix64), so that flows that began alike do not probe at the same times.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u32) -> Self {
        Self(u64::from(seed))
    }

    /// A random number below `n`; `n` must be small.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_slots_forget_what_is_older() {
        let mut slots = TwoSlots::default();
        slots.take(7u64);
        slots.take(5);
        assert_eq!(slots.max(), 7);
        slots.advance();
        slots.take(3);
        assert_eq!(slots.max(), 7);
        slots.advance();
        assert_eq!(slots.max(), 3);
        slots.advance();
        assert_eq!(slots.max(), 0);
    }

    #[test]
    fn what_comes_at_the_expected_rate_is_no_aggregation() {
        let mut aggregation = Aggregation::default();
        for ms in 1..1000 {
            aggregation.acked(1000, 1_000_000, 1 << 20, Instant::from_millis(ms));
        }
        assert!(aggregation.extra() <= 1000, "{}", aggregation.extra());
    }

    #[test]
    fn what_comes_at_once_is() {
        let mut aggregation = Aggregation::default();
        for burst in 1..20 {
            for _ in 0..20 {
                aggregation.acked(1000, 1_000_000, 1 << 20, Instant::from_millis(burst * 20));
            }
        }
        assert!((19_000..=21_000).contains(&aggregation.extra()), "{}", aggregation.extra());
        for _ in 0..2 * Aggregation::SLOT {
            aggregation.round(true);
        }
        assert_eq!(aggregation.extra(), 0);
        aggregation.restart(Instant::from_secs(1));
        aggregation.acked(30_000, 1_000_000, 12_000, Instant::from_secs(1));
        assert_eq!(aggregation.extra(), 12_000, "never more than the window");
        aggregation.round(false);
        aggregation.round(false);
        assert_eq!(aggregation.extra(), 0, "in Startup only the last round counts");
    }

    #[test]
    fn dice_follow_from_the_seed() {
        let rolls = |seed| {
            let mut dice = Dice::new(seed);
            [(); 8].map(|()| dice.below(1000))
        };
        assert_eq!(rolls(1), rolls(1));
        assert_ne!(rolls(1), rolls(2));
        assert!(rolls(3).iter().all(|roll| *roll < 1000));
    }

    #[test]
    fn volumes_do_not_overflow() {
        assert_eq!(volume(1_250_000, Duration::from_millis(40)), 50_000);
        assert_eq!(volume(u64::MAX, Duration::from_secs(120)), u64::MAX);
    }
}
