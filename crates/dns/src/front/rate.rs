//! A limit of the rate of answers over UDP (response rate limiting). Without it an attacker who forges the
//! source of queries could use the server as a reflector.

use super::Kind;
use crate::budget::network;
use core::net::IpAddr;
use core::num::{NonZeroU32, NonZeroUsize};
use core::time::Duration;
use firstflight_credential::Bucket;
use firstflight_wire::Instant;
use lru::LruCache;

/// How many answers a network gets over UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Answers of one kind to one network (/24, /56) in a second, and at once.
    pub per_second: NonZeroU32,
    /// Networks that are remembered. A new network replaces the least recently used one.
    pub networks: NonZeroUsize,
}

impl Default for RateLimit {
    /// 500 answers a second, 16,384 networks (about 2.5 MB).
    fn default() -> Self {
        Self {
            per_second: NonZeroU32::MIN.saturating_add(499),
            networks: NonZeroUsize::MIN.saturating_add(16_383),
        }
    }
}

/// The decision about an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateVerdict {
    Send,
    /// Send it empty and marked as truncated, so that a genuine resolver asks again over TCP.
    Slip,
    Drop,
}

/// The record of a network.
#[derive(Debug, Clone, Copy)]
struct Record {
    /// For each kind: the answers of a second.
    answers: [Bucket; Kind::COUNT],
    /// For each kind: whether the last answer above the limit was dropped.
    dropped: [bool; Kind::COUNT],
}

#[derive(Debug)]
pub(super) struct RateLimiter {
    every: Duration,
    networks: LruCache<IpAddr, Record>,
}

impl RateLimiter {
    pub(super) fn new(limit: RateLimit) -> Self {
        let every = Duration::from_secs(1) / limit.per_second.get();
        Self { every, networks: LruCache::new(limit.networks) }
    }

    pub(super) fn judge(&mut self, to: IpAddr, kind: Kind, now: Instant) -> RateVerdict {
        let fresh = || Record { answers: [Bucket::FULL; Kind::COUNT], dropped: [true; Kind::COUNT] };
        let record = self.networks.get_or_insert_mut(network(to), fresh);
        let (Some(answers), Some(dropped)) =
            (record.answers.get_mut(kind as usize), record.dropped.get_mut(kind as usize))
        else {
            return RateVerdict::Drop;
        };
        if answers.take(self.every, Duration::from_secs(1), now).is_ok() {
            return RateVerdict::Send;
        }
        *dropped = !*dropped;
        if *dropped { RateVerdict::Drop } else { RateVerdict::Slip }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.networks.len()
    }
}

#[cfg(test)]
mod tests;
