//! Who talks to whom, and the O(1) table that finds them.

use core::hash::{BuildHasher, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use firstflight_wire::asap::Carrier;
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;

/// A connection's four-tuple, seen from here, in 40 bytes that compare as numbers. IPv4 addresses
/// are kept as IPv4-mapped ones (RFC 4291 §2.5.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    local: [u64; 2],
    remote: [u64; 2],
    ports: u32,
}

/// The lower half of an IPv4-mapped address begins with this; its upper half is zero.
const MAPPED: u64 = 0xffff << 32;

fn words(ip: IpAddr) -> [u64; 2] {
    match ip {
        IpAddr::V4(ip) => [0, MAPPED | u64::from(ip.to_bits())],
        IpAddr::V6(ip) => [(ip.to_bits() >> 64) as u64, ip.to_bits() as u64],
    }
}

fn address(words: [u64; 2]) -> IpAddr {
    match words {
        [0, low] if low >> 32 == 0xffff => Ipv4Addr::from_bits(low as u32).into(),
        [high, low] => Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into(),
    }
}

impl FlowKey {
    /// The flow between these two ends.
    #[inline]
    #[must_use]
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self::of(local.ip(), local.port(), remote.ip(), remote.port())
    }

    /// The flow between these two ends.
    #[inline]
    #[must_use]
    pub fn of(local: IpAddr, local_port: u16, remote: IpAddr, remote_port: u16) -> Self {
        let ports = u32::from(local_port) << 16 | u32::from(remote_port);
        Self { local: words(local), remote: words(remote), ports }
    }

    /// Our address.
    #[inline]
    #[must_use]
    pub fn local_ip(&self) -> IpAddr {
        address(self.local)
    }

    /// The peer's address.
    #[inline]
    #[must_use]
    pub fn remote_ip(&self) -> IpAddr {
        address(self.remote)
    }

    /// Our address and the peer's, if they are of IPv4.
    #[inline]
    #[must_use]
    pub fn v4(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let ([high, low], [remote_high, remote_low]) = (self.local, self.remote);
        // The upper half is zero and the lower one begins with `MAPPED` in both.
        let both = (high | remote_high) == 0 && (low ^ MAPPED | remote_low ^ MAPPED) >> 32 == 0;
        both.then(|| (Ipv4Addr::from_bits(low as u32), Ipv4Addr::from_bits(remote_low as u32)))
    }

    /// Length of the IP header of its packets.
    #[inline]
    #[must_use]
    pub fn ip_header_len(&self) -> usize {
        if self.local[0] == 0 && self.local[1] >> 32 == 0xffff { 20 } else { 40 }
    }

    /// How its segments travel.
    #[inline]
    #[must_use]
    pub const fn carrier(&self) -> Carrier {
        Carrier::Ip
    }

    /// Our port.
    #[inline]
    #[must_use]
    pub fn local_port(&self) -> u16 {
        (self.ports >> 16) as u16
    }

    /// The peer's port.
    #[inline]
    #[must_use]
    pub fn remote_port(&self) -> u16 {
        self.ports as u16
    }

    /// Our address and port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.local_ip(), self.local_port())
    }

    /// The peer's.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.remote_ip(), self.remote_port())
    }
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
        hasher.write_u64(key.remote[1]);
        hasher.write_u64(key.local[1] ^ u64::from(key.ports) << 32);
        if (key.remote[0] | key.local[0]) != 0 {
            hasher.write_u64(key.remote[0]);
            hasher.write_u64(key.local[0] ^ u64::from(key.ports));
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
