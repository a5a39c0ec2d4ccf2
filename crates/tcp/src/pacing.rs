//! Pacing: segments leave at a rate, not in bursts of a window.

use core::time::Duration;
use firstflight_wire::Instant;

/// Time by which the sender may catch up: it may send at once what the rate allowed in it. Timers are late, by
/// half a millisecond in the stack's wheel and by more in its driver.
const LATE: Duration = Duration::from_millis(2);

/// Segments of a connection that leave without a pace, unless the algorithm sets the rate: the initial window of RFC
/// 6928, as in Linux. A short answer is not delayed, and no path is loaded more than without pacing.
const UNPACED: u8 = 10;

/// When the next segment may leave.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// C.next_send_time of draft-ietf-ccwg-bbr §5.6.2.
    next: Instant,
    /// Segments that have left, at most [`UNPACED`].
    begun: u8,
    /// When the last segment left, and how many may still leave with it.
    burst: (Instant, u8),
}

/// The pacing rate and its limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Bytes a second.
    pub rate: u64,
    /// Size of a full segment, bytes. Two full segments may leave together after a pause.
    pub mss: u32,
    /// Number of segments that leave together; their gaps follow them.
    pub together: u8,
    /// Longest gap, so that something leaves in every round trip at any measured rate.
    pub longest: Duration,
}

impl Pacer {
    /// The time until which nothing may leave; `None` if something may leave now.
    #[inline]
    #[must_use]
    pub(crate) fn holds(&self, now: Instant) -> Option<Instant> {
        let accompanies = self.burst.1 > 0 && self.burst.0 == now;
        (self.next > now && !accompanies).then_some(self.next)
    }

    /// `bytes` left. Without a pace the next bytes may follow at once.
    pub(crate) fn sent(&mut self, bytes: u32, pace: Option<Pace>, now: Instant) {
        let Some(pace) = pace.filter(|pace| pace.rate > 0) else {
            (self.next, self.burst) = (now, (now, 0));
            return;
        };
        let left = if self.burst.0 == now && self.burst.1 > 0 { self.burst.1 } else { pace.together };
        self.burst = (now, left.saturating_sub(1));
        let late = LATE.max(time_for(pace.mss, pace.rate)).min(pace.longest);
        let gap = time_for(bytes, pace.rate).min(pace.longest);
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(late.as_nanos() as u64));
        self.next = self.next.max(earliest) + gap;
    }

    /// A segment leaves. Whether it is one of the first, for which the window alone is the limit.
    pub(crate) fn begins(&mut self) -> bool {
        let begins = self.begun < UNPACED;
        self.begun += u8::from(begins);
        begins
    }

    /// The next segment may leave at once.
    pub(crate) fn release(&mut self) {
        self.next = Instant::ZERO;
    }
}

/// How long `bytes` take at `rate` bytes a second, which is not 0.
fn time_for(bytes: u32, rate: u64) -> Duration {
    Duration::from_nanos(u64::from(bytes) * 1_000_000_000 / rate.max(1))
}

/// The rate for an algorithm that has none of its own: two windows in a round trip while the window may double,
/// 1.2 windows in congestion avoidance (as in Linux).
#[must_use]
pub(crate) fn rate_of_window(window: u32, threshold: u32, srtt: Duration) -> u64 {
    let percent = if window < threshold / 2 { 200 } else { 120 };
    let micros = (srtt.as_micros() as u64).max(1);
    u64::from(window) * percent * 10_000 / micros
}

#[cfg(test)]
mod tests;
