//! The four-tuple of a connection, and the O(1) table that finds the connection.

use core::hash::{BuildHasher, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use firstflight_wire::{encapsulation, udp};
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;

/// A connection's four-tuple, seen from this stack, in 40 bytes that compare as numbers. In UDP it includes the two
/// outer ports. An IPv4-mapped address (RFC 4291 §2.5.5.2) is the IPv4 address.
#[derive(Debug, Clone, Copy, Eq, PartialOrd, Ord, Default)]
pub(crate) struct FlowKey {
    local: [u64; 2],
    remote: [u64; 2],
    /// From the high bits on: outer local and remote port (both 0 on raw IP), local and remote port.
    ports: u64,
}

impl PartialEq for FlowKey {
    /// Compares word by word, as the key is written: a load of two words at once would wait for both.
    fn eq(&self, other: &Self) -> bool {
        let differ = |a: [u64; 2], b: [u64; 2]| a[0] ^ b[0] | a[1] ^ b[1];
        self.ports == other.ports && differ(self.local, other.local) | differ(self.remote, other.remote) == 0
    }
}

/// Bytes between the IP header and a segment in UDP.
pub(crate) const OUTER: usize = udp::HEADER + encapsulation::HEADER;

/// The upper half of an IPv4 address's place, so that one comparison shows the family. IPv6 addresses that begin
/// with this number are multicast addresses. They count as beginning with the number before it; no connection has
/// either.
const V4: u64 = u64::MAX;

fn words(ip: IpAddr) -> [u64; 2] {
    match ip {
        IpAddr::V4(ip) => [V4, u64::from(ip.to_bits())],
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => [V4, u64::from(ip.to_bits())],
            None => [((ip.to_bits() >> 64) as u64).min(V4 - 1), ip.to_bits() as u64],
        },
    }
}

/// The MSS of a peer at `ip` that announces none (RFC 9293 §3.7.1).
//= rfc9293 MUST-15
pub(crate) const fn default_mss(ip: IpAddr) -> u16 {
    if ip.is_ipv4() { 536 } else { 1220 }
}

fn address(words: [u64; 2]) -> IpAddr {
    match words {
        [V4, low] => Ipv4Addr::from_bits(low as u32).into(),
        [high, low] => Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into(),
    }
}

impl FlowKey {
    /// The flow between these two ends.
    #[inline]
    #[must_use]
    pub(crate) fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self::of(local.ip(), local.port(), remote.ip(), remote.port())
    }

    /// The flow between these two ends.
    #[inline]
    #[must_use]
    pub(crate) fn of(local: IpAddr, local_port: u16, remote: IpAddr, remote_port: u16) -> Self {
        let ports = u64::from(local_port) << 16 | u64::from(remote_port);
        Self { local: words(local), remote: words(remote), ports }
    }

    /// The same flow in UDP datagrams between these ports. Our port must not be 0.
    #[inline]
    #[must_use]
    pub(crate) fn carried(self, local_port: u16, remote_port: u16) -> Self {
        let outer = u64::from(local_port) << 48 | u64::from(remote_port) << 32;
        Self { ports: outer | self.ports & 0xffff_ffff, ..self }
    }

    /// The same flow from another port of ours.
    #[inline]
    #[must_use]
    pub(crate) fn with_local_port(self, port: u16) -> Self {
        Self { ports: self.ports & !0xffff_0000 | u64::from(port) << 16, ..self }
    }

    /// Both addresses, IPv4 ones in the lower half, and the ports: outer local, outer remote, local, remote.
    #[inline]
    pub(crate) fn words(&self) -> ([u64; 2], [u64; 2], u64) {
        (self.local, self.remote, self.ports)
    }

    /// Whether the flow is in UDP datagrams; false on raw IP.
    #[inline]
    #[must_use]
    pub(crate) fn is_carried(&self) -> bool {
        self.ports >> 32 != 0
    }

    /// Our UDP port; 0 on raw IP.
    #[inline]
    #[must_use]
    pub(crate) fn outer_local(&self) -> u16 {
        (self.ports >> 48) as u16
    }

    /// The peer's UDP port; 0 on raw IP.
    #[inline]
    #[must_use]
    pub(crate) fn outer_remote(&self) -> u16 {
        (self.ports >> 32) as u16
    }

    /// The common part of all flows between the same two UDP ports: the key without the inner ports.
    #[must_use]
    pub(crate) fn outer(&self) -> Self {
        Self { ports: self.ports & !0xffff_ffff, ..*self }
    }

    /// The common part of all flows in UDP that differ only in the peer's UDP port.
    #[must_use]
    pub(crate) fn anywhere(&self) -> Self {
        self.carried(self.outer_local(), 0)
    }

    /// The flow with these inner ports between the same two UDP ports.
    #[must_use]
    pub(crate) fn with_inner(&self, local_port: u16, remote_port: u16) -> Self {
        let inner = u64::from(local_port) << 16 | u64::from(remote_port);
        Self { ports: self.ports & !0xffff_ffff | inner, ..*self }
    }

    /// Our address.
    #[inline]
    #[must_use]
    pub(crate) fn local_ip(&self) -> IpAddr {
        address(self.local)
    }

    /// The peer's address.
    #[inline]
    #[must_use]
    pub(crate) fn remote_ip(&self) -> IpAddr {
        address(self.remote)
    }

    /// The MSS of a peer that announces none.
    #[must_use]
    pub(crate) fn default_mss(&self) -> u16 {
        default_mss(self.remote_ip())
    }

    /// Our address and the peer's, if they are IPv4 addresses.
    #[inline]
    #[must_use]
    pub(crate) fn v4(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let ([high, low], [remote_high, remote_low]) = (self.local, self.remote);
        let both = high & remote_high == V4;
        both.then(|| (Ipv4Addr::from_bits(low as u32), Ipv4Addr::from_bits(remote_low as u32)))
    }

    /// Length of the IP header of its packets.
    #[inline]
    #[must_use]
    pub(crate) fn ip_header_len(&self) -> usize {
        if self.local[0] == V4 { 20 } else { 40 }
    }

    /// Length of the headers in front of its segments: IP's, and in UDP also UDP's and the encapsulation's.
    #[inline]
    #[must_use]
    pub(crate) fn headers_len(&self) -> usize {
        self.ip_header_len() + if self.is_carried() { OUTER } else { 0 }
    }

    /// Our port.
    #[inline]
    #[must_use]
    pub(crate) fn local_port(&self) -> u16 {
        (self.ports >> 16) as u16
    }

    /// The peer's port.
    #[inline]
    #[must_use]
    pub(crate) fn remote_port(&self) -> u16 {
        self.ports as u16
    }

    /// Our address and port.
    #[must_use]
    pub(crate) fn local(&self) -> SocketAddr {
        SocketAddr::new(self.local_ip(), self.local_port())
    }

    /// The peer's address and port.
    #[must_use]
    pub(crate) fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.remote_ip(), self.remote_port())
    }
}

/// Keyed hashing of four-tuples. An attacker who does not know the seed cannot aim at one bucket.
#[derive(Debug, Clone)]
pub(crate) struct FlowHasher(SeedableRandomState);

impl FlowHasher {
    /// A hasher with a secret seed.
    #[must_use]
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()))
    }

    #[must_use]
    pub(crate) fn hash_client(&self, prefix: u64) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write_u64(prefix);
        hasher.finish()
    }

    #[inline]
    #[must_use]
    pub(crate) fn hash(&self, key: &FlowKey) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write_u64(key.remote[1]);
        hasher.write_u64(key.local[1] ^ key.ports << 32);
        // Raw IPv4 needs none of these words.
        if key.remote[0] & key.local[0] != V4 || key.is_carried() {
            hasher.write_u64(key.remote[0]);
            hasher.write_u64(key.local[0] ^ key.ports & 0xffff_ffff);
            if key.is_carried() {
                hasher.write_u64(key.ports >> 32);
            }
        }
        hasher.finish()
    }
}

/// Maps four-tuples to slab indices. The entries hold the keys; the table holds four bytes for each entry.
#[derive(Debug, Default)]
pub(crate) struct FlowTable {
    table: HashTable<u32>,
}

impl FlowTable {
    /// The index for `hash` whose key satisfies `is`.
    #[inline]
    #[must_use]
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        self.table.find(hash, |i| is(*i)).copied()
    }

    /// Adds an index; `rehash` gives the hash of any index in the table.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, index: u32, rehash: impl Fn(u32) -> u64) {
        self.table.insert_unique(hash, index, |i| rehash(*i));
    }

    pub(crate) fn remove(&mut self, hash: u64, index: u32) {
        if let Ok(entry) = self.table.find_entry(hash, |i| *i == index) {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests;
