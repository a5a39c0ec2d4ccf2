//! The sending half: what waits, what is under way, what the peer has of it.

use crate::buffer::{Pool, Ring};
use crate::ranges::RangeSet;
use firstflight_wire::SeqNum;

/// Duplicate acknowledgements that mean a loss (RFC 5681 §3.2).
pub const DUP_THRESH: u32 = 3;

/// Where loss recovery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Nothing is known to be lost.
    Open,
    /// Fast recovery (RFC 6675 with SACK, RFC 6582 without) until `point` is acknowledged.
    Fast {
        /// Everything sent when recovery began (RecoveryPoint).
        point: SeqNum,
        /// Highest number retransmitted in it (HighRxt).
        high_rxt: SeqNum,
        /// The rescue retransmission was used (RescueRxt).
        rescued: bool,
        /// The first retransmission goes out whatever cwnd says.
        forced: bool,
    },
    /// After a timeout: everything from UNA on is sent again, until `point` is acknowledged.
    Loss {
        /// Everything sent when the timer fired.
        point: SeqNum,
    },
}

/// A piece of the stream to send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Number of its first byte.
    pub seq: SeqNum,
    /// Bytes of data.
    pub len: u32,
    /// It ends with our FIN.
    pub fin: bool,
    /// It was sent before.
    pub again: bool,
}

/// Sequence space, buffer and scoreboard of the sending direction.
#[derive(Debug)]
pub struct Send {
    /// Our initial sequence number (ISS).
    pub iss: SeqNum,
    /// Oldest number not acknowledged (SND.UNA).
    pub una: SeqNum,
    /// Next number to send (SND.NXT); goes back on a timeout.
    pub nxt: SeqNum,
    /// Highest number sent, plus one.
    pub max: SeqNum,
    /// The peer's window, bytes (SND.WND).
    pub wnd: u32,
    /// Largest window it ever offered (MAX.SND.WND, RFC 5961 §5.2).
    pub max_wnd: u32,
    /// SND.WL1.
    wl1: SeqNum,
    /// SND.WL2.
    wl2: SeqNum,
    /// Number of the buffer's first byte.
    start: SeqNum,
    buf: Ring,
    sacked: RangeSet,
    /// Loss recovery.
    pub recovery: Recovery,
    /// Duplicate acknowledgements in a row.
    pub dup_acks: u32,
    /// Largest payload of one segment, options not counted.
    pub mss: u16,
    /// Shift of the windows the peer offers.
    pub scale: u8,
    /// The application has closed this direction.
    pub fin_queued: bool,
    /// The last attempt to send was stopped by cwnd.
    pub cwnd_limited: bool,
}

impl Send {
    /// A half that begins at `iss` and may use segments of `mss` bytes.
    #[inline(always)]
    #[must_use]
    pub fn new(iss: SeqNum, mss: u16) -> Self {
        Self {
            iss,
            una: iss,
            nxt: iss,
            max: iss,
            wnd: 0,
            max_wnd: 0,
            wl1: SeqNum::new(0),
            wl2: iss,
            start: iss + 1,
            buf: Ring::default(),
            sacked: RangeSet::default(),
            recovery: Recovery::Open,
            dup_acks: 0,
            mss,
            scale: 0,
            fin_queued: false,
            cwnd_limited: false,
        }
    }

    /// Moves the stream's first byte behind a preamble of `len` bytes (or back, with 0).
    pub fn set_preamble(&mut self, len: u32) {
        self.start = self.iss + 1 + len;
    }

    /// Appends data for the peer; returns how much fits into `limit`.
    pub fn write(&mut self, pool: &mut Pool, limit: u32, bytes: &[u8]) -> usize {
        self.buf.push(pool, limit as usize, bytes)
    }

    /// Takes the stream of `other` over: `first`, which that one no longer has, and all that it has. Nothing
    /// was written here before.
    pub fn adopt(&mut self, other: &mut Self, first: &[u8], pool: &mut Pool) {
        if first.is_empty() {
            core::mem::swap(&mut self.buf, &mut other.buf);
        } else {
            let acked = first.len() - other.left_of(first.len());
            let mut rest = alloc::vec![0; other.buf.len()];
            other.buf.copy_to(0, &mut rest);
            let limit = acked + rest.len();
            self.buf.push(pool, limit, first.get(..acked).unwrap_or_default());
            self.buf.push(pool, limit, &rest);
        }
        self.fin_queued = other.fin_queued;
    }

    /// How many of the stream's first `len` bytes are still in the buffer.
    fn left_of(&self, len: usize) -> usize {
        let gone = self.start.distance_from(self.iss + 1) as usize;
        len.saturating_sub(gone)
    }

    /// Bytes in the buffer, sent or not.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buf.len()
    }

    /// Number behind the last byte written: where the FIN goes.
    #[inline]
    #[must_use]
    pub fn end(&self) -> SeqNum {
        self.start + self.buf.len() as u32
    }

    /// Number behind everything to be sent, FIN included.
    #[inline]
    fn end_with_fin(&self) -> SeqNum {
        self.end() + u32::from(self.fin_queued)
    }

    /// Whether anything sent is not acknowledged.
    #[inline]
    #[must_use]
    pub fn outstanding(&self) -> bool {
        self.una.lt(self.max)
    }

    /// Whether data is not acknowledged. A SYN alone is none: the first answer to a first flight does not
    /// wait for the handshake.
    #[inline]
    fn data_outstanding(&self) -> bool {
        self.una.max(self.iss + 1).lt(self.max)
    }

    /// Whether data or a FIN waits that was never sent.
    #[inline]
    #[must_use]
    pub fn unsent(&self) -> bool {
        self.max.lt(self.end_with_fin())
    }

    /// Whether nothing waits: all was sent, and nothing is to be sent again before a timeout.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        !self.unsent() && self.nxt == self.max && self.recovery == Recovery::Open
    }

    /// Whether our FIN was sent and acknowledged.
    #[inline]
    #[must_use]
    pub fn fin_acked(&self) -> bool {
        self.fin_queued && self.una.gt(self.end())
    }

    /// Copies the payload of `chunk`.
    pub fn copy(&self, chunk: Chunk, out: &mut [u8]) {
        self.buf.copy_to(chunk.seq.distance_from(self.start) as usize, out);
    }

    /// Takes an acknowledgement of new data.
    pub fn acknowledge(&mut self, pool: &mut Pool, ack: SeqNum) {
        self.una = ack;
        if self.nxt.lt(ack) {
            self.nxt = ack;
        }
        if ack.gt(self.start) {
            let n = (ack.distance_from(self.start) as usize).min(self.buf.len());
            self.buf.consume(pool, n, false);
            self.start += n as u32;
        }
        if !self.sacked.is_empty() {
            self.sacked.remove_below(ack);
        }
    }

    /// Takes the peer's window (RFC 9293 §3.10.7.4, fifth step). True if it grew.
    pub fn update_window(&mut self, seq: SeqNum, ack: SeqNum, window: u32) -> bool {
        if self.wl1.lt(seq) || (self.wl1 == seq && self.wl2.le(ack)) {
            let grew = window > self.wnd;
            self.wnd = window;
            self.max_wnd = self.max_wnd.max(window);
            self.wl1 = seq;
            self.wl2 = ack;
            return grew;
        }
        false
    }

    /// Takes the window of a SYN, which is never scaled.
    pub fn first_window(&mut self, seq: SeqNum, ack: SeqNum, window: u32) {
        self.wnd = window;
        self.max_wnd = window;
        self.wl1 = seq;
        self.wl2 = ack;
    }

    /// Takes SACK blocks; returns how many numbers they newly cover.
    pub fn sack(&mut self, blocks: &[(SeqNum, SeqNum)]) -> u32 {
        let mut fresh = 0;
        for &(start, end) in blocks {
            // A block below UNA is a D-SACK (RFC 2883); one beyond MAX is made up.
            if start.lt(end) && start.ge(self.una) && end.le(self.max) {
                fresh += self.sacked.insert(start, end);
            }
        }
        fresh
    }

    /// Whether the peer has something behind what it misses.
    #[inline]
    #[must_use]
    pub fn has_holes(&self) -> bool {
        !self.sacked.is_empty()
    }

    /// Whether the peer has something behind `seq`.
    #[must_use]
    pub fn is_hole(&self, seq: SeqNum) -> bool {
        self.sacked.next_start(seq).is_some()
    }

    /// Whether all that must be taken for lost ends at `end`.
    #[must_use]
    pub fn lost_only_up_to(&self, end: SeqNum) -> bool {
        let edge = self.lost_below();
        let lost = edge.distance_from(self.una) - self.sacked.bytes_below(edge);
        lost == 0 || (self.una.lt(end) && lost <= end.distance_from(self.una))
    }

    /// RFC 6675 IsLost for everything not SACKed below the returned number.
    fn lost_below(&self) -> SeqNum {
        let mut bytes = 0;
        for (count, range) in (1u32..).zip(self.sacked.as_slice().iter().rev()) {
            bytes += range.1.distance_from(range.0);
            if count >= DUP_THRESH || bytes > (DUP_THRESH - 1) * u32::from(self.mss) {
                return range.0;
            }
        }
        self.una
    }

    /// Whether the number at UNA must be taken for lost (RFC 6675 §5, step 4.1).
    #[must_use]
    pub fn head_lost(&self) -> bool {
        self.lost_below().gt(self.una)
    }

    /// Bytes under way by our best knowledge (RFC 6675 "pipe").
    #[must_use]
    pub fn pipe(&self) -> u32 {
        match self.recovery {
            Recovery::Open => {
                let sent = self.nxt.distance_from(self.una);
                if self.sacked.is_empty() {
                    let left = self.dup_acks.min(DUP_THRESH) * u32::from(self.mss);
                    return sent.saturating_sub(left);
                }
                sent.saturating_sub(self.sacked.bytes())
            }
            Recovery::Loss { .. } => {
                let sent = self.nxt.distance_from(self.una);
                sent.saturating_sub(self.sacked.bytes_below(self.nxt))
            }
            Recovery::Fast { high_rxt, .. } => {
                let sent = self.max.distance_from(self.una);
                if self.sacked.is_empty() {
                    let left = self.dup_acks.saturating_mul(u32::from(self.mss));
                    return sent.saturating_sub(left);
                }
                let lost_edge = self.lost_below();
                let lost = lost_edge.distance_from(self.una) - self.sacked.bytes_below(lost_edge);
                let high = high_rxt.max(self.una);
                let again = high.distance_from(self.una) - self.sacked.bytes_below(high);
                (sent - self.sacked.bytes()).saturating_sub(lost) + again
            }
        }
    }

    /// Enters fast recovery; without SACK there is no rescue retransmission (RFC 6582 has none).
    pub fn enter_fast(&mut self, sack: bool) {
        self.recovery = Recovery::Fast { point: self.max, high_rxt: self.una, rescued: !sack, forced: true };
    }

    /// Goes back to UNA after a timeout. SACK information is kept unless the peer has evidently
    /// taken it back (RFC 2018 §8) or a second timeout says that it misled us.
    pub fn enter_loss(&mut self, again: bool) {
        if again || self.sacked.containing(self.una).is_some() {
            self.sacked.clear();
        }
        self.recovery = Recovery::Loss { point: self.max };
        self.nxt = self.una;
        self.dup_acks = 0;
    }

    /// What of `len` numbers from `seq` on can be sent in one segment of `room` bytes.
    fn chunk(&self, seq: SeqNum, limit: SeqNum, room: u32) -> Chunk {
        let end = self.end();
        let stop = if limit.lt(end) { limit } else { end };
        let len = if seq.lt(stop) { stop.distance_from(seq).min(room) } else { 0 };
        let fin = self.fin_queued && seq + len == end && limit.gt(end);
        Chunk { seq, len, fin, again: seq.lt(self.max) }
    }

    /// The next retransmission of fast recovery (RFC 6675 NextSeg rules 1, 3 and 4; RFC 6582).
    fn next_retransmission(&mut self, room: u32) -> Option<Chunk> {
        let Recovery::Fast { point, high_rxt, rescued, forced } = self.recovery else { return None };
        if forced && self.sacked.is_empty() {
            return Some(self.chunk(self.una, self.max, room));
        }
        let mut seq = high_rxt.max(self.una);
        if let Some((_, end)) = self.sacked.containing(seq) {
            seq = end;
        }
        match self.sacked.next_start(seq) {
            // The scoreboard has something above it: a hole. Rule 1 wants it lost, rule 3 does not;
            // new data (rule 2) goes first when it is not.
            Some(hole_end) => {
                let lost = forced || seq.lt(self.lost_below());
                if lost || !self.unsent() {
                    return Some(self.chunk(seq, hole_end, room));
                }
                None
            }
            // Rule 4, once: the last segment. Its SACK shows what else the tail lost.
            None if !rescued && !self.unsent() && seq.lt(point) => {
                if let Recovery::Fast { rescued, .. } = &mut self.recovery {
                    *rescued = true;
                }
                Some(self.chunk(seq.max(self.max - room), self.max, room))
            }
            None => None,
        }
    }

    /// What to send next, with segments of `room` bytes, `cwnd`, and `small` telling whether less
    /// than a full segment may leave (Nagle). Says in `cwnd_limited` whether cwnd stopped it.
    pub fn next(&mut self, room: u32, cwnd: u32, small: bool) -> Option<Chunk> {
        self.cwnd_limited = false;
        if !self.unsent() && !self.nxt.lt(self.max) && self.recovery == Recovery::Open {
            return None;
        }
        let pipe = self.pipe();
        if let Recovery::Fast { forced, .. } = self.recovery {
            if forced || cwnd >= pipe + room {
                if let Some(chunk) = self.next_retransmission(room) {
                    return Some(chunk);
                }
            } else {
                self.cwnd_limited = true;
                return None;
            }
        } else if let Some((_, end)) = self.sacked.containing(self.nxt) {
            self.nxt = end;
        }
        self.next_in_order(room, cwnd, pipe, small)
    }

    /// Data at NXT: never sent, or sent before a timeout.
    fn next_in_order(&self, room: u32, cwnd: u32, pipe: u32, small: bool) -> Option<Chunk> {
        let seq = self.nxt;
        let again = seq.lt(self.max);
        let mut limit = self.end_with_fin();
        if !seq.lt(limit) {
            return None;
        }
        if again && let Some(sacked) = self.sacked.next_start(seq) {
            limit = limit.min(sacked);
        }
        // A window that shrank under what is outstanding must not stop its retransmission: the first
        // number always goes.
        let window = self.una + if again { self.wnd.max(1) } else { self.wnd };
        if !seq.lt(window) {
            return None;
        }
        let whole = limit;
        limit = limit.min(window);
        let chunk = self.chunk(seq, limit, room);
        let size = chunk.len.max(u32::from(chunk.fin));
        // Limited transmit (RFC 3042) is what `pipe` gives: two duplicates let two segments go.
        if pipe + size > cwnd && pipe > 0 {
            return None;
        }
        let all = !(chunk.seq + chunk.len).lt(whole.min(self.end()));
        // Sender's silly-window avoidance (RFC 9293 §3.8.6.2.1) and Nagle (§3.7.4).
        let full = chunk.len >= room;
        let go = again
            || full
            || (all && (small || chunk.fin || !self.data_outstanding()))
            || chunk.len >= self.max_wnd / 2 && chunk.len > 0;
        (go && size > 0).then_some(chunk)
    }

    /// Whether cwnd, not the window or Nagle, holds back what waits.
    #[must_use]
    pub fn blocked_by_cwnd(&self, cwnd: u32) -> bool {
        self.unsent() && self.nxt.lt(self.una + self.wnd) && self.pipe() + u32::from(self.mss) > cwnd
    }

    /// Notes that `chunk` left.
    pub fn sent(&mut self, chunk: Chunk) {
        let end = chunk.seq + chunk.len + u32::from(chunk.fin);
        let hole = self.sacked.next_start(chunk.seq).is_some();
        if let Recovery::Fast { high_rxt, forced, .. } = &mut self.recovery
            && chunk.again
        {
            // The rescue retransmission leaves HighRxt where it is (RFC 6675 §5, NextSeg rule 4).
            if *forced || hole {
                *high_rxt = high_rxt.max(end);
            }
            *forced = false;
        } else if end.gt(self.nxt) {
            self.nxt = end;
        }
        self.max = self.max.max(end);
    }

    /// What may be sent whatever Nagle and silly-window avoidance say, when the override timer fires.
    #[must_use]
    pub fn override_chunk(&self, room: u32) -> Option<Chunk> {
        let window = self.una + self.wnd;
        if !self.nxt.lt(window) {
            return None;
        }
        let chunk = self.chunk(self.nxt, self.end_with_fin().min(window), room);
        (chunk.len > 0 || chunk.fin).then_some(chunk)
    }

    /// Gives all memory back; what waits is lost.
    pub fn clear(&mut self, pool: &mut Pool) {
        self.buf.clear(pool);
        self.sacked.clear();
    }
}
