//! Who talks to whom, and the O(1) table that finds them.

use core::hash::{BuildHasher, Hasher};
use core::net::{IpAddr, SocketAddr};
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;

/// A connection's four-tuple, seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

/// Keyed hashing of four-tuples: a stranger who does not know the seed cannot aim at one bucket.
#[derive(Debug, Clone)]
pub struct FlowHasher(SeedableRandomState);

impl FlowHasher {
    /// A hasher with a secret seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()))
    }

    /// The hash of `key`.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write_u32(u32::from(key.local.port()) << 16 | u32::from(key.remote.port()));
        for ip in [key.remote.ip(), key.local.ip()] {
            match ip {
                IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
                IpAddr::V6(ip) => hasher.write_u128(ip.to_bits()),
            }
        }
        hasher.finish()
    }
}

/// Four-tuples to slab indices. The keys live with the entries; the table holds four bytes each.
#[derive(Debug, Default)]
pub struct FlowTable {
    table: HashTable<u32>,
}

impl FlowTable {
    /// The index for `hash` whose key satisfies `is`.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        self.table.find(hash, |i| is(*i)).copied()
    }

    /// Adds an index; `rehash` gives the hash of any index in the table.
    pub fn insert(&mut self, hash: u64, index: u32, rehash: impl Fn(u32) -> u64) {
        self.table.insert_unique(hash, index, |i| rehash(*i));
    }

    /// Takes an index out.
    pub fn remove(&mut self, hash: u64, index: u32) {
        if let Ok(entry) = self.table.find_entry(hash, |i| *i == index) {
            entry.remove();
        }
    }
}
