//! Reassembles fragments, in bounded memory (`docs/spec/dns-path.md`, section 7).

mod holders;

use crate::fragment::{self, Fragment, FragmentId, FragmentPart};
use crate::seal::Sealed;
use crate::sizes::{BODY, MAX_FRAGMENTS};
use core::hash::{BuildHasher, Hasher};
use core::net::IpAddr;
use core::num::NonZeroU16;
use core::time::Duration;
use firstflight_wire::Instant;
use firstflight_wire::setters;
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;
use holders::{Holders, Prefix, Standing};
use rand_core::Rng;

/// No set.
const NONE: u32 = u32::MAX;
/// How many expired sets are removed for each fragment. A fragment adds at most one set, so they do not
/// accumulate.
const EXPIRED_AT_ONCE: usize = 8;
/// In a table that is more than half full, a resolver's network has at most one part in `SHARE`.
const SHARE: usize = 16;

/// The limits of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReassemblyLimits {
    /// The most sets of fragments.
    pub sets: NonZeroU16,
    /// How long after its first fragment a set is forgotten.
    pub lifetime: Duration,
}

setters! {
    ReassemblyLimits {
        sets: NonZeroU16,
        lifetime: Duration,
    }
}

impl Default for ReassemblyLimits {
    /// 16,384 sets of at most 520 bytes (8.5 MB), 3 s.
    fn default() -> Self {
        Self { sets: NonZeroU16::MIN.saturating_add(16_383), lifetime: Duration::from_secs(3) }
    }
}

/// The result for a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reassembled {
    /// Other fragments of the set are missing.
    Waiting,
    /// It was the last missing one, and the fragments belong together.
    Complete(Box<Sealed>),
    /// It was received before.
    Duplicate,
    /// The set was completed before.
    Late,
    /// A different fragment occupies its position, so it is ignored.
    Conflict,
    /// It was the last missing one, but the fragments do not belong together. All are forgotten.
    Mismatch,
}

/// Counts of a table. All only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReassemblyCounters {
    /// Fragments received.
    pub fragments: u64,
    /// Sets begun.
    pub sets: u64,
    /// Sets completed.
    pub completed: u64,
    /// Completed sets in which the parity replaced a lost fragment.
    pub repaired: u64,
    /// Fragments that were received before.
    pub duplicates: u64,
    /// Fragments of sets that were completed before.
    pub late: u64,
    /// Fragments whose position a different fragment occupied.
    pub conflicts: u64,
    /// Sets whose fragments did not belong together.
    pub mismatches: u64,
    /// Incomplete sets forgotten because their time had passed.
    pub expired: u64,
    /// Sets forgotten because the table was full.
    pub evicted_full: u64,
    /// Sets forgotten because their resolver's network had its share.
    pub evicted_share: u64,
}

/// The fragments of one first flight.
#[derive(Debug)]
struct Set {
    bodies: [[u8; BODY]; MAX_FRAGMENTS + 1],
    expires: Instant,
    standing: Standing,
    /// The indexes of the neighbours in the order of age.
    older: u32,
    newer: u32,
    id: FragmentId,
    /// A bit for each body that was received. The parity has bit number `count`.
    have: u16,
    count: u8,
    /// It was completed, so further fragments are late.
    done: bool,
}

const _: () = assert!(size_of::<Set>() <= 520);

impl Set {
    /// The bit and index of a part.
    const fn place(&self, part: FragmentPart) -> usize {
        match part {
            FragmentPart::Data(index) => index as usize,
            FragmentPart::Parity => self.count as usize,
        }
    }

    /// The sealed bytes, and whether the parity was used. `None` if a body is still missing.
    fn join(&mut self) -> Option<(Option<Sealed>, bool)> {
        let all = (1_u16 << self.count) - 1;
        let lost = (all & !self.have).trailing_zeros() as usize;
        let repaired = match (all & !self.have).count_ones() {
            0 => false,
            1 if self.have > all => true,
            _ => return None,
        };
        let count = usize::from(self.count);
        if repaired {
            let mut sum = [0; BODY];
            let others = self.bodies.iter().take(count + 1).enumerate().filter(|(at, _)| *at != lost);
            others.for_each(|(_, body)| fragment::add(&mut sum, body));
            *self.bodies.get_mut(lost)? = sum;
        }
        Some((fragment::join(self.id, self.bodies.get(..count)?), repaired))
    }
}

/// A table of sets of fragments.
///
/// An attacker can fill it through any resolver, and an attacker who sees a fragment can send wrong ones
/// first. So it never holds more than its limits, the cost of a fragment is O(1), and nothing else depends on
/// it. In a flood first flights go the direct way, but every query is still answered.
#[derive(Debug)]
pub struct Reassembly {
    limits: ReassemblyLimits,
    index: HashTable<u32>,
    hasher: SeedableRandomState,
    sets: Vec<Set>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    holders: Holders,
    counters: ReassemblyCounters,
}

fn hash(hasher: &SeedableRandomState, id: FragmentId) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(&id.0);
    hasher.finish()
}

impl Reassembly {
    /// An empty table. `rng` hides which ids collide in it.
    #[must_use]
    pub fn new(limits: ReassemblyLimits, rng: &mut impl Rng) -> Self {
        let mut hasher = || SeedableRandomState::with_seed(rng.next_u64(), SharedSeed::global_fixed());
        let capacity = usize::from(limits.sets.get());
        Self {
            limits,
            index: HashTable::new(),
            hasher: hasher(),
            sets: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
            holders: Holders::new(capacity, hasher()),
            counters: ReassemblyCounters::default(),
        }
    }

    /// Sets in the table, including those completed recently.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sets.len() - self.free.len()
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of resolver networks that the sets in the table came through.
    #[must_use]
    pub fn resolvers(&self) -> usize {
        self.holders.len()
    }

    /// Memory that the table has allocated, bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let Self { index, sets, free, holders, .. } = self;
        sets.capacity() * size_of::<Set>()
            + free.capacity() * size_of::<u32>()
            + index.allocation_size()
            + holders.heap_bytes()
    }

    /// The counts so far.
    #[must_use]
    pub const fn counters(&self) -> &ReassemblyCounters {
        &self.counters
    }

    /// When the oldest set expires.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.sets.get(self.oldest as usize).map(|set| set.expires)
    }

    /// Forgets the expired sets. Calling it is optional, because each fragment also removes a few.
    pub fn handle_time(&mut self, now: Instant) {
        while self.expire(now) {}
    }

    /// Handles a fragment that came through the resolver at `from`. `rng` chooses what is forgotten when
    /// there is no room.
    pub fn handle_fragment(
        &mut self,
        fragment: &Fragment,
        from: IpAddr,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Reassembled {
        self.counters.fragments += 1;
        for _ in 0..EXPIRED_AT_ONCE {
            if !self.expire(now) {
                break;
            }
        }
        let found = self.find(fragment.id());
        let found = found.filter(|at| {
            let alive = self.sets.get(*at as usize).is_some_and(|set| set.expires > now);
            if !alive {
                self.end(*at);
            }
            alive
        });
        let at = match found {
            Some(at) => at,
            None => {
                let from = Prefix::of(from);
                self.make_room(from, rng);
                self.insert(fragment, from, now)
            }
        };
        self.store(at, fragment)
    }

    /// Puts a fragment into its set.
    fn store(&mut self, at: u32, fragment: &Fragment) -> Reassembled {
        let Some(set) = self.sets.get_mut(at as usize) else { return Reassembled::Conflict };
        if set.done {
            self.counters.late += 1;
            return Reassembled::Late;
        }
        let place = set.place(fragment.part());
        let Some(body) = set.bodies.get_mut(place).filter(|_| set.count == fragment.count()) else {
            self.counters.conflicts += 1;
            return Reassembled::Conflict;
        };
        let bit = 1 << place;
        if set.have & bit != 0 {
            if *body == fragment.body {
                self.counters.duplicates += 1;
                return Reassembled::Duplicate;
            }
            self.counters.conflicts += 1;
            return Reassembled::Conflict;
        }
        *body = fragment.body;
        set.have |= bit;
        match set.join() {
            None => Reassembled::Waiting,
            Some((Some(sealed), repaired)) => {
                set.done = true;
                self.counters.completed += 1;
                self.counters.repaired += u64::from(repaired);
                Reassembled::Complete(Box::new(sealed))
            }
            Some((None, _)) => {
                self.counters.mismatches += 1;
                self.remove(at);
                Reassembled::Mismatch
            }
        }
    }

    /// Makes room for a set of `from`. Removes sets of `from` if it has reached its share, otherwise a set of
    /// the network with the most sets.
    fn make_room(&mut self, from: Prefix, rng: &mut impl Rng) {
        let capacity = usize::from(self.limits.sets.get());
        let share = (capacity / SHARE).max(1);
        if self.len() > capacity / 2
            && let Some(own) = self.holders.find(from)
        {
            // Remove two for one new set, so that a network that has more than its share comes down to it.
            for _ in 0..2 {
                if self.holders.sets(own).len() >= share && self.evict(own, rng) {
                    self.counters.evicted_share += 1;
                }
            }
        }
        if self.len() >= capacity
            && let Some(largest) = self.holders.largest(rng)
            && self.evict(largest, rng)
        {
            self.counters.evicted_full += 1;
        }
    }

    /// Forgets a random set of `holder`.
    fn evict(&mut self, holder: u32, rng: &mut impl Rng) -> bool {
        let sets = self.holders.sets(holder);
        // The bias of the remainder is at most 2⁻⁵⁰.
        let chosen = rng.next_u64().checked_rem(sets.len() as u64).and_then(|n| sets.get(n as usize));
        match chosen.copied() {
            Some(at) => {
                self.remove(at);
                true
            }
            None => false,
        }
    }

    /// Forgets the oldest set if it has expired.
    fn expire(&mut self, now: Instant) -> bool {
        let over = self.sets.get(self.oldest as usize).is_some_and(|set| set.expires <= now);
        if over {
            self.end(self.oldest);
        }
        over
    }

    /// Forgets an expired set.
    fn end(&mut self, at: u32) {
        if self.sets.get(at as usize).is_some_and(|set| !set.done) {
            self.counters.expired += 1;
        }
        self.remove(at);
    }

    fn find(&self, id: FragmentId) -> Option<u32> {
        let same = |at: &u32| self.sets.get(*at as usize).is_some_and(|set| set.id == id);
        self.index.find(hash(&self.hasher, id), same).copied()
    }

    /// Adds a new set for this fragment, without the fragment itself. It is the newest set.
    fn insert(&mut self, fragment: &Fragment, from: Prefix, now: Instant) -> u32 {
        let at = self.free.pop().unwrap_or(self.sets.len() as u32);
        let set = Set {
            bodies: [[0; BODY]; MAX_FRAGMENTS + 1],
            expires: now + self.limits.lifetime,
            standing: self.holders.add(from, at),
            older: self.newest,
            newer: NONE,
            id: fragment.id(),
            have: 0,
            count: fragment.count(),
            done: false,
        };
        match self.sets.get_mut(at as usize) {
            Some(place) => *place = set,
            None => self.sets.push(set),
        }
        match self.sets.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
        let Self { index, hasher, sets, .. } = self;
        let rehash = |at: &u32| sets.get(*at as usize).map_or(0, |set| hash(hasher, set.id));
        index.insert_unique(hash(hasher, fragment.id()), at, rehash);
        self.counters.sets += 1;
        at
    }

    fn remove(&mut self, at: u32) {
        let Some(set) = self.sets.get(at as usize) else { return };
        let Set { standing, older, newer, id, .. } = *set;
        match self.sets.get_mut(older as usize) {
            Some(set) => set.newer = newer,
            None => self.oldest = newer,
        }
        match self.sets.get_mut(newer as usize) {
            Some(set) => set.older = older,
            None => self.newest = older,
        }
        if let Some(moved) = self.holders.remove(standing)
            && let Some(set) = self.sets.get_mut(moved as usize)
        {
            set.standing.place = standing.place;
        }
        if let Ok(entry) = self.index.find_entry(hash(&self.hasher, id), |other| *other == at) {
            entry.remove();
        }
        self.free.push(at);
    }
}

#[cfg(test)]
mod tests;
