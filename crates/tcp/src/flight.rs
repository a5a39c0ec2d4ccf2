//! What is under way: a record for each segment that was sent and is not acknowledged, with the time it last
//! left and what is known of it. RACK (RFC 8985) reads the times, SACK (RFC 2018) and the timers write the marks.

use crate::board::{Board, Boards};
use alloc::boxed::Box;
use core::mem;
use core::ops::Range;
use firstflight_wire::{Instant, SeqNum};

/// An application that writes crumbs makes no more records than this, or than one for so many bytes.
pub const MANY: usize = 4096;
pub const CRUMB: u32 = 256;

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

    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    pub fn set(&mut self, other: Self) {
        self.0 |= other.0;
    }

    #[inline]
    pub fn clear(&mut self, other: Self) {
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
    /// It was the last of a burst.
    pub ends_burst: bool,
}

impl Sent {
    #[inline]
    pub fn len(&self) -> u32 {
        self.end.distance_from(self.start)
    }

    /// RFC 8985 §6.2 RACK_sent_after: whether this left later than what left at `at` and ended at `end`.
    #[inline]
    pub fn after(&self, at: Instant, end: SeqNum) -> bool {
        self.at > at || (self.at == at && self.end.gt(end))
    }
}

/// Most flights of short connections are one segment, sent once, to which nothing happens: it needs no allocation.
#[derive(Debug, Default)]
enum Records {
    #[default]
    None,
    /// One that nothing is known of: without marks.
    One(Sent),
    Many(Box<Board>),
}

/// All that is under way, in the order of the stream, without gaps.
#[derive(Debug, Default)]
pub struct Flight {
    records: Records,
}

impl Flight {
    /// How many segments are under way, SACKed ones counted.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.records {
            Records::None => 0,
            Records::One(_) => 1,
            Records::Many(board) => board.len(),
        }
    }

    /// The record at `index`.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Sent> {
        match &self.records {
            Records::One(one) if index == 0 => Some(one),
            Records::Many(board) => board.get(index),
            _ => None,
        }
    }

    #[inline]
    fn board(&self) -> Option<&Board> {
        match &self.records {
            Records::Many(board) => Some(board),
            _ => None,
        }
    }

    /// The board, also of a single segment: something happens to it.
    #[inline(never)]
    fn board_mut(&mut self) -> Option<&mut Board> {
        if let Records::One(one) = self.records {
            self.records = Records::Many(Box::new(Board::of(one)));
        }
        match &mut self.records {
            Records::Many(board) => Some(board),
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

    /// Bytes under way, whatever is known of them.
    #[cfg(test)]
    fn bytes(&self) -> u32 {
        (0..self.len()).filter_map(|i| self.get(i)).map(Sent::len).sum()
    }

    /// Bytes in the network by our best knowledge (RFC 6675 "pipe"), FINs counted.
    //= rfc6675 4-c
    #[inline]
    #[must_use]
    pub fn pipe(&self) -> u32 {
        match &self.records {
            Records::None => 0,
            Records::One(one) => one.len(),
            Records::Many(board) => board.pipe(),
        }
    }

    /// Bytes that the peer has behind what it misses.
    #[inline]
    #[must_use]
    pub fn sacked(&self) -> u32 {
        self.board().map_or(0, |board| board.sacked)
    }

    /// How many segments those are.
    #[inline]
    #[must_use]
    pub fn sacked_segments(&self) -> u32 {
        self.board().map_or(0, |board| board.sacked_segments)
    }

    /// Bytes taken for lost that the peer is not known to have, sent again or not.
    #[inline]
    #[must_use]
    pub fn lost(&self) -> u32 {
        self.board().map_or(0, |board| board.lost)
    }

    /// Bytes sent again whose fate is not known.
    #[inline]
    #[must_use]
    pub fn again(&self) -> u32 {
        self.board().map_or(0, |board| board.again)
    }

    /// Bytes taken for lost that are to be sent again.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.board().map_or(0, |board| board.waiting)
    }

    /// A segment that was never sent before leaves, behind all others. Several need a board, of `boards` if it has
    /// one.
    #[inline(always)]
    pub fn push(&mut self, start: SeqNum, end: SeqNum, at: Instant, boards: &mut Boards) {
        if let Records::None = self.records {
            // Made where it goes: what is put together elsewhere is waited for when it is moved.
            self.records = Records::One(Sent { start, end, at, marks: Marks::default(), ends_burst: false });
        } else {
            self.push_behind(start, end, at, boards);
        }
    }

    #[inline(never)]
    fn push_behind(&mut self, start: SeqNum, end: SeqNum, at: Instant, boards: &mut Boards) {
        let sent = || Sent { start, end, at, marks: Marks::default(), ends_burst: false };
        match &mut self.records {
            // Nothing is there to be dropped.
            none @ Records::None => mem::forget(mem::replace(none, Records::One(sent()))),
            Records::One(one) => {
                let mut board = boards.take(*one);
                board.push(sent());
                self.records = Records::Many(board);
            }
            Records::Many(board) => board.push(sent()),
        }
    }

    /// Everything below `ack` has arrived; `each` sees the segments of which that was not known, as they were.
    #[inline]
    pub fn acknowledge(&mut self, ack: SeqNum, mut each: impl FnMut(&Sent)) {
        match &mut self.records {
            Records::None => {}
            Records::One(one) if one.end.le(ack) => {
                each(one);
                self.records = Records::None;
            }
            Records::One(one) if one.start.lt(ack) => {
                each(&Sent { end: ack, ..*one });
                one.start = ack;
            }
            Records::One(_) => {}
            Records::Many(board) => board.acknowledge(ack, each),
        }
    }

    /// Takes out all that is under way, if it is one segment at most that was sent once and of which nothing is known.
    #[inline(always)]
    pub fn take_plain(&mut self) -> Option<Option<Sent>> {
        match &self.records {
            Records::None => Some(None),
            Records::One(one) => {
                let one = *one;
                // Nothing of it is to be dropped.
                mem::forget(mem::take(&mut self.records));
                Some(Some(one))
            }
            Records::Many(_) => None,
        }
    }

    /// Gives the memory back once nothing is under way.
    #[inline]
    pub fn release(&mut self, boards: &mut Boards) {
        if matches!(&self.records, Records::Many(board) if board.len() == 0)
            && let Records::Many(board) = mem::take(&mut self.records)
        {
            boards.give(board);
        }
    }

    /// The peer has `range`; `each` sees the segments of which that is new, as they were. A segment of which it has a
    /// part counts as missing: crumbs would make the list long.
    pub fn sack(&mut self, range: Range<SeqNum>, each: impl FnMut(&Sent)) {
        if let Some(board) = self.board_mut() {
            board.sack(range, each);
        }
    }

    /// Takes every segment for lost that `lost` names, among those that are neither SACKED nor waiting; ends
    /// behind the first for which it gives `None`.
    pub fn mark(&mut self, lost: impl FnMut(&Sent) -> Option<bool>) {
        if let Some(board) = self.board_mut() {
            board.mark(lost);
        }
    }

    /// Takes the oldest segment for lost, its first `room` bytes at least.
    pub fn mark_first(&mut self) {
        if let Some(board) = self.board_mut() {
            board.mark_first();
        }
    }

    /// The peer took back what it SACKed (RFC 2018 §8): forgets it.
    pub fn renege(&mut self) {
        if let Some(board) = self.board_mut() {
            board.renege();
        }
    }

    /// Nothing was lost after all: takes no segment for lost any more.
    pub fn unmark_lost(&mut self) {
        if let Some(board) = self.board_mut() {
            board.unmark_lost();
        }
    }

    /// The first segment that is to be sent again, cut so that no more than `room` bytes of it remain; with those
    /// behind it that wait, too, and fit beside it.
    pub fn next_waiting(&mut self, room: u32) -> Option<(SeqNum, SeqNum)> {
        self.board_mut()?.next_waiting(room)
    }

    /// Numbers from `start` to `end` leave once more, at `at`.
    pub fn repeat(&mut self, start: SeqNum, end: SeqNum, at: Instant) {
        if let Some(board) = self.board_mut() {
            board.repeat(start, end, at);
        }
    }

    /// The retransmission timer fires.
    pub fn time_out(&mut self, now: Instant) {
        if let Some(board) = self.board_mut() {
            board.timeout_at = Some(now);
        }
    }

    /// When it last did in this flight.
    #[inline]
    #[must_use]
    pub fn timeout_at(&self) -> Option<Instant> {
        self.board().and_then(|board| board.timeout_at)
    }

    /// The newest segment ended a burst.
    pub fn end_burst(&mut self) {
        if let Some(board) = self.board_mut() {
            board.end_burst();
        }
    }

    /// Whether the segment that ends at `end` ended a burst, or the one behind it does not wait to be sent again.
    #[must_use]
    pub fn ends_burst(&self, end: SeqNum) -> bool {
        self.board().is_none_or(|board| board.ends_burst(end))
    }

    /// Bytes below `end` that are taken for lost.
    #[must_use]
    pub fn lost_below(&self, end: SeqNum) -> u32 {
        self.board().map_or(0, |board| board.lost_below(end))
    }

    /// Whether there is no record, nor memory for any.
    #[inline]
    #[must_use]
    pub fn is_bare(&self) -> bool {
        matches!(self.records, Records::None)
    }

    /// Forgets everything.
    #[inline(always)]
    pub fn clear(&mut self) {
        if !self.is_bare() {
            self.records = Records::None;
        }
    }
}

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
