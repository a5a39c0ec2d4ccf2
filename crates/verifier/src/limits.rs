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
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_secs(1_000_000);

    fn many(limits: &mut RateLimits, client: IpAddr, now: Instant) -> u32 {
        (0..1000).take_while(|_| limits.take(client, now).is_ok()).count() as u32
    }

    #[test]
    fn an_address_has_its_burst_and_then_its_rate() {
        let mut limits = RateLimits::new(Limits::default());
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        assert_eq!(many(&mut limits, one, NOW), 60);
        assert_eq!(limits.take(one, NOW), Err(Duration::from_secs(1)));
        assert_eq!(many(&mut limits, other, NOW), 60);
        assert_eq!(many(&mut limits, one, NOW + Duration::from_secs(10)), 10);
        assert_eq!(many(&mut limits, one, NOW + Duration::from_secs(3600)), 60);
    }

    #[test]
    fn ipv6_prefixes_are_counted_together() {
        let mut limits = RateLimits::new(Limits::default());
        let in_64 = |n: u128| IpAddr::V6((0x2001_0db8_u128 << 96 | n).into());
        // All addresses of one /64, all /64s of one /56, and all /56s of one /48 are counted together.
        let total = |limits: &mut RateLimits, step: u128| -> u32 {
            (0..100).map(|n| many(limits, in_64(n * step), NOW)).sum()
        };
        assert_eq!(total(&mut limits, 1), 60);
        assert_eq!(total(&mut RateLimits::new(Limits::default()), 1 << 64), 120);
        assert_eq!(total(&mut RateLimits::new(Limits::default()), 1 << 72), 480);
        assert_eq!(total(&mut RateLimits::new(Limits::default()), 1 << 80), 100 * 60);
        // A request that the /48's limit refuses does not count for the /64.
        let mut full = RateLimits::new(Limits::default());
        total(&mut full, 1 << 72);
        let unused = in_64(9 << 72);
        assert!(full.take(unused, NOW).is_err());
        assert_eq!(many(&mut full, unused, NOW + Duration::from_secs(60)), 60);
    }

    /// Together the members allow what one would, but for what is rounded up, and for a pool at once.
    #[test]
    fn members_share_the_limits() {
        let part = Limits::default().share(NonZeroU16::new(7).unwrap());
        assert_eq!(part.v4, Rate { burst: 9, per_minute: 9 });
        assert_eq!(part.v6[2], Rate { burst: 69, per_minute: 69 });
        assert_eq!(part.signatures_per_second, Limits::default().signatures_per_second);
        assert_eq!(Limits::default().share(NonZeroU16::MIN), Limits::default());
        let few = Limits { v4: Rate { burst: 3, per_minute: 0 }, ..Limits::default() };
        assert_eq!(few.share(NonZeroU16::MAX).v4, Rate { burst: 3, per_minute: 0 });
        let least = Limits::default().share(NonZeroU16::MAX);
        assert_eq!(least.v4, Rate { burst: 8, per_minute: 1 });
    }

    #[test]
    fn memory_is_bounded() {
        let prefixes = NonZeroUsize::new(100).unwrap();
        let mut limits = RateLimits::new(Limits { prefixes, ..Limits::default() });
        for n in 0..10_000_u32 {
            let _ = limits.take(IpAddr::V4(n.into()), NOW);
        }
        assert_eq!(limits.len(), 100);
    }

    #[test]
    fn signatures_have_a_budget() {
        let limits = Limits { signatures_per_second: 1000, ..Limits::default() };
        let mut limits = RateLimits::new(limits);
        let mut spent = 0;
        for ms in 0..10_000 {
            while limits.afford(2, NOW + Duration::from_millis(ms)).is_ok() {
                spent += 2;
            }
        }
        assert!((10_000..=10_102).contains(&spent), "{spent}");
        let none = Limits { signatures_per_second: 0, ..Limits::default() };
        assert!(RateLimits::new(none).afford(1, NOW).is_err());
    }
}
