//! The segments under way: one record for each segment that was sent and is not acknowledged, with the time it
//! last left and its marks. RACK (RFC 8985) reads the times. SACK (RFC 2018) and the timers set the marks.

use crate::board::{Board, Boards};
use alloc::boxed::Box;
use core::mem;
use core::ops::Range;
use firstflight_wire::{Instant, SeqNum};

/// Limits on the records of an application that makes tiny writes: beyond `MANY` records, at most one for each
/// `CRUMB` bytes.
pub(crate) const MANY: usize = 4096;
pub(crate) const CRUMB: u32 = 256;

/// What is known about a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SegmentMarks(u8);

impl SegmentMarks {
    /// The peer has it (RFC 2018).
    pub(crate) const SACKED: Self = Self(1);
    /// It was marked as lost, and perhaps sent again since.
    pub(crate) const LOST: Self = Self(2);
    /// A retransmission of it is under way.
    pub(crate) const AGAIN: Self = Self(4);
    /// It was sent more than once, so its acknowledgement gives no round-trip sample (Karn).
    pub(crate) const REPEATED: Self = Self(8);

    #[inline]
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, other: Self) {
        self.0 |= other.0;
    }

    #[inline]
    pub(crate) fn clear(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    /// It is marked as lost and was not sent again yet.
    #[inline]
    pub(crate) fn waits(self) -> bool {
        self.0 & (Self::LOST.0 | Self::AGAIN.0) == Self::LOST.0
    }
}

/// One segment that left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Its first number.
    pub start: SeqNum,
    /// The number behind its last one; a FIN counts.
    pub end: SeqNum,
    /// When it last left.
    //= rfc8985 4-b
    pub at: Instant,
    /// What is known about it.
    pub marks: SegmentMarks,
    /// It was the last segment of a burst.
    pub ends_burst: bool,
}

impl Sent {
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.end.distance_from(self.start)
    }

    /// RFC 8985 §6.2 RACK_sent_after: whether this segment left later than one that left at `at` and ended at
    /// `end`.
    #[inline]
    pub(crate) fn after(&self, at: Instant, end: SeqNum) -> bool {
        self.at > at || (self.at == at && self.end.gt(end))
    }
}

/// Most flights of short connections are one segment that is sent once and gets no mark: it needs no
/// allocation.
#[derive(Debug, Default)]
enum Records {
    #[default]
    None,
    /// One segment without marks.
    One(Sent),
    Many(Box<Board>),
}

/// All segments under way, in the order of the stream, without gaps.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    records: Records,
}

impl Flight {
    /// Number of segments under way, including SACKed ones.
    #[inline]
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        match &self.records {
            Records::None => 0,
            Records::One(_) => 1,
            Records::Many(board) => board.len(),
        }
    }

    /// The record at `index`.
    #[inline]
    #[must_use]
    pub(crate) fn get(&self, index: usize) -> Option<&Sent> {
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

    /// The board. A single segment gets one, too, because it is about to be marked.
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
    pub(crate) fn first(&self) -> Option<&Sent> {
        self.get(0)
    }

    /// The newest segment.
    #[must_use]
    pub(crate) fn last(&self) -> Option<&Sent> {
        self.get(self.len().wrapping_sub(1))
    }

    /// Bytes under way, with any marks.
    #[cfg(test)]
    fn bytes(&self) -> u32 {
        (0..self.len()).filter_map(|i| self.get(i)).map(Sent::len).sum()
    }

    /// Bytes under way, estimated (RFC 6675 "pipe"); a FIN counts.
    //= rfc6675 4-c
    #[inline]
    #[must_use]
    pub(crate) fn pipe(&self) -> u32 {
        match &self.records {
            Records::None => 0,
            Records::One(one) => one.len(),
            Records::Many(board) => board.pipe(),
        }
    }

    /// Bytes that the peer has beyond the data that it misses.
    #[inline]
    #[must_use]
    pub(crate) fn sacked(&self) -> u32 {
        self.board().map_or(0, |board| board.sacked)
    }

    /// Number of segments that these bytes are in.
    #[inline]
    #[must_use]
    pub(crate) fn sacked_segments(&self) -> u32 {
        self.board().map_or(0, |board| board.sacked_segments)
    }

    /// Bytes marked as lost and not known to have arrived, whether sent again or not.
    #[inline]
    #[must_use]
    pub(crate) fn lost(&self) -> u32 {
        self.board().map_or(0, |board| board.lost)
    }

    /// Bytes sent again and not yet known to have arrived or to be lost.
    #[inline]
    #[must_use]
    pub(crate) fn again(&self) -> u32 {
        self.board().map_or(0, |board| board.again)
    }

    /// Bytes marked as lost that are still to be sent again.
    #[inline]
    #[must_use]
    pub(crate) fn waiting(&self) -> u32 {
        self.board().map_or(0, |board| board.waiting)
    }

    /// A segment that was never sent before leaves, behind all others. Two or more segments need a board, which
    /// comes from `boards` if it has one.
    #[inline]
    pub(crate) fn push(&mut self, start: SeqNum, end: SeqNum, at: Instant, boards: &mut Boards) {
        if let Records::None = self.records {
            // Fill in place: a copy of a record built elsewhere would wait for its stores.
            self.records =
                Records::One(Sent { start, end, at, marks: SegmentMarks::default(), ends_burst: false });
        } else {
            self.push_behind(start, end, at, boards);
        }
    }

    #[inline(never)]
    fn push_behind(&mut self, start: SeqNum, end: SeqNum, at: Instant, boards: &mut Boards) {
        let sent = || Sent { start, end, at, marks: SegmentMarks::default(), ends_burst: false };
        match &mut self.records {
            none @ Records::None => *none = Records::One(sent()),
            Records::One(one) => {
                let mut board = boards.take(*one);
                board.push(sent());
                self.records = Records::Many(board);
            }
            Records::Many(board) => board.push(sent()),
        }
    }

    /// Everything below `ack` has arrived. `each` sees the segments that were not SACKed before, in their
    /// earlier state.
    #[inline]
    pub(crate) fn acknowledge(&mut self, ack: SeqNum, mut each: impl FnMut(&Sent)) {
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

    /// Takes out everything under way, if it is at most one segment without marks.
    #[inline]
    pub(crate) fn take_plain(&mut self) -> Option<Option<Sent>> {
        match &self.records {
            Records::None => Some(None),
            Records::One(one) => {
                let one = *one;
                self.records = Records::None;
                Some(Some(one))
            }
            Records::Many(_) => None,
        }
    }

    /// Gives the memory back once nothing is under way.
    #[inline]
    pub(crate) fn release(&mut self, boards: &mut Boards) {
        if matches!(&self.records, Records::Many(board) if board.len() == 0)
            && let Records::Many(board) = mem::take(&mut self.records)
        {
            boards.give(board);
        }
    }

    /// The peer has `range`. `each` sees the segments that are newly SACKed, in their earlier state. A segment
    /// that the peer has only in part counts as missing, because splitting records for tiny ranges would make
    /// the list long.
    pub(crate) fn sack(&mut self, range: Range<SeqNum>, each: impl FnMut(&Sent)) {
        if let Some(board) = self.board_mut() {
            board.sack(range, each);
        }
    }

    /// Marks every segment as lost for which `lost` gives `Some(true)`, among those that are neither SACKed nor
    /// waiting. Stops at the first one for which it gives `None`.
    pub(crate) fn mark(&mut self, lost: impl FnMut(&Sent) -> Option<bool>) {
        if let Some(board) = self.board_mut() {
            board.mark(lost);
        }
    }

    /// Marks the oldest segment that is not SACKed as lost.
    pub(crate) fn mark_first(&mut self) {
        if let Some(board) = self.board_mut() {
            board.mark_first();
        }
    }

    /// The peer reneged on its SACKs (RFC 2018 §8): removes the SACKED marks.
    pub(crate) fn renege(&mut self) {
        if let Some(board) = self.board_mut() {
            board.renege();
        }
    }

    /// No segment was lost after all: removes the LOST marks.
    pub(crate) fn unmark_lost(&mut self) {
        if let Some(board) = self.board_mut() {
            board.unmark_lost();
        }
    }

    /// The first range to send again, at most `room` bytes. Waiting segments directly behind it are included as
    /// far as they fit.
    pub(crate) fn next_waiting(&mut self, room: u32) -> Option<(SeqNum, SeqNum)> {
        self.board_mut()?.next_waiting(room)
    }

    /// The numbers from `start` to `end` leave again, at `at`.
    pub(crate) fn repeat(&mut self, start: SeqNum, end: SeqNum, at: Instant) {
        if let Some(board) = self.board_mut() {
            board.repeat(start, end, at);
        }
    }

    /// The retransmission timer fires.
    pub(crate) fn time_out(&mut self, now: Instant) {
        if let Some(board) = self.board_mut() {
            board.timeout_at = Some(now);
        }
    }

    /// When the timer last fired in this flight.
    #[inline]
    #[must_use]
    pub(crate) fn timeout_at(&self) -> Option<Instant> {
        self.board().and_then(|board| board.timeout_at)
    }

    /// Notes that the newest segment ended a burst.
    pub(crate) fn end_burst(&mut self) {
        if let Some(board) = self.board_mut() {
            board.end_burst();
        }
    }

    /// Whether the segment that ends at `end` ended a burst, or the next segment does not wait to be sent
    /// again.
    #[must_use]
    pub(crate) fn ends_burst(&self, end: SeqNum) -> bool {
        self.board().is_none_or(|board| board.ends_burst(end))
    }

    /// Bytes below `end` that are marked as lost.
    #[must_use]
    pub(crate) fn lost_below(&self, end: SeqNum) -> u32 {
        self.board().map_or(0, |board| board.lost_below(end))
    }

    /// Whether there is no record, nor memory for any.
    #[inline]
    #[must_use]
    pub(crate) fn is_bare(&self) -> bool {
        matches!(self.records, Records::None)
    }

    /// Removes everything.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.is_bare() {
            self.records = Records::None;
        }
    }
}

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
