//! Which stack of a group has a flow, where the link does not learn that from what is sent: a network card chooses the queue of
//! a flow by itself, so the stack whose queue got a SYN keeps the connection.
//!
//! All stacks of a group write into one table of fixed size, without locks. They hash four-tuples alike, so a stack finds the owner
//! of a packet's flow by the hash that it computed for its own table.

use crate::random::Random;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use zeroize::Zeroize;

/// Places of one bucket: a cache line.
const WAYS: usize = 8;
/// The most places of a table: 2 MiB.
const MOST: usize = 1 << 18;
/// A place: the upper bits are those of the flow's hash, the lower ones the number of the stack, from 1 on. 0 is a free place.
const STACK: u64 = 0xffff;

/// The flows of a group of stacks and the stacks that have them. `Debug` does not show the secret; dropping erases it.
///
/// A flow whose bucket is full is not noted. While there are such flows, a segment that no stack is known to have goes round all
/// of them.
pub struct FlowOwners {
    secret: [u8; 32],
    places: Box<[AtomicU64]>,
    /// Flows that found no place.
    unnoted: AtomicUsize,
}

impl fmt::Debug for FlowOwners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowOwners({} places)", self.places.len())
    }
}

impl Drop for FlowOwners {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl FlowOwners {
    /// A table for this many flows of all stacks together, those in TIME-WAIT included: 16 bytes for each, at most 2 MiB. The 32
    /// bytes must be unpredictable: the hash of the flow tables and the SYN cookies of all stacks come from them.
    #[must_use]
    pub fn new(secret: [u8; 32], flows: usize) -> Self {
        let count = flows.saturating_mul(2).clamp(WAYS, MOST).next_power_of_two();
        let places = (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { secret, places, unnoted: AtomicUsize::new(0) }
    }

    /// The key of all flow tables, and the secret of all SYN cookies: an ACK may come to another queue than its SYN.
    pub(crate) fn secrets(&self) -> (u64, [u8; 16]) {
        let mut random = Random::new(&self.secret);
        (random.next_u64(), random.secret())
    }

    fn bucket(&self, hash: u64) -> &[AtomicU64] {
        // The number of places is a power of two, and a multiple of a bucket's.
        let first = (hash >> 16) as usize & (self.places.len() - 1) & !(WAYS - 1);
        self.places.get(first..first + WAYS).unwrap_or_default()
    }

    /// The stack that has the flow.
    fn find(&self, hash: u64) -> Option<usize> {
        let mut seen = self.bucket(hash).iter().map(|place| place.load(Ordering::Acquire));
        let found = seen.find(|seen| is_of(*seen, hash))?;
        (found & STACK).checked_sub(1).map(|stack| stack as usize)
    }

    /// Notes that `stack` has the flow. An entry of another stack is replaced.
    fn claim(&self, hash: u64, stack: usize) {
        let (bucket, entry) = (self.bucket(hash), entry(hash, stack));
        let replaces = |place: &AtomicU64, old| {
            place.compare_exchange(old, entry, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        for place in bucket {
            let seen = place.load(Ordering::Acquire);
            if seen == entry || is_of(seen, hash) && replaces(place, seen) {
                return;
            }
        }
        let is_free = |place: &&AtomicU64| place.load(Ordering::Relaxed) == 0;
        if !bucket.iter().filter(is_free).any(|place| replaces(place, 0)) {
            self.unnoted.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// `stack` does not have the flow any more.
    fn release(&self, hash: u64, stack: usize) {
        let entry = entry(hash, stack);
        for place in self.bucket(hash) {
            let seen = place.load(Ordering::Acquire);
            if seen == entry {
                // Only its stack frees it. Another one may have claimed the flow just now.
                let _ = place.compare_exchange(entry, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
            if is_of(seen, hash) {
                return;
            }
        }
        let _ = self.unnoted.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| count.checked_sub(1));
    }
}

const fn entry(hash: u64, stack: usize) -> u64 {
    hash & !STACK | (stack as u64 + 1) & STACK
}

const fn is_of(seen: u64, hash: u64) -> bool {
    seen & STACK != 0 && (seen ^ hash) & !STACK == 0
}

/// A stack's part of the table.
#[derive(Debug, Clone)]
pub(crate) struct Claims {
    owners: Arc<FlowOwners>,
    stack: usize,
}

/// Who has a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowHolder {
    /// This stack, or none.
    Here,
    /// Another stack.
    There(usize),
    /// It is not known.
    Unknown,
}

impl Claims {
    /// The part of the stack with this number.
    pub(crate) const fn new(owners: Arc<FlowOwners>, stack: usize) -> Self {
        Self { owners, stack }
    }

    pub(crate) fn claim(&self, hash: u64) {
        self.owners.claim(hash, self.stack);
    }

    pub(crate) fn release(&self, hash: u64) {
        self.owners.release(hash, self.stack);
    }

    pub(crate) fn holder(&self, hash: u64) -> FlowHolder {
        match self.owners.find(hash) {
            Some(stack) if stack != self.stack => FlowHolder::There(stack),
            None if self.owners.unnoted.load(Ordering::Acquire) > 0 => FlowHolder::Unknown,
            _ => FlowHolder::Here,
        }
    }
}

#[cfg(test)]
mod tests;
