//! Budgets for operations that cost time.

use core::hash::Hash;
use core::net::IpAddr;
use core::num::{NonZeroU32, NonZeroUsize};
use core::time::Duration;
use firstflight_credential::Bucket;
use firstflight_wire::Instant;
use ipnet::IpNet;
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

/// The /24 or the /56 of an address: the network's first address.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    let bits = if address.is_ipv4() { 24 } else { 56 };
    // Every address has a prefix of this length.
    IpNet::new(address, bits).map_or(address, |net| net.network())
}

#[cfg(test)]
mod tests;
