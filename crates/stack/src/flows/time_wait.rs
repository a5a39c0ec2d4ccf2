//! The TIME-WAIT table: small records, bounded in number. The oldest are evicted.

use crate::owners::Claims;
use alloc::vec::Vec;
use core::time::Duration;
use firstflight_tcp::TimeWait;
use firstflight_wire::hint::unlikely;
use firstflight_wire::{Instant, SeqNum};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Least time between two walks through the table that remove expired records.
const SWEEP: Duration = Duration::from_secs(1);

/// A tick, nanoseconds.
const TICK_NS: u64 = 16_000_000;
/// Ticks are counted modulo 2¹⁵: more than eight minutes.
const TICKS: u16 = 0x7fff;
/// Records of one moment expire some ticks apart, so that the first of them are evicted first. They are apart by no
/// more than this, a second.
const APART: i16 = 62;
/// Longest lifetime of a record, 2 MSL of RFC 9293. With twice that time, ticks would be ambiguous.
const LONGEST: Duration = Duration::from_secs(240);

/// One connection in TIME-WAIT: 20 bytes, in the table itself. Servers whose clients reuse their ports look one up
/// for each connection, and need no other memory for that. 28,232 of them, all ports that one client uses, take 0.7
/// MB, which fits into a processor's second-level cache.
///
/// The four-tuple is represented by 48 bits of its keyed hash. Two four-tuples with the same 48 bits are mistaken
/// for each other. Among 2¹⁶ records, a segment of another flow matches one with a probability of 2⁻³². It then
/// gets an ACK instead of a RST, or, for a SYN, the client has to try again.
#[derive(Debug, Clone, Copy)]
struct Record {
    tag: u32,
    snd_nxt: SeqNum,
    rcv_nxt: SeqNum,
    ts_recent: u32,
    /// The upper half of the tag.
    tag_high: u16,
    /// From the high bits on: the tick after which the record expires, and whether timestamps were in use.
    rest: u16,
}

impl Record {
    fn new(tag: Tag, state: TimeWait, expires: u16) -> Self {
        let TimeWait { snd_nxt, rcv_nxt, ts_recent, timestamps } = state;
        let rest = expires << 1 | u16::from(timestamps);
        Self { tag: tag.0 as u32, tag_high: (tag.0 >> 32) as u16, snd_nxt, rcv_nxt, ts_recent, rest }
    }

    #[inline]
    fn tag(&self) -> Tag {
        Tag(u64::from(self.tag_high) << 32 | u64::from(self.tag))
    }

    #[inline]
    fn state(&self) -> TimeWait {
        let Self { snd_nxt, rcv_nxt, ts_recent, rest, .. } = *self;
        TimeWait { snd_nxt, rcv_nxt, ts_recent, timestamps: rest & 1 != 0 }
    }

    fn restart(&mut self, expires: u16) {
        self.rest = expires << 1 | self.rest & 1;
    }

    /// Ticks from `now`, also modulo 2¹⁵, until the record expires.
    fn left(&self, now: u16) -> i16 {
        left(self.rest >> 1, now)
    }
}

/// The part of a four-tuple's hash that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tag(u64);

impl Tag {
    #[inline]
    fn of(hash: u64) -> Self {
        Self(hash >> 16)
    }

    /// The hash, without what is not kept of it.
    const fn hash(self) -> u64 {
        self.0 << 16
    }

    /// A hash for the table, which uses the lower bits for the place and the upper seven for the first comparison.
    #[inline]
    fn spread(self) -> u64 {
        self.0 | self.0 >> 41 << 57
    }
}

/// Ticks from `now` to `tick`, both modulo 2¹⁵.
fn left(tick: u16, now: u16) -> i16 {
    ((tick.wrapping_sub(now) << 1) as i16) >> 1
}

/// The first tick that begins at `at` or later, so that nothing expires too early.
fn tick_after(at: Instant) -> u16 {
    // Rounds up without computing a remainder.
    tick(at.after_nanos(TICK_NS - 1))
}

/// The current tick.
fn tick(now: Instant) -> u16 {
    (now.as_nanos() / TICK_NS) as u16 & TICKS
}

/// Connections in TIME-WAIT. There is no list of them in the order of expiry: keeping it would cost every
/// connection more than the walks through the table cost all of them.
#[derive(Debug)]
pub(crate) struct TimeWaitTable {
    records: HashTable<Record>,
    /// When to walk through the table next. Nothing expires before.
    sweep_at: Option<Instant>,
    /// When the last record expires.
    over: Instant,
    /// When the newest record expires, and how many records expire with it.
    newest: (u16, usize),
    /// Where the stacks of a group note their flows, if they do.
    claims: Option<Claims>,
    /// Scratch memory to find the oldest.
    ages: Vec<i16>,
    limit: usize,
}

impl TimeWaitTable {
    /// A table of at most `limit` records.
    #[must_use]
    pub(crate) fn new(limit: usize) -> Self {
        let (records, limit) = (HashTable::new(), limit.max(1));
        let (over, newest) = (Instant::ZERO, (0, 0));
        Self { records, sweep_at: None, over, newest, claims: None, ages: Vec::new(), limit }
    }

    /// Releases the flows of records that go.
    #[must_use]
    pub(crate) fn telling(mut self, claims: Option<Claims>) -> Self {
        self.claims = claims;
        self
    }

    /// Number of records. Some of them may have expired up to a second ago.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// The record of the flow with this hash.
    #[inline]
    #[must_use]
    pub(crate) fn find(&self, hash: u64) -> Option<TimeWait> {
        let tag = Tag::of(hash);
        self.records.find(tag.spread(), |r| r.tag() == tag).map(Record::state)
    }

    /// Adds a record for `lasts`, four minutes at most, and replaces an older one of the same flow. True if others
    /// were evicted: the oldest, a sixteenth of the limit at once.
    pub(crate) fn insert(&mut self, hash: u64, state: TimeWait, now: Instant, lasts: Duration) -> bool {
        // Otherwise a record that expired minutes ago could be taken for a new one.
        self.expire(now);
        let tag = Tag::of(hash);
        let record = Record::new(tag, state, self.next_end(now, lasts));
        let full = self.records.len() >= self.limit;
        if full && self.find(hash).is_none() {
            self.make_room(now);
        }
        match self.records.entry(tag.spread(), |r| r.tag() == tag, |r| r.tag().spread()) {
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

    /// The tick after which a record expires that begins now.
    fn next_end(&mut self, now: Instant, lasts: Duration) -> u16 {
        let end = (now + lasts).min(now + LONGEST);
        self.over = self.over.max(end.after_nanos(APART as u64 * TICK_NS));
        self.sweep_at.get_or_insert(end);
        let first = tick_after(end);
        let (newest, count) = self.newest;
        // The next tick begins when a tick has half as many records as are evicted at once.
        self.newest = match left(newest, first) {
            0..APART if count >= (self.limit / 32).max(1) => (newest.wrapping_add(1) & TICKS, 1),
            0..=APART => (newest, count + 1),
            _ => (first, 1),
        };
        self.newest.0
    }

    /// Evicts the oldest. Finding them takes a walk through the table, so a batch is evicted at once.
    fn make_room(&mut self, now: Instant) {
        let now = tick(now);
        self.ages.clear();
        self.ages.extend(self.records.iter().map(|r| r.left(now)));
        let count = (self.limit / 16).clamp(1, self.ages.len().max(1));
        if self.ages.is_empty() {
            return;
        }
        let (older, &mut last, _) = self.ages.select_nth_unstable(count - 1);
        // Of the records that are as old as the last one to evict, no more than needed are evicted.
        let mut ties = count - older.iter().filter(|left| **left < last).count();
        let claims = self.claims.as_ref();
        self.records.retain(|r| {
            let left = r.left(now);
            let tie = left == last && ties > 0;
            ties -= usize::from(tie);
            kept(left >= last && !tie, r, claims)
        });
    }

    /// Restarts the record's lifetime, because a FIN came again.
    pub(crate) fn restart(&mut self, hash: u64, now: Instant, lasts: Duration) {
        let (tag, expires) = (Tag::of(hash), self.next_end(now, lasts));
        if let Some(record) = self.records.find_mut(tag.spread(), |r| r.tag() == tag) {
            record.restart(expires);
        }
    }

    /// Removes a record.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64) {
        let tag = Tag::of(hash);
        if let Ok(entry) = self.records.find_entry(tag.spread(), |r| r.tag() == tag) {
            entry.remove();
            if let Some(claims) = &self.claims {
                claims.release(hash);
            }
        }
    }

    /// Removes expired records, at most a second late.
    #[inline]
    pub(crate) fn expire(&mut self, now: Instant) {
        if unlikely(self.sweep_at.is_some_and(|at| now >= at)) {
            self.sweep(now);
        }
    }

    fn sweep(&mut self, now: Instant) {
        let at = tick(now);
        let claims = self.claims.as_ref();
        if now >= self.over && claims.is_none() {
            self.records.clear();
        } else {
            let over = now >= self.over;
            self.records.retain(|r| kept(!over && r.left(at) > 0, r, claims));
        }
        let first = self.records.iter().map(|r| r.left(at)).min();
        let left = first.map(|ticks| Duration::from_nanos(u64::from(ticks.unsigned_abs()) * TICK_NS));
        self.sweep_at = left.map(|left| now + left.max(SWEEP));
    }

    /// When to call [`TimeWaitTable::expire`] next: not before the first record expires.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.sweep_at
    }
}

/// Releases the flow of a record that goes.
#[inline]
fn kept(stays: bool, record: &Record, claims: Option<&Claims>) -> bool {
    if let Some(claims) = claims.filter(|_| !stays) {
        claims.release(record.tag().hash());
    }
    stays
}

#[cfg(test)]
mod tests;
