//! A token bucket: the limit of a rate, with a burst.

use core::time::Duration;
use firstflight_wire::Instant;

/// Tokens arrive at a rate that the user chooses, up to a limit. Amounts of tokens are given as the time in which they
/// arrive, so a bucket needs no more than one instant.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    /// When the bucket is full, if nothing is taken until then.
    full_at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub const FULL: Self = Self { full_at: Instant::ZERO };

    /// Takes the tokens that arrive in `time`. The bucket holds at most those that arrive in `depth`.
    ///
    /// # Errors
    /// How long to wait until the tokens are there. Nothing is taken then.
    pub fn take(&mut self, time: Duration, depth: Duration, now: Instant) -> Result<(), Duration> {
        let missing = self.missing(now).saturating_add(time);
        let lacking = missing.saturating_sub(depth);
        if !lacking.is_zero() {
            return Err(lacking);
        }
        self.full_at = now + missing;
        Ok(())
    }

    /// How long until the bucket is full, if nothing is taken until then.
    #[must_use]
    pub fn missing(&self, now: Instant) -> Duration {
        self.full_at - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_secs(1000);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_and_then_a_rate() {
        let mut bucket = Bucket::FULL;
        let mut taken = |now| (0..100).take_while(|_| bucket.take(SECOND, 10 * SECOND, now).is_ok()).count();
        assert_eq!(taken(NOW), 10);
        assert_eq!(taken(NOW + Duration::from_millis(999)), 0);
        assert_eq!(taken(NOW + SECOND), 1);
        assert_eq!(taken(NOW + Duration::from_millis(3500)), 2);
        assert_eq!(taken(NOW + 1000 * SECOND), 10);
    }

    #[test]
    fn what_is_refused_takes_nothing_and_says_how_long_to_wait() {
        let mut bucket = Bucket::FULL;
        assert_eq!(bucket.take(3 * SECOND, 4 * SECOND, NOW), Ok(()));
        assert_eq!(bucket.take(3 * SECOND, 4 * SECOND, NOW), Err(2 * SECOND));
        assert_eq!(bucket.missing(NOW), 3 * SECOND);
        assert_eq!(bucket.take(3 * SECOND, 4 * SECOND, NOW + 2 * SECOND), Ok(()));
        assert_eq!(bucket.take(Duration::MAX, SECOND, NOW), Err(Duration::MAX - SECOND));
    }
}
