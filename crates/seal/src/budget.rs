//! A budget for opening flights that come without an accepted block (6.10).

use core::net::IpAddr;
use core::num::{NonZeroU32, NonZeroUsize};
use firstflight_credential::Bucket;
use firstflight_wire::Instant;
use lru::LruCache;
use std::time::Duration;

/// Openings a second, with a burst of a tenth of a second. While less than half of the burst is left, one network (/24,
/// /56) gets a sixteenth of the rate at most, so a flood from one network leaves a part for the others.
#[derive(Debug)]
pub struct OpeningBudget {
    every: Duration,
    all: Bucket,
    shares: LruCache<[u8; 7], Bucket>,
}

impl OpeningBudget {
    /// The default, a second: 2000.
    pub const PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(1999);
    const SHARE: u32 = 16;
    /// Networks that are remembered.
    const REMEMBERED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

    /// A full budget.
    #[must_use]
    pub fn new(per_second: NonZeroU32) -> Self {
        let every = Duration::from_secs(1) / per_second.get();
        Self { every, all: Bucket::FULL, shares: LruCache::new(Self::REMEMBERED) }
    }

    /// Takes one opening for a client. False if none is left: reject.
    #[must_use]
    pub fn take(&mut self, client: IpAddr, now: Instant) -> bool {
        let depth = |every: Duration| every.max(Duration::from_millis(100));
        let whole = depth(self.every);
        if self.all.missing(now) > whole / 2 {
            let every = self.every * Self::SHARE;
            let share = self.shares.get_or_insert_mut(network(client), || Bucket::FULL);
            if share.take(every, depth(every), now).is_err() {
                return false;
            }
        }
        self.all.take(self.every, whole, now).is_ok()
    }
}

impl Default for OpeningBudget {
    fn default() -> Self {
        Self::new(Self::PER_SECOND)
    }
}

/// The first 24 bits of an IPv4 address, or 56 bits of an IPv6 address.
fn network(client: IpAddr) -> [u8; 7] {
    match client.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            [a, b, c, 0, 0, 0, 4]
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, e, f, g, ..] = address.octets();
            [a, b, c, d, e, f, g]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_from_one_network_leaves_a_part_for_others() {
        let mut budget = OpeningBudget::new(NonZeroU32::new(1000).unwrap());
        let (flood, other): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        let (mut greedy, mut honest) = (0, 0);
        for ms in 0..10_000 {
            let now = Instant::from_secs(1000) + Duration::from_millis(ms);
            greedy += (0..5).filter(|_| budget.take(flood, now)).count();
            honest += usize::from(ms % 20 == 0 && budget.take(other, now));
        }
        assert_eq!(honest, 500);
        assert!((500..=10_000).contains(&greedy), "{greedy}");
        assert!(budget.shares.len() <= 2);
        for n in 0..5000u32 {
            let _ = budget.take(IpAddr::from((n << 8).to_be_bytes()), Instant::from_secs(1000));
        }
        assert!(budget.shares.len() <= 1024);
    }
}
