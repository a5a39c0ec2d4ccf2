//! The TIME-WAIT table: small records, bounded, the oldest make way.

use alloc::collections::VecDeque;
use core::time::Duration;
use firstflight_tcp::TimeWait;
use firstflight_wire::Instant;
use hashbrown::HashTable;

/// One connection in TIME-WAIT; 40 bytes, kept in the table itself: a look costs one cache line
/// beside the table's own.
///
/// The four-tuple is represented by its keyed 64-bit hash. Two that share one are mistaken for each
/// other; among 2¹⁶ records a stranger's segment meets that with a chance of 2⁻⁴⁸, and gets an ACK
/// where it should get a RST.
#[derive(Debug)]
struct Record {
    hash: u64,
    expires: Instant,
    state: TimeWait,
}

/// Connections in TIME-WAIT.
#[derive(Debug)]
pub struct TimeWaitTable {
    records: HashTable<Record>,
    /// In the order in which they end: 2 MSL is the same for all. One that was restarted or taken
    /// out stays here until its turn; its record does not have that time any more.
    order: VecDeque<(u64, Instant)>,
    limit: usize,
}

impl TimeWaitTable {
    /// A table of at most `limit` records.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { records: HashTable::new(), order: VecDeque::new(), limit: limit.max(1) }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The record of the flow with this hash.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: u64) -> Option<TimeWait> {
        self.records.find(hash, |r| r.hash == hash).map(|r| r.state)
    }

    /// Adds a record for `lasts`, in the place of an older one of the same flow; true if another
    /// flow's had to make way.
    pub fn insert(&mut self, hash: u64, state: TimeWait, now: Instant, lasts: Duration) -> bool {
        let expires = now + lasts;
        self.remember(hash, expires);
        if let Some(record) = self.records.find_mut(hash, |r| r.hash == hash) {
            (record.expires, record.state) = (expires, state);
            return false;
        }
        let evict = self.records.len() >= self.limit;
        while self.records.len() >= self.limit {
            let Some((hash, expires)) = self.order.pop_front() else { break };
            self.remove_if(hash, |r| r.expires == expires);
        }
        self.records.insert_unique(hash, Record { hash, expires, state }, |r| r.hash);
        evict
    }

    /// Queues an end; leftovers never outnumber the records for long.
    fn remember(&mut self, hash: u64, expires: Instant) {
        if self.order.len() > 2 * self.records.len() + 64 {
            let records = &self.records;
            self.order.retain(|(hash, at)| {
                records.find(*hash, |r| r.hash == *hash).is_some_and(|r| r.expires == *at)
            });
        }
        self.order.push_back((hash, expires));
    }

    /// Lets the record's time start anew (a FIN came again).
    pub fn restart(&mut self, hash: u64, now: Instant, lasts: Duration) {
        if let Some(record) = self.records.find_mut(hash, |r| r.hash == hash) {
            record.expires = now + lasts;
            self.remember(hash, now + lasts);
        }
    }

    /// Takes a record out.
    pub fn remove(&mut self, hash: u64) {
        self.remove_if(hash, |_| true);
    }

    fn remove_if(&mut self, hash: u64, is: impl Fn(&Record) -> bool) {
        if let Ok(entry) = self.records.find_entry(hash, |r| r.hash == hash && is(r)) {
            entry.remove();
        }
    }

    /// Takes out what is over.
    pub fn expire(&mut self, now: Instant) {
        while let Some(&(hash, expires)) = self.order.front() {
            if expires > now {
                return;
            }
            self.order.pop_front();
            self.remove_if(hash, |r| r.expires == expires);
        }
    }

    /// When the next one is over, or was to be before it was taken out or restarted.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.order.front().map(|(_, expires)| *expires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstflight_wire::SeqNum;

    const LASTS: Duration = Duration::from_secs(60);

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
        let mut table = TimeWaitTable::new(3);
        let at = Instant::from_secs;
        for hash in 1..=3 {
            assert!(!table.insert(hash, state(), at(hash), LASTS));
        }
        table.restart(1, at(10), LASTS);
        assert!(table.insert(4, state(), at(11), LASTS));
        assert_eq!([1, 2, 3, 4].map(|h| table.find(h).is_some()), [true, false, true, true]);
        table.expire(at(63));
        assert_eq!([1, 3, 4].map(|h| table.find(h).is_some()), [true, false, true]);
        assert_eq!(table.next_deadline(), Some(at(70)));
        table.remove(1);
        table.expire(at(71));
        assert_eq!((table.len(), table.next_deadline()), (0, None));
        assert!(!table.insert(5, state(), at(80), LASTS));
        assert!(table.find(5).is_some());
    }

    #[test]
    fn a_peer_that_reopens_its_ports_does_not_grow_it() {
        let mut table = TimeWaitTable::new(1000);
        for n in 0..100_000u64 {
            table.remove(n % 7);
            table.insert(n % 7, state(), Instant::from_millis(n), LASTS);
            assert!(table.len() <= 7 && table.order.len() <= 80);
        }
    }

    #[test]
    fn a_record_of_the_same_flow_is_replaced() {
        let mut table = TimeWaitTable::new(10);
        table.insert(1, state(), Instant::ZERO, LASTS);
        table.insert(1, state(), Instant::from_secs(30), LASTS);
        assert_eq!(table.len(), 1);
        table.expire(Instant::from_secs(60));
        assert_eq!(table.len(), 1, "the newer one still lasts");
        table.expire(Instant::from_secs(90));
        assert_eq!(table.len(), 0);
    }
}
