//! Pending first flights of each client prefix, in a table of fixed size that shards share.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use alloc::boxed::Box;
use core::hash::Hasher;
use core::net::IpAddr;
use siphasher::sip::SipHasher13;

/// Entries of one bucket, which is a cache line.
const WAYS: usize = if cfg!(loom) { 2 } else { 8 };
/// Layout of an entry: a count in the lower bits, the tag of the client above it.
const COUNT_BITS: u32 = 16;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// Counts by client prefix, and how many permits a client has of its own. An entry with a count of zero is
/// free and may be reused for another client. An entry in use is never reused, so an attacker who crowds the
/// table can neither reset a count nor drive it below zero.
#[derive(Debug)]
pub(super) struct ClientTable {
    entries: Box<[AtomicU64]>,
    own: AtomicU32,
    key: AtomicU64,
}

impl ClientTable {
    /// Room for at least `clients` prefixes, each with `own` permits.
    pub(super) fn new(clients: usize, own: u32) -> Self {
        let entries = (clients.max(WAYS) * 3 / 2).next_power_of_two();
        Self {
            entries: (0..entries).map(|_| AtomicU64::new(0)).collect(),
            own: AtomicU32::new(own),
            key: AtomicU64::new(0),
        }
    }

    pub(super) fn own(&self) -> u32 {
        self.own.load(Ordering::Relaxed)
    }

    pub(super) fn set_own(&self, own: u32) {
        self.own.store(own, Ordering::Relaxed);
    }

    pub(super) fn key(&self, key: u64) {
        let _ = self.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Counts one permit for `client`. Returns its entry, and how many permits it had before. `None` if it has
    /// `limit` permits already, or no entry is free.
    #[inline(always)]
    pub(super) fn reserve(&self, client: IpAddr, limit: u32) -> Option<(u32, u32)> {
        let hash = self.hash(client);
        // Never zero, because zero marks an entry that was never used.
        let tag = (hash >> COUNT_BITS) | 1;
        // A power of two, so a mask replaces a division.
        let buckets = self.entries.len() / WAYS;
        let first = (hash as usize & (buckets - 1)) * WAYS;
        let limit = u64::from(limit.min(COUNT as u32));
        let bucket = self.entries.get(first..first + WAYS)?;
        // Another shard may change the bucket in the meantime, so retry. A failed exchange means that another
        // shard succeeded. If two shards see a new client at the same moment, each may give it an entry. The
        // client then has up to twice its permits, until both entries are empty.
        loop {
            let mut free = None;
            let mut found = None;
            for (way, entry) in bucket.iter().enumerate() {
                let value = entry.load(Ordering::Relaxed);
                if value >> COUNT_BITS == tag {
                    found = Some((way, value));
                    break;
                }
                if value & COUNT == 0 && free.is_none() {
                    free = Some((way, value));
                }
            }
            let (way, value) = found.or(free)?;
            let count = if found.is_some() { value & COUNT } else { 0 };
            if count >= limit {
                return None;
            }
            let next = tag << COUNT_BITS | (count + 1);
            let entry = bucket.get(way)?;
            if entry.compare_exchange(value, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Some(((first + way) as u32, count as u32));
            }
        }
    }

    /// Gives back a permit of `entry`.
    pub(super) fn release(&self, entry: u32) {
        if let Some(entry) = self.entries.get(entry as usize) {
            // The permit was counted once, and an entry in use keeps its client.
            entry.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn hash(&self, client: IpAddr) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.key.load(Ordering::Relaxed), 0x6366);
        match client {
            IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
            IpAddr::V6(_) => hasher.write_u64(prefix(client)),
        }
        hasher.finish()
    }
}

/// The prefix that counts as one client: an IPv4 address, or an IPv6 /64, because one host can use all
/// addresses of it. The values of the families differ in their upper bits: no global unicast /64 begins with
/// zeros (RFC 4291 §2.4).
#[must_use]
pub fn prefix(client: IpAddr) -> u64 {
    match client {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::thread;

    fn v4(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(n).into()
    }

    fn reserve(table: &ClientTable, client: IpAddr) -> Option<u32> {
        table.reserve(client, table.own()).map(|(entry, _)| entry)
    }

    /// Addresses that fill one bucket do so under one key only.
    #[test]
    fn nobody_can_choose_addresses_that_collide() {
        let table = ClientTable::new(64, 1);
        let buckets = (table.entries.len() / WAYS) as u64;
        let chosen: Vec<IpAddr> =
            (0..).map(v4).filter(|ip| table.hash(*ip).is_multiple_of(buckets)).take(WAYS + 1).collect();
        let all = |table: &ClientTable| chosen.iter().filter(|ip| reserve(table, **ip).is_some()).count();
        assert_eq!(all(&table), WAYS);
        let keyed = ClientTable::new(64, 1);
        keyed.key(7);
        assert_eq!(all(&keyed), WAYS + 1);
        // The first key stays: clients that hold permits are found again.
        keyed.key(8);
        assert!(reserve(&keyed, chosen[0]).is_none());
    }

    #[test]
    fn one_prefix_is_one_client() {
        let table = ClientTable::new(100, 2);
        let v6 = |low: u64| IpAddr::from(Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | u128::from(low)));
        let first = reserve(&table, v6(1)).unwrap();
        assert_eq!(reserve(&table, v6(2)), Some(first));
        assert_eq!(reserve(&table, v6(u64::MAX)), None, "the whole /64 is one client");
        assert!(reserve(&table, v4(1)).is_some() && reserve(&table, v4(2)).is_some());
        table.release(first);
        assert_eq!(reserve(&table, v6(3)), Some(first));
    }

    #[test]
    fn a_full_table_refuses_new_clients_and_forgets_none() {
        let table = ClientTable::new(WAYS, 2);
        let held: Vec<_> = (0..1000).filter_map(|n| reserve(&table, v4(n)).map(|entry| (n, entry))).collect();
        assert_eq!(held.len(), table.entries.len());
        for &(n, entry) in &held {
            assert_eq!(reserve(&table, v4(n)), Some(entry), "still known");
            assert_eq!(reserve(&table, v4(n)), None, "and at its limit");
        }
        for &(_, entry) in &held {
            table.release(entry);
            table.release(entry);
        }
        assert!((5000..5000 + WAYS as u32).any(|n| reserve(&table, v4(n)).is_some()));
    }

    #[test]
    fn threads_never_pass_a_clients_limit_and_give_all_back() {
        let table = Arc::new(ClientTable::new(64, 3));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..20_000u32 {
                        let held: Vec<_> =
                            (0..4).filter_map(|n| reserve(&table, v4(round % 5 + n))).collect();
                        held.into_iter().for_each(|entry| table.release(entry));
                    }
                });
            }
        });
        assert!(table.entries.iter().all(|entry| entry.load(Ordering::Relaxed) & COUNT == 0));
        assert_eq!((0..9).filter_map(|_| reserve(&table, v4(1))).count(), 3);
    }

    proptest! {
        #[test]
        fn counts_like_a_map(steps in proptest::collection::vec((any::<bool>(), 0u32..12), 1..200)) {
            let table = ClientTable::new(64, 3);
            let mut model: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for (take, client) in steps {
                let held = model.entry(client).or_default();
                if take {
                    let entry = reserve(&table, v4(client));
                    prop_assert_eq!(entry.is_some(), held.len() < 3);
                    held.extend(entry);
                } else if let Some(entry) = held.pop() {
                    table.release(entry);
                }
            }
        }
    }
}
