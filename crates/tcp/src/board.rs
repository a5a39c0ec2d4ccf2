//! The records of a flight that has several segments, or one segment that was marked, with sums over them.

use crate::flight::{CRUMB, MANY, SegmentMarks, Sent};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use firstflight_wire::{Instant, SeqNum};

/// Records for which a new board has room.
const FIRST_ROOM: usize = 8;

/// Records in the order of the stream, without gaps.
#[derive(Debug, Default)]
pub(crate) struct Board {
    list: VecDeque<Sent>,
    /// Sums of lengths: of all records, and of those that are SACKed, LOST, AGAIN, and LOST but not sent again
    /// yet.
    bytes: u32,
    pub sacked: u32,
    pub lost: u32,
    pub again: u32,
    pub waiting: u32,
    /// Number of records that are SACKed.
    pub sacked_segments: u32,
    /// No record below it waits to be sent again.
    cursor: Option<SeqNum>,
    /// When the retransmission timer last fired in this flight, if it did.
    pub timeout_at: Option<Instant>,
}

/// Boards of flights that ended, kept for later flights.
#[derive(Debug, Default)]
#[allow(clippy::vec_box, reason = "a board goes to its connection and back as one pointer")]
pub(crate) struct Boards(Vec<Box<Board>>);

impl Boards {
    /// At most `SPARE` boards are kept, none with room for more than `LARGEST` records.
    const SPARE: usize = 64;
    const LARGEST: usize = 1024;

    /// A board with the segment `one`.
    pub(crate) fn take(&mut self, one: Sent) -> Box<Board> {
        let mut board = self.0.pop().unwrap_or_else(|| {
            Box::new(Board { list: VecDeque::with_capacity(FIRST_ROOM), ..Board::default() })
        });
        board.append(one);
        board
    }

    /// Keeps an empty board for later.
    pub(crate) fn give(&mut self, mut board: Box<Board>) {
        if self.0.len() < Self::SPARE && board.list.capacity() <= Self::LARGEST {
            let list = core::mem::take(&mut board.list);
            debug_assert!(list.is_empty());
            *board = Board { list, ..Board::default() };
            self.0.push(board);
        }
    }
}

impl Board {
    /// A board of one segment.
    pub(crate) fn of(one: Sent) -> Self {
        let mut board = Self::default();
        board.append(one);
        board
    }

    #[inline]
    fn append(&mut self, sent: Sent) {
        self.bytes += sent.len();
        self.list.push_back(sent);
    }

    /// Number of records.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The record at `index`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Sent> {
        self.list.get(index)
    }

    /// Bytes under way, estimated (RFC 6675 "pipe").
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        (self.bytes + self.again).saturating_sub(self.sacked + self.lost)
    }

    /// A segment that was never sent before leaves, behind all others.
    #[inline]
    pub(crate) fn push(&mut self, sent: Sent) {
        if self.is_crowded()
            && let Some(last) = self.list.back_mut().filter(|last| last.marks == SegmentMarks::default())
        {
            // Keep the later of both times, so that nothing is marked as lost too early.
            self.bytes += sent.len();
            last.end = sent.end;
            last.at = sent.at;
            return;
        }
        self.append(sent);
    }

    #[inline]
    fn is_crowded(&self) -> bool {
        self.list.len() >= MANY && self.list.len() as u32 > self.bytes / CRUMB
    }

    /// Everything below `ack` has arrived. `each` sees the segments that were not SACKed before, in their
    /// earlier state.
    pub(crate) fn acknowledge(&mut self, ack: SeqNum, mut each: impl FnMut(&Sent)) {
        while let Some(first) = self.list.front().copied() {
            if first.end.gt(ack) {
                if first.start.lt(ack) {
                    self.trim(ack, &mut each);
                }
                break;
            }
            self.forget(&first);
            if !first.marks.has(SegmentMarks::SACKED) {
                each(&first);
            }
            self.list.pop_front();
        }
    }

    /// The front part of the first segment has arrived.
    fn trim(&mut self, ack: SeqNum, each: &mut impl FnMut(&Sent)) {
        let Some(first) = self.list.front_mut() else { return };
        let front = Sent { end: ack, ..*first };
        first.start = ack;
        let rest = *first;
        self.forget(&front);
        if front.marks.has(SegmentMarks::SACKED) {
            // The rest is still one SACKed segment.
            self.sacked_segments += 1;
        } else {
            each(&front);
        }
        debug_assert!(rest.start.lt(rest.end));
    }

    /// Subtracts a record from the sums.
    fn forget(&mut self, sent: &Sent) {
        let len = sent.len();
        self.bytes -= len;
        if sent.marks.has(SegmentMarks::SACKED) {
            self.sacked -= len;
            self.sacked_segments -= 1;
        }
        self.unmark(sent.marks, len);
    }

    /// Subtracts `len` from the sums of LOST and AGAIN, as far as `marks` has them.
    fn unmark(&mut self, marks: SegmentMarks, len: u32) {
        if marks.has(SegmentMarks::LOST) {
            self.lost -= len;
        }
        if marks.has(SegmentMarks::AGAIN) {
            self.again -= len;
        }
        if marks.waits() {
            self.waiting -= len;
        }
    }

    /// Index of the first record that ends behind `seq`.
    fn index(&self, seq: SeqNum) -> usize {
        self.list.partition_point(|sent| sent.end.le(seq))
    }

    /// The peer has `range`. `each` sees the segments that are newly SACKed, in their earlier state. A segment
    /// that the peer has only in part counts as missing, because splitting records for tiny ranges would make
    /// the list long.
    pub(crate) fn sack(&mut self, range: Range<SeqNum>, mut each: impl FnMut(&Sent)) {
        let first = self.index(range.start);
        for index in first..self.list.len() {
            let Some(sent) = self.list.get(index).filter(|sent| sent.end.le(range.end)) else { break };
            if !sent.marks.has(SegmentMarks::SACKED) && sent.start.ge(range.start) {
                self.mark_sacked(index, &mut each);
            }
        }
    }

    fn mark_sacked(&mut self, index: usize, each: &mut impl FnMut(&Sent)) {
        let Some(sent) = self.list.get_mut(index) else { return };
        let was = *sent;
        sent.marks.clear(SegmentMarks::LOST);
        sent.marks.clear(SegmentMarks::AGAIN);
        sent.marks.set(SegmentMarks::SACKED);
        self.unmark(was.marks, was.len());
        self.sacked += was.len();
        self.sacked_segments += 1;
        each(&was);
    }

    /// Splits the record at `index` in two; false if there are too many records.
    fn split(&mut self, index: usize, at: SeqNum) -> bool {
        if self.is_crowded() {
            return false;
        }
        let Some(sent) = self.list.get_mut(index).filter(|sent| sent.start.lt(at) && at.lt(sent.end)) else {
            return false;
        };
        let back = Sent { start: at, ..*sent };
        sent.end = at;
        sent.ends_burst = false;
        self.sacked_segments += u32::from(back.marks.has(SegmentMarks::SACKED));
        self.list.insert(index + 1, back);
        true
    }

    /// Marks the record at `index`, or its retransmission, as lost.
    fn mark_lost(&mut self, index: usize) {
        let Some(sent) = self.list.get_mut(index) else { return };
        if sent.marks.has(SegmentMarks::SACKED) || sent.marks.waits() {
            return;
        }
        let (start, was, len) = (sent.start, sent.marks, sent.len());
        sent.marks.set(SegmentMarks::LOST);
        sent.marks.clear(SegmentMarks::AGAIN);
        self.unmark(was, len);
        self.lost += len;
        self.waiting += len;
        self.cursor = Some(self.cursor.map_or(start, |cursor| cursor.min(start)));
    }

    /// Marks every segment as lost for which `lost` gives `Some(true)`, among those that are neither SACKed nor
    /// waiting. Stops at the first one for which it gives `None`.
    pub(crate) fn mark(&mut self, mut lost: impl FnMut(&Sent) -> Option<bool>) {
        for index in 0..self.list.len() {
            let Some(sent) = self.list.get(index) else { return };
            if sent.marks.has(SegmentMarks::SACKED) || sent.marks.waits() {
                continue;
            }
            match lost(sent) {
                Some(true) => self.mark_lost(index),
                Some(false) => {}
                None => return,
            }
        }
    }

    /// Marks the oldest segment that is not SACKed as lost.
    pub(crate) fn mark_first(&mut self) {
        if let Some(index) = self.list.iter().position(|sent| !sent.marks.has(SegmentMarks::SACKED)) {
            self.mark_lost(index);
        }
    }

    /// The peer reneged on its SACKs (RFC 2018 §8): removes the SACKED marks.
    pub(crate) fn renege(&mut self) {
        self.list.iter_mut().for_each(|sent| sent.marks.clear(SegmentMarks::SACKED));
        self.sacked = 0;
        self.sacked_segments = 0;
    }

    /// No segment was lost after all: removes the LOST marks.
    pub(crate) fn unmark_lost(&mut self) {
        self.list.iter_mut().for_each(|sent| sent.marks.clear(SegmentMarks::LOST));
        self.lost = 0;
        self.waiting = 0;
        self.cursor = None;
    }

    /// The first range to send again, at most `room` bytes. Waiting segments directly behind it are included as
    /// far as they fit.
    pub(crate) fn next_waiting(&mut self, room: u32) -> Option<(SeqNum, SeqNum)> {
        if self.waiting == 0 {
            return None;
        }
        let from = self.cursor.map_or(0, |cursor| self.index(cursor));
        let index = (from..self.list.len()).find(|&i| self.list.get(i).is_some_and(|s| s.marks.waits()))?;
        let sent = *self.list.get(index)?;
        self.cursor = Some(sent.start);
        if sent.len() > room {
            return Some((sent.start, sent.start + room));
        }
        let mut end = sent.end;
        // Small segments are sent again together.
        for next in (index + 1..self.list.len()).map_while(|i| self.list.get(i)) {
            if !next.marks.waits() {
                break;
            }
            if next.end.distance_from(sent.start) > room {
                // That segment must be split anyway, so its first part fills the room.
                if next.len() > room {
                    end = sent.start + room;
                }
                break;
            }
            end = next.end;
        }
        Some((sent.start, end))
    }

    /// The numbers from `start` to `end` leave again, at `at`.
    pub(crate) fn repeat(&mut self, start: SeqNum, end: SeqNum, at: Instant) {
        let mut index = self.index(start);
        if self.list.get(index).is_some_and(|sent| sent.start.lt(start)) && self.split(index, start) {
            index += 1;
        }
        while let Some(sent) = self.list.get(index).copied().filter(|sent| sent.start.lt(end)) {
            if sent.end.gt(end) {
                self.split(index, end);
            }
            let Some(sent) = self.list.get_mut(index) else { return };
            let (was, len) = (sent.marks, sent.len());
            sent.at = at;
            sent.marks.set(SegmentMarks::REPEATED);
            if !was.has(SegmentMarks::SACKED) {
                sent.marks.set(SegmentMarks::AGAIN);
                if was.waits() {
                    self.waiting -= len;
                }
                if !was.has(SegmentMarks::AGAIN) {
                    self.again += len;
                }
            }
            index += 1;
        }
    }

    /// Notes that the newest segment ended a burst.
    pub(crate) fn end_burst(&mut self) {
        if let Some(last) = self.list.back_mut() {
            last.ends_burst = true;
        }
    }

    /// Whether the segment that ends at `end` ended a burst, or the next segment does not wait to be sent
    /// again.
    #[must_use]
    pub(crate) fn ends_burst(&self, end: SeqNum) -> bool {
        let next = self.index(end);
        let ended = self.list.get(next.wrapping_sub(1)).is_some_and(|sent| sent.ends_burst);
        ended || self.list.get(next).is_none_or(|sent| !sent.marks.waits())
    }

    /// Bytes below `end` that are marked as lost.
    #[must_use]
    pub(crate) fn lost_below(&self, end: SeqNum) -> u32 {
        let below = self.list.iter().take_while(|sent| sent.start.lt(end));
        below.filter(|sent| sent.marks.has(SegmentMarks::LOST)).map(Sent::len).sum()
    }
}
