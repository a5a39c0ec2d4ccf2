//! Budgets for operations that cost time.

use core::hash::Hash;
use core::num::{NonZeroU32, NonZeroUsize};
use core::time::Duration;
use firstflight_credential::Bucket;
use firstflight_wire::Instant;
use lru::LruCache;

/// A number of operations a second, with a burst of a tenth of a second. It bounds the cost of a flood of
/// complete first flights that cannot be opened.
#[derive(Debug, Clone)]
pub struct Budget {
    every: Duration,
    depth: Duration,
    bucket: Bucket,
}

impl Budget {
    /// A full budget.
    #[must_use]
    pub fn new(per_second: NonZeroU32) -> Self {
        let every = Duration::from_secs(1) / per_second.get();
        Self { every, depth: every.max(Duration::from_millis(100)), bucket: Bucket::FULL }
    }

    /// Takes one operation. False if none is left.
    #[must_use]
    pub fn take(&mut self, now: Instant) -> bool {
        self.bucket.take(self.every, self.depth, now).is_ok()
    }

    /// Whether at least half of the burst is left.
    fn is_half_full(&self, now: Instant) -> bool {
        self.bucket.missing(now) <= self.depth / 2
    }
}

/// A budget that many users share. One user can use up half of the burst, and then gets only a sixteenth of
/// the rate. So a flood through one resolver leaves a part for the others.
#[derive(Debug)]
pub(crate) struct SharedBudget<Who: Hash + Eq> {
    all: Budget,
    share: NonZeroU32,
    /// The users that took an operation when less than half was left. A new one replaces the least recently
    /// used one.
    shares: LruCache<Who, Budget>,
}

impl<Who: Hash + Eq> SharedBudget<Who> {
    /// One user gets one part in `SHARE` of the rate when less than half is left.
    const SHARE: u32 = 16;
    /// Users that are remembered.
    const REMEMBERED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

    /// A full budget.
    pub(crate) fn new(per_second: NonZeroU32) -> Self {
        let share = NonZeroU32::new(per_second.get() / Self::SHARE).unwrap_or(NonZeroU32::MIN);
        Self { all: Budget::new(per_second), share, shares: LruCache::new(Self::REMEMBERED) }
    }

    /// Takes one operation for `who`. False if none is left.
    pub(crate) fn take(&mut self, who: Who, now: Instant) -> bool {
        if !self.all.is_half_full(now) {
            let share = self.share;
            if !self.shares.get_or_insert_mut(who, || Budget::new(share)).take(now) {
                return false;
            }
        }
        self.all.take(now)
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

    /// User 0 makes attempts all the time. Users 1 and 2 make one each every 20 ms, which always succeed.
    #[test]
    fn nobody_uses_up_what_others_need() {
        let mut budget = SharedBudget::new(NonZeroU32::new(1000).unwrap());
        let (mut greedy, mut others, mut asked) = (0, 0, 0);
        for ms in 0..10_000 {
            let now = Instant::from_secs(1000) + Duration::from_millis(ms);
            for _ in 0..5 {
                greedy += u32::from(budget.take(0, now));
            }
            if ms % 20 == 0 {
                asked += 2;
                others += u32::from(budget.take(1, now)) + u32::from(budget.take(2, now));
            }
        }
        assert_eq!((others, asked), (1000, 1000));
        // The rest is used too, up to a tenth of a second.
        assert!((9_000..=9_100).contains(&greedy), "{greedy}");
    }

    #[test]
    fn those_who_share_a_budget_are_forgotten_for_others() {
        let mut budget = SharedBudget::new(NonZeroU32::new(1000).unwrap());
        for who in 0..10_000 {
            let _ = budget.take(who, Instant::from_secs(1000));
        }
        assert_eq!(budget.shares.len(), 1024);
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
