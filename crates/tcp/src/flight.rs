//! What is under way: a record for each segment that was sent and is not acknowledged, with the time it last
//! left and what is known of it. RACK (RFC 8985) reads the times, SACK (RFC 2018) and the timers write the marks.

use alloc::collections::VecDeque;
use core::ops::Range;
use firstflight_wire::{Instant, SeqNum};

/// An application that writes crumbs makes no more records than this, or than one for so many bytes.
pub const MANY: usize = 4096;
pub const CRUMB: u32 = 256;
/// Records for which a flight of more than one segment makes room at once.
const FIRST_ROOM: usize = 8;

/// What is known of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks(u8);

impl Marks {
    /// The peer has it (RFC 2018).
    pub const SACKED: Self = Self(1);
    /// It is taken for lost, or was before it was sent again.
    pub const LOST: Self = Self(2);
    /// A repetition of it is under way.
    pub const AGAIN: Self = Self(4);
    /// It was sent more than once: its acknowledgement measures nothing (Karn).
    pub const REPEATED: Self = Self(8);
    /// It was the last of a burst.
    pub const BURST_END: Self = Self(16);

    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    fn set(&mut self, other: Self) {
        self.0 |= other.0;
    }

    #[inline]
    fn clear(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    /// To be sent again, and not yet.
    #[inline]
    pub fn waits(self) -> bool {
        self.0 & (Self::LOST.0 | Self::AGAIN.0) == Self::LOST.0
    }
}

/// One segment that left.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// Its first number.
    pub start: SeqNum,
    /// Behind its last, a FIN counted.
    pub end: SeqNum,
    /// When it last left.
    //= rfc8985 4-b
    pub at: Instant,
    /// What is known of it.
    pub marks: Marks,
}

impl Sent {
    #[inline]
    fn len(&self) -> u32 {
        self.end.distance_from(self.start)
    }

    /// RFC 8985 §6.2 RACK_sent_after: whether this left later than what left at `at` and ended at `end`.
    #[inline]
    pub fn after(&self, at: Instant, end: SeqNum) -> bool {
        self.at > at || (self.at == at && self.end.gt(end))
    }
}

/// Most flights of short connections are one segment: it needs no allocation.
#[derive(Debug, Default)]
enum Records {
    #[default]
    None,
    One(Sent),
    Many(VecDeque<Sent>),
}

/// All that is under way, in the order of the stream, without gaps.
#[derive(Debug, Default)]
pub struct Flight {
    records: Records,
    /// Sums of lengths: of all, and of those that are SACKed, LOST, AGAIN, and LOST but not yet sent again.
    bytes: u32,
    sacked: u32,
    lost: u32,
    again: u32,
    waiting: u32,
    /// How many records are SACKed.
    sacked_segments: u32,
    /// Below it nothing waits to be sent again.
    cursor: Option<SeqNum>,
}

impl Flight {
    /// How many segments are under way, SACKed ones counted.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.records {
            Records::None => 0,
            Records::One(_) => 1,
            Records::Many(many) => many.len(),
        }
    }

    /// The record at `index`.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Sent> {
        match &self.records {
            Records::One(one) if index == 0 => Some(one),
            Records::Many(many) => many.get(index),
            _ => None,
        }
    }

    #[inline]
    fn get_mut(&mut self, index: usize) -> Option<&mut Sent> {
        match &mut self.records {
            Records::One(one) if index == 0 => Some(one),
            Records::Many(many) => many.get_mut(index),
            _ => None,
        }
    }

    /// The oldest segment.
    #[inline]
    #[must_use]
    pub fn first(&self) -> Option<&Sent> {
        self.get(0)
    }

    /// The newest segment.
    #[must_use]
    pub fn last(&self) -> Option<&Sent> {
        self.get(self.len().wrapping_sub(1))
    }

    /// Bytes in the network by our best knowledge (RFC 6675 "pipe"), FINs counted.
    //= rfc6675 4-c
    #[inline]
    #[must_use]
    pub fn pipe(&self) -> u32 {
        (self.bytes + self.again).saturating_sub(self.sacked + self.lost)
    }

    /// Bytes that the peer has behind what it misses.
    #[inline]
    #[must_use]
    pub fn sacked(&self) -> u32 {
        self.sacked
    }

    /// How many segments those are.
    #[inline]
    #[must_use]
    pub fn sacked_segments(&self) -> u32 {
        self.sacked_segments
    }

    /// Bytes taken for lost that the peer is not known to have, sent again or not.
    #[inline]
    #[must_use]
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Bytes sent again whose fate is not known.
    #[inline]
    #[must_use]
    pub fn again(&self) -> u32 {
        self.again
    }

    /// Bytes taken for lost that are to be sent again.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// A segment that was never sent before leaves, behind all others.
    #[inline]
    pub fn push(&mut self, start: SeqNum, end: SeqNum, at: Instant) {
        let sent = Sent { start, end, at, marks: Marks::default() };
        let crowded = self.is_crowded();
        self.bytes += sent.len();
        if crowded
            && let Records::Many(many) = &mut self.records
            && let Some(last) = many.back_mut().filter(|last| last.marks == Marks::default())
        {
            // The later of both times: nothing is taken for lost too early.
            last.end = end;
            last.at = at;
            return;
        }
        match &mut self.records {
            Records::None => self.records = Records::One(sent),
            Records::One(one) => {
                let mut many = VecDeque::with_capacity(FIRST_ROOM);
                many.push_back(*one);
                many.push_back(sent);
                self.records = Records::Many(many);
            }
            Records::Many(many) => many.push_back(sent),
        }
    }

    #[inline]
    fn is_crowded(&self) -> bool {
        self.len() >= MANY && self.len() as u32 > self.bytes / CRUMB
    }

    /// Everything below `ack` has arrived; `each` sees the segments of which that was not known, as they were.
    pub fn acknowledge(&mut self, ack: SeqNum, mut each: impl FnMut(&Sent)) {
        while let Some(first) = self.first().copied() {
            if first.end.gt(ack) {
                if first.start.lt(ack) {
                    self.trim(ack, &mut each);
                }
                break;
            }
            self.forget(&first);
            if !first.marks.has(Marks::SACKED) {
                each(&first);
            }
            match &mut self.records {
                Records::Many(many) => {
                    many.pop_front();
                }
                _ => self.records = Records::None,
            }
        }
    }

    /// The first segment's front has arrived.
    #[inline(never)]
    fn trim(&mut self, ack: SeqNum, each: &mut impl FnMut(&Sent)) {
        let Some(first) = self.get_mut(0) else { return };
        let front = Sent { end: ack, ..*first };
        first.start = ack;
        let rest = *first;
        self.forget(&front);
        if front.marks.has(Marks::SACKED) {
            // It is still one SACKed segment.
            self.sacked_segments += 1;
        } else {
            each(&front);
        }
        debug_assert!(rest.start.lt(rest.end));
    }

    /// Gives the memory back once nothing is under way.
    pub fn release(&mut self) {
        if self.len() == 0 {
            self.records = Records::None;
            self.cursor = None;
        }
    }

    /// Takes a record out of the sums.
    fn forget(&mut self, sent: &Sent) {
        let len = sent.len();
        self.bytes -= len;
        if sent.marks.has(Marks::SACKED) {
            self.sacked -= len;
            self.sacked_segments -= 1;
        }
        self.unmark(sent.marks, len);
    }

    /// Takes what LOST and AGAIN stand for out of the sums.
    fn unmark(&mut self, marks: Marks, len: u32) {
        if marks.has(Marks::LOST) {
            self.lost -= len;
        }
        if marks.has(Marks::AGAIN) {
            self.again -= len;
        }
        if marks.waits() {
            self.waiting -= len;
        }
    }

    /// Index of the first record that ends behind `seq`.
    fn index(&self, seq: SeqNum) -> usize {
        match &self.records {
            Records::Many(many) => many.partition_point(|sent| sent.end.le(seq)),
            Records::One(one) => usize::from(one.end.le(seq)),
            Records::None => 0,
        }
    }

    /// The peer has `range`; `each` sees the segments of which that is new, as they were. A segment of which it has a
    /// part counts as missing: crumbs would make the list long.
    pub fn sack(&mut self, range: Range<SeqNum>, mut each: impl FnMut(&Sent)) {
        let first = self.index(range.start);
        for index in first..self.len() {
            let Some(sent) = self.get(index).filter(|sent| sent.end.le(range.end)) else { break };
            if !sent.marks.has(Marks::SACKED) && sent.start.ge(range.start) {
                self.mark_sacked(index, &mut each);
            }
        }
    }

    fn mark_sacked(&mut self, index: usize, each: &mut impl FnMut(&Sent)) {
        let Some(sent) = self.get_mut(index) else { return };
        let was = *sent;
        sent.marks.clear(Marks::LOST);
        sent.marks.clear(Marks::AGAIN);
        sent.marks.set(Marks::SACKED);
        self.unmark(was.marks, was.len());
        self.sacked += was.len();
        self.sacked_segments += 1;
        each(&was);
    }

    /// Makes two records of the one at `index`; false if there are too many.
    fn split(&mut self, index: usize, at: SeqNum) -> bool {
        if self.is_crowded() {
            return false;
        }
        if let Records::One(one) = self.records {
            let mut many = VecDeque::with_capacity(FIRST_ROOM);
            many.push_back(one);
            self.records = Records::Many(many);
        }
        let Records::Many(many) = &mut self.records else { return false };
        let Some(sent) = many.get_mut(index).filter(|sent| sent.start.lt(at) && at.lt(sent.end)) else {
            return false;
        };
        let back = Sent { start: at, ..*sent };
        sent.end = at;
        sent.marks.clear(Marks::BURST_END);
        self.sacked_segments += u32::from(back.marks.has(Marks::SACKED));
        many.insert(index + 1, back);
        true
    }

    /// Takes the record at `index` for lost: it, or its repetition.
    fn mark_lost(&mut self, index: usize) {
        let Some(sent) = self.get_mut(index) else { return };
        if sent.marks.has(Marks::SACKED) || sent.marks.waits() {
            return;
        }
        let (start, was, len) = (sent.start, sent.marks, sent.len());
        sent.marks.set(Marks::LOST);
        sent.marks.clear(Marks::AGAIN);
        self.unmark(was, len);
        self.lost += len;
        self.waiting += len;
        self.cursor = Some(self.cursor.map_or(start, |cursor| cursor.min(start)));
    }

    /// Takes every segment for lost that `lost` names, among those that are neither SACKED nor waiting; ends
    /// behind the first for which it gives `None`.
    pub fn mark(&mut self, mut lost: impl FnMut(&Sent) -> Option<bool>) {
        for index in 0..self.len() {
            let Some(sent) = self.get(index) else { return };
            if sent.marks.has(Marks::SACKED) || sent.marks.waits() {
                continue;
            }
            match lost(sent) {
                Some(true) => self.mark_lost(index),
                Some(false) => {}
                None => return,
            }
        }
    }

    /// Takes the oldest segment for lost, its first `room` bytes at least.
    pub fn mark_first(&mut self) {
        if let Some(index) =
            (0..self.len()).find(|&i| self.get(i).is_some_and(|s| !s.marks.has(Marks::SACKED)))
        {
            self.mark_lost(index);
        }
    }

    /// The peer took back what it SACKed (RFC 2018 §8): forgets it.
    pub fn renege(&mut self) {
        for index in 0..self.len() {
            let Some(sent) = self.get_mut(index) else { return };
            sent.marks.clear(Marks::SACKED);
        }
        self.sacked = 0;
        self.sacked_segments = 0;
    }

    /// Nothing was lost after all: takes no segment for lost any more.
    pub fn unmark_lost(&mut self) {
        for index in 0..self.len() {
            let Some(sent) = self.get_mut(index) else { return };
            sent.marks.clear(Marks::LOST);
        }
        self.lost = 0;
        self.waiting = 0;
        self.cursor = None;
    }

    /// The first segment that is to be sent again, cut so that no more than `room` bytes of it remain; with those
    /// behind it that wait, too, and fit beside it.
    pub fn next_waiting(&mut self, room: u32) -> Option<(SeqNum, SeqNum)> {
        if self.waiting == 0 {
            return None;
        }
        let from = self.cursor.map_or(0, |cursor| self.index(cursor));
        let index = (from..self.len()).find(|&i| self.get(i).is_some_and(|s| s.marks.waits()))?;
        let sent = *self.get(index)?;
        self.cursor = Some(sent.start);
        if sent.len() > room {
            return Some((sent.start, sent.start + room));
        }
        let mut end = sent.end;
        // Small segments go again together.
        for next in (index + 1..self.len()).map_while(|i| self.get(i)) {
            if !next.marks.waits() {
                break;
            }
            if next.end.distance_from(sent.start) > room {
                // What is cut anyway fills it up.
                if next.len() > room {
                    end = sent.start + room;
                }
                break;
            }
            end = next.end;
        }
        Some((sent.start, end))
    }

    /// Numbers from `start` to `end` leave once more, at `at`.
    pub fn repeat(&mut self, start: SeqNum, end: SeqNum, at: Instant) {
        let mut index = self.index(start);
        if self.get(index).is_some_and(|sent| sent.start.lt(start)) && self.split(index, start) {
            index += 1;
        }
        while let Some(sent) = self.get(index).copied().filter(|sent| sent.start.lt(end)) {
            if sent.end.gt(end) {
                self.split(index, end);
            }
            let Some(sent) = self.get_mut(index) else { return };
            let (was, len) = (sent.marks, sent.len());
            sent.at = at;
            sent.marks.set(Marks::REPEATED);
            if !was.has(Marks::SACKED) {
                sent.marks.set(Marks::AGAIN);
                if was.waits() {
                    self.waiting -= len;
                }
                if !was.has(Marks::AGAIN) {
                    self.again += len;
                }
            }
            index += 1;
        }
    }

    /// The newest segment ended a burst.
    pub fn end_burst(&mut self) {
        if let Some(last) = self.get_mut(self.len().wrapping_sub(1)) {
            last.marks.set(Marks::BURST_END);
        }
    }

    /// Whether the segment that ends at `end` ended a burst, or the one behind it does not wait to be sent again.
    #[must_use]
    pub fn ends_burst(&self, end: SeqNum) -> bool {
        let next = self.index(end);
        let ended = self.get(next.wrapping_sub(1)).is_some_and(|sent| sent.marks.has(Marks::BURST_END));
        ended || self.get(next).is_none_or(|sent| !sent.marks.waits())
    }

    /// Bytes below `end` that are taken for lost.
    #[must_use]
    pub fn lost_below(&self, end: SeqNum) -> u32 {
        let records = (0..self.len()).map_while(|i| self.get(i));
        records.take_while(|s| s.start.lt(end)).filter(|s| s.marks.has(Marks::LOST)).map(Sent::len).sum()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
