//! Which resolver networks have sets in the table, and which has the most.

use core::hash::{BuildHasher, Hasher};
use core::net::IpAddr;
use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;
use rand_core::Rng;

/// The network of a resolver: the first 24 bits of an IPv4 address, or the first 48 bits of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix(u64);

impl Prefix {
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits() >> 8)),
            // The value is above that of every IPv4 network.
            IpAddr::V6(address) => Self(1 << 48 | (address.to_bits() >> 80) as u64),
        }
    }
}

#[derive(Debug)]
struct ResolverSets {
    prefix: Prefix,
    /// Its sets, in no order.
    sets: Vec<u32>,
    /// Its index in `order`.
    rank: u32,
}

/// Which holder has which sets, and which has the most. All operations are O(1).
#[derive(Debug)]
pub(super) struct Holders {
    index: HashTable<u32>,
    hasher: SeedableRandomState,
    holders: Vec<ResolverSets>,
    free: Vec<u32>,
    /// The holders, those with the most sets first.
    order: Vec<u32>,
    /// For each number of sets, how many holders have more. In `order`, the holders with exactly this number
    /// begin there.
    above: Vec<u32>,
}

/// The position of a set: its holder, and its index among the holder's sets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) holder: u32,
    pub(super) place: u32,
}

fn hash(hasher: &SeedableRandomState, prefix: Prefix) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u64(prefix.0);
    hasher.finish()
}

impl Holders {
    /// Holders of up to `capacity` sets in total.
    pub(super) fn new(capacity: usize, hasher: SeedableRandomState) -> Self {
        Self {
            index: HashTable::new(),
            hasher,
            holders: Vec::new(),
            free: Vec::new(),
            order: Vec::new(),
            above: vec![0; capacity + 1],
        }
    }

    /// The number of holders.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let Self { index, holders, free, order, above, .. } = self;
        let lists: usize = holders.iter().map(|holder| holder.sets.capacity()).sum();
        index.allocation_size()
            + holders.capacity() * size_of::<ResolverSets>()
            + (lists + free.capacity() + order.capacity() + above.capacity()) * size_of::<u32>()
    }

    pub(super) fn find(&self, prefix: Prefix) -> Option<u32> {
        let same = |at: &u32| self.holders.get(*at as usize).is_some_and(|holder| holder.prefix == prefix);
        self.index.find(hash(&self.hasher, prefix), same).copied()
    }

    pub(super) fn sets(&self, holder: u32) -> &[u32] {
        self.holders.get(holder as usize).map_or(&[], |holder| holder.sets.as_slice())
    }

    /// The holder with the most sets, or a random one if several have as many.
    ///
    /// It does not take the first in `order`, which is the latest one. Otherwise a flood from as many
    /// networks as there are sets would keep its own sets, and remove each new one before it is complete.
    pub(super) fn largest(&self, rng: &mut impl Rng) -> Option<u32> {
        let below = self.sets(*self.order.first()?).len().checked_sub(1)?;
        let equals = u64::from(*self.above.get(below)?);
        // The remainder's bias is 2⁻⁵⁰ at most.
        let at = rng.next_u64().checked_rem(equals)?;
        self.order.get(at as usize).copied()
    }

    /// Gives `set` to the holder `prefix`.
    pub(super) fn add(&mut self, prefix: Prefix, set: u32) -> Standing {
        let at = self.find(prefix).unwrap_or_else(|| self.insert(prefix));
        let count = self.sets(at).len();
        // Move it behind the last holder that has more sets. With one set more it is then in order.
        let first = self.above.get(count).copied().unwrap_or_default();
        self.swap(at, first);
        if let Some(above) = self.above.get_mut(count) {
            *above += 1;
        }
        if let Some(holder) = self.holders.get_mut(at as usize) {
            holder.sets.push(set);
        }
        Standing { holder: at, place: count as u32 }
    }

    /// Removes the set at `standing`. Returns the set that has its index now, if there is one.
    pub(super) fn remove(&mut self, standing: Standing) -> Option<u32> {
        let Standing { holder: at, place } = standing;
        let below = self.sets(at).len().checked_sub(1)?;
        let above = self.above.get_mut(below)?;
        *above -= 1;
        // Swap it with the last holder that has as many sets. With one set less it is then first among those
        // with that number.
        let last = *above;
        self.swap(at, last);
        let holder = self.holders.get_mut(at as usize)?;
        holder.sets.swap_remove(place as usize);
        let moved = holder.sets.get(place as usize).copied();
        if holder.sets.is_empty() {
            self.forget(at);
        } else if holder.sets.capacity() > 4 * holder.sets.len() + 16 {
            // Shrink, so that all holders together keep memory only for a small multiple of their sets.
            holder.sets.shrink_to(2 * holder.sets.len());
        }
        moved
    }

    fn insert(&mut self, prefix: Prefix) -> u32 {
        let holder = ResolverSets { prefix, sets: Vec::new(), rank: self.order.len() as u32 };
        let at = match self.free.pop() {
            Some(at) => {
                if let Some(place) = self.holders.get_mut(at as usize) {
                    *place = holder;
                }
                at
            }
            None => {
                self.holders.push(holder);
                (self.holders.len() - 1) as u32
            }
        };
        self.order.push(at);
        let Self { index, hasher, holders, .. } = self;
        let rehash = |at: &u32| holders.get(*at as usize).map_or(0, |holder| hash(hasher, holder.prefix));
        index.insert_unique(hash(hasher, prefix), at, rehash);
        at
    }

    /// Removes a holder without sets, which is the last in `order`.
    fn forget(&mut self, at: u32) {
        self.order.pop();
        let Some(holder) = self.holders.get_mut(at as usize) else { return };
        holder.sets = Vec::new();
        if let Ok(entry) = self.index.find_entry(hash(&self.hasher, holder.prefix), |other| *other == at) {
            entry.remove();
        }
        self.free.push(at);
    }

    /// Swaps holder `at` with the holder at `rank`.
    fn swap(&mut self, at: u32, rank: u32) {
        let Some(from) = self.holders.get(at as usize).map(|holder| holder.rank) else { return };
        let Some(&other) = self.order.get(rank as usize) else { return };
        self.order.swap(from as usize, rank as usize);
        for (holder, rank) in [(other, from), (at, rank)] {
            if let Some(holder) = self.holders.get_mut(holder as usize) {
                holder.rank = rank;
            }
        }
    }

    /// The capacity of all lists of sets.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.holders.iter().map(|holder| holder.sets.capacity()).sum()
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let counts: Vec<usize> = self.order.iter().map(|&at| self.sets(at).len()).collect();
        assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
        assert!(!counts.contains(&0), "{counts:?}");
        for (count, &above) in self.above.iter().enumerate() {
            assert_eq!(counts.iter().filter(|held| **held > count).count(), above as usize);
        }
        for (rank, &at) in self.order.iter().enumerate() {
            assert_eq!(self.holders[at as usize].rank as usize, rank);
        }
    }
}
