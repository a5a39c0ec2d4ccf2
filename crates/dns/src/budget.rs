//! How often something that costs time is done.

use core::num::NonZeroU32;
use core::time::Duration;
use firstflight_wire::Instant;

/// So many a second, and a tenth of a second's worth at once: a flood of complete first flights that do not
/// open costs a server no more than that.
#[derive(Debug, Clone)]
pub struct Budget {
    every: Duration,
    depth: Duration,
    /// All of it is there at this time, if nothing is taken until then.
    full_at: Instant,
}

impl Budget {
    /// A full one.
    #[must_use]
    pub fn new(per_second: NonZeroU32) -> Self {
        let every = Duration::from_secs(1) / per_second.get();
        Self { every, depth: every.max(Duration::from_millis(100)), full_at: Instant::ZERO }
    }

    /// Takes one; false if there is none.
    #[must_use]
    pub fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + self.every;
        let fits = full_at - now <= self.depth;
        if fits {
            self.full_at = full_at;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_a_second_and_a_tenth_at_once() {
        let mut budget = Budget::new(NonZeroU32::new(1000).unwrap());
        let now = Instant::from_secs(1000);
        let mut taken = 0;
        while budget.take(now) {
            taken += 1;
        }
        assert_eq!(taken, 100);
        for ms in 1..=10_000 {
            while budget.take(now + Duration::from_millis(ms)) {
                taken += 1;
            }
        }
        assert_eq!(taken, 100 + 10_000);
    }

    #[test]
    fn one_a_second_is_one_at_once() {
        let mut budget = Budget::new(NonZeroU32::MIN);
        let now = Instant::from_secs(1000);
        assert!(budget.take(now) && !budget.take(now));
        assert!(!budget.take(now + Duration::from_millis(999)));
        assert!(budget.take(now + Duration::from_secs(1)));
    }
}
