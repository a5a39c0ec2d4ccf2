//! A budget for opening flights that come without an accepted block (6.10).

use crate::defence::{Defence, on};
use core::net::IpAddr;
use core::num::{NonZeroU32, NonZeroUsize};
use firstflight_credential::Bucket;
use firstflight_wire::Instant;
use lru::LruCache;
use std::time::Duration;

/// Openings a second, with a burst of a tenth of a second. While less than half of the burst is left, a flood from a few
/// networks leaves a part for the others: one network (/24, /56) gets a sixteenth of the rate at most, and all networks of
/// one region (/16, /40), which one attacker may have, a quarter.
#[derive(Debug)]
pub struct OpeningBudget {
    every: Duration,
    all: Bucket,
    networks: LruCache<[u8; 7], Bucket>,
    regions: LruCache<[u8; 6], Bucket>,
}

impl OpeningBudget {
    /// The default, a second: 2000.
    pub const PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(1999);
    const NETWORK: u32 = 16;
    const REGION: u32 = 4;
    /// Networks that are remembered, and regions.
    const REMEMBERED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

    /// A full budget.
    #[must_use]
    pub fn new(per_second: NonZeroU32) -> Self {
        let every = Duration::from_secs(1) / per_second.get();
        let (networks, regions) = (LruCache::new(Self::REMEMBERED), LruCache::new(Self::REMEMBERED));
        Self { every, all: Bucket::FULL, networks, regions }
    }

    /// Takes one opening for a client. False if none is left: reject.
    #[must_use]
    pub fn take(&mut self, client: IpAddr, now: Instant) -> bool {
        let depth = |every: Duration| every.max(Duration::from_millis(100));
        let whole = depth(self.every);
        if self.all.missing(now) > whole / 2 && on(Defence::Shares) {
            let (network, region) = place(client);
            let (of_network, of_region) = (self.every * Self::NETWORK, self.every * Self::REGION);
            let network = self.networks.get_or_insert_mut(network, || Bucket::FULL);
            if network.take(of_network, depth(of_network), now).is_err() {
                return false;
            }
            let region = self.regions.get_or_insert_mut(region, || Bucket::FULL);
            if region.take(of_region, depth(of_region), now).is_err() && on(Defence::Regions) {
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

/// The network of a client, and its region: the first 24 and 16 bits of an IPv4 address, or 56 and 40 bits of an IPv6
/// address.
fn place(client: IpAddr) -> ([u8; 7], [u8; 6]) {
    match client.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            ([a, b, c, 0, 0, 0, 4], [a, b, 0, 0, 0, 4])
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, e, f, g, ..] = address.octets();
            ([a, b, c, d, e, f, g], [a, b, c, d, e, 6])
        }
    }
}

#[cfg(test)]
mod tests;
