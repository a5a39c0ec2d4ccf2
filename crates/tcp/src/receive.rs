//! The receiving half: the data that has arrived, the window to offer, and when to acknowledge.

use crate::buffer::{Pool, Ring};
use crate::config::FIRST_BUFFER;
use crate::ranges::RangeSet;
use crate::reopening::Reopening;
use crate::straight::straight;
use firstflight_wire::hint::{likely, unlikely};
use firstflight_wire::tcp::SackBlocks;
use firstflight_wire::{Instant, SeqNum};

/// If the peer has more window than this, no window update is sent: its next data brings one. Bytes.
const SHORT: u32 = 32 << 10;
/// A shorter segment is not a full segment on any path (Linux: `TCP_MIN_MSS`), bytes.
const SMALLEST_FULL: u16 = 88;

/// The result for a segment's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It contained nothing new.
    Duplicate,
    /// This many bytes became readable.
    InOrder(u32),
    /// Kept behind a hole.
    OutOfOrder,
    /// There is no memory: the payload is treated as lost.
    NoRoom,
}

/// How urgently an acknowledgement must be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum AckNeed {
    /// Nothing to acknowledge.
    #[default]
    None,
    /// It may wait for the delayed-ACK timer.
    Delayed,
    /// It must leave at once.
    Now,
}

/// Sequence space, buffer and acknowledgement state of the receiving direction.
#[derive(Debug, Default)]
pub(crate) struct Receive {
    /// Next number expected (RCV.NXT).
    pub nxt: SeqNum,
    /// Highest right edge ever offered, and what of it a coarse scale could not say.
    pub edge: SeqNum,
    /// The right edge that the last segment offered.
    told: SeqNum,
    /// The peer's initial sequence number (IRS).
    pub irs: SeqNum,
    /// Number of the peer's FIN, once seen.
    fin: Option<SeqNum>,
    buf: Ring,
    ahead: RangeSet,
    /// The newest data that arrived although it was already there: the next acknowledgement reports it (RFC
    /// 2883).
    twice: Option<(SeqNum, SeqNum)>,
    /// Bytes that may wait to be read at present.
    limit: u32,
    /// Bytes offered at most at present. Once data was acknowledged, it grows with what arrives, up to `limit`.
    offer: u32,
    /// RCV.NXT and time at the start of the round trip in which arrivals are counted.
    round: SeqNum,
    round_at: Instant,
    unacked: u32,
    /// Last acknowledgement sent (RFC 7323 §4.3).
    pub last_ack_sent: SeqNum,
    /// Newest timestamp to echo (TS.Recent).
    pub ts_recent: u32,
    /// When `ts_recent` was taken, to let it expire after 24 days (RFC 7323 §5.5).
    pub ts_recent_at: Instant,
    peer_mss: u16,
    /// Size of the peer's full segments as seen so far: the path may take less than the MSS.
    full: u16,
    /// Shift of the windows we offer.
    pub scale: u8,
    /// Whether and how an acknowledgement is due.
    pub need: AckNeed,
    /// Whether the peer waits for the window to open.
    pub reopening: Reopening,
}

impl Receive {
    /// A half that has seen the peer's SYN at `irs` and may later offer up to `most` bytes.
    #[inline]
    #[must_use]
    pub(crate) fn new(irs: SeqNum, most: u32, scale: u8, mss: u16) -> Self {
        let nxt = irs + 1;
        let limit = most.min(FIRST_BUFFER);
        Self {
            nxt,
            edge: nxt + limit.min(0xffff),
            told: nxt + limit.min(0xffff),
            irs,
            fin: None,
            buf: Ring::default(),
            ahead: RangeSet::default(),
            twice: None,
            limit,
            offer: limit,
            round: nxt,
            round_at: Instant::ZERO,
            unacked: 0,
            last_ack_sent: nxt,
            ts_recent: 0,
            ts_recent_at: Instant::ZERO,
            peer_mss: mss,
            full: mss,
            scale,
            need: AckNeed::None,
            reopening: Reopening::default(),
        }
    }

    /// Offers no more than `first` bytes at first.
    pub(crate) fn offer_at_first(&mut self, first: u32) {
        self.offer = first.min(self.limit);
    }

    /// The peer's SYN was seen, at `irs`. No data was taken before.
    #[inline]
    pub(crate) fn begin(&mut self, irs: SeqNum) {
        let nxt = irs + 1;
        self.nxt = nxt;
        self.edge = nxt + self.offer.min(0xffff);
        self.told = self.edge;
        self.irs = irs;
        self.last_ack_sent = nxt;
    }

    /// Bytes that can be read now.
    #[must_use]
    pub(crate) fn readable(&self) -> usize {
        self.buf.len()
    }

    /// Whether the peer's FIN and all before it have arrived.
    #[must_use]
    pub(crate) fn finished(&self) -> bool {
        self.fin.is_some_and(|fin| fin.lt(self.nxt))
    }

    /// RFC 9293 §3.10.7.4, first step: is any of the segment's sequence space in the window? A FIN needs no room in the
    /// buffer. So the last number of a segment with a `fin` may be the one just behind the window, even behind a closed
    /// window (as in Linux). Otherwise the sender would repeat the FIN until the window opens.
    //= rfc7323 2.4-b 2.4-c
    #[must_use]
    #[inline]
    pub(crate) fn acceptable(&self, seq: SeqNum, len: u32, fin: bool) -> bool {
        let window = self.edge.distance_from(self.nxt);
        match (len, window) {
            //= rfc9293 MUST-66
            (0, 0) => seq == self.nxt,
            (0, w) => seq.in_window(self.nxt, w),
            (l, w) => seq.in_window(self.nxt, w) || (seq + (l - 1)).in_window(self.nxt, w + u32::from(fin)),
        }
    }

    /// Whether the window that was last offered is zero.
    #[must_use]
    pub(crate) fn is_closed(&self) -> bool {
        self.edge.distance_from(self.nxt) >> self.scale == 0
    }

    /// Moves past the first `skip` numbers (a preamble) without delivering them.
    pub(crate) fn skip(&mut self, skip: u32) {
        self.nxt += skip;
        self.edge += skip;
    }

    /// Takes the part of `payload` (first byte `seq`) that is new and in the window.
    #[inline(always)]
    pub(crate) fn take(&mut self, pool: &mut Pool, seq: SeqNum, payload: &[u8]) -> Taken {
        let undisturbed = straight() && self.ahead.is_empty() && self.fin.is_none() && !payload.is_empty();
        if likely(seq == self.nxt && undisturbed && payload.len() <= self.edge.distance_from(seq) as usize) {
            return self.take_next(pool, payload);
        }
        self.take_any(pool, seq, payload)
    }

    /// Like [`Receive::take`], for a `payload` that is next in order and fits into the window, with no data and
    /// no FIN behind it. Must match the general path.
    #[inline(always)]
    fn take_next(&mut self, pool: &mut Pool, payload: &[u8]) -> Taken {
        let len = payload.len() as u32;
        self.peer_mss = self.peer_mss.max(len.min(0xffff) as u16);
        if !self.buf.append(pool, payload) {
            return Taken::NoRoom;
        }
        self.arrived(len);
        Taken::InOrder(len)
    }

    /// `bytes` bytes, which are already in the buffer, are next in order.
    #[inline]
    fn arrived(&mut self, bytes: u32) {
        // Compare for equality, not by order: after 2 GiB the IRS would be ahead again.
        if self.last_ack_sent != self.irs + 1 {
            self.offer = self.offer.saturating_add(bytes.saturating_mul(2)).min(self.limit);
        }
        self.nxt += bytes;
        self.unacked += bytes;
    }

    fn take_any(&mut self, pool: &mut Pool, seq: SeqNum, payload: &[u8]) -> Taken {
        let old = if seq.lt(self.nxt) { self.nxt.distance_from(seq) as usize } else { 0 };
        let Some(fresh) = payload.get(old..).filter(|p| !p.is_empty()) else {
            self.came_twice(seq, seq + payload.len() as u32);
            return Taken::Duplicate;
        };
        self.came_twice(seq, self.nxt);
        let seq = seq + old as u32;
        let last = self.fin.map_or(self.edge, |fin| self.edge.min(fin));
        if !seq.lt(last) {
            return Taken::Duplicate;
        }
        let n = fresh.len().min(last.distance_from(seq) as usize);
        self.peer_mss = self.peer_mss.max(payload.len().min(0xffff) as u16);
        let gap = seq.distance_from(self.nxt) as usize;
        if !self.buf.write_at(pool, self.buf.len() + gap, &fresh[..n]) {
            //= rfc2018 8-c
            return Taken::NoRoom;
        }
        if gap > 0 {
            //= rfc9293 SHLD-31
            let added = self.ahead.insert(seq, seq + n as u32);
            if added == 0 {
                // A full list adds nothing. Then the data is treated as lost, unless the list already contained
                // it.
                if self.ahead.containing(seq).is_none() {
                    return Taken::NoRoom;
                }
                self.came_twice(seq, seq + n as u32);
            }
            //= rfc2018 4-e 4-g 8-a
            self.ahead.put_first(seq);
            return Taken::OutOfOrder;
        }
        let mut taken = n as u32;
        if !self.ahead.is_empty() || self.fin.is_some() {
            // It fills a hole in whole or in part, perhaps only the one in front of a FIN: the sender is
            // waiting for this.
            self.need = AckNeed::Now;
        }
        // It may overlap several holes at once.
        let end = self.nxt + taken;
        while let Some(behind) = self.ahead.take_from(self.nxt + taken) {
            if self.twice.is_none() {
                // If several ranges came twice, report the first (RFC 2883 §4).
                self.came_twice(behind.0, behind.1.min(end));
            }
            taken = taken.max(behind.1.distance_from(self.nxt));
        }
        self.buf.advance(taken as usize);
        self.arrived(taken);
        Taken::InOrder(taken)
    }

    /// The numbers from `start` to `end` arrived although they were already there.
    pub(crate) fn came_twice(&mut self, start: SeqNum, end: SeqNum) {
        if start.lt(end) {
            self.twice = Some((start, end));
        }
    }

    /// Notes the peer's FIN at `seq`, just behind its last byte, unless it lies beyond the window. A second FIN
    /// at another number, or one where data is, is the peer's error and is ignored.
    #[inline]
    pub(crate) fn note_fin(&mut self, seq: SeqNum) {
        let inside = !seq.lt(self.nxt) && seq.le(self.edge);
        if self.fin.is_none() && inside && self.ahead.containing(seq).is_none() {
            self.fin = Some(seq);
        }
    }

    /// Takes the FIN if it is next in order. Returns true once.
    #[inline]
    pub(crate) fn take_fin(&mut self) -> bool {
        if self.fin == Some(self.nxt) {
            self.nxt += 1;
            self.edge = self.edge.max(self.nxt);
            // Nothing is valid behind a FIN.
            self.ahead.clear();
            return true;
        }
        false
    }

    /// Decides how to acknowledge what [`Receive::take`] took (RFC 5681 §4.2): every second full segment, and
    /// at once when a hole appears or is filled, when data came twice, or while `quick` is set.
    //= rfc9293 SHLD-18 SHLD-19
    //= rfc2018 4-d
    #[inline]
    pub(crate) fn want_ack(&mut self, taken: Taken, quick: bool) {
        let need = match taken {
            Taken::InOrder(_) if quick || self.unacked >= 2 * u32::from(self.full) => AckNeed::Now,
            Taken::InOrder(_) => AckNeed::Delayed,
            Taken::Duplicate | Taken::OutOfOrder | Taken::NoRoom => AckNeed::Now,
        };
        self.need = self.need.max(need);
    }

    /// Largest size of the peer's segments, bytes.
    #[must_use]
    pub(crate) fn segment_size(&self) -> u32 {
        u32::from(self.peer_mss)
    }

    /// Notes a segment of `len` bytes, and returns whether it is a full one. A segment without PSH (not
    /// `pushed`) does not end a write, so its sender sends none that is larger: the path's MTU is small, or the
    /// sender leaves room for options that it did not send (RFC 5681 §4.2 on senders that use less than the
    /// MSS; Linux measures in the same way).
    #[inline]
    pub(crate) fn measure(&mut self, len: usize, pushed: bool) -> bool {
        let len = len.min(usize::from(self.peer_mss)) as u16;
        if len > self.full || (!pushed && len >= SMALLEST_FULL) {
            self.full = len;
        }
        len >= self.full
    }

    /// Once in a round trip of `rtt` nanoseconds: grows the window, up to `most`, if the peer filled a quarter
    /// of it and the application reads. A quarter is enough, because slow start doubles in each round trip:
    /// when the peer has just learnt of the larger window, it already sends twice as much.
    #[inline]
    pub(crate) fn tune(&mut self, most: u32, rtt: Option<u64>, now: Instant) {
        if self.limit < most {
            self.widen(most, rtt, now);
        }
    }

    #[inline]
    fn widen(&mut self, most: u32, rtt: Option<u64>, now: Instant) {
        let (start, began) = (self.round, self.round_at);
        let Some(rtt) = rtt.filter(|rtt| now.nanos_since(began) >= *rtt) else { return };
        let arrived = self.nxt.distance_from(start);
        let left = self.buf.len() as u32;
        // If the round began two round trips ago or more, the peer was silent, and the count says nothing.
        if now.nanos_since(began) < rtt * 2 && arrived >= self.limit / 4 && left <= self.limit / 4 {
            let whole = self.offer == self.limit;
            self.limit = self.limit.saturating_mul(2).min(most);
            if whole {
                self.offer = self.limit;
            }
        }
        (self.round, self.round_at) = (self.nxt, now);
    }

    /// Sets the largest size of the peer's segments. Its full segments are assumed to be as large until it
    /// sends smaller ones.
    pub(crate) fn set_segment_size(&mut self, mss: u16) {
        (self.peer_mss, self.full) = (mss, mss);
    }

    /// Copies up to `out.len()` readable bytes and removes them; returns how many. Asks for a window update if
    /// the window opened enough.
    pub(crate) fn read(&mut self, pool: &mut Pool, out: &mut [u8]) -> usize {
        // Fast path for a caller that reads until nothing is left: its last call finds no data.
        if !self.buf.has_memory() {
            return 0;
        }
        let n = self.peek(out);
        self.buf.consume(pool, n, !self.ahead.is_empty());
        if n > 0 && self.fin.is_none() && self.runs_short() {
            self.need = AckNeed::Now;
            if self.is_closed() {
                self.reopening.opened(self.nxt);
            }
        }
        n
    }

    /// Copies up to `out.len()` readable bytes and keeps them.
    pub(crate) fn peek(&self, out: &mut [u8]) -> usize {
        let n = out.len().min(self.buf.len());
        self.buf.copy_to(0, &mut out[..n]);
        n
    }

    /// Whether to send a window update: only if the peer has little window left, and if the window opened by
    /// enough to justify a segment (silly-window avoidance, RFC 9293 §3.8.6.2.2).
    //= rfc9293 MUST-39
    fn runs_short(&self) -> bool {
        let left = self.edge.distance_from(self.nxt);
        left <= (self.limit / 2).min(SHORT) && self.opened() >= self.enough(2)
    }

    /// By how much the window must open to justify an offer (RFC 9293 §3.8.6.2.2): by `segments` full segments, or by
    /// half of what is offered at most. At first this may be less than a segment.
    #[inline]
    fn enough(&self, segments: u32) -> u32 {
        self.offer.div_ceil(2).min(segments * u32::from(self.peer_mss))
    }

    /// How far the right edge could move now.
    #[inline]
    fn opened(&self) -> u32 {
        let free = self.limit.saturating_sub(self.buf.len() as u32).min(self.offer);
        let edge = self.nxt + free;
        if edge.gt(self.edge) { edge.distance_from(self.edge) } else { 0 }
    }

    /// The window field of a segment that leaves now. Moves the edge by whole segments only (RFC 9293
    /// §3.8.6.2.2). Use `unscaled` for segments with SYN.
    #[inline(always)]
    pub(crate) fn window(&mut self, unscaled: bool) -> u16 {
        if unlikely(self.offer >> self.scale == 0 && !unscaled) {
            // The field cannot say less than a step of the scale: it would be zero for ever.
            self.offer = (1 << self.scale).min(self.limit);
        }
        let opened = self.opened();
        //= rfc7323 2.2-d
        if unscaled {
            // A SYN-ACK that is sent again offers at most 65,535 bytes, but keeps what was offered since the
            // first one.
            let window = (self.edge + opened).distance_from(self.nxt).min(0xffff);
            self.edge = self.edge.max(self.nxt + window);
            self.told = self.nxt + window;
            return window as u16;
        }
        //= rfc9293 MUST-39 SHLD-14
        if opened >= self.enough(1) || self.completes_step(opened) {
            self.edge += opened;
        }
        let window = self.edge.distance_from(self.nxt);
        //= rfc7323 2.3-f
        let mut steps = (window >> self.scale).min(0xffff);
        let told = self.told;
        if unlikely((self.nxt + (steps << self.scale)).lt(told)) {
            steps = self.steps_to(told).unwrap_or(steps);
        }
        self.told = self.nxt + (steps << self.scale);
        self.edge = self.edge.max(self.told);
        steps as u16
    }

    /// The window that offers what was offered up to `told`, and less than a step more (RFC 7323 §2.4). Rounded down it
    /// would take a part back. Each segment that is not a multiple of a step long adds to what is offered beyond the
    /// limit, so there is a bound, behind which the rest is taken back after all.
    fn steps_to(&self, told: SeqNum) -> Option<u32> {
        let step = 1 << self.scale;
        let steps = told.distance_from(self.nxt).div_ceil(step);
        let held = self.buf.len() as u32 + (steps << self.scale);
        (steps <= 0xffff && held <= self.limit + self.limit / 2 + step).then_some(steps)
    }

    /// Whether `opened` bytes, which are less than a step of the scale, complete a step together with the
    /// window's remainder. Without them, a window offered in smaller steps (65,535 bytes in a SYN) would be
    /// taken back in part (RFC 7323 §2.4).
    #[inline]
    fn completes_step(&self, opened: u32) -> bool {
        let step = 1 << self.scale;
        let window = self.edge.distance_from(self.nxt);
        opened < step && (window & (step - 1)) + opened >= step && window >= u32::from(self.peer_mss)
    }

    /// A segment that acknowledges everything leaves now.
    #[inline]
    pub(crate) fn acked(&mut self) {
        self.last_ack_sent = self.nxt;
        self.unacked = 0;
        self.need = AckNeed::None;
        self.twice = None;
    }

    /// The SACK blocks to send: first the data that came twice with the block that contains it (RFC 2883 §4),
    /// then the block of the newest segment, then the most recent other blocks (RFC 2018 §4).
    #[must_use]
    pub(crate) fn sack_blocks(&self) -> SackBlocks {
        let mut blocks = SackBlocks::EMPTY;
        if let Some((start, end)) = self.twice {
            blocks.push(start, end);
            if let Some(outer) = self.ahead.containing(start) {
                blocks.push(outer.0, outer.1);
            }
        }
        if self.ahead.is_empty() {
            return blocks;
        }
        for range in self.ahead.recent().chain(self.ahead.as_slice().iter().copied()) {
            if !blocks.as_slice().contains(&range) && !blocks.push(range.0, range.1) {
                break;
            }
        }
        blocks
    }

    /// Number of the peer's full segments that fit into the offered window.
    #[must_use]
    pub(crate) fn segments(&self) -> u32 {
        self.edge.distance_from(self.nxt) / u32::from(self.peer_mss).max(1)
    }

    /// Whether bytes wait behind a hole.
    #[inline]
    #[must_use]
    pub(crate) fn has_holes(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Whether there are SACK blocks to send.
    #[inline]
    #[must_use]
    pub(crate) fn has_sack_blocks(&self) -> bool {
        !self.ahead.is_empty() || self.twice.is_some()
    }

    /// Nothing more will arrive, so data behind a hole can never be read and is dropped. Bytes in order stay.
    pub(crate) fn end(&mut self, pool: &mut Pool) {
        self.ahead.clear();
        if self.buf.is_empty() {
            self.buf.clear(pool);
        }
    }

    /// Gives all memory back; unread bytes are lost.
    #[inline]
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.buf.clear(pool);
        self.ahead.clear();
    }
}

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
