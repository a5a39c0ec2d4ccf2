//! How much a verifier does for one network, and in total.
//!
//! Only clients whose address is proved are counted, so an attacker cannot use up the share of another
//! network. This table is used instead of a rate-limiting crate, because those keep a state for every key
//! until a sweep, while this table has a fixed number of places.

use firstflight_credential::Bucket;
use firstflight_wire::Instant;
use firstflight_wire::setters;
use ipnet::IpNet;
use lru::LruCache;
use std::net::IpAddr;
use std::num::{NonZeroU16, NonZeroUsize};
use std::time::Duration;

/// A burst, and then a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests at once.
    pub burst: u32,
    /// Requests a minute after the burst.
    pub per_minute: u32,
}

/// The limits of a verifier.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Requests of an IPv4 address.
    pub v4: Rate,
    /// Requests of an IPv6 /64, a /56 and a /48.
    pub v6: [Rate; 3],
    /// Signatures made and verified a second. One takes 25 to 40 µs of a core.
    pub signatures_per_second: u32,
    /// Prefixes remembered at one time. A prefix that was forgotten has its whole burst again.
    pub prefixes: NonZeroUsize,
}

setters! {
    Limits {
        v4: Rate,
        v6: [Rate; 3],
        signatures_per_second: u32,
        prefixes: NonZeroUsize,
    }
}

impl Default for Limits {
    /// Enough for pools of four certificates on about a dozen hosts behind one address, and about a fifth of
    /// a core.
    fn default() -> Self {
        Self {
            v4: Rate { burst: 60, per_minute: 60 },
            v6: [
                Rate { burst: 60, per_minute: 60 },
                Rate { burst: 120, per_minute: 120 },
                Rate { burst: 480, per_minute: 480 },
            ],
            signatures_per_second: 6_000,
            prefixes: NonZeroUsize::MIN.saturating_add(65_535),
        }
    }
}

/// Requests of one address that each member takes at once: as many as a client's pool makes. Fewer if the whole limit is less.
const LEAST_BURST: u32 = 8;

impl Limits {
    /// The part of one of `members`: of requests, which all members count for themselves. Each has processors of its own for
    /// signatures. No part is nothing, unless the whole is, and a client that the network brings to one member only still gets
    /// the certificates of a pool.
    #[must_use]
    pub fn share(self, members: NonZeroU16) -> Self {
        let part = |all: u32| all.div_ceil(u32::from(members.get()));
        let rate = |Rate { burst, per_minute }| Rate {
            burst: part(burst).max(burst.min(LEAST_BURST)),
            per_minute: part(per_minute),
        };
        Self { v4: rate(self.v4), v6: self.v6.map(rate), ..self }
    }
}

/// The limits, and how much of them is used.
#[derive(Debug)]
pub(crate) struct RateLimits {
    limits: Limits,
    prefixes: LruCache<IpNet, Bucket>,
    signatures: Bucket,
}

impl RateLimits {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { prefixes: LruCache::new(limits.prefixes), limits, signatures: Bucket::FULL }
    }

    /// Counts a request of `client`. If its address or one of its prefixes has made too many, the error is
    /// how long to wait.
    pub(crate) fn take(&mut self, client: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut shares = [None; 3];
        match client {
            IpAddr::V4(_) => shares[0] = Some((client.into(), self.limits.v4)),
            IpAddr::V6(_) => {
                let rates = [64, 56, 48].into_iter().zip(self.limits.v6);
                for (share, (bits, rate)) in shares.iter_mut().zip(rates) {
                    *share = IpNet::new(client, bits).ok().map(|prefix| (prefix.trunc(), rate));
                }
            }
        }
        let mut taken = [None; 3];
        for (place, share) in taken.iter_mut().zip(shares) {
            let Some((prefix, rate)) = share else { continue };
            let every = every(rate.per_minute, Duration::from_secs(60));
            let mut bucket = self.prefixes.peek(&prefix).copied().unwrap_or(Bucket::FULL);
            bucket.take(every, every.saturating_mul(rate.burst), now)?;
            *place = Some((prefix, bucket));
        }
        for (prefix, bucket) in taken.into_iter().flatten() {
            self.prefixes.put(prefix, bucket);
        }
        Ok(())
    }

    /// Takes the cost of `count` signatures. The error is how long to wait.
    pub(crate) fn afford(&mut self, count: u32, now: Instant) -> Result<(), Duration> {
        if self.limits.signatures_per_second == 0 {
            return Err(Duration::from_secs(60));
        }
        let every = every(self.limits.signatures_per_second, Duration::from_secs(1));
        // The burst is a tenth of a second's signatures, but at least those of two requests.
        let depth = Duration::from_millis(100).max(every.saturating_mul(8));
        self.signatures.take(every.saturating_mul(count), depth, now)
    }

    /// Prefixes remembered.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.prefixes.len()
    }
}

/// The time for one, if `count` take `time`.
fn every(count: u32, time: Duration) -> Duration {
    time.checked_div(count).unwrap_or(Duration::from_secs(1 << 32))
}

#[cfg(test)]
mod tests;
