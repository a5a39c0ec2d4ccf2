//! Which resolvers' sets are in the table, and who has the most of them.

use core::hash::{BuildHasher, Hasher};
use core::net::IpAddr;
use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;
use rand_core::Rng;

/// The network of a resolver: the first 24 bits of an IPv4 address, 48 of an IPv6 one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix(u64);

impl Prefix {
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits() >> 8)),
            // Above every IPv4 network.
            IpAddr::V6(address) => Self(1 << 48 | (address.to_bits() >> 80) as u64),
        }
    }
}

#[derive(Debug)]
struct Holder {
    prefix: Prefix,
    /// In no order.
    sets: Vec<u32>,
    /// Where it is in `order`.
    rank: u32,
}

/// All in O(1): who holds which sets, and who holds the most.
#[derive(Debug)]
pub(super) struct Holders {
    index: HashTable<u32>,
    hasher: SeedableRandomState,
    holders: Vec<Holder>,
    free: Vec<u32>,
    /// Holders, those with the most sets first.
    order: Vec<u32>,
    /// How many holders have more than so many sets: where those with as many begin in `order`.
    above: Vec<u32>,
}

/// Where a set stands: its holder, and its place among the holder's.
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
    /// Holders of up to `capacity` sets altogether.
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

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let Self { index, holders, free, order, above, .. } = self;
        let lists: usize = holders.iter().map(|holder| holder.sets.capacity()).sum();
        index.allocation_size()
            + holders.capacity() * size_of::<Holder>()
            + (lists + free.capacity() + order.capacity() + above.capacity()) * size_of::<u32>()
    }

    pub(super) fn find(&self, prefix: Prefix) -> Option<u32> {
        let same = |at: &u32| self.holders.get(*at as usize).is_some_and(|holder| holder.prefix == prefix);
        self.index.find(hash(&self.hasher, prefix), same).copied()
    }

    /// The sets of `holder`.
    pub(super) fn sets(&self, holder: u32) -> &[u32] {
        self.holders.get(holder as usize).map_or(&[], |holder| holder.sets.as_slice())
    }

    /// Who has the most; a random one of several.
    ///
    /// Not the first in `order`: that is who came last, so that a flood from as many networks as there are sets would
    /// keep its own and push out each new one before it is whole.
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
        // Behind the last that has more, and then one of them.
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

    /// Takes the set at `standing` away. Returns the one that has its place now, if it is another.
    pub(super) fn remove(&mut self, standing: Standing) -> Option<u32> {
        let Standing { holder: at, place } = standing;
        let below = self.sets(at).len().checked_sub(1)?;
        let above = self.above.get_mut(below)?;
        *above -= 1;
        // The last that has as many: it stands first among those that have one less.
        let last = *above;
        self.swap(at, last);
        let holder = self.holders.get_mut(at as usize)?;
        holder.sets.swap_remove(place as usize);
        let moved = holder.sets.get(place as usize).copied();
        if holder.sets.is_empty() {
            self.forget(at);
        } else if holder.sets.capacity() > 4 * holder.sets.len() + 16 {
            // All holders together keep memory for a small multiple of the sets that there are.
            holder.sets.shrink_to(2 * holder.sets.len());
        }
        moved
    }

    fn insert(&mut self, prefix: Prefix) -> u32 {
        let holder = Holder { prefix, sets: Vec::new(), rank: self.order.len() as u32 };
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

    /// Removes one without sets, which is the last of all.
    fn forget(&mut self, at: u32) {
        self.order.pop();
        let Some(holder) = self.holders.get_mut(at as usize) else { return };
        holder.sets = Vec::new();
        if let Ok(entry) = self.index.find_entry(hash(&self.hasher, holder.prefix), |other| *other == at) {
            entry.remove();
        }
        self.free.push(at);
    }

    /// Puts holder `at` at `rank`, and who is there at its rank.
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

    /// Room for sets in all lists.
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
