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
mod tests;
