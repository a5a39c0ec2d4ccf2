//! The segments of a flight of several, or of one that something happened to: a record for each, and sums of what is
//! known of them.

use crate::flight::{CRUMB, MANY, Marks, Sent};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use firstflight_wire::{Instant, SeqNum};

/// Records for which there is room at once.
const FIRST_ROOM: usize = 8;

/// Records in the order of the stream, without gaps.
#[derive(Debug, Default)]
pub struct Board {
    list: VecDeque<Sent>,
    /// Sums of lengths: of all, and of those that are SACKed, LOST, AGAIN, and LOST but not yet sent again.
    bytes: u32,
    pub sacked: u32,
    pub lost: u32,
    pub again: u32,
    pub waiting: u32,
    /// How many records are SACKed.
    pub sacked_segments: u32,
    /// Below it nothing waits to be sent again.
    cursor: Option<SeqNum>,
    /// When the retransmission timer last fired in this flight, if it did.
    pub timeout_at: Option<Instant>,
}

/// Boards of flights that ended, for later ones.
#[derive(Debug, Default)]
#[allow(clippy::vec_box, reason = "a board goes to its connection and back as one pointer")]
pub struct Boards(Vec<Box<Board>>);

impl Boards {
    /// Kept: so many, of at most so many records.
    const SPARE: usize = 64;
    const LARGEST: usize = 1024;

    /// A board of `one` segment.
    pub fn take(&mut self, one: Sent) -> Box<Board> {
        let mut board = self.0.pop().unwrap_or_else(|| {
            Box::new(Board { list: VecDeque::with_capacity(FIRST_ROOM), ..Board::default() })
        });
        board.append(one);
        board
    }

    /// Keeps one that is empty.
    pub fn give(&mut self, mut board: Box<Board>) {
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
    pub fn of(one: Sent) -> Self {
        let mut board = Self::default();
        board.append(one);
        board
    }

    #[inline]
    fn append(&mut self, sent: Sent) {
        self.bytes += sent.len();
        self.list.push_back(sent);
    }

    /// How many records there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The record at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&Sent> {
        self.list.get(index)
    }

    /// Bytes in the network by our best knowledge (RFC 6675 "pipe").
    #[inline]
    pub fn pipe(&self) -> u32 {
        (self.bytes + self.again).saturating_sub(self.sacked + self.lost)
    }

    /// A segment that was never sent before leaves, behind all others.
    #[inline]
    pub fn push(&mut self, sent: Sent) {
        if self.is_crowded()
            && let Some(last) = self.list.back_mut().filter(|last| last.marks == Marks::default())
        {
            // The later of both times: nothing is taken for lost too early.
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

    /// Everything below `ack` has arrived; `each` sees the segments of which that was not known, as they were.
    pub fn acknowledge(&mut self, ack: SeqNum, mut each: impl FnMut(&Sent)) {
        while let Some(first) = self.list.front().copied() {
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
            self.list.pop_front();
        }
    }

    /// The first segment's front has arrived.
    #[inline(never)]
    fn trim(&mut self, ack: SeqNum, each: &mut impl FnMut(&Sent)) {
        let Some(first) = self.list.front_mut() else { return };
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
        self.list.partition_point(|sent| sent.end.le(seq))
    }

    /// The peer has `range`; `each` sees the segments of which that is new, as they were. A segment of which it has a
    /// part counts as missing: crumbs would make the list long.
    pub fn sack(&mut self, range: Range<SeqNum>, mut each: impl FnMut(&Sent)) {
        let first = self.index(range.start);
        for index in first..self.list.len() {
            let Some(sent) = self.list.get(index).filter(|sent| sent.end.le(range.end)) else { break };
            if !sent.marks.has(Marks::SACKED) && sent.start.ge(range.start) {
                self.mark_sacked(index, &mut each);
            }
        }
    }

    fn mark_sacked(&mut self, index: usize, each: &mut impl FnMut(&Sent)) {
        let Some(sent) = self.list.get_mut(index) else { return };
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
        let Some(sent) = self.list.get_mut(index).filter(|sent| sent.start.lt(at) && at.lt(sent.end)) else {
            return false;
        };
        let back = Sent { start: at, ..*sent };
        sent.end = at;
        sent.ends_burst = false;
        self.sacked_segments += u32::from(back.marks.has(Marks::SACKED));
        self.list.insert(index + 1, back);
        true
    }

    /// Takes the record at `index` for lost: it, or its repetition.
    fn mark_lost(&mut self, index: usize) {
        let Some(sent) = self.list.get_mut(index) else { return };
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
        for index in 0..self.list.len() {
            let Some(sent) = self.list.get(index) else { return };
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
        if let Some(index) = self.list.iter().position(|sent| !sent.marks.has(Marks::SACKED)) {
            self.mark_lost(index);
        }
    }

    /// The peer took back what it SACKed (RFC 2018 §8): forgets it.
    pub fn renege(&mut self) {
        self.list.iter_mut().for_each(|sent| sent.marks.clear(Marks::SACKED));
        self.sacked = 0;
        self.sacked_segments = 0;
    }

    /// Nothing was lost after all: takes no segment for lost any more.
    pub fn unmark_lost(&mut self) {
        self.list.iter_mut().for_each(|sent| sent.marks.clear(Marks::LOST));
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
        let index = (from..self.list.len()).find(|&i| self.list.get(i).is_some_and(|s| s.marks.waits()))?;
        let sent = *self.list.get(index)?;
        self.cursor = Some(sent.start);
        if sent.len() > room {
            return Some((sent.start, sent.start + room));
        }
        let mut end = sent.end;
        // Small segments go again together.
        for next in (index + 1..self.list.len()).map_while(|i| self.list.get(i)) {
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
        if let Some(last) = self.list.back_mut() {
            last.ends_burst = true;
        }
    }

    /// Whether the segment that ends at `end` ended a burst, or the one behind it does not wait to be sent again.
    #[must_use]
    pub fn ends_burst(&self, end: SeqNum) -> bool {
        let next = self.index(end);
        let ended = self.list.get(next.wrapping_sub(1)).is_some_and(|sent| sent.ends_burst);
        ended || self.list.get(next).is_none_or(|sent| !sent.marks.waits())
    }

    /// Bytes below `end` that are taken for lost.
    #[must_use]
    pub fn lost_below(&self, end: SeqNum) -> u32 {
        let below = self.list.iter().take_while(|sent| sent.start.lt(end));
        below.filter(|sent| sent.marks.has(Marks::LOST)).map(Sent::len).sum()
    }
}
