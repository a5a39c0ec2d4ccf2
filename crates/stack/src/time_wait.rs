//! The TIME-WAIT table: small records, bounded, the oldest make way.

use alloc::vec::Vec;
use core::time::Duration;
use firstflight_tcp::TimeWait;
use firstflight_wire::Instant;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Least time between two walks through the table to end what is over.
const SWEEP: Duration = Duration::from_secs(1);

/// A tick, nanoseconds: 2³² of them are three days.
const TICK_NS: u64 = 64_000;
/// Records of one moment end a tick apart, so that the first of them makes way first; not more of them
/// than this, 4 ms.
const APART: i32 = 64;

/// One connection in TIME-WAIT: half a cache line, in the table itself. Servers whose clients use their
/// ports again look one up for each connection, and that is the only memory they need for it.
///
/// The four-tuple is represented by its keyed 64-bit hash. Two that share one are mistaken for each
/// other; among 2¹⁶ records a stranger's segment meets that with a chance of 2⁻⁴⁸, and gets an ACK
/// where it should get a RST.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct Record {
    hash: u64,
    /// In ticks, modulo 2³².
    expires: u32,
    state: TimeWait,
}

impl Record {
    /// Ticks from `now`, counted likewise, until it is over.
    fn left(&self, now: u32) -> i32 {
        self.expires.wrapping_sub(now) as i32
    }
}

/// `at` in ticks, rounded up, modulo 2³².
fn ticks(at: Instant) -> u32 {
    at.as_nanos().div_ceil(TICK_NS) as u32
}

/// Connections in TIME-WAIT. There is no list of them in the order of their ends: keeping it would cost
/// every connection more than the walks through the table cost all of them.
#[derive(Debug)]
pub struct TimeWaitTable {
    records: HashTable<Record>,
    /// When to walk through the table next; nothing is over before.
    sweep_at: Option<Instant>,
    /// When the newest ends, ticks.
    newest: u32,
    /// For finding the oldest.
    ages: Vec<i32>,
    limit: usize,
}

impl TimeWaitTable {
    /// A table of at most `limit` records.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { records: HashTable::new(), sweep_at: None, newest: 0, ages: Vec::new(), limit: limit.max(1) }
    }

    /// How many there are; some of them may be over for a second.
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

    /// Adds a record for `lasts`, in the place of an older one of the same flow; true if others had to
    /// make way: the oldest, a sixteenth of the limit at once.
    pub fn insert(&mut self, hash: u64, state: TimeWait, now: Instant, lasts: Duration) -> bool {
        let record = Record { hash, expires: self.next_end(now + lasts), state };
        self.sweep_at.get_or_insert(now + lasts);
        let full = self.records.len() >= self.limit;
        if full && self.find(hash).is_none() {
            self.make_room(now);
        }
        match self.records.entry(hash, |r| r.hash == hash, |r| r.hash) {
            Entry::Occupied(mut old) => {
                *old.get_mut() = record;
                false
            }
            Entry::Vacant(place) => {
                place.insert(record);
                full
            }
        }
    }

    /// When a record ends that is to end at `at`, or a little later.
    fn next_end(&mut self, at: Instant) -> u32 {
        let tick = ticks(at);
        self.newest = match self.newest.wrapping_sub(tick) as i32 {
            0..APART => self.newest.wrapping_add(1),
            APART => self.newest,
            _ => tick,
        };
        self.newest
    }

    /// Ends the oldest. Finding them is a walk through the table, so it is done for many.
    #[cold]
    fn make_room(&mut self, now: Instant) {
        let now = ticks(now);
        self.ages.clear();
        self.ages.extend(self.records.iter().map(|r| r.left(now)));
        let count = (self.limit / 16).clamp(1, self.ages.len().max(1));
        if self.ages.is_empty() {
            return;
        }
        let (older, &mut last, _) = self.ages.select_nth_unstable(count - 1);
        // Of those as old as the last one that has to go, no more than needed.
        let mut ties = count - older.iter().filter(|left| **left < last).count();
        self.records.retain(|r| {
            let left = r.left(now);
            let tie = left == last && ties > 0;
            ties -= usize::from(tie);
            left >= last && !tie
        });
    }

    /// Lets the record's time start anew (a FIN came again).
    pub fn restart(&mut self, hash: u64, now: Instant, lasts: Duration) {
        let expires = self.next_end(now + lasts);
        if let Some(record) = self.records.find_mut(hash, |r| r.hash == hash) {
            record.expires = expires;
        }
    }

    /// Takes a record out.
    #[inline]
    pub fn remove(&mut self, hash: u64) {
        if let Ok(entry) = self.records.find_entry(hash, |r| r.hash == hash) {
            entry.remove();
        }
    }

    /// Takes out what is over, at most a second late.
    pub fn expire(&mut self, now: Instant) {
        if self.sweep_at.is_none_or(|at| now < at) {
            return;
        }
        let at = ticks(now);
        self.records.retain(|r| r.left(at) > 0);
        let first = self.records.iter().map(|r| r.left(at)).min();
        let left = first.map(|ticks| Duration::from_nanos(u64::from(ticks.unsigned_abs()) * TICK_NS));
        self.sweep_at = left.map(|left| now + left.max(SWEEP));
    }

    /// When to call [`TimeWaitTable::expire`] next: not before the first one is over.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.sweep_at
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
    fn a_full_table_loses_a_sixteenth_and_of_one_moment_the_first() {
        let mut table = TimeWaitTable::new(32);
        let at = Instant::from_secs(5);
        for hash in 0..32 {
            assert!(!table.insert(hash, state(), at, LASTS));
        }
        assert!(!table.insert(0, state(), at, LASTS), "a flow's own record makes way for nobody");
        assert!(table.insert(32, state(), at, LASTS));
        assert_eq!(table.len(), 31);
        assert_eq!((0..33).filter(|h| table.find(*h).is_none()).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn many_of_one_moment_end_a_few_milliseconds_later_at_most() {
        let mut table = TimeWaitTable::new(1000);
        for hash in 0..1000 {
            table.insert(hash, state(), Instant::from_secs(5), LASTS);
        }
        table.expire(Instant::from_millis(64_999));
        assert_eq!(table.len(), 1000);
        table.expire(Instant::from_millis(65_005));
        assert_eq!((table.len(), table.next_deadline()), (0, None));
    }

    #[test]
    fn a_peer_that_reopens_its_ports_does_not_grow_it() {
        let mut table = TimeWaitTable::new(1000);
        for n in 0..100_000u64 {
            table.remove(n % 7);
            table.insert(n % 7, state(), Instant::from_millis(n), LASTS);
            assert!(table.len() <= 7 && table.records.capacity() <= 80);
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
