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
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_millis(n)
    }

    /// One segment every 10 ms.
    const SLOW: Pace = Pace { rate: 100_000, mss: 1000, together: 1, longest: Duration::from_millis(100) };

    #[test]
    fn two_segments_leave_together_then_one_in_its_time() {
        let mut pacer = Pacer::default();
        for _ in 0..2 {
            assert_eq!(pacer.holds(ms(100)), None);
            pacer.sent(1000, Some(SLOW), ms(100));
        }
        assert_eq!(pacer.holds(ms(100)), Some(ms(110)));
        assert_eq!(pacer.holds(ms(110)), None);
        pacer.sent(1000, Some(SLOW), ms(110));
        assert_eq!(pacer.holds(ms(110)), Some(ms(120)));
    }

    #[test]
    fn segments_that_leave_together_are_followed_by_all_their_gaps() {
        let pairs = Pace { together: 2, ..SLOW };
        let mut pacer = Pacer::default();
        for at in [100, 110, 130, 150] {
            for _ in 0..2 {
                assert_eq!(pacer.holds(ms(at)), None);
                pacer.sent(1000, Some(pairs), ms(at));
            }
            // After a pause, the first of the pair is late by its gap.
            let next = if at == 100 { 110 } else { at + 20 };
            assert_eq!(pacer.holds(ms(at)), Some(ms(next)));
            assert_eq!(pacer.holds(ms(at + 1)), Some(ms(next)), "a burst is over when time passes");
        }
        // Half of a pair leaves no right to another one later.
        pacer.sent(1000, Some(pairs), ms(170));
        assert_eq!(pacer.holds(ms(171)), Some(ms(180)));
    }

    #[test]
    fn the_first_segments_have_no_pace() {
        let mut pacer = Pacer::default();
        assert_eq!((0..100).filter(|_| pacer.begins()).count(), 10);
    }

    #[test]
    fn a_timer_that_is_late_costs_no_rate() {
        // 12.5 MB/s: a segment of 1,250 bytes takes 100 µs, and the timer fires every 0.6 ms.
        let pace = Pace { rate: 12_500_000, mss: 1250, together: 1, longest: Duration::from_secs(1) };
        let (mut pacer, mut sent) = (Pacer::default(), 0);
        for call in 0..10_000 {
            let now = Instant::from_micros(1_000_000 + call * 600);
            while pacer.holds(now).is_none() {
                pacer.sent(1250, Some(pace), now);
                sent += 1;
            }
        }
        assert!((60_000..60_030).contains(&sent), "{sent}");
    }

    #[test]
    fn an_idle_time_is_not_made_up_for() {
        let mut pacer = Pacer::default();
        pacer.sent(1000, Some(SLOW), ms(100));
        let mut burst = 0;
        while pacer.holds(ms(50_000)).is_none() {
            pacer.sent(1000, Some(SLOW), ms(50_000));
            burst += 1;
        }
        assert_eq!(burst, 2);
    }

    #[test]
    fn no_gap_is_longer_than_asked_for() {
        let mut pacer = Pacer::default();
        let crawl = Pace { rate: 1, ..SLOW };
        for _ in 0..3 {
            pacer.sent(1000, Some(crawl), ms(100));
        }
        assert!(pacer.holds(ms(100)).unwrap() <= ms(300));
        pacer.release();
        assert_eq!(pacer.holds(ms(100)), None);
        pacer.sent(1000, None, ms(100));
        assert_eq!(pacer.holds(ms(100)), None);
    }

    #[test]
    fn a_window_goes_out_within_its_round_trip() {
        let srtt = Duration::from_millis(100);
        assert_eq!(rate_of_window(10_000, u32::MAX, srtt), 200_000);
        assert_eq!(rate_of_window(10_000, 10_000, srtt), 120_000);
        assert!(rate_of_window(1 << 30, 1, Duration::ZERO) > 1 << 40);
    }
}
