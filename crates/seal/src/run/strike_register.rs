//! The strike register (6.2, 6.5): which requests have run.

use crate::defence::{Defence, on};
use crate::plain::Rid;
use core::fmt;
use core::hash::{BuildHasher, Hasher};
use firstflight_wire::{Clock, Instant};
use hashbrown::HashMap;
use rand_core::CryptoRng;
use siphasher::sip::SipHasher24;
use std::collections::VecDeque;
use std::time::Duration;

/// How far t may be from the server's clock for an early run, milliseconds (6.3).
pub(crate) const WINDOW_MS: u64 = 300_000;

/// A question to a strike register: may this request run now? It tests and sets in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The request.
    pub rid: Rid,
    /// Its t, Unix milliseconds.
    pub t_ms: u64,
    /// The present, Unix milliseconds by the server's clock.
    pub now_ms: u64,
    /// Whether it is asked before Finished. Only then the floor counts.
    pub early: bool,
    /// Whether an accepted block vouches for the client.
    pub with_block: bool,
}

/// The answer of a strike register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterAnswer {
    /// It was not there, and is now.
    New,
    /// It was there: the request has run, or may run elsewhere.
    Seen,
    /// The table may have forgotten such requests, so it does not run early (6.5).
    Floor {
        /// Whether the entry was made. Then it belongs to the connection that asked (6.6).
        set: bool,
    },
    /// There is no room. It was not set.
    Full,
    /// A store did not answer. Whether it was set is not known.
    Unavailable,
}

/// A strike register.
pub trait StrikeRegister {
    /// Tests whether a request is in the table, and puts it there.
    fn test_and_set(&mut self, question: &Question, now: Instant) -> RegisterAnswer;
}

/// How much a [`MemoryRegister`] remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterLimits {
    /// Entries in all.
    pub entries: usize,
    /// Of them, those that were made without an accepted block.
    pub without_block: usize,
}

impl Default for RegisterLimits {
    /// 262,144 and 65,536: 291 requests a second, and 72 of them without an accepted block. A full table has 2^19 places of
    /// 17 bytes and 2^18 entries of 40 bytes: 19 MB.
    fn default() -> Self {
        Self { entries: 1 << 18, without_block: 1 << 16 }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    rid: [u8; 16],
    ends: Instant,
    t_ms: u64,
    /// Whether it counts for the quota.
    in_quota: bool,
    /// Whether t is the floor's business when it is forgotten (6.5).
    in_time: bool,
}

/// A strike register in memory.
#[cfg_attr(test, derive(Clone))]
pub struct MemoryRegister {
    seen: HashMap<[u8; 16], (), Keyed>,
    /// In the order of their ends, since all live equally long.
    order: VecDeque<Entry>,
    limits: RegisterLimits,
    in_quota: usize,
    floor_ms: u64,
}

impl MemoryRegister {
    /// How long an entry lives.
    pub const LIFETIME: Duration = Duration::from_secs(900);

    /// An empty table that begins at `clock`. With `first_start` the operator says that nothing ran before (6.5).
    #[must_use]
    pub fn new(limits: RegisterLimits, clock: &Clock, first_start: bool, rng: &mut impl CryptoRng) -> Self {
        let mut key = [0; 16];
        rng.fill_bytes(&mut key);
        if !on(Defence::KeyedHash) {
            key = [0; 16];
        }
        let floor_ms = if first_start { 0 } else { clock.unix_ms.saturating_add(WINDOW_MS) };
        let seen = HashMap::with_hasher(Keyed(key));
        Self { seen, order: VecDeque::new(), limits, in_quota: 0, floor_ms }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Requests with t up to this Unix time, milliseconds, do not run early.
    #[must_use]
    pub const fn floor_ms(&self) -> u64 {
        self.floor_ms
    }

    /// All that its answers depend on: the floor, and each entry's id, end, and t.
    #[cfg(test)]
    #[allow(clippy::type_complexity, reason = "for one test")]
    pub(crate) fn contents(&self) -> (u64, Vec<([u8; 16], Instant, u64, bool)>) {
        let entries = self.order.iter().map(|entry| (entry.rid, entry.ends, entry.t_ms, entry.in_time));
        (self.floor_ms, entries.collect())
    }

    #[cfg(test)]
    pub(crate) fn hasher(&self) -> &Keyed {
        self.seen.hasher()
    }

    fn forget(&mut self, now: Instant) {
        while let Some(entry) = self.order.front().filter(|entry| entry.ends <= now).copied() {
            self.order.pop_front();
            self.seen.remove(&entry.rid);
            self.in_quota -= usize::from(entry.in_quota);
            if entry.in_time {
                self.floor_ms = self.floor_ms.max(entry.t_ms);
            }
        }
    }
}

impl StrikeRegister for MemoryRegister {
    fn test_and_set(&mut self, question: &Question, now: Instant) -> RegisterAnswer {
        let Question { rid, t_ms, now_ms, early, with_block } = *question;
        self.forget(now);
        if !on(Defence::Table) {
            return RegisterAnswer::New;
        }
        // Before the floor: a copy must not learn to wait, it is closed.
        if self.seen.contains_key(&rid.0) {
            return RegisterAnswer::Seen;
        }
        if early && t_ms <= self.floor_ms && on(Defence::Floor) {
            return RegisterAnswer::Floor { set: false };
        }
        let in_quota = !with_block;
        let quota = in_quota && self.in_quota >= self.limits.without_block && on(Defence::Quota);
        if quota || self.order.len() >= self.limits.entries {
            return RegisterAnswer::Full;
        }
        let lifetime = if on(Defence::Lifetime) { Self::LIFETIME } else { Duration::from_secs(120) };
        // Time does not go back, so the queue stays in order.
        let ends = self.order.back().map_or(now, |last| last.ends.max(now + lifetime)).max(now + lifetime);
        let in_time = t_ms <= now_ms.saturating_add(WINDOW_MS);
        self.seen.insert(rid.0, ());
        self.order.push_back(Entry { rid: rid.0, ends, t_ms, in_quota, in_time });
        self.in_quota += usize::from(in_quota);
        RegisterAnswer::New
    }
}

impl fmt::Debug for MemoryRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryRegister({} entries, floor {} ms)", self.order.len(), self.floor_ms)
    }
}

/// SipHash with a secret key: clients choose rid, and must not be able to make collisions.
#[derive(Clone)]
pub(crate) struct Keyed(pub(crate) [u8; 16]);

impl BuildHasher for Keyed {
    type Hasher = Sip;

    fn build_hasher(&self) -> Sip {
        Sip(SipHasher24::new_with_key(&self.0))
    }
}

pub(crate) struct Sip(SipHasher24);

impl Hasher for Sip {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}
