//! Decides what leaves next.
//!
//! The order is: a reset that is owed; the SYN or SYN-ACK; retransmissions and new data (each carries the
//! acknowledgement); a probe; a bare acknowledgement.

use super::{Connection, DueSegments, Tail};
use crate::buffer::Pool;
use crate::chunk::{Chunk, Small};
use crate::congestion::CongestionControl;
use crate::rack::DUP_THRESH;
use crate::receive::AckNeed;
use crate::send::SendHalf;
use crate::state::State;
use crate::straight::straight;
use crate::timers::Timer;
use core::time::Duration;
use firstflight_wire::hint::unlikely;
use firstflight_wire::tcp::{Flags, Header, OptionsBuf};
use firstflight_wire::{Instant, SeqNum};

/// A TCP header without options, bytes.
pub(super) const HEADER: u32 = 20;

impl Connection {
    /// Writes the next segment (header, options, payload; checksum zero) at the front of `out` and
    /// returns its length; `None` when there is nothing to send now. `out` holds at least 60 bytes
    /// and a whole segment of the path.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8], pool: &mut Pool) -> Option<usize> {
        if unlikely(self.owed.has(DueSegments::RESET)) {
            if self.owed.take(DueSegments::PROOF) {
                return self.emit_bare(self.snd.nxt, Flags::ACK, now, out);
            }
            self.owed.take(DueSegments::RESET);
            return self.emit_bare(self.snd.nxt, Flags::RST.union(Flags::ACK), now, out);
        }
        match &self.state {
            State::Closed(_) => return None,
            State::TimeWait(_) => return self.transmit_ack(now, out),
            State::SynSent(syn) => {
                let pending = syn.pending;
                return if pending {
                    self.transmit_syn(now, out)
                } else {
                    self.transmit_follower(now, out, pool)
                };
            }
            State::SynRcvd(syn) => {
                if syn.pending {
                    return self.transmit_syn_ack(now, out, pool);
                }
                if !syn.early {
                    return self.transmit_ack(now, out);
                }
            }
            _ => {}
        }
        if let Some(len) = self.transmit_data(now, out, pool) {
            return Some(len);
        }
        if unlikely(self.owed.take(DueSegments::PROBE)) {
            //= rfc9293 SHLD-12
            // A number that the peer already has: the peer must answer it (RFC 9293 §3.8.4; Linux probes in the
            // same way).
            return self.emit_bare(self.snd.una - 1, Flags::ACK, now, out);
        }
        self.transmit_ack(now, out)
    }

    /// Sends a bare acknowledgement if one is due; starts the delayed-ACK timer if one may wait.
    //= rfc9293 MUST-58 MUST-59
    #[inline(always)]
    fn transmit_ack(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        if self.owed.has(DueSegments::CHALLENGE) || self.rcv.need == AckNeed::Now && self.may_acknowledge() {
            let len = self.emit_bare(self.snd.nxt, Flags::ACK, now, out);
            if unlikely(self.rcv.reopening.may_wait()) {
                self.repeat_update(now);
            }
            return len;
        }
        if self.rcv.need == AckNeed::Delayed
            && (self.rcv.reopening.end() || !self.timers.runs(Timer::DelayedAck))
        {
            // The timer may already run for a window update; that must not delay the acknowledgement.
            let at = (now + self.ack_delay()).min(self.timers.at(Timer::DelayedAck));
            self.timers.set(Timer::DelayedAck, at);
        }
        None
    }

    /// How long an acknowledgement may wait for an answer or for a second segment.
    #[inline]
    fn ack_delay(&self) -> Duration {
        if self.quick.is_quick() { self.config.quick_delay } else { self.config.delayed_ack }
    }

    /// The acknowledgement that left may be a window update that the peer waits for. If it is, it is repeated
    /// until data arrives or our data, which also carries the window, leaves.
    fn repeat_update(&mut self, now: Instant) {
        if self.rcv.is_closed() || self.rcv.has_holes() {
            return;
        }
        if let Some(doublings) = self.rcv.reopening.next(self.rcv.nxt) {
            let timeout = self.timeout_nanos() << doublings;
            self.timers.set(Timer::DelayedAck, now.after_nanos(timeout));
        }
    }

    /// Whether the budget before the client's ACK has room for an acknowledgement of data that followed its
    /// SYN. If so, the room is used. If not, the acknowledgement leaves after the client's ACK.
    #[inline]
    fn may_acknowledge(&mut self) -> bool {
        let State::SynRcvd(syn) = &self.state else { return true };
        if syn.follow.is_none() {
            return true;
        }
        let (budget, cost) = (syn.budget, syn.overhead + HEADER + self.options_len());
        if budget < cost {
            return false;
        }
        self.spend_budget(cost);
        true
    }

    pub(super) fn spend_budget(&mut self, bytes: u32) {
        if let State::SynRcvd(syn) = &mut self.state {
            syn.budget = syn.budget.saturating_sub(bytes);
        }
    }

    /// Retransmissions and new data.
    #[inline(always)]
    fn transmit_data(&mut self, now: Instant, out: &mut [u8], pool: &mut Pool) -> Option<usize> {
        let options = self.options_len();
        let mut room = self.room(options);
        let mut cwnd = self.window();
        if let State::SynRcvd(syn) = &self.state {
            let budget = syn.budget.saturating_sub(syn.overhead + HEADER + options);
            room = room.min(budget);
            cwnd = cwnd.min(self.snd.pipe().saturating_add(budget));
            if budget == 0 {
                return None;
            }
        }
        if unlikely(!self.is_undisturbed()) {
            return self.transmit_unusual(room, cwnd, now, out, pool);
        }
        let small = if self.facts.cork { Small::Wait } else { Small::of(self.facts.nodelay) };
        let Some(chunk) = self.snd.next_in_order(room, cwnd, small) else {
            self.hold(now, cwnd);
            return None;
        };
        self.emit_chunk(chunk, options, false, now, out, pool)
    }

    /// Fast path: whether only new data can leave, limited by nothing but the windows.
    #[inline]
    fn is_undisturbed(&self) -> bool {
        straight()
            && self.owed.is_empty()
            && self.paced.is_none()
            && self.search.is_none()
            && self.snd.flight.waiting() == 0
    }

    /// The general path of `transmit_data`, with the room in a segment and the congestion window.
    fn transmit_unusual(
        &mut self,
        mut room: u32,
        cwnd: u32,
        now: Instant,
        out: &mut [u8],
        pool: &mut Pool,
    ) -> Option<usize> {
        if self.owed.take(DueSegments::TAIL)
            && let Some(len) = self.transmit_tail_probe(room, now, out, pool)
        {
            return Some(len);
        }
        if self.owed.take(DueSegments::FIRST)
            && let Some(chunk) = self.snd.first_again(room)
        {
            return self.emit_unusual(chunk, false, now, out, pool);
        }
        if self.pace_holds(now) {
            // The pace may not be the only obstacle, so watch the peer's window from now on.
            self.hold(now, cwnd);
            return None;
        }
        let pushed = self.owed.take(DueSegments::SMALL);
        let probe = if self.search.is_some() && !pushed { self.probe_size(now, cwnd) } else { None };
        if let Some(size) = probe {
            room = u32::from(size).saturating_sub(self.options_len());
        }
        let small = match self.facts.cork {
            _ if pushed => Small::Leave,
            true => Small::Wait,
            false => Small::of(self.facts.nodelay),
        };
        let again = self.snd.flight.waiting() > 0;
        let chunk = self.snd.next(room, cwnd, small);
        let chunk = chunk.or_else(|| pushed.then(|| self.snd.override_chunk(room)).flatten());
        let Some(chunk) = chunk else {
            self.hold(now, cwnd);
            return None;
        };
        if let (Some(size), Some(search), false) = (probe, &mut self.search, again) {
            search.sent(chunk.seq, chunk.seq + chunk.len, size);
        }
        self.emit_unusual(chunk, pushed, now, out, pool)
    }

    /// Sends a tail loss probe (RFC 8985 §7.3), regardless of the congestion window. Only one may be under way.
    fn transmit_tail_probe(
        &mut self,
        room: u32,
        now: Instant,
        out: &mut [u8],
        pool: &mut Pool,
    ) -> Option<usize> {
        if self.tail.is_some() {
            return None;
        }
        let chunk = self.snd.tail_probe(room)?;
        let end = self.snd.nxt.max(chunk.seq + chunk.len + u32::from(chunk.fin()));
        // Set this before the probe leaves, so that sending it does not arm another one.
        self.tail = Some(Tail { end, again: chunk.again() });
        self.facts.unmeasured = true;
        //= rfc8985 7.3-e
        let len = self.emit_unusual(chunk, false, now, out, pool)?;
        //= rfc8985 7.3-f
        self.arm_retransmit(now);
        Some(len)
    }

    /// Sends a segment with a chunk that is not simply the next in order.
    fn emit_unusual(
        &mut self,
        chunk: Chunk,
        pushed: bool,
        now: Instant,
        out: &mut [u8],
        pool: &mut Pool,
    ) -> Option<usize> {
        self.emit_chunk(chunk, self.options_len(), pushed, now, out, pool)
    }

    /// Sends a segment with `chunk` of the stream and `options` bytes of options. With `pushed` it always has
    /// PSH.
    #[inline(always)]
    fn emit_chunk(
        &mut self,
        chunk: Chunk,
        options: u32,
        pushed: bool,
        now: Instant,
        out: &mut [u8],
        pool: &mut Pool,
    ) -> Option<usize> {
        let room = self.room(options);
        let end = chunk.seq + chunk.len;
        let mut flags = Flags::ACK;
        if chunk.fin() {
            flags |= Flags::FIN;
        }
        //= rfc9293 MUST-61
        if chunk.len > 0 && (self.pushes(chunk, room, now) || pushed) {
            flags |= Flags::PSH;
        }
        if chunk.len < room && !chunk.again() && chunk.seq.ge(self.snd.first_flight_end) {
            self.snd.small_end = end;
        }
        flags |= self.ecn_flags(!chunk.again() && chunk.len > 0);
        let header = self.header(chunk.seq, flags);
        let at = self.emit_header(header, now, out)?;
        let len = chunk.len as usize;
        self.snd.copy(chunk, out.get_mut(at..at + len)?);
        self.note_sent(chunk, options, now, pool);
        if unlikely(self.push.is_used()) {
            if !chunk.again() && flags.contains(Flags::PSH) {
                self.snd.flight.end_burst();
            }
            self.stamp_sent(now);
        }
        Some(at + len)
    }

    /// The size of the path-MTU probe that may leave now. Nothing may be lost or out of order, the windows must
    /// allow it, and enough data must follow to reveal its loss.
    fn probe_size(&mut self, now: Instant, cwnd: u32) -> Option<u16> {
        let snd = &self.snd;
        let whole = snd.recovery.is_open() && snd.flight.sacked() == 0 && snd.flight.lost() == 0;
        if !whole || !self.facts.connected {
            return None;
        }
        let size = self.search.as_mut()?.next(snd.mss, now)?;
        let need = u32::from(size) + (DUP_THRESH + 1) * u32::from(snd.mss);
        let end = snd.end().min(snd.una + snd.wnd);
        let fits = !end.lt(snd.nxt + need) && snd.pipe() + need <= cwnd;
        fits.then_some(size)
    }

    /// Whether the segment with `chunk` has PSH: because a write ends there or, if so configured, because it is
    /// the last of several segments that leave together.
    #[inline(always)]
    fn pushes(&mut self, chunk: Chunk, room: u32, now: Instant) -> bool {
        let end = chunk.seq + chunk.len;
        let ends = end == self.snd.end() && !self.facts.open_end || self.push.ends_at(end);
        match self.config.push_bursts {
            // A single segment that nothing follows is not a burst.
            Some(least) if end != self.snd.end() || !self.push.is_between_bursts() => {
                self.ends_burst(chunk, room, least, now) || ends
            }
            _ => ends,
        }
    }

    /// Whether it is the last segment of a burst, which has at least `least` segments if enough data waits.
    fn ends_burst(&mut self, chunk: Chunk, room: u32, least: u32, now: Instant) -> bool {
        let end = chunk.seq + chunk.len;
        let cwnd = self.window();
        let full = self.snd.pipe() + 2 * room > cwnd;
        let last = match chunk.again() {
            // Segments that left together are also sent again together.
            true => full || self.snd.flight.ends_burst(end),
            false => full || !end.lt(self.snd.end()) || end.ge(self.snd.window_end()),
        };
        let rtt = &self.rtt;
        self.push.leaves(now, last, || crate::push::burst(room, cwnd, least, rtt.srtt(), rtt.min_rtt()))
    }

    /// Bookkeeping of a chunk that leaves.
    #[inline(always)]
    fn note_sent(&mut self, chunk: Chunk, options: u32, now: Instant, pool: &mut Pool) {
        let end = chunk.seq + chunk.len + u32::from(chunk.fin());
        if unlikely(chunk.again()) {
            self.totals.retransmits = self.totals.retransmits.saturating_add(1);
            if let Some(undo) = &mut self.undo {
                undo.repeat(chunk.seq, end, now);
            }
            if let Some(search) = &mut self.search {
                search.resent(chunk.seq, end, now);
            }
        }
        match self.paced {
            None => self.snd.sent(chunk, now, pool),
            Some(_) => self.send_paced(chunk, now, pool),
        }
        if let State::SynRcvd(syn) = &self.state {
            self.spend_budget(syn.overhead + HEADER + options + chunk.len);
        }
        if !chunk.again() && chunk.seq.ge(self.snd.first_flight_end) {
            self.quick.answered(now, self.config.delayed_ack);
        }
        self.left(now);
        self.timers.stop(Timer::Persist);
        if !self.timers.runs(Timer::Retransmit) {
            self.arm_retransmit(now);
        }
        if !chunk.again() {
            self.arm_tail_probe(now);
            self.note_usage(now);
        }
        self.arm_user_timeout(now);
        self.last_data = now;
    }

    /// Notes how much of the window is used. A window that was not full for a long time shrinks.
    #[inline(always)]
    fn note_usage(&mut self, now: Instant) {
        let SendHalf { una, nxt, mss, .. } = self.snd;
        let pipe = self.snd.pipe();
        let full = pipe + u32::from(mss) > self.control.window();
        let enough = self.usage.sent((una, nxt), pipe, full, || self.rtt.rto_nanos(), now);
        if let Some(used) = enough.filter(|_| self.snd.recovery.is_open()) {
            self.control.on_unused(used.max(self.initial_window()));
        }
    }

    /// Nothing leaves although something may wait. The persist timer watches a window that stays closed or too
    /// small.
    //= rfc9293 MUST-35 MUST-36 SHLD-29
    #[inline]
    fn hold(&mut self, now: Instant, cwnd: u32) {
        if self.snd.unsent()
            && !self.snd.outstanding()
            && !self.snd.blocked_by_cwnd(cwnd)
            && !self.timers.runs(Timer::Persist)
            && self.facts.connected
        {
            self.watch_window(now);
        }
    }

    fn watch_window(&mut self, now: Instant) {
        (self.facts.probed, self.answered) = (false, 0);
        self.timers.set(Timer::Persist, now.after_nanos(self.timeout_nanos()));
        self.arm_user_timeout(now);
    }

    /// Bytes of the stream that fit into a segment beside `options` bytes of options.
    //= rfc9293 MUST-16
    #[inline]
    fn room(&self, options: u32) -> u32 {
        u32::from(self.snd.mss).saturating_sub(options).max(1)
    }

    #[inline]
    fn header(&mut self, seq: SeqNum, flags: Flags) -> Header {
        Header {
            src_port: self.ends.local_port,
            dst_port: self.ends.remote_port,
            seq,
            ack: self.rcv.nxt,
            flags,
            window: self.rcv.window(false),
            urgent: 0,
        }
    }

    /// Bytes of options on a segment without SYN that leaves now.
    #[inline]
    fn options_len(&self) -> u32 {
        let timestamps = if self.facts.timestamps { 12 } else { 0 };
        if !self.facts.sack || !self.rcv.has_sack_blocks() {
            return timestamps;
        }
        // Beside timestamps there is room for three blocks (RFC 2018 §3).
        let fit = if self.facts.timestamps { 3 } else { 4 };
        timestamps + 4 + 8 * self.rcv.sack_blocks().len().min(fit) as u32
    }

    /// Writes `header` with the options of a segment without SYN.
    //= rfc7323 3.2-b 3.2-d 3.2-e
    //= rfc9293 MUST-65
    #[inline(always)]
    fn emit_header(&self, header: Header, now: Instant, out: &mut [u8]) -> Option<usize> {
        if self.facts.timestamps && !self.rcv.has_sack_blocks() {
            return header.emit_with_timestamps(self.timestamps(now), out).ok();
        }
        self.emit_options(header, now, out)
    }

    /// General path of [`Connection::emit_header`], for any options. `header` is passed by value: with a
    /// reference, every caller would have to build it in memory.
    fn emit_options(&self, header: Header, now: Instant, out: &mut [u8]) -> Option<usize> {
        //= rfc2018 2-a 4-a 4-b 4-c
        let holes = self.facts.sack && self.rcv.has_sack_blocks();
        if self.facts.timestamps && !holes {
            return header.emit_with_timestamps(self.timestamps(now), out).ok();
        }
        let mut options = OptionsBuf::new();
        if self.facts.timestamps {
            options.timestamps(self.timestamps(now));
        }
        if holes {
            options.sack(&self.rcv.sack_blocks());
        }
        header.emit(options.finish(), out).ok()
    }

    /// Sends a segment without payload.
    #[inline(always)]
    fn emit_bare(&mut self, seq: SeqNum, flags: Flags, now: Instant, out: &mut [u8]) -> Option<usize> {
        let flags = if flags.contains(Flags::RST) { flags } else { flags | self.ecn_flags(false) };
        let header = self.header(seq, flags);
        let len = self.emit_header(header, now, out)?;
        self.left(now);
        Some(len)
    }

    /// Takes the ACK of the SYN-ACK that is owed before the reset of a connection that was aborted at once. It has to leave
    /// before anything else that is sent for the connection; [`Connection::poll_transmit`] sends it otherwise.
    pub fn take_proof(&mut self, now: Instant) -> Option<(Header, OptionsBuf)> {
        if !self.owed.take(DueSegments::PROOF) {
            return None;
        }
        let mut options = OptionsBuf::new();
        if self.facts.timestamps {
            // A packet that ends the connection may have waited since before our SYN left. The peer drops what looks older
            // than the SYN (RFC 7323 §5.3).
            options.timestamps(self.timestamps(now.max(self.last_sent)));
        }
        Some((self.header(self.snd.nxt, Flags::ACK), options))
    }

    /// Notes that a segment with an acknowledgement leaves.
    #[inline]
    pub(super) fn left(&mut self, now: Instant) {
        self.rcv.acked();
        self.quick.acked();
        self.owed.clear(DueSegments::CHALLENGE);
        self.timers.stop(Timer::DelayedAck);
        self.facts.silent = false;
        self.last_sent = now;
    }
}
