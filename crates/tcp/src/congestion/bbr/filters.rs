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
mod tests;
