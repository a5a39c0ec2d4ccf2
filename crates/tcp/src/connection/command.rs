//! The commands of the application.

use super::{Connection, DueSegments, Readiness};
use crate::buffer::Pool;
use crate::config::{Config, FIRST_BUFFER};
use crate::congestion::CongestionControl;
use crate::error::{CloseReason, IoError};
use crate::receive::AckNeed;
use crate::rtt::MIN_RTO_NANOS;
use crate::state::State;
use crate::timers::Timer;
use crate::transition::Trigger;
use alloc::sync::Arc;
use firstflight_wire::Instant;
use firstflight_wire::hint::{likely, unlikely};

impl Connection {
    /// Sends an acknowledgement of what was received, even if none is due.
    pub fn acknowledge_again(&mut self) {
        if self.facts.connected && !matches!(self.state, State::Closed(_) | State::TimeWait(_)) {
            self.rcv.need = AckNeed::Now;
        }
    }

    /// Allows `bytes` more bytes before the client's ACK. Has no effect on any other connection.
    pub fn raise_budget(&mut self, bytes: u32) {
        if let State::SynRcvd(syn) = &mut self.state
            && syn.early
        {
            syn.budget = syn.budget.saturating_add(bytes);
        }
    }

    /// Appends data for the peer; returns how many bytes were taken: at least one, unless `bytes` is empty.
    ///
    /// # Errors
    /// `WouldBlock` when the send buffer is full (a `WRITABLE` readiness follows), `SendClosed`
    /// after [`Connection::close`], `Closed` when the connection is over.
    pub fn write(&mut self, pool: &mut Pool, bytes: &[u8], now: Instant) -> Result<usize, IoError> {
        if let Some(reason) = self.close_reason() {
            return Err(IoError::Closed(reason));
        }
        if self.snd.fin_queued {
            return Err(IoError::SendClosed);
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        self.check_app_limited();
        if self.snd.buffered() > 0 && !self.facts.open_end {
            self.push.note(self.snd.end());
        }
        self.facts.open_end = self.facts.more;
        // This much may wait in any case.
        let first = self.config.send_at_first();
        let fits = self.snd.buffered() + bytes.len() <= first as usize;
        let limit = if likely(fits) { first } else { self.send_limit() };
        let n = self.snd.write(pool, limit, bytes);
        if n == 0 {
            self.facts.wants_room = true;
            return Err(IoError::WouldBlock);
        }
        self.idle_restart(now);
        Ok(n)
    }

    /// Takes out readable data; `Ok(0)` with a non-empty `out` is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when there is no data yet; `Closed` when everything was read and the connection ended
    /// without the peer's FIN.
    pub fn read(&mut self, pool: &mut Pool, out: &mut [u8]) -> Result<usize, IoError> {
        let n = self.rcv.read(pool, out);
        if n > 0 || out.is_empty() || self.rcv.finished() {
            return Ok(n);
        }
        match self.close_reason() {
            Some(reason) => Err(IoError::Closed(reason)),
            None => Err(IoError::WouldBlock),
        }
    }

    /// Copies readable data to the front of `out` without removing it; returns how many bytes were copied.
    pub fn peek(&self, out: &mut [u8]) -> usize {
        self.rcv.peek(out)
    }

    /// Replaces the settings. Values from the handshake stay; buffers, timeouts and keepalive use the new
    /// settings from now on.
    pub fn set_config(&mut self, config: Arc<Config>, now: Instant) {
        let before = core::mem::replace(&mut self.config, config);
        if before.keepalive != self.config.keepalive && self.facts.connected {
            self.timers.stop(Timer::Keepalive);
            self.arm_keepalive(now);
        }
        if before.user_timeout != self.config.user_timeout {
            self.timers.stop(Timer::User);
            if self.snd.outstanding() || self.timers.runs(Timer::Persist) {
                self.arm_user_timeout(now);
            }
        }
        if before.fin_wait2 != self.config.fin_wait2 && self.timers.runs(Timer::FinWait2) {
            self.timers.set(Timer::FinWait2, now + self.config.fin_wait2);
        }
    }

    /// Closes the sending direction: a FIN follows the waiting data (half close). Closing again has no effect.
    #[inline]
    pub fn close(&mut self, now: Instant) {
        if self.snd.fin_queued {
            return;
        }
        match &self.state {
            // In SYN-SENT and SYN-RECEIVED the FIN is queued until the handshake is complete (RFC 9293
            // §3.10.4). A Fast Open child may send it earlier.
            State::SynSent(_) | State::SynRcvd(_) => self.snd.fin_queued = true,
            State::Established(_) | State::CloseWait(_) => {
                self.snd.fin_queued = true;
                self.transit(Trigger::Close);
            }
            _ => {}
        }
        self.idle_restart(now);
    }

    /// Ends the connection at once with a RST (RFC 9293 §3.10.5).
    //= rfc7323 5.2-d
    pub fn abort(&mut self, pool: &mut Pool) {
        let reset = !matches!(self.state, State::SynSent(_) | State::TimeWait(_) | State::Closed(_));
        // A server takes a RST before the client's ACK for one from a victim whose address was forged: it keeps the place of
        // the first flight (RFC 7413 §5.1), or puts the client on the block list (`docs/spec/asap.md` 7.8). So the ACK goes first.
        let unproved = reset && self.facts.silent;
        self.die(CloseReason::Aborted, pool);
        self.rcv.clear(pool);
        match reset {
            true => self.owed.set(DueSegments::RESET),
            false => self.owed.clear(DueSegments::RESET),
        }
        if unlikely(unproved) {
            self.owed.set(DueSegments::PROOF);
        }
    }

    /// The application releases the connection, which then closes in the background. If data arrived and was
    /// never read, the connection is reset instead, so that the peer learns of it (RFC 9293 §3.6.1, RFC 2525
    /// §2.17).
    pub fn release(&mut self, pool: &mut Pool, now: Instant) {
        self.facts.released = true;
        //= rfc9293 SHLD-3
        let unread = self.rcv.readable() > 0;
        if unread && self.close_reason().is_none() {
            self.abort(pool);
            return;
        }
        self.rcv.clear(pool);
        match &self.state {
            State::SynSent(_) => {
                // Nothing was confirmed to a peer yet (RFC 9293 §3.10.4), so no segment is owed.
                self.transit(Trigger::Close);
                self.state = State::Closed(crate::state::Closed { reason: CloseReason::Aborted });
                self.snd.clear(pool);
            }
            State::FinWait2(_) => self.timers.set(Timer::FinWait2, now + self.config.fin_wait2),
            _ => self.close(now),
        }
    }

    /// Sends a probe that makes the peer answer, as a keepalive does (RFC 9293 §3.8.4): see
    /// [`Connection::last_heard`] and [`Connection::peer_is_ahead`]. While the handshake is under way it has no effect: the
    /// probe would leave later, in place of the handshake's ACK.
    pub fn probe(&mut self) {
        if !matches!(self.state, State::SynSent(_) | State::SynRcvd(_)) {
            self.owed.set(DueSegments::PROBE);
        }
    }

    /// Takes over from `other` what the application wrote to it and its settings. This connection must be in
    /// SYN-SENT without data, and nothing from the peer may have been read from `other`. `first` is the
    /// beginning of the stream, which `other` may have delivered already, so that it is sent again here. Aborts
    /// the connection if there is no memory for all of it.
    pub fn adopt(&mut self, other: &mut Self, first: &[u8], pool: &mut Pool) {
        self.facts.nodelay = other.facts.nodelay;
        self.facts.wants_room = other.facts.wants_room;
        if let Some(stamps) = other.push.stamps() {
            *self.push.begin_stamps() = core::mem::take(stamps);
        }
        if !self.snd.adopt(&mut other.snd, first, pool) {
            // A stream with a hole is worse than no stream.
            self.abort(pool);
        }
    }

    /// Turns Nagle's algorithm (RFC 9293 §3.7.4) off or on.
    //= rfc9293 MUST-17
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.facts.nodelay = nodelay;
    }

    /// Whether Nagle's algorithm is off.
    #[must_use]
    pub const fn nodelay(&self) -> bool {
        self.facts.nodelay
    }

    /// With `cork`, less than a full segment waits for more data, but no longer than a retransmission timeout.
    /// Without it, [`Config::nodelay`] decides, and waiting data leaves as if a write had ended there.
    ///
    /// With `more`, a write is not the end of a message, so its last segment has no PSH.
    pub fn set_cork(&mut self, cork: bool, more: bool) {
        self.facts.cork = cork;
        self.facts.more = more;
    }

    /// Ends a record at the last byte written: no segment carries bytes from both sides of it.
    pub fn end_record(&mut self) {
        self.snd.end_record();
    }

    /// The path only takes packets with segments of at most `mss` bytes: a credible packet-too-big message said
    /// so (RFC 1191). Larger segments are sent again.
    //= rfc9293 MUST-54
    //= rfc7323 5.7-a
    pub fn reduce_mss(&mut self, mss: u16, now: Instant) {
        let mss = mss.max(48);
        // Before the SYN-ACK the MSS in use is a placeholder; the segments sent so far followed our own MSS.
        let sent = match &self.state {
            State::SynSent(_) => self.config.mss.min(self.ends.path_mss),
            _ => self.snd.mss,
        };
        if mss >= sent {
            return;
        }
        self.snd.mss = self.snd.mss.min(mss);
        self.ends.path_mss = mss;
        // A router has reported the size that passes.
        self.search = None;
        self.ends.probe = [0; 3];
        self.control.set_mss(u32::from(mss));
        if let State::SynSent(syn) = &mut self.state {
            // The SYN itself was too big: a plain SYN leaves at once. The message can be forged, so this happens once.
            if !syn.too_big {
                syn.retransmits = syn.retransmits.saturating_add(1);
                (syn.too_big, syn.pending) = (true, true);
            }
        } else if self.snd.outstanding() {
            self.repair_too_large(now);
        }
    }

    /// The network reports that the peer cannot be reached at the moment, or a filter reports that instead of a refusal.
    /// If our SYN carried an option or data, a plain one leaves at once. Otherwise nothing changes (RFC 5461).
    pub fn refused_for_now(&mut self, now: Instant) {
        self.send_plain_syn(now);
    }

    /// A hard network error (RFC 5461). It is fatal only before the connection is established, and only if the
    /// content of the SYN cannot be the cause; otherwise a plain SYN follows. Data that an early child has
    /// received stays readable, and the error shows after it.
    //= rfc9293 MUST-54 SHLD-26
    pub fn unreachable(&mut self, now: Instant, pool: &mut Pool) {
        let opens = matches!(self.state, State::SynSent(_) | State::SynRcvd(_));
        if opens && !self.send_plain_syn(now) {
            self.die(CloseReason::Unreachable, pool);
        }
    }

    /// Whether a number lies within our outstanding data: the check that makes an ICMP error credible (RFC 5927
    /// §4.1).
    #[must_use]
    pub fn owns_sequence(&self, seq: firstflight_wire::SeqNum) -> bool {
        seq.ge(self.snd.una) && seq.lt(self.snd.nxt)
    }

    /// Restarts slow start after an idle time (RFC 5681 §4.1).
    pub(super) fn idle_restart(&mut self, now: Instant) {
        let idle = now.nanos_since(self.last_data);
        // Test the smallest timeout first, because most connections end before it.
        if unlikely(idle > MIN_RTO_NANOS)
            && self.facts.connected
            && !self.snd.outstanding()
            && idle > self.rtt.rto_nanos()
        {
            self.control.on_idle_restart(self.initial_window());
        }
    }

    /// Bytes that may now wait to be sent or acknowledged: what is under way, and as much again for the time
    /// until the application learns that there is room. It is limited to what a path with this round-trip time
    /// can hold. A larger window without losses would only fill queues, and the waiting data would have left
    /// the CPU cache before it is sent.
    #[must_use]
    pub fn send_limit(&self) -> u32 {
        let wanted = self.control.window().saturating_mul(2).min(self.rtt.most_under_way());
        // A peer that acknowledges also reads, so it gets more buffer.
        let shown = u64::from(self.config.first_send_buffer).saturating_add(self.totals.bytes_acked);
        let floor = shown.min(u64::from(FIRST_BUFFER)) as u32;
        self.config.send_buffer.min(wanted.max(floor))
    }

    /// Sets `WRITABLE` if a write was refused and at least half the buffer is free again.
    #[inline]
    pub(super) fn offer_room(&mut self) {
        if self.facts.wants_room && self.snd.buffered() <= self.send_limit() as usize / 2 {
            self.facts.wants_room = false;
            self.ready |= Readiness::WRITABLE;
        }
    }
}
