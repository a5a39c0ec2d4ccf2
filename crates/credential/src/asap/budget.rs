//! How much time a server spends on signatures, and on whose.
//!
//! Garbage that names a trusted verifier costs a verification each. One budget for all would be used up by
//! it, and honest clients would fall back for ever: so there are lanes, shares for source prefixes, and bars.

use super::bars::Bars;
use super::certificate::CertificateDigest;
use crate::lru::Lru;
use crate::outcome::Reason;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Instant;
use firstflight_wire::asap::VerifierId;

/// How long the requests of a source prefix are verified one by one after a wrong one, and those of everybody
/// after too many wrong batches.
const SINGLY: Duration = Duration::from_secs(10);
/// Batches over which the share of failing ones is measured.
const BATCHES: u32 = 1024;
/// Fewer than so many count as so many: one failure among the first few says nothing.
const BATCHES_MIN: u32 = 50;
/// How long a lane saves up.
const SAVED: Duration = Duration::from_millis(100);
/// How long a network may save up its share of a lane, where the lane lends it.
const SAVED_BY_NETWORK: Duration = Duration::from_secs(1);
/// What comes by a front is counted over this time.
const RELAYED_MINUTE: Duration = Duration::from_secs(60);
/// Things remembered at once, of each kind.
const REMEMBERED: usize = 4096;

/// Bounds of one shard's verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetConfig {
    /// Signatures verified a second. One takes 25 to 40 µs of a core.
    pub per_second: u32,
    /// Of those that fronts hand over: signatures verified a second, besides.
    pub relayed_per_second: u32,
    /// Certificates remembered as verified.
    pub certificates: usize,
}

impl Default for BudgetConfig {
    /// Some 30 % of a core, and 3 %.
    fn default() -> Self {
        Self { per_second: 10_000, relayed_per_second: 1_000, certificates: 16_384 }
    }
}

/// Tokens that come at a rate, up to some time's worth.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    /// Full at this moment, if nothing is taken until then.
    full_at: Instant,
}

impl Bucket {
    const fn new() -> Self {
        Self { full_at: Instant::ZERO }
    }

    /// Takes `count` tokens, if they are there; a tenth of a second's worth may be saved up.
    fn take(&mut self, count: u32, per_second: u32, now: Instant) -> bool {
        self.take_of(count, per_second, SAVED, now)
    }

    /// Whether at least half of what may be saved up would be left if `count` tokens were taken.
    fn would_leave_half(&self, count: u32, per_second: u32, now: Instant) -> bool {
        let time = Duration::from_secs(1).checked_div(per_second).map(|each| each * count);
        time.is_some_and(|time| self.full_at.max(now) + time - now <= SAVED / 2)
    }

    /// Takes `count` tokens, if they are there, of those that are saved up in `depth`, and of two at least.
    fn take_of(&mut self, count: u32, per_second: u32, depth: Duration, now: Instant) -> bool {
        if per_second == 0 {
            return false;
        }
        let each = Duration::from_secs(1) / per_second;
        self.take_time(each * count, depth.max(each * 2), now)
    }

    /// Takes as many tokens as come in `time`, if so many are there; never more than come in `depth` are.
    fn take_time(&mut self, time: Duration, depth: Duration, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + time;
        if full_at - now > depth {
            return false;
        }
        self.full_at = full_at;
        true
    }
}

/// What a first flight's certificate is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Verified before: one signature is left, and its client has been here.
    Known,
    /// New: two signatures, from anybody.
    New,
    /// Handed over by a front: new or not, from who need not be there.
    Relayed,
}

/// What a shard remembers of certificates and of those who use them.
#[derive(Debug)]
pub struct AsapShard {
    config: BudgetConfig,
    /// Verified certificates, until when they last (Unix seconds), and the generation of the trust store.
    certificates: Lru<CertificateDigest, (u64, u64)>,
    /// Counts the trust stores: what was verified under another one is forgotten.
    generation: u64,
    lanes: [Bucket; 3],
    /// By lane: what somebody sends in a client's name into the one must not use up its share of the other.
    sources: Lru<(Lane, u64), Bucket>,
    verifiers: Lru<VerifierId, Bucket>,
    /// Requests that fronts handed over and that were right, by the client's prefix.
    relayed: Lru<u64, Bucket>,
    bars: Bars,
    suspects: Lru<u64, Instant>,
    batches: u32,
    failed_batches: u32,
    /// Nothing is verified in a batch until then.
    singly_until: Instant,
}

impl AsapShard {
    /// Nothing remembered, all of the budget there.
    #[must_use]
    pub const fn new(config: BudgetConfig) -> Self {
        Self {
            config,
            certificates: Lru::new(config.certificates),
            generation: 0,
            lanes: [Bucket::new(); 3],
            sources: Lru::new(REMEMBERED),
            verifiers: Lru::new(REMEMBERED),
            relayed: Lru::new(REMEMBERED),
            bars: Bars::new(REMEMBERED),
            suspects: Lru::new(REMEMBERED),
            batches: 0,
            failed_batches: 0,
            singly_until: Instant::ZERO,
        }
    }

    /// The trust store has changed: every verified certificate is forgotten.
    pub fn trust_changed(&mut self) {
        self.generation += 1;
        self.certificates.clear();
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the certificate was verified, and is still what it was then.
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

    /// Takes what verifying costs from the lane and from the source network's share of it: that of its /24 or
    /// /56, within which one host may have any address.
    ///
    /// # Errors
    /// Which of the two has not got so much.
    pub(super) fn afford(&mut self, lane: Lane, prefix: u64, now: Instant) -> Result<(), Reason> {
        let half = self.config.per_second / 2;
        let (place, count, rate) = match lane {
            Lane::Known => (0, 1, self.config.per_second - half),
            Lane::New => (1, 2, half),
            Lane::Relayed => (2, 2, self.config.relayed_per_second),
        };
        let lane_bucket = self.lanes.get_mut(place).ok_or(Reason::Overloaded)?;
        // A sixteenth of the lane for one network: it takes many to use it up. An office comes all at once, so a whole
        // second's worth may be saved up, and is lent as long as the lane has more than half of its own.
        let network = prefix & !0xff;
        let share = self.sources.get_or_insert((lane, network), Bucket::new).ok_or(Reason::NetworkLimit)?;
        let per_second = (rate / 16).max(4);
        let lends = lane_bucket.would_leave_half(count, rate, now);
        let depth = if lends { SAVED_BY_NETWORK } else { SAVED };
        if rate > 0 && !share.take_of(count, per_second, depth, now) {
            return Err(Reason::NetworkLimit);
        }
        if lane_bucket.take(count, rate, now) { Ok(()) } else { Err(Reason::Overloaded) }
    }

    /// Counts an acceptance under a verifier with a limit.
    pub(super) fn within_rate(
        &mut self,
        verifier: VerifierId,
        per_second: Option<u32>,
        now: Instant,
    ) -> bool {
        let Some(limit) = per_second else { return true };
        let bucket = self.verifiers.get_or_insert(verifier, Bucket::new);
        bucket.is_some_and(|bucket| bucket.take(1, limit, now))
    }

    /// Counts an acceptance of a request that a front handed over: ten a minute for one client (an IPv6 /64).
    pub(super) fn within_relayed_rate(&mut self, prefix: u64, now: Instant) -> bool {
        let bucket = self.relayed.get_or_insert(prefix, Bucket::new);
        bucket.is_some_and(|bucket| bucket.take_time(RELAYED_MINUTE / 10, RELAYED_MINUTE, now))
    }

    /// Whether this key or this address may not use the first flight now.
    pub(super) fn is_barred(&self, key: &[u8; 32], address: IpAddr, now: Instant) -> bool {
        self.bars.holds(key, address, now)
    }

    /// A reset came from where an accepted first flight said that it came from, before its client's ACK: the
    /// address may not be the sender's. The key is barred as long as the certificate lasts, and the address for a time
    /// that grows from zero with each further key.
    pub fn bar(&mut self, key: [u8; 32], lasts: Duration, address: IpAddr, now: Instant) {
        self.bars.reset(key, lasts, address, now);
    }

    /// The ACK of a client at `address` came, whose first flight was accepted: resets of other keys there weigh less.
    pub fn acknowledged(&mut self, address: IpAddr, now: Instant) {
        self.bars.acknowledged(address, now);
    }

    /// A signature of the request was wrong.
    pub(super) fn failed(&mut self, key: [u8; 32], prefix: u64, now: Instant) {
        self.bars.failed(key, now);
        self.suspect(prefix, now);
    }

    /// A signature from this prefix was wrong: others of it are verified one by one for a while.
    pub(super) fn suspect(&mut self, prefix: u64, now: Instant) {
        if let Some(until) = self.suspects.get_or_insert(prefix, || now) {
            *until = now + SINGLY;
        }
    }

    /// Whether requests of this prefix may be verified in a batch with others.
    pub(super) fn may_batch(&self, prefix: u64, now: Instant) -> bool {
        self.singly_until <= now && self.suspects.peek(&prefix).is_none_or(|until| *until <= now)
    }

    /// Counts a batch. When more than 2 % fail there are none for a while, and then it is measured anew.
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

#[cfg(test)]
mod tests;
