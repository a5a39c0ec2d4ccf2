//! The TIME-WAIT table: small records, bounded, the oldest make way.

use crate::flow::{FlowHasher, FlowKey, FlowTable};
use crate::slab::Slab;
use alloc::collections::VecDeque;
use core::time::Duration;
use firstflight_tcp::TimeWait;
use firstflight_wire::Instant;

#[derive(Debug)]
struct Record {
    key: FlowKey,
    state: TimeWait,
    expires: Instant,
}

/// Connections in TIME-WAIT.
#[derive(Debug)]
pub struct TimeWaitTable {
    table: FlowTable,
    records: Slab<Record>,
    order: VecDeque<(u32, u32)>,
    limit: usize,
}

impl TimeWaitTable {
    /// A table of at most `limit` records.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { table: FlowTable::default(), records: Slab::default(), order: VecDeque::new(), limit }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The record for `key`.
    #[inline]
    #[must_use]
    pub fn find(&self, hasher: &FlowHasher, key: &FlowKey) -> Option<(u32, TimeWait)> {
        if self.records.len() == 0 {
            return None;
        }
        let index =
            self.table.find(hasher.hash(key), |i| self.records.get(i).is_some_and(|r| r.key == *key))?;
        Some((index, self.records.get(index)?.state))
    }

    /// Adds a record for `lasts`; true if another had to make way.
    pub fn insert(
        &mut self,
        hasher: &FlowHasher,
        key: FlowKey,
        state: TimeWait,
        now: Instant,
        lasts: Duration,
    ) -> bool {
        let evict = self.records.len() >= self.limit;
        while self.records.len() >= self.limit.max(1) {
            let Some((index, generation)) = self.order.pop_front() else { break };
            if self.records.lives(index, generation) {
                self.remove(hasher, index);
            }
        }
        let (index, generation) = self.records.insert(Record { key, state, expires: now + lasts });
        let records = &self.records;
        self.table.insert(hasher.hash(&key), index, |i| {
            records.get(i).map_or(0, |r| hasher.hash(&r.key))
        });
        self.order.push_back((index, generation));
        evict
    }

    /// Lets the record's time start anew (a FIN came again).
    pub fn restart(&mut self, index: u32, now: Instant, lasts: Duration) {
        if let Some(record) = self.records.get_mut(index) {
            record.expires = now + lasts;
        }
    }

    /// Takes a record out.
    pub fn remove(&mut self, hasher: &FlowHasher, index: u32) {
        if let Some(record) = self.records.remove(index) {
            self.table.remove(hasher.hash(&record.key), index);
        }
    }

    /// Takes out what is over.
    pub fn expire(&mut self, hasher: &FlowHasher, now: Instant) {
        while let Some(&(index, generation)) = self.order.front() {
            if self.records.lives(index, generation) {
                let expires = self.records.get(index).map_or(Instant::ZERO, |r| r.expires);
                if expires > now {
                    if self.order.front().is_some_and(|_| self.restarted(index, now)) {
                        // Restarted: behind the others it goes.
                        self.order.rotate_left(1);
                        continue;
                    }
                    return;
                }
                self.remove(hasher, index);
            }
            self.order.pop_front();
        }
    }

    /// A restarted record may stand in front of records that end before it.
    fn restarted(&self, index: u32, now: Instant) -> bool {
        let Some(&(next, generation)) = self.order.get(1) else { return false };
        let ends = |i| self.records.get(i).map_or(Instant::ZERO, |r| r.expires);
        self.records.lives(next, generation) && ends(next) < ends(index) && ends(next) <= now
    }

    /// When the next one is over.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let (index, generation) = *self.order.front()?;
        if !self.records.lives(index, generation) {
            return Some(Instant::ZERO);
        }
        self.records.get(index).map(|r| r.expires)
    }
}
