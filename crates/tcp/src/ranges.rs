//! Sorted, disjoint ranges of sequence numbers, for data that arrived out of order and for data that the peer
//! SACKed.

use alloc::boxed::Box;
use alloc::vec::Vec;
use firstflight_wire::SeqNum;

/// Largest number of ranges, so that a peer cannot make the list grow without limit. When slow start
/// overshoots, it loses every second segment of a window: 4,096 ranges are enough for 12 MB.
pub(crate) const MAX_RANGES: usize = 4096;

/// Number of ranges that are also kept in the order of their newest segments (RFC 2018 §4).
const RECENT: usize = 3;

/// Half-open ranges `[start, end)`, ascending, neither overlapping nor touching.
///
/// It is one pointer while it is empty, which it nearly always is.
#[derive(Debug, Default, Clone)]
pub(crate) struct RangeSet(Option<Box<Ranges>>);

/// The vector is boxed because every connection has a set, and nearly none has a range.
#[derive(Debug, Default, Clone)]
struct Ranges {
    list: Vec<(SeqNum, SeqNum)>,
    /// One number of each range that was put first, the newest first.
    recent: [Option<SeqNum>; RECENT],
}

impl RangeSet {
    /// Whether there is no range.
    #[inline]
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The ranges, ascending.
    #[inline]
    #[must_use]
    pub(crate) fn as_slice(&self) -> &[(SeqNum, SeqNum)] {
        self.0.as_ref().map_or(&[], |ranges| &ranges.list)
    }

    /// Adds `[start, end)`; returns how many of its numbers are new. Adds nothing when the list is full and the
    /// range touches no other.
    pub(crate) fn insert(&mut self, start: SeqNum, end: SeqNum) -> u32 {
        if !start.lt(end) {
            return 0;
        }
        self.0.get_or_insert_default().insert(start, end)
    }

    /// Removes everything below `seq`.
    pub(crate) fn remove_below(&mut self, seq: SeqNum) {
        let Some(ranges) = &mut self.0 else { return };
        ranges.remove_below(seq);
        if ranges.list.is_empty() {
            // An idle connection owns no heap memory.
            self.0 = None;
        }
    }

    /// If the first range contains or touches `seq`, removes and returns it.
    #[inline]
    pub(crate) fn take_from(&mut self, seq: SeqNum) -> Option<(SeqNum, SeqNum)> {
        if self.is_empty() {
            return None;
        }
        let range = self.as_slice().first().copied().filter(|r| r.0.le(seq))?;
        self.remove_below(range.1);
        Some(range)
    }

    #[must_use]
    #[inline]
    pub(crate) fn containing(&self, seq: SeqNum) -> Option<(SeqNum, SeqNum)> {
        if self.is_empty() { None } else { self.search(seq) }
    }

    fn search(&self, seq: SeqNum) -> Option<(SeqNum, SeqNum)> {
        let ranges = self.as_slice();
        let i = ranges.partition_point(|r| r.1.le(seq));
        ranges.get(i).copied().filter(|r| r.0.le(seq))
    }

    /// Moves the range around `seq` to the front. The others keep their order (RFC 2018 §4).
    pub(crate) fn put_first(&mut self, seq: SeqNum) {
        let Some((start, end)) = self.containing(seq) else { return };
        let Some(ranges) = &mut self.0 else { return };
        let same = |s: &Option<SeqNum>| s.is_none_or(|s| s.ge(start) && s.lt(end));
        let place = ranges.recent.iter().position(same).unwrap_or(RECENT - 1);
        ranges.recent[..=place].rotate_right(1);
        ranges.recent[0] = Some(seq);
    }

    /// The ranges that were put first, the newest first.
    pub(crate) fn recent(&self) -> impl Iterator<Item = (SeqNum, SeqNum)> {
        let recent = self.0.iter().flat_map(|ranges| ranges.recent);
        recent.flatten().filter_map(|seq| self.containing(seq))
    }

    /// Removes everything.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.is_empty() {
            self.0 = None;
        }
    }
}

impl Ranges {
    fn insert(&mut self, start: SeqNum, end: SeqNum) -> u32 {
        // The first range that ends at or after `start`, and the first that begins after `end`.
        let first = self.list.partition_point(|r| r.1.lt(start));
        let last = self.list.partition_point(|r| r.0.le(end));
        let Some(touched) = self.list.get(first..last).filter(|t| !t.is_empty()) else {
            if self.list.len() >= MAX_RANGES {
                return 0;
            }
            self.list.insert(first, (start, end));
            return end.distance_from(start);
        };
        let had: u32 = touched.iter().map(|r| r.1.distance_from(r.0)).sum();
        let merged = touched.iter().fold((start, end), |m, r| (m.0.min(r.0), m.1.max(r.1)));
        self.list.drain(first + 1..last);
        if let Some(slot) = self.list.get_mut(first) {
            *slot = merged;
        }
        merged.1.distance_from(merged.0) - had
    }

    fn remove_below(&mut self, seq: SeqNum) {
        let gone = self.list.partition_point(|r| r.1.le(seq));
        self.list.drain(..gone);
        if let Some(first) = self.list.first_mut()
            && first.0.lt(seq)
        {
            first.0 = seq;
        }
    }
}

#[cfg(test)]
mod tests;
