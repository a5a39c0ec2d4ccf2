//! The sending half: data that waits, data that is under way, and what the peer has acknowledged of it.

use crate::buffer::{Pool, Ring};
use crate::chunk::{Chunk, Kind, Small};
use crate::flight::Flight;
use crate::recovery::{Frto, Recovery};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::hint::cold_path;
use core::mem;
use firstflight_wire::hint::unlikely;
use firstflight_wire::{Instant, SeqNum};

/// Largest number of record ends kept.
const MOST_RECORDS: usize = 64;

/// Sequence space, buffer and scoreboard of the sending direction.
#[derive(Debug, Default)]
pub(crate) struct SendHalf {
    /// Our initial sequence number (ISS).
    pub iss: SeqNum,
    /// Oldest number not acknowledged (SND.UNA).
    pub una: SeqNum,
    /// Next number to send (SND.NXT).
    pub nxt: SeqNum,
    /// The peer's window, bytes (SND.WND).
    pub wnd: u32,
    /// Largest window that the peer ever offered (MAX.SND.WND, RFC 5961 §5.2).
    pub max_wnd: u32,
    /// SND.WL1.
    wl1: SeqNum,
    /// SND.WL2.
    wl2: SeqNum,
    /// Number of the buffer's first byte.
    start: SeqNum,
    buf: Ring,
    /// The segments under way.
    pub flight: Flight,
    /// Loss recovery.
    pub recovery: Recovery,
    /// Without SACK: the number of duplicate acknowledgements since the oldest number moved. Each one says that
    /// a segment has arrived.
    pub dup_acks: u32,
    /// Largest payload of one segment, without options.
    pub mss: u16,
    /// Shift of the windows the peer offers.
    pub scale: u8,
    /// The application has closed this direction.
    pub fin_queued: bool,
    /// Number behind the last segment that was less than full.
    pub small_end: SeqNum,
    /// Ends of records, which no segment crosses.
    #[allow(clippy::box_collection, reason = "nearly no connection has any")]
    records: Option<Box<VecDeque<SeqNum>>>,
    /// Number behind what the SYN carried. A retransmission of that data is not a small segment.
    pub first_flight_end: SeqNum,
}

impl SendHalf {
    /// A half that begins at `iss` and may use segments of `mss` bytes.
    #[inline]
    #[must_use]
    pub(crate) fn new(iss: SeqNum, mss: u16) -> Self {
        Self {
            iss,
            una: iss,
            nxt: iss,
            wnd: 0,
            max_wnd: 0,
            wl1: SeqNum::new(0),
            wl2: iss,
            start: iss + 1,
            buf: Ring::default(),
            flight: Flight::default(),
            recovery: Recovery::Open,
            dup_acks: 0,
            mss,
            scale: 0,
            fin_queued: false,
            small_end: iss,
            records: None,
            first_flight_end: iss,
        }
    }

    /// Moves the stream's first byte behind a preamble of `len` bytes (or back, with 0).
    pub(crate) fn set_preamble(&mut self, len: u32) {
        self.start = self.iss + 1 + len;
    }

    /// Appends data for the peer, up to `limit` bytes in the buffer; returns how many bytes were appended.
    #[inline]
    pub(crate) fn write(&mut self, pool: &mut Pool, limit: u32, bytes: &[u8]) -> usize {
        self.buf.push(pool, limit as usize, bytes)
    }

    /// Takes over the stream of `other`: `first`, the beginning of the stream that `other` no longer has, and
    /// everything it still has. This half must be empty. False if there is no memory for all of it.
    pub(crate) fn adopt(&mut self, other: &mut Self, first: &[u8], pool: &mut Pool) -> bool {
        self.fin_queued = other.fin_queued;
        if first.is_empty() {
            mem::swap(&mut self.buf, &mut other.buf);
            return true;
        }
        let acked = first.len() - other.left_of(first.len());
        let mut stream = first.get(..acked).unwrap_or_default().to_vec();
        stream.resize(acked + other.buf.len(), 0);
        other.buf.copy_to(0, stream.get_mut(acked..).unwrap_or_default());
        // Free the memory of `other` first: it may be needed here.
        other.buf.clear(pool);
        self.buf.push(pool, stream.len(), &stream) == stream.len()
    }

    /// How many of the stream's first `len` bytes are still in the buffer.
    fn left_of(&self, len: usize) -> usize {
        let gone = self.start.distance_from(self.iss + 1) as usize;
        len.saturating_sub(gone)
    }

    /// Bytes in the buffer, sent or not.
    #[must_use]
    pub(crate) fn buffered(&self) -> usize {
        self.buf.len()
    }

    /// Number of the oldest byte in the buffer.
    #[inline]
    #[must_use]
    pub(crate) fn start(&self) -> SeqNum {
        self.start
    }

    /// Number behind the last byte written, which is the number of the FIN.
    #[inline]
    #[must_use]
    pub(crate) fn end(&self) -> SeqNum {
        self.start + self.buf.len() as u32
    }

    /// Number behind everything to be sent, including the FIN.
    #[inline]
    #[must_use]
    pub(crate) fn end_with_fin(&self) -> SeqNum {
        self.end() + u32::from(self.fin_queued)
    }

    /// Whether anything sent is not acknowledged.
    #[inline]
    #[must_use]
    pub(crate) fn outstanding(&self) -> bool {
        self.una.lt(self.nxt)
    }

    /// Whether a segment that is less than full may leave. With Nagle's algorithm it waits only while another
    /// small segment is not acknowledged (Minshall's variant, as in Linux), so that the end of a large write
    /// does not wait for its beginning.
    #[inline]
    fn may_be_small(&self, small: Small) -> bool {
        match small {
            Small::Leave => true,
            Small::Nagle => self.small_end.le(self.una) || self.small_end.gt(self.nxt),
            Small::Wait => false,
        }
    }

    /// Whether data or a FIN waits that was never sent.
    #[inline]
    #[must_use]
    pub(crate) fn unsent(&self) -> bool {
        self.nxt.lt(self.end_with_fin())
    }

    /// Whether nothing waits: everything was sent, and nothing is to be sent again before a timer fires.
    #[inline]
    #[must_use]
    pub(crate) fn is_quiet(&self) -> bool {
        !self.unsent() && self.flight.waiting() == 0
    }

    /// Whether our FIN was sent and acknowledged.
    #[inline]
    #[must_use]
    pub(crate) fn fin_acked(&self) -> bool {
        self.fin_queued && self.una.gt(self.end())
    }

    /// Copies the payload of `chunk`.
    #[inline]
    pub(crate) fn copy(&self, chunk: Chunk, out: &mut [u8]) {
        self.buf.copy_to(chunk.seq.distance_from(self.start) as usize, out);
    }

    /// Processes an acknowledgement of new data. The caller has already updated the segments under way.
    //= rfc2018 8-d
    //= rfc6675 4-b
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, pool: &mut Pool, ack: SeqNum) {
        self.una = ack;
        // Keep it from falling behind UNA: after 2 GiB it would seem to be ahead.
        self.first_flight_end = self.first_flight_end.max(ack);
        if ack.gt(self.start) {
            let n = (ack.distance_from(self.start) as usize).min(self.buf.len());
            self.buf.consume(pool, n, false);
            self.start += n as u32;
        }
        if let Some(records) = &mut self.records {
            cold_path();
            while records.front().is_some_and(|end| end.le(ack)) {
                records.pop_front();
            }
            if records.is_empty() {
                self.records = None;
            }
        }
        if self.buf.is_empty() {
            // An idle connection owns no heap memory.
            self.flight.release(&mut pool.boards);
        }
    }

    /// Updates the peer's window (RFC 9293 §3.10.7.4, fifth step), but not from an acknowledgement older than
    /// UNA. Returns true if the window grew.
    ///
    /// A segment that acknowledges more than before is newer, whatever its sequence number is: a peer whose
    /// data was lost repeats it with lower numbers. The RFC ignores the window of such a segment. It then adds
    /// the old window to the new UNA, which exceeds what was ever offered (Linux also takes the new window).
    #[inline]
    pub(crate) fn update_window(&mut self, seq: SeqNum, ack: SeqNum, window: u32) -> bool {
        if ack.lt(self.una) {
            return false;
        }
        if self.wl2.lt(ack) || self.wl1.le(seq) {
            let grew = window > self.wnd;
            self.wnd = window;
            self.max_wnd = self.max_wnd.max(window);
            self.wl1 = self.wl1.max(seq);
            self.wl2 = ack;
            return grew;
        }
        false
    }

    /// Takes the window from a SYN, where it is never scaled.
    pub(crate) fn first_window(&mut self, seq: SeqNum, ack: SeqNum, window: u32) {
        self.wnd = window;
        self.max_wnd = self.max_wnd.max(window);
        self.wl1 = seq;
        self.wl2 = ack;
    }

    /// Bytes under way, estimated (RFC 6675 "pipe").
    #[inline(always)]
    #[must_use]
    pub(crate) fn pipe(&self) -> u32 {
        let pipe = self.flight.pipe();
        if self.dup_acks == 0 {
            return pipe;
        }
        pipe.saturating_sub(self.dup_acks.saturating_mul(u32::from(self.mss)))
    }

    /// The part of the numbers from `seq` to `limit` that fits into one segment of `room` bytes.
    #[inline]
    fn chunk(&self, seq: SeqNum, limit: SeqNum, room: u32) -> Chunk {
        let end = self.end();
        let whole = if self.records.is_none() { end } else { self.record_end(seq) };
        let stop = if limit.lt(whole) { limit } else { whole };
        let len = if seq.lt(stop) { stop.distance_from(seq).min(room) } else { 0 };
        let fin = self.fin_queued && seq + len == end && limit.gt(end);
        let kind = match (fin, seq.lt(self.nxt)) {
            (false, false) => Kind::Fresh,
            (true, false) => Kind::FreshFin,
            (false, true) => Kind::Again,
            (true, true) => Kind::AgainFin,
        };
        Chunk { seq, len, kind }
    }

    /// The next chunk to send, for segments of `room` bytes and the window `cwnd`. `small` says whether less
    /// than a full segment may leave.
    pub(crate) fn next(&mut self, room: u32, cwnd: u32, small: Small) -> Option<Chunk> {
        if self.flight.waiting() == 0 {
            return self.next_in_order(room, cwnd, small);
        }
        // Lost segments go before new data (RFC 6675 NextSeg rule 1).
        let pipe = self.pipe();
        if self.recovery.asks() {
            // F-RTO, step 2b: send new data first. If there is none, use conventional recovery.
            let asked = self.recovery.episode().is_some_and(|e| self.nxt.gt(e.point));
            let fresh = self.next_in_order(room, cwnd, Small::Leave);
            if asked || fresh.is_some() {
                return fresh;
            }
            if let Some(episode) = self.recovery.episode_mut() {
                episode.frto = Frto::Off;
            }
        }
        //= rfc6675 5.1-f
        let (start, end) = self.flight.next_waiting(room)?;
        // A window that shrank below the outstanding data must not stop its retransmission: the first number
        // may always be sent.
        //= rfc9293 MUST-34 SHLD-16
        //= rfc7323 2.4-a
        let window = self.window_base() + self.wnd.max(1);
        if !start.lt(window) {
            return None;
        }
        let end = end.min(window);
        //= rfc8985 9.3-a
        if pipe + end.distance_from(start) > cwnd && pipe > 0 {
            return None;
        }
        Some(self.chunk(start, end, room))
    }

    /// The chunk that a tail loss probe sends (RFC 8985 §7.3): new data if the peer's window allows it, else
    /// the last segment.
    #[must_use]
    pub(crate) fn tail_probe(&self, room: u32) -> Option<Chunk> {
        //= rfc8985 7.3-c
        let window = self.window_end();
        if self.unsent() && self.nxt.lt(window) {
            return Some(self.chunk(self.nxt, self.end_with_fin().min(window), room));
        }
        //= rfc8985 7.3-d
        let last = self.flight.last()?;
        let data_end = last.end.min(self.end());
        let start = if data_end.lt(last.start + room) { last.start } else { data_end - room };
        // The peer would not answer data beyond its window.
        (start.lt(window)).then(|| self.chunk(start, last.end, room))
    }

    /// The first segment that is not acknowledged. It is sent whatever the peer's window is.
    #[must_use]
    pub(crate) fn first_again(&self, room: u32) -> Option<Chunk> {
        let first = self.flight.first()?;
        Some(self.chunk(first.start, first.end, room))
    }

    /// Data at NXT, never sent before.
    #[inline(always)]
    pub(crate) fn next_in_order(&self, room: u32, cwnd: u32, small: Small) -> Option<Chunk> {
        let (seq, pipe) = (self.nxt, self.pipe());
        let window = self.window_end();
        let whole = self.end_with_fin();
        //= rfc9293 SHLD-15
        //= rfc7323 2.4-d
        if !seq.lt(whole) || !seq.lt(window) {
            return None;
        }
        //= rfc9293 SHLD-27 SHLD-28
        let chunk = self.chunk(seq, whole.min(window), room);
        let size = chunk.len.max(u32::from(chunk.fin()));
        // `pipe` gives limited transmit (RFC 3042): data that arrived out of order makes room. A FIN alone adds
        // nothing to a queue, and the peer may be waiting for it.
        let alone = chunk.fin() && chunk.len == 0;
        if pipe + size > cwnd && pipe > 0 && !alone {
            return None;
        }
        let record_end = if self.records.is_none() { self.end() } else { self.record_end(seq) };
        let all = !(chunk.seq + chunk.len).lt(record_end);
        // Sender's silly-window avoidance (RFC 9293 §3.8.6.2.1) and Nagle (§3.7.4).
        //= rfc9293 MUST-38 SHLD-7
        let full = chunk.len >= room;
        let go = full
            || (all && (chunk.fin() || whole.gt(chunk.seq + chunk.len) || self.may_be_small(small)))
            || chunk.len >= self.max_wnd / 2 && chunk.len > 0 && small != Small::Wait;
        (go && size > 0).then_some(chunk)
    }

    /// Ends a record at the last byte written: no segment carries data from both sides of it. Beyond
    /// `MOST_RECORDS` records only the last ones count.
    pub(crate) fn end_record(&mut self) {
        let end = self.end();
        let records = self.records.get_or_insert_default();
        if records.len() < MOST_RECORDS && records.back() != Some(&end) {
            records.push_back(end);
        }
    }

    /// The end of the record that contains `seq`, or the end of the written data.
    fn record_end(&self, seq: SeqNum) -> SeqNum {
        let mut records = self.records.iter().flat_map(|records| records.iter());
        records.find(|end| end.gt(seq)).copied().unwrap_or_else(|| self.end())
    }

    /// Bytes that the SYN carried and that were sent again after it.
    #[must_use]
    pub(crate) fn first_flight_again(&self) -> u32 {
        let from = self.una.max(self.iss + 1);
        let to = self.first_flight_end.min(self.nxt);
        if self.una.gt(self.iss) && from.lt(to) { to.distance_from(from) } else { 0 }
    }

    /// Where the peer's window begins. A SYN that is not acknowledged yet is not part of the window.
    fn window_base(&self) -> SeqNum {
        // Do not take the larger of both: after 2 GiB the ISS would be ahead again.
        if self.una == self.iss { self.iss + 1 } else { self.una }
    }

    /// Where the peer's window ends.
    #[must_use]
    #[inline]
    pub(crate) fn window_end(&self) -> SeqNum {
        self.window_base() + self.wnd
    }

    /// Whether cwnd, and not the window or Nagle's algorithm, holds back waiting data.
    #[must_use]
    pub(crate) fn blocked_by_cwnd(&self, cwnd: u32) -> bool {
        self.unsent() && self.nxt.lt(self.window_end()) && self.pipe() + u32::from(self.mss) > cwnd
    }

    /// Notes that `chunk` was sent.
    #[inline(always)]
    pub(crate) fn sent(&mut self, chunk: Chunk, now: Instant, pool: &mut Pool) {
        let end = chunk.seq + chunk.len + u32::from(chunk.fin());
        if unlikely(!self.recovery.is_open())
            && let Some(prr) = self.recovery.episode_mut().and_then(|episode| episode.prr.as_mut())
        {
            prr.sent(end.distance_from(chunk.seq));
        }
        if unlikely(chunk.again()) {
            self.flight.repeat(chunk.seq, end, now);
        } else {
            self.flight.push(chunk.seq, end, now, &mut pool.boards);
            self.nxt = end;
        }
    }

    /// The chunk to send when the override timer fires, regardless of Nagle and silly-window avoidance.
    #[must_use]
    pub(crate) fn override_chunk(&self, room: u32) -> Option<Chunk> {
        let window = self.window_end();
        if !self.nxt.lt(window) {
            return None;
        }
        let chunk = self.chunk(self.nxt, self.end_with_fin().min(window), room);
        (chunk.len > 0 || chunk.fin()).then_some(chunk)
    }

    /// Gives all memory back; waiting data is lost.
    #[inline]
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.buf.clear(pool);
        self.flight.clear();
    }
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;
