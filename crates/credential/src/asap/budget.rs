//! How much time a server spends on signatures, and how it shares this time among clients.
//!
//! Each garbage request that names a trusted verifier costs a verification. An attacker could use up one
//! common budget, and honest clients would always fall back. So there are lanes, shares for source networks,
//! and the block list.

use super::block_list::BlockList;
use super::certificate::CertificateDigest;
use crate::bucket::Bucket;
use crate::lru::Lru;
use crate::outcome::Reason;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Instant;
use firstflight_wire::asap::VerifierId;
use firstflight_wire::setters;

/// How long the requests of a source prefix are verified one by one after an invalid one, and the requests of
/// all clients after too many failed batches.
const SINGLY: Duration = Duration::from_secs(10);
/// Number of batches over which the share of failed ones is measured.
const BATCHES: u32 = 1024;
/// The share is computed of at least this number of batches, because one failure among the first few has no
/// meaning.
const BATCHES_MIN: u32 = 50;
/// A lane saves up the tokens of at most this time.
const SAVED: Duration = Duration::from_millis(100);
/// A network saves up the tokens of at most this time, if the lane lends them.
const SAVED_BY_NETWORK: Duration = Duration::from_secs(1);
/// Requests that fronts hand over are counted over this time.
const RELAYED_MINUTE: Duration = Duration::from_secs(60);
/// Entries of each kind that are remembered.
const REMEMBERED: usize = 4096;

/// Bounds of one shard's verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetConfig {
    /// Signatures verified a second. One takes 25 to 40 µs of a core.
    pub per_second: u32,
    /// Signatures verified a second for requests that fronts hand over, in addition to `per_second`.
    pub relayed_per_second: u32,
    /// Certificates remembered as verified.
    pub certificates: usize,
}

setters! {
    BudgetConfig {
        per_second: u32,
        relayed_per_second: u32,
        certificates: usize,
    }
}

impl Default for BudgetConfig {
    /// About 30 % of a core for direct requests, and 3 % for those of fronts.
    fn default() -> Self {
        Self { per_second: 10_000, relayed_per_second: 1_000, certificates: 16_384 }
    }
}

/// The class of a first flight's certificate. Each class has a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Verified before: only one signature must be verified, and its client has been here.
    Known,
    /// New: two signatures must be verified, and anyone can have sent them.
    New,
    /// Handed over by a front, new or not: the sender need not be at the address.
    Relayed,
}

/// A shard's memory of certificates and of the clients that use them.
#[derive(Debug)]
pub struct AsapShard {
    config: BudgetConfig,
    /// Verified certificates: when each ends (Unix seconds), and the generation of the trust store.
    certificates: Lru<CertificateDigest, (u64, u64)>,
    /// Counts the changes of the trust store. Certificates that were verified under an earlier store are
    /// forgotten.
    generation: u64,
    lanes: [Bucket; 3],
    /// By lane and network. The lanes are separate, because requests that an attacker sends in a client's
    /// name into one lane must not use up the client's share of the other.
    sources: Lru<(Lane, u64), Bucket>,
    verifiers: Lru<VerifierId, Bucket>,
    /// Valid requests that fronts handed over, by the client's prefix.
    relayed: Lru<u64, Bucket>,
    block_list: BlockList,
    suspects: Lru<u64, Instant>,
    batches: u32,
    failed_batches: u32,
    /// Until then no request is verified in a batch.
    singly_until: Instant,
}

impl AsapShard {
    /// A shard that remembers nothing and has its whole budget.
    #[must_use]
    pub const fn new(config: BudgetConfig) -> Self {
        Self {
            config,
            certificates: Lru::new(config.certificates),
            generation: 0,
            lanes: [Bucket::FULL; 3],
            sources: Lru::new(REMEMBERED),
            verifiers: Lru::new(REMEMBERED),
            relayed: Lru::new(REMEMBERED),
            block_list: BlockList::new(REMEMBERED),
            suspects: Lru::new(REMEMBERED),
            batches: 0,
            failed_batches: 0,
            singly_until: Instant::ZERO,
        }
    }

    /// The trust store has changed. Forgets every verified certificate.
    pub fn trust_changed(&mut self) {
        self.generation += 1;
        self.certificates.clear();
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the certificate was verified under the present trust store and has not ended.
    pub(super) fn knows(&mut self, digest: &CertificateDigest, now_s: u64) -> bool {
        let generation = self.generation;
        self.certificates.get(digest).is_some_and(|(ends, then)| *ends >= now_s && *then == generation)
    }

    pub(super) fn remember(&mut self, digest: CertificateDigest, ends: u64) {
        let generation = self.generation;
        if let Some(entry) = self.certificates.get_or_insert(digest, || (ends, generation)) {
            *entry = (ends, generation);
        }
    }

    /// How many certificates are remembered.
    #[must_use]
    pub fn certificates(&self) -> usize {
        self.certificates.len()
    }

    /// Takes the cost of the verification from the lane, and from the source network's share of the lane. The
    /// network is a /24 or a /56, because one host may have any address in it.
    /// Errors: which of the two has too few tokens left.
    pub(super) fn afford(&mut self, lane: Lane, prefix: u64, now: Instant) -> Result<(), Reason> {
        let half = self.config.per_second / 2;
        let (place, count, rate) = match lane {
            Lane::Known => (0, 1, self.config.per_second - half),
            Lane::New => (1, 2, half),
            Lane::Relayed => (2, 2, self.config.relayed_per_second),
        };
        let lane_bucket = self.lanes.get_mut(place).ok_or(Reason::Overloaded)?;
        // One network gets a sixteenth of the lane, so it takes many networks to use the lane up. The clients
        // of an office often arrive all at once, so a network may save up the tokens of a whole second, and
        // the lane lends them while at least half of its own tokens are left.
        let network = prefix & !0xff;
        let share =
            self.sources.get_or_insert((lane, network), || Bucket::FULL).ok_or(Reason::NetworkLimit)?;
        let per_second = (rate / 16).max(4);
        let lends = would_leave_half(lane_bucket, count, rate, now);
        let depth = if lends { SAVED_BY_NETWORK } else { SAVED };
        if rate > 0 && !take(share, count, per_second, depth, now) {
            return Err(Reason::NetworkLimit);
        }
        if take(lane_bucket, count, rate, SAVED, now) { Ok(()) } else { Err(Reason::Overloaded) }
    }

    /// Counts an acceptance under a verifier with a limit.
    pub(super) fn within_rate(
        &mut self,
        verifier: VerifierId,
        per_second: Option<u32>,
        now: Instant,
    ) -> bool {
        let Some(limit) = per_second else { return true };
        let bucket = self.verifiers.get_or_insert(verifier, || Bucket::FULL);
        bucket.is_some_and(|bucket| take(bucket, 1, limit, SAVED, now))
    }

    /// Counts an acceptance of a request that a front handed over: at most ten a minute for one client (for
    /// IPv6, a /64).
    pub(super) fn within_relayed_rate(&mut self, prefix: u64, now: Instant) -> bool {
        let bucket = self.relayed.get_or_insert(prefix, || Bucket::FULL);
        bucket.is_some_and(|bucket| bucket.take(RELAYED_MINUTE / 10, RELAYED_MINUTE, now).is_ok())
    }

    /// Whether this key or this address may not use the first flight now.
    pub(super) fn is_barred(&self, key: &[u8; 32], address: IpAddr, now: Instant) -> bool {
        self.block_list.holds(key, address, now)
    }

    /// A reset came from the address of an accepted first flight, before its client's ACK, so the sender may
    /// not be at this address. The key is barred for `lasts`, the time until its certificate ends, and the
    /// address for a time that grows from zero with each further key.
    pub fn block(&mut self, key: [u8; 32], lasts: Duration, address: IpAddr, now: Instant) {
        self.block_list.reset(key, lasts, address, now);
    }

    /// A client at `address` acknowledged the answer to its accepted first flight, so one reset at this
    /// address may be forgiven.
    pub fn acknowledged(&mut self, address: IpAddr, now: Instant) {
        self.block_list.acknowledged(address, now);
    }

    /// The signature of a request under `key` was wrong.
    pub(super) fn failed(&mut self, key: [u8; 32], prefix: u64, now: Instant) {
        self.block_list.failed(key, now);
        self.suspect(prefix, now);
    }

    /// A signature from this prefix was wrong. Its requests are verified one by one for a while.
    pub(super) fn suspect(&mut self, prefix: u64, now: Instant) {
        if let Some(until) = self.suspects.get_or_insert(prefix, || now) {
            *until = now + SINGLY;
        }
    }

    /// Whether requests of this prefix may be verified in a batch with others.
    pub(super) fn may_batch(&self, prefix: u64, now: Instant) -> bool {
        self.singly_until <= now && self.suspects.peek(&prefix).is_none_or(|until| *until <= now)
    }

    /// Counts a batch. If more than 2 % fail, there are no batches for a while, and the count starts again.
    pub(super) fn note_batch(&mut self, failed: bool, now: Instant) {
        self.batches += 1;
        self.failed_batches += u32::from(failed);
        if self.failed_batches * 50 > self.batches.max(BATCHES_MIN) {
            self.singly_until = now + SINGLY;
            (self.batches, self.failed_batches) = (0, 0);
        }
        if self.batches >= BATCHES {
            self.batches /= 2;
            self.failed_batches /= 2;
        }
    }
}

/// Takes `count` tokens from a bucket, if they are there. The bucket holds the tokens of time `depth`, and at least
/// two.
fn take(bucket: &mut Bucket, count: u32, per_second: u32, depth: Duration, now: Instant) -> bool {
    let Some(each) = Duration::from_secs(1).checked_div(per_second) else { return false };
    bucket.take(each * count, depth.max(each * 2), now).is_ok()
}

/// Whether at least half of the tokens that a lane can save up would be left after `count` were taken.
fn would_leave_half(lane: &Bucket, count: u32, per_second: u32, now: Instant) -> bool {
    let time = Duration::from_secs(1).checked_div(per_second).map(|each| each * count);
    time.is_some_and(|time| lane.missing(now) + time <= SAVED / 2)
}

#[cfg(test)]
mod tests;
