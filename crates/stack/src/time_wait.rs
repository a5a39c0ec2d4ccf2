//! The TIME-WAIT table: small records, bounded, the oldest make way.

use crate::flow::{FlowKey, FlowTable};
use crate::slab::Slab;
use core::time::Duration;
use firstflight_tcp::TimeWait;
use firstflight_wire::Instant;

/// No record.
const NONE: u32 = u32::MAX;

/// One connection in TIME-WAIT, linked into the order in which they end: 2 MSL is the same for all,
/// so the order in which they came is the order in which they go.
#[derive(Debug)]
struct Record {
    key: FlowKey,
    state: TimeWait,
    /// Lower half of the four-tuple's hash: what the table needs to move or drop it.
    hash: u64,
    expires: Instant,
    older: u32,
    newer: u32,
}

/// Connections in TIME-WAIT.
#[derive(Debug)]
pub struct TimeWaitTable {
    table: FlowTable,
    records: Slab<Record>,
    oldest: u32,
    newest: u32,
    limit: usize,
}

impl TimeWaitTable {
    /// A table of at most `limit` records.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            table: FlowTable::default(),
            records: Slab::default(),
            oldest: NONE,
            newest: NONE,
            limit: limit.max(1),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The record for `key`.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: u64, key: &FlowKey) -> Option<(u32, TimeWait)> {
        if self.records.len() == 0 {
            return None;
        }
        let index = self.table.find(hash, |i| self.records.get(i).is_some_and(|r| r.key == *key))?;
        Some((index, self.records.get(index)?.state))
    }

    /// Adds a record for `lasts`; true if another had to make way.
    pub fn insert(
        &mut self,
        hash: u64,
        key: FlowKey,
        state: TimeWait,
        now: Instant,
        lasts: Duration,
    ) -> bool {
        let evict = self.records.len() >= self.limit;
        if evict {
            self.remove(self.oldest);
        }
        let expires = now + lasts;
        let record = Record { key, state, hash, expires, older: NONE, newer: NONE };
        let (index, _) = self.records.insert(record);
        let records = &self.records;
        self.table.insert(hash, index, |i| records.get(i).map_or(0, |r| r.hash));
        self.append(index);
        evict
    }

    fn append(&mut self, index: u32) {
        let last = core::mem::replace(&mut self.newest, index);
        if let Some(record) = self.records.get_mut(index) {
            (record.older, record.newer) = (last, NONE);
        }
        match self.records.get_mut(last) {
            Some(record) => record.newer = index,
            None => self.oldest = index,
        }
    }

    fn unlink(&mut self, index: u32) {
        let Some(record) = self.records.get(index) else { return };
        let (older, newer) = (record.older, record.newer);
        match self.records.get_mut(older) {
            Some(record) => record.newer = newer,
            None => self.oldest = newer,
        }
        match self.records.get_mut(newer) {
            Some(record) => record.older = older,
            None => self.newest = older,
        }
    }

    /// Lets the record's time start anew (a FIN came again).
    pub fn restart(&mut self, index: u32, now: Instant, lasts: Duration) {
        self.unlink(index);
        if let Some(record) = self.records.get_mut(index) {
            record.expires = now + lasts;
            self.append(index);
        }
    }

    /// Takes a record out.
    pub fn remove(&mut self, index: u32) {
        self.unlink(index);
        if let Some(hash) = self.records.get(index).map(|r| r.hash) {
            self.table.remove(hash, index);
            self.records.discard(index);
        }
    }

    /// Takes out what is over.
    pub fn expire(&mut self, now: Instant) {
        while self.records.get(self.oldest).is_some_and(|r| r.expires <= now) {
            self.remove(self.oldest);
        }
    }

    /// When the next one is over.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.records.get(self.oldest).map(|r| r.expires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::FlowHasher;
    use firstflight_wire::SeqNum;

    const LASTS: Duration = Duration::from_secs(60);

    fn key(port: u16) -> FlowKey {
        FlowKey::new("10.0.0.1:80".parse().unwrap(), (core::net::Ipv4Addr::new(10, 0, 0, 2), port).into())
    }

    fn state() -> TimeWait {
        TimeWait {
            snd_nxt: SeqNum::new(1),
            rcv_nxt: SeqNum::new(2),
            ts_recent: 0,
            ts_offset: 0,
            window: 0,
            timestamps: false,
        }
    }

    #[test]
    fn the_oldest_make_way_and_restarted_ones_are_the_newest() {
        let hasher = FlowHasher::new(1);
        let mut table = TimeWaitTable::new(3);
        let at = Instant::from_secs;
        for port in 1..=3 {
            assert!(!table.insert(hasher.hash(&key(port)), key(port), state(), at(u64::from(port)), LASTS));
        }
        let has = |table: &TimeWaitTable, port| table.find(hasher.hash(&key(port)), &key(port)).map(|r| r.0);
        table.restart(has(&table, 1).unwrap(), at(10), LASTS);
        assert!(table.insert(hasher.hash(&key(4)), key(4), state(), at(11), LASTS));
        assert_eq!([1, 2, 3, 4].map(|p| has(&table, p).is_some()), [true, false, true, true]);
        assert_eq!(table.next_deadline(), Some(at(63)));
        table.expire(at(63));
        assert_eq!(table.next_deadline(), Some(at(70)));
        table.remove(has(&table, 1).unwrap());
        table.expire(at(71));
        assert_eq!((table.len(), table.next_deadline()), (0, None));
        assert!(!table.insert(hasher.hash(&key(5)), key(5), state(), at(80), LASTS));
        assert!(has(&table, 5).is_some());
    }

    #[test]
    fn a_peer_that_reopens_its_ports_does_not_grow_it() {
        let hasher = FlowHasher::new(1);
        let mut table = TimeWaitTable::new(1000);
        for n in 0..100_000u32 {
            let key = key(1 + (n % 7) as u16);
            if let Some((index, _)) = table.find(hasher.hash(&key), &key) {
                table.remove(index);
            }
            table.insert(hasher.hash(&key), key, state(), Instant::from_millis(u64::from(n)), LASTS);
            assert!(table.len() <= 7);
        }
    }
}
