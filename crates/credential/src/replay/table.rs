//! A replay guard in memory of fixed size, which the shards of one server share.

use super::guard::{GuardKey, Guarded, ReplayGuard, ReplayId, Window, millis};
use super::time::GuardTime;
use crate::flight::FirstFlight;
use crate::sync::{AtomicU64, Ordering, spin_loop};
use alloc::boxed::Box;
use core::fmt;
use core::net::IpAddr;
use firstflight_wire::Clock;

/// Entries of a bucket. With its lock a bucket is four cache lines.
const WAYS: usize = if cfg!(loom) { 2 } else { 31 };
/// Number of partitions of the client prefixes. Each partition has its own floor.
const PARTITIONS: usize = if cfg!(loom) { 2 } else { 1024 };
/// The entries of a partition lie within one part in `SHARE` of the buckets, so it cannot fill more than
/// that.
const SHARE: usize = if cfg!(loom) { 2 } else { 64 };
/// The length of a window is divided into this number of steps, the unit of an entry's stamp.
const STEPS: u64 = 4096;

/// Layout of an entry: tag, partition, stamp. Zero is an empty entry.
const STAMP_BITS: u32 = 16;
const PARTITION_BITS: u32 = 10;
const TAG_SHIFT: u32 = STAMP_BITS + PARTITION_BITS;

/// A bucket of the table.
#[derive(Debug)]
#[repr(align(64))]
struct Bucket {
    lock: AtomicU64,
    entries: [AtomicU64; WAYS],
}

/// A [`ReplayGuard`] in memory of fixed size.
///
/// An id is stored in one of two buckets, in 8 bytes: 37 bits of its hash, its partition, its stamp. The
/// chance that another id is mistaken for it is below 2⁻³¹. For R accepted first flights a second, whose
/// copies can arrive for W seconds (with stamps up to F seconds ahead), the table takes about **10·R·(W+F)
/// bytes**: [`ReplayTable::bytes_for`].
///
/// When both buckets are full, the table takes the partition with the most entries in one of them, and evicts
/// its oldest entry there. The partition's floor rises above this entry, so copies of it are still refused. A
/// flood from one client prefix thus raises only the floor of its own partition. After a start the floor is
/// as far ahead as the process before may have accepted stamps. When the clock is set back by more than a
/// second, the floor is as far above the clock's old value.
///
/// The table's own time does not go back with the clock: an entry is forgotten when its stamp is too old by the
/// latest time that the table has seen, and from then on its copies are too old as well.
pub struct ReplayTable {
    key: GuardKey,
    window: Window,
    buckets: Box<[Bucket]>,
    /// For each partition: stamps up to this one are refused, milliseconds.
    floors: Box<[AtomicU64]>,
    /// The time, and the floor of all partitions.
    time: GuardTime,
    /// Milliseconds of one step of an entry's stamp.
    step_ms: u64,
}

impl ReplayTable {
    /// A table of about `bytes` that starts at `now_ms`, without memory of earlier first flights.
    #[must_use]
    pub fn new(key: GuardKey, window: Window, bytes: usize, now_ms: u64) -> Self {
        let buckets = (bytes / size_of::<Bucket>()).max(SHARE);
        let lasts = millis(window.past).saturating_add(millis(window.reach()));
        let floor = now_ms.saturating_add(millis(window.reach()));
        Self {
            key,
            window,
            buckets: (0..buckets).map(|_| Bucket::new()).collect(),
            floors: (0..PARTITIONS).map(|_| AtomicU64::new(0)).collect(),
            time: GuardTime::new(window, now_ms, floor),
            step_ms: lasts.div_ceil(STEPS).max(1),
        }
    }

    /// Bytes for `rate` accepted first flights a second: entries at a load of 0.8, and the buckets' locks.
    #[must_use]
    pub fn bytes_for(rate: u64, window: &Window) -> usize {
        let entries = rate.saturating_mul((window.past + window.future).as_secs().max(1));
        let buckets = entries.saturating_mul(5) / (4 * WAYS as u64) + 1;
        usize::try_from(buckets).unwrap_or(usize::MAX).saturating_mul(size_of::<Bucket>())
    }

    /// Bytes that the table takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.buckets) + size_of_val(&*self.floors)
    }

    /// `partition` refuses stamps up to this one, milliseconds of the guard's clock.
    #[must_use]
    pub fn floor(&self, partition: u16) -> u64 {
        let own = self.floor_of(partition).map_or(0, |floor| floor.load(Ordering::Relaxed));
        own.max(self.time.floor())
    }

    fn floor_of(&self, partition: u16) -> Option<&AtomicU64> {
        self.floors.get(usize::from(partition) % PARTITIONS)
    }

    /// Refuses a stamp outside the table's memory. `time` is the table's own time, at or after `now_ms`.
    fn judge_stamp(&self, id: ReplayId, stamp_ms: u64, now_ms: u64, time: u64) -> Option<Guarded> {
        let too_old = stamp_ms.saturating_add(millis(self.window.past)) < time;
        let too_new = stamp_ms > now_ms.saturating_add(millis(self.window.future));
        // A copy with a signed stamp is below the floor too. A copy that is stamped when it arrives is not.
        let below = self.window.spread.is_zero() && stamp_ms <= self.floor(id.partition);
        (too_old || too_new || below).then_some(Guarded::Floor)
    }

    /// The two buckets of an id. They lie within its partition's share of the table, and two parts of its
    /// hash select them.
    fn places(&self, id: ReplayId) -> (usize, usize) {
        let count = self.buckets.len();
        let share = (count / SHARE).max(2);
        let start = usize::from(id.partition) % PARTITIONS * count / PARTITIONS;
        let (first, second) = ((id.id >> 64) as u32 as usize % share, (id.id >> 96) as u32 as usize % share);
        // The buckets must differ, so that both can be locked.
        let second = if first == second { (second + 1) % share } else { second };
        ((start + first) % count, (start + second) % count)
    }

    fn step(&self, ms: u64) -> u64 {
        // Round up, so that an entry lives a step longer rather than shorter.
        ms.div_ceil(self.step_ms)
    }

    /// The stamp of an entry, milliseconds: the time nearest to `time` that has the entry's lower bits.
    fn stamp_of(&self, entry: u64, time: u64) -> u64 {
        let now = self.step(time);
        let behind = (now as u16).wrapping_sub(entry as u16) as i16;
        now.saturating_add_signed(-i64::from(behind)).saturating_mul(self.step_ms)
    }

    fn is_live(&self, entry: u64, time: u64) -> bool {
        let stamp = self.stamp_of(entry, time);
        let ends = stamp.saturating_add(millis(self.window.past));
        // No stamp further ahead was ever accepted. Such an entry is from the previous cycle of these bits.
        let ahead = millis(self.window.future) + 2 * self.step_ms;
        entry != 0 && ends >= time && stamp <= time.saturating_add(ahead)
    }

    /// Whether the entry is there, and `counts`.
    fn has(&self, id: ReplayId, counts: impl Fn(u64) -> bool) -> bool {
        let (one, two) = self.places(id);
        let mark = mark_of(id);
        [one, two].into_iter().filter_map(|at| self.buckets.get(at)).any(|bucket| {
            let entries = bucket.entries.iter().map(|slot| slot.load(Ordering::Relaxed));
            entries.into_iter().any(|old| old >> STAMP_BITS == mark >> STAMP_BITS && counts(old))
        })
    }

    /// Finds the entry, or makes room and sets it. Call it with both buckets locked.
    fn set(&self, one: &Bucket, two: &Bucket, id: ReplayId, stamp_ms: u64, time: u64) -> Guarded {
        let mark = mark_of(id);
        let partition = mark >> STAMP_BITS & (PARTITIONS as u64 - 1);
        let entry = mark | (self.step(stamp_ms) & 0xffff);
        let mut room = [WAYS; 2];
        for (bucket, room) in [one, two].into_iter().zip(&mut room) {
            for slot in &bucket.entries {
                let old = slot.load(Ordering::Relaxed);
                if old == 0 {
                    continue;
                }
                if !self.is_live(old, time) {
                    slot.store(0, Ordering::Relaxed);
                    continue;
                }
                if old >> STAMP_BITS == mark >> STAMP_BITS {
                    return Guarded::Seen;
                }
                *room -= 1;
            }
        }
        // Take the emptier bucket, so that buckets fill evenly.
        let [first, second] = room;
        let bucket = if first >= second { one } else { two };
        if first == 0 && second == 0 {
            self.make_room(bucket, partition, time);
        }
        // Making room may have raised the floor. A signed stamp stays below it, and without the entry nobody takes this first
        // flight for a copy of itself.
        let below = stamp_ms <= self.floor(id.partition);
        if below && self.window.spread.is_zero() {
            return Guarded::Floor;
        }
        if let Some(slot) = bucket.entries.iter().find(|slot| slot.load(Ordering::Relaxed) == 0) {
            slot.store(entry, Ordering::Relaxed);
        }
        if below { Guarded::Floor } else { Guarded::New }
    }

    /// Evicts the oldest entry of the partition that has the most entries in this bucket, and raises that
    /// partition's floor above the entry. At a tie the asking partition loses the entry.
    fn make_room(&self, bucket: &Bucket, asking: u64, time: u64) {
        let partition =
            |slot: &AtomicU64| slot.load(Ordering::Relaxed) >> STAMP_BITS & (PARTITIONS as u64 - 1);
        let of = |wanted: u64| bucket.entries.iter().filter(move |slot| partition(slot) == wanted);
        let most = bucket.entries.iter().map(partition).max_by_key(|p| (of(*p).count(), *p == asking));
        let victim = most.and_then(|most| {
            of(most)
                .min_by_key(|slot| self.stamp_of(slot.load(Ordering::Relaxed), time))
                .map(|slot| (most, slot))
        });
        let Some((most, slot)) = victim else { return };
        let stamp = self.stamp_of(slot.swap(0, Ordering::Relaxed), time);
        let floor = stamp.saturating_add(millis(self.window.spread));
        if let Some(own) = self.floor_of(most as u16) {
            own.fetch_max(floor, Ordering::Relaxed);
        }
    }
}

/// Without the entries, of which there may be millions.
impl fmt::Debug for ReplayTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ReplayTable");
        shown.field("bytes", &self.bytes()).field("time", &self.time).finish_non_exhaustive()
    }
}

impl ReplayGuard for ReplayTable {
    fn test_and_set(&self, id: ReplayId, stamp_ms: u64, now_ms: u64) -> Guarded {
        let (one, two) = self.places(id);
        let (Some(one), Some(two)) = (self.buckets.get(one.min(two)), self.buckets.get(one.max(two))) else {
            return Guarded::Floor;
        };
        // Always lock in this order, so that two shards never wait for each other.
        let _one = one.lock();
        let _two = two.lock();
        // Read the time under the locks, so that it is not before the time by which an entry was forgotten here.
        let time = self.time.advance(now_ms);
        match self.judge_stamp(id, stamp_ms, now_ms, time) {
            Some(refused) => refused,
            None => self.set(one, two, id, stamp_ms, time),
        }
    }

    fn look_up(&self, id: ReplayId, stamp_ms: u64, now_ms: u64) -> Guarded {
        let time = self.time.advance(now_ms);
        match self.judge_stamp(id, stamp_ms, now_ms, time) {
            Some(refused) => refused,
            None if self.has(id, |entry| self.is_live(entry, time)) => Guarded::Seen,
            None => Guarded::New,
        }
    }

    /// An entry that a clock has made too old may still be there. It counts: that clock may be wrong.
    fn is_set(&self, id: ReplayId) -> bool {
        self.has(id, |_| true)
    }

    fn observe(&self, clock: &Clock) -> u64 {
        self.time.observe(clock)
    }

    fn raise_floor(&self, floor_ms: u64) {
        self.time.raise_floor(floor_ms);
    }

    fn id(&self, first: &FirstFlight<'_>) -> ReplayId {
        self.key.id(first)
    }

    fn id_of(&self, client: IpAddr, key: &[u8]) -> ReplayId {
        self.key.id_of(client, key)
    }
}

/// The entry of an id, without the stamp.
fn mark_of(id: ReplayId) -> u64 {
    let tag = id.id as u64 >> TAG_SHIFT << TAG_SHIFT;
    let partition = (usize::from(id.partition) % PARTITIONS) as u64;
    // The lowest bit of the tag is always set, so that an entry is never zero.
    tag | 1 << TAG_SHIFT | partition << STAMP_BITS
}

impl Bucket {
    fn new() -> Self {
        Self { lock: AtomicU64::new(0), entries: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Locks the bucket. The wait is short: the holder reads only a few cache lines.
    fn lock(&self) -> Locked<'_> {
        // The entries are read after this and written before the release in `drop`.
        while self.lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spin_loop();
        }
        Locked(&self.lock)
    }
}

/// The lock on a bucket, released on drop.
struct Locked<'a>(&'a AtomicU64);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
