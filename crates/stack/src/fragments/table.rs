//! The table of incomplete packets.

use super::datagram::Datagram;
use super::limits::FragmentLimits;
use crate::event::PacketDrop;
use crate::flows::slab::Slab;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::IpAddr;
use firstflight_credential::pending::prefix;
use firstflight_wire::Instant;
use firstflight_wire::ip::Fragment;
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use hashbrown::HashTable;

/// No packet.
const NONE: u32 = u32::MAX;
/// What a packet costs besides its bytes: its entry, its place in both tables, and their room to grow.
const COST: usize = 320;
const _: () = assert!(size_of::<Entry>() + 2 * (size_of::<Source>() + size_of::<u32>() + 2) + 32 <= COST);
/// An empty table that once held more packets than this gives its memory back.
const KEPT: usize = 64;

/// What the fragments of one packet have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    src: IpAddr,
    dst: IpAddr,
    identification: u32,
    /// IPv4's protocol; 0 in IPv6, where the identification is enough (RFC 8200 §4.5).
    protocol: u8,
}

impl Key {
    fn of(fragment: &Fragment<'_>) -> Self {
        let Fragment { src, dst, identification, next, .. } = *fragment;
        Self { src, dst, identification, protocol: if src.is_ipv4() { next.number() } else { 0 } }
    }

    fn network(&self) -> Network {
        Network { v4: self.src.is_ipv4(), prefix: prefix(self.src) }
    }
}

/// The source: an IPv4 address, an IPv6 /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Network {
    v4: bool,
    prefix: u64,
}

/// A list in order of age: of all packets, or of one source's packets.
#[derive(Debug, Clone, Copy)]
enum Order {
    All,
    Source,
}

/// The neighbours in a list in order of age.
#[derive(Debug, Clone, Copy)]
struct Neighbours {
    older: u32,
    newer: u32,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    datagram: Datagram,
    cost: usize,
    orders: [Neighbours; 2],
}

impl Entry {
    fn order(&mut self, order: Order) -> &mut Neighbours {
        let [all, source] = &mut self.orders;
        match order {
            Order::All => all,
            Order::Source => source,
        }
    }
}

/// The ends of a list in order of age.
#[derive(Debug, Clone, Copy)]
struct List {
    oldest: u32,
    newest: u32,
}

impl List {
    const EMPTY: Self = Self { oldest: NONE, newest: NONE };

    fn push(&mut self, order: Order, at: u32, entries: &mut Slab<Entry>) {
        match entries.get_mut(self.newest) {
            Some(newest) => newest.order(order).newer = at,
            None => self.oldest = at,
        }
        if let Some(entry) = entries.get_mut(at) {
            *entry.order(order) = Neighbours { older: self.newest, newer: NONE };
        }
        self.newest = at;
    }

    fn unlink(&mut self, order: Order, of: Neighbours, entries: &mut Slab<Entry>) {
        match entries.get_mut(of.older) {
            Some(older) => older.order(order).newer = of.newer,
            None => self.oldest = of.newer,
        }
        match entries.get_mut(of.newer) {
            Some(newer) => newer.order(order).older = of.older,
            None => self.newest = of.older,
        }
    }
}

#[derive(Debug)]
struct Source {
    network: Network,
    bytes: usize,
    list: List,
}

/// The table. A fragment takes O(1) time in the number of packets, and O(n) in the number of fragments of its own
/// packet.
#[derive(Debug)]
pub(super) struct Table {
    hasher: SeedableRandomState,
    index: HashTable<u32>,
    sources: HashTable<Source>,
    entries: Slab<Entry>,
    list: List,
    bytes: usize,
    /// The most packets that it held.
    peak: usize,
    evicted: u64,
}

impl Table {
    /// An empty table. `seed` keeps attackers from choosing keys that collide.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            hasher: SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            index: HashTable::new(),
            sources: HashTable::new(),
            entries: Slab::default(),
            list: List::EMPTY,
            bytes: 0,
            peak: 0,
            evicted: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is empty and still has the memory of many packets.
    pub(super) fn is_spent(&self) -> bool {
        self.len() == 0 && self.peak > KEPT
    }

    /// Packets given up to make room since this was last called.
    pub(super) fn take_evicted(&mut self) -> u64 {
        core::mem::take(&mut self.evicted)
    }

    /// When the oldest packet is given up.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.entries.get(self.list.oldest).map(|entry| entry.datagram.expires)
    }

    /// Gives up the packets whose lifetime is over, and returns their number.
    pub(super) fn expire(&mut self, now: Instant) -> u64 {
        let mut expired = 0;
        while self.next_deadline().is_some_and(|at| at <= now) {
            self.remove(self.list.oldest);
            expired += 1;
        }
        expired
    }

    /// Takes a fragment; returns the whole packet if it is complete.
    pub(super) fn handle(
        &mut self,
        fragment: &Fragment<'_>,
        limits: &FragmentLimits,
        now: Instant,
    ) -> Result<Option<Vec<u8>>, PacketDrop> {
        let key = Key::of(fragment);
        let hash = self.hasher.hash_one(key);
        let found = self.index.find(hash, |at| self.entries.get(*at).is_some_and(|e| e.key == key)).copied();
        let at = match found {
            // Only if `expire` was not called in time.
            Some(old) if self.entries.get(old).is_some_and(|e| e.datagram.expires <= now) => {
                self.remove(old);
                self.insert(key, hash, now + limits.lifetime)
            }
            Some(at) => at,
            None => self.insert(key, hash, now + limits.lifetime),
        };
        let Some(entry) = self.entries.get_mut(at) else { return Ok(None) };
        let added = entry.datagram.add(fragment, limits.per_packet);
        let cost = COST + entry.datagram.heap();
        let before = core::mem::replace(&mut entry.cost, cost);
        if added == Ok(true) {
            entry.cost = before;
            return Ok(self.remove(at).and_then(|datagram| datagram.finish(fragment)));
        }
        self.charge(key.network(), before, cost);
        self.make_room(key.network(), limits);
        added.map(|_| None)
    }

    /// Inserts an empty packet as the youngest.
    fn insert(&mut self, key: Key, hash: u64, expires: Instant) -> u32 {
        let nobody = Neighbours { older: NONE, newer: NONE };
        let datagram = Datagram::new(key.src.is_ipv4(), expires);
        let (at, _) = self.entries.insert(Entry { key, datagram, cost: COST, orders: [nobody; 2] });
        self.list.push(Order::All, at, &mut self.entries);
        self.peak = self.peak.max(self.entries.len());
        self.bytes += COST;
        let Self { hasher, index, sources, entries, .. } = self;
        let network = key.network();
        let mut source = sources
            .entry(
                hasher.hash_one(network),
                |source| source.network == network,
                |source| hasher.hash_one(source.network),
            )
            .or_insert_with(|| Source { network, bytes: 0, list: List::EMPTY });
        let source = source.get_mut();
        source.bytes += COST;
        source.list.push(Order::Source, at, entries);
        index.insert_unique(hash, at, |at| entries.get(*at).map_or(0, |entry| hasher.hash_one(entry.key)));
        at
    }

    /// Updates the sums: a packet of this source cost `before`, and costs `now`.
    fn charge(&mut self, network: Network, before: usize, now: usize) {
        self.bytes = self.bytes - before + now;
        if let Some(source) = self.source(network) {
            source.bytes = source.bytes - before + now;
        }
    }

    fn source(&mut self, network: Network) -> Option<&mut Source> {
        let hash = self.hasher.hash_one(network);
        self.sources.find_mut(hash, |source| source.network == network)
    }

    /// Gives up the oldest packets until the limits are met.
    fn make_room(&mut self, network: Network, limits: &FragmentLimits) {
        while let Some(source) = self.source(network)
            && source.bytes > limits.bytes_per_source
        {
            let oldest = source.list.oldest;
            self.evict(oldest);
        }
        while self.bytes > limits.bytes && self.len() > 0 {
            self.evict(self.list.oldest);
        }
    }

    fn evict(&mut self, at: u32) {
        self.remove(at);
        self.evicted += 1;
    }

    fn remove(&mut self, at: u32) -> Option<Datagram> {
        let Entry { key, datagram, cost, orders: [all, of_source] } = self.entries.remove(at)?;
        self.bytes -= cost;
        self.list.unlink(Order::All, all, &mut self.entries);
        if let Ok(place) = self.index.find_entry(self.hasher.hash_one(key), |other| *other == at) {
            place.remove();
        }
        let network = key.network();
        let hash = self.hasher.hash_one(network);
        if let Ok(mut place) = self.sources.find_entry(hash, |source| source.network == network) {
            let source = place.get_mut();
            source.bytes -= cost;
            source.list.unlink(Order::Source, of_source, &mut self.entries);
            if source.list.oldest == NONE {
                place.remove();
            }
        }
        Some(datagram)
    }

    /// Checks the invariants.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let costs = |at: &u32| self.entries.get(*at).map_or(0, |entry| entry.cost);
        let all: Vec<u32> = self.entries.indices().collect();
        assert_eq!(self.bytes, all.iter().map(costs).sum::<usize>());
        assert_eq!(self.index.len(), all.len());
        assert_eq!(self.bytes, self.sources.iter().map(|source| source.bytes).sum::<usize>());
        assert!(self.sources.iter().all(|source| source.list.oldest != NONE));
        let (mut at, mut seen, mut since) = (self.list.oldest, 0, Instant::ZERO);
        while let Some(entry) = self.entries.get(at) {
            assert_eq!(entry.cost, COST + entry.datagram.heap());
            assert!(entry.datagram.expires >= since);
            since = entry.datagram.expires;
            at = entry.orders[0].newer;
            seen += 1;
        }
        assert_eq!(seen, all.len());
    }
}
