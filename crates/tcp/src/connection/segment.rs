//! Handles an incoming segment (RFC 9293 §3.10.7, with the checks of RFC 5961 and RFC 7323).

use super::{Connection, DueSegments, Readiness};
use crate::buffer::Pool;
use crate::error::CloseReason;
use crate::receive::{AckNeed, Taken};
use crate::state::{Origin, State, SynRcvd};
use crate::straight::straight;
use crate::timers::Timer;
use crate::transition::{StateName, Trigger};
use core::time::Duration;
use firstflight_wire::hint::unlikely;
use firstflight_wire::tcp::{Flags, Segment, Timestamps};
use firstflight_wire::{Instant, SeqNum};

/// Largest number of challenge ACKs of one connection in a second (RFC 5961 §10).
const CHALLENGES_PER_SECOND: u8 = 5;
/// The flags that decide whether a segment is a plain one of an open connection: only ACK may be set, and must
/// be.
const PLAIN: Flags = Flags::SYN.union(Flags::RST).union(Flags::ACK);
/// Shortest time between two answers to a duplicate SYN.
const SYN_ACK_AGAIN: Duration = Duration::from_millis(500);
/// A SYN that comes sooner after our SYN-ACK is a copy that the network made, and is not answered.
const COPY_OF_SYN: Duration = Duration::from_millis(10);

/// Why a segment was not processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DropReason {
    /// Its numbers lie outside the window (RFC 9293 §3.10.7.4).
    OutOfWindow,
    /// Its timestamp is old (PAWS, RFC 7323 §5).
    OldTimestamp,
    /// Timestamps were agreed, and the segment has none (RFC 7323 §3.2).
    NoTimestamp,
    /// A RST in the window, but not at its edge: challenged (RFC 5961 §3).
    RstUnacceptable,
    /// A SYN on an open connection: challenged (RFC 5961 §4).
    SynUnexpected,
    /// It acknowledges data that was never sent or is too old: challenged (RFC 5961 §5).
    AckUnacceptable,
    /// It has neither SYN, RST nor ACK.
    NoAck,
    /// This state does nothing with it.
    Unexpected,
}

/// The result for a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Taken into account.
    Processed,
    /// Not taken into account; it may have been answered with an ACK.
    Dropped(DropReason),
    /// The caller must answer it with a RST (RFC 9293 §3.10.7.1); see also [`Connection::close_reason`].
    Reset,
}

/// Whether a segment may directly follow a SYN, before its sender has received anything.
#[must_use]
pub fn follows(segment: &Segment<'_>) -> bool {
    let others = Flags::SYN.union(Flags::RST).union(Flags::FIN).union(Flags::ACK);
    !segment.flags.intersects(others) && !segment.payload.is_empty()
}

impl Connection {
    /// Handles a segment for this connection. The caller has verified its checksum.
    pub fn handle_segment(&mut self, segment: &Segment<'_>, now: Instant, pool: &mut Pool) -> Disposition {
        let (mut seq, mut timed) = (segment.seq, None);
        if unlikely(!self.is_next(segment)) {
            match self.check(segment, now, pool) {
                Ok(checked) => (seq, timed) = checked,
                Err(disposition) => return disposition,
            }
        } else if matches!(self.state, State::SynRcvd(_)) {
            timed = self.confirm(segment, now);
        }
        // Only after the ACK check: a blind attacker who hits the window must not set the timestamp against
        // which PAWS checks all other segments.
        //= rfc7323 3.2-i 5.2-f
        if let Some(ts) = segment.options.timestamps.filter(|_| self.facts.timestamps) {
            self.rcv.update_ts_recent(ts, seq, now);
        }
        self.heard(now);
        self.take_mark(segment);
        self.take_ack(segment, seq, timed, now, pool);
        self.take_text(segment, seq, now, pool)
    }

    /// Fast path: whether `segment` is the usual one of an open connection, that is, next in order, with an
    /// acknowledgement of something sent, and without SYN and RST. For such a segment [`Connection::check`]
    /// would find no fault. It would return the segment's number and the result of [`Connection::confirm`].
    #[inline]
    fn is_next(&self, segment: &Segment<'_>) -> bool {
        let (rcv, snd) = (&self.rcv, &self.snd);
        let timely = |ts: Timestamps| (ts.value.wrapping_sub(rcv.ts_recent) as i32) >= 0;
        straight()
            && segment.flags.bits() & PLAIN.bits() == Flags::ACK.bits()
            && !matches!(self.state, State::SynSent(_) | State::Closed(_) | State::TimeWait(_))
            && segment.seq == rcv.nxt
            && (rcv.edge != rcv.nxt || segment.is_empty())
            && (!self.facts.timestamps || segment.options.timestamps.is_some_and(timely))
            && segment.ack.ge(snd.una)
            && segment.ack.le(snd.nxt)
            && (segment.ack != snd.iss || !matches!(self.state, State::SynRcvd(_)))
    }

    /// The checks of RFC 9293 §3.10.7.4 and their effects. Returns an error if `segment` must not be processed
    /// further. Otherwise returns its number, and when the SYN-ACK that it confirms left.
    #[inline(never)]
    fn check(
        &mut self,
        segment: &Segment<'_>,
        now: Instant,
        pool: &mut Pool,
    ) -> Result<(SeqNum, Option<Instant>), Disposition> {
        match &self.state {
            State::SynSent(_) => return Err(self.in_syn_sent(segment, now, pool)),
            State::Closed(_) | State::TimeWait(_) => {
                return Err(Disposition::Dropped(DropReason::Unexpected));
            }
            State::SynRcvd(SynRcvd { follow: Some(end), .. }) if follows(segment) => {
                return Err(self.take_follower(segment, *end, pool));
            }
            _ => {}
        }
        if segment.flags.contains(Flags::RST) {
            return Err(self.take_reset(segment, now, pool));
        }
        let (seq, syn_stripped) = self.strip_crossed_syn(segment);
        if let Err(reason) = self.check_sequence(segment, seq, syn_stripped, now)
            && !(reason == DropReason::OutOfWindow
                && (self.repeats_early_data(segment) || self.is_probe_of_open_peer(segment))
                && self.acknowledges_syn(segment))
        {
            return Err(Disposition::Dropped(reason));
        }
        if segment.flags.contains(Flags::SYN) && !syn_stripped {
            self.challenge(now);
            return Err(Disposition::Dropped(DropReason::SynUnexpected));
        }
        if !segment.flags.contains(Flags::ACK) {
            return Err(Disposition::Dropped(DropReason::NoAck));
        }
        let mut timed = None;
        if matches!(self.state, State::SynRcvd(_)) {
            if !self.acknowledges_syn(segment) {
                return Err(Disposition::Reset);
            }
            timed = self.confirm(segment, now);
        }
        //= rfc5961 4.2-a 4.2-b
        if syn_stripped {
            // The peer's SYN is already here.
            self.rcv.came_twice(segment.seq, seq);
            self.rcv.need = AckNeed::Now;
        }
        self.check_ack(segment, now).map_err(Disposition::Dropped)?;
        if segment.payload.is_empty() && seq.gt(self.rcv.nxt) {
            self.facts.peer_ahead |= segment.flags.contains(Flags::FIN) || self.is_behind_data(seq);
        }
        Ok((seq, timed))
    }

    /// A segment that directly follows the client's SYN has no options, acknowledges nothing and proves
    /// nothing. It is accepted up to `end`, and if it is invalid, it gets no answer.
    fn take_follower(&mut self, segment: &Segment<'_>, end: SeqNum, pool: &mut Pool) -> Disposition {
        let behind = segment.seq + segment.len();
        if !self.rcv.acceptable(segment.seq, segment.len(), false) || behind.gt(end) {
            return Disposition::Dropped(DropReason::OutOfWindow);
        }
        if self.facts.released {
            // The application will not read it. The client sends it again later, and then gets an answer.
            return Disposition::Dropped(DropReason::Unexpected);
        }
        self.take_payload(pool, segment.seq, segment.payload, true);
        self.totals.early = self.totals.bytes_received as u32;
        Disposition::Processed
    }

    /// In a simultaneous open, the peer's SYN-ACK repeats its SYN. The rest counts as a segment that begins
    /// behind the SYN.
    //= rfc9293 MUST-10
    fn strip_crossed_syn(&self, segment: &Segment<'_>) -> (SeqNum, bool) {
        let crossed = matches!(&self.state, State::SynRcvd(s) if s.origin == Origin::Simultaneous)
            && segment.flags.contains(Flags::SYN.union(Flags::ACK))
            && segment.seq == self.rcv.irs;
        (segment.seq + u32::from(crossed), crossed)
    }

    /// The window that a segment announces. A SYN-ACK that crosses ours is not scaled either (RFC 7323 §2.2).
    //= rfc9293 MUST-1 REC-1
    //= rfc7323 2.2-d 2.3-e
    #[inline]
    pub(super) fn window_of(&self, segment: &Segment<'_>) -> u32 {
        let shift = if segment.flags.contains(Flags::SYN) { 0 } else { self.snd.scale };
        u32::from(segment.window) << shift
    }

    /// First step: sequence numbers and timestamps.
    fn check_sequence(
        &mut self,
        segment: &Segment<'_>,
        seq: SeqNum,
        syn_stripped: bool,
        now: Instant,
    ) -> Result<(), DropReason> {
        if self.repeated_syn(segment, now) {
            return Err(DropReason::OutOfWindow);
        }
        let len = segment.len() - u32::from(syn_stripped);
        //= rfc7323 5.3-b 5.3-c
        if self.facts.timestamps {
            match segment.options.timestamps {
                //= rfc7323 3.2-g 3.2-h
                None if self.config.require_timestamps
                    && (syn_stripped || !segment.flags.contains(Flags::SYN)) =>
                {
                    return Err(DropReason::NoTimestamp);
                }
                Some(ts) if self.rcv.is_old(ts, now) => {
                    self.answer_unacceptable(segment, seq, len, now);
                    return Err(DropReason::OldTimestamp);
                }
                _ => {}
            }
        }
        if self.rcv.acceptable(seq, len, segment.flags.contains(Flags::FIN)) {
            return Ok(());
        }
        if !self.rcv.finished() {
            self.rcv.reopening.refused(self.rcv.nxt, self.rcv.is_closed());
        }
        if self.is_next_behind_closed_window(segment, seq) {
            return Ok(());
        }
        self.answer_unacceptable(segment, seq, len, now);
        // A window update or an ACK may have a number just outside the window. RFC 9293 takes nothing from it.
        Err(DropReason::OutOfWindow)
    }

    /// Whether `segment` repeats data that came in the SYN. If it acknowledges our SYN-ACK, that counts: the data is old, but
    /// the client has nothing else to send. RFC 9293 §3.10.7.4 would ignore the acknowledgement, and the
    /// handshake would wait for the retransmission of the SYN-ACK.
    fn repeats_early_data(&self, segment: &Segment<'_>) -> bool {
        let begins_in_syn = segment.seq.gt(self.rcv.irs) && segment.seq.lt(self.rcv.nxt);
        matches!(&self.state, State::SynRcvd(syn) if syn.early)
            && begins_in_syn
            && !segment.payload.is_empty()
            && segment.flags.contains(Flags::ACK)
            && !segment.flags.contains(Flags::SYN)
    }

    /// Whether `segment` is a probe ([`Connection::probe`]). If it acknowledges our SYN-ACK, the client's ACK was lost. Our
    /// answer to the probe shows the client that we are there, so it has no reason to repeat that ACK, and we would wait for
    /// it. RFC 9293 §3.10.7.4 would ignore the acknowledgement.
    fn is_probe_of_open_peer(&self, segment: &Segment<'_>) -> bool {
        let plain = Flags::SYN.union(Flags::RST).union(Flags::FIN).union(Flags::ACK);
        matches!(self.state, State::SynRcvd(_))
            && segment.flags.bits() & plain.bits() == Flags::ACK.bits()
            && segment.payload.is_empty()
            && segment.seq + 1 == self.rcv.nxt
    }

    /// Whether `segment` would be next, but its text finds our window closed. Nothing of the text is taken, which is answered. The
    /// acknowledgement counts: a peer that has text to send has no reason to send it otherwise.
    //= rfc9293 MUST-66
    fn is_next_behind_closed_window(&self, segment: &Segment<'_>, seq: SeqNum) -> bool {
        seq == self.rcv.nxt && self.rcv.edge == seq && !segment.payload.is_empty()
    }

    /// A segment that is not acceptable is answered with an ACK (RFC 9293 §3.10.7.4, RFC 7323 §5.3).
    fn answer_unacceptable(&mut self, segment: &Segment<'_>, seq: SeqNum, len: u32, now: Instant) {
        if len > 0 && seq.lt(self.rcv.nxt) && !segment.flags.contains(Flags::SYN) {
            // If the peer repeats it because our ACK was lost, it must be acknowledged, or the peer never
            // stops. It may also be the original that arrives after its retransmission, and so with an older
            // timestamp. Then only the D-SACK shows that nothing was lost.
            self.rcv.need = AckNeed::Now;
            self.rcv.came_twice(seq, (seq + len).min(self.rcv.nxt));
        } else {
            // A second SYN-ACK answers our second SYN, so the first one was not a repetition.
            if segment.flags.contains(Flags::SYN.union(Flags::ACK)) {
                self.rtt.confirm(now);
            }
            self.challenge(now);
        }
    }

    /// The client repeats its SYN while our SYN-ACK is not acknowledged: answers as before, ignoring payload and options. A
    /// client that knows the path repeats its SYN soon. So the first repetition is answered at once, and further ones at
    /// most once in 500 ms.
    fn repeated_syn(&mut self, segment: &Segment<'_>, now: Instant) -> bool {
        let irs = self.rcv.irs;
        let State::SynRcvd(syn) = &mut self.state else { return false };
        // With an ACK it is the second half of a simultaneous open.
        let plain = Flags::SYN.union(Flags::ACK).union(Flags::RST);
        if Flags::from_bits(segment.flags.bits() & plain.bits()) != Flags::SYN || segment.seq != irs {
            return false;
        }
        let least = if syn.again { SYN_ACK_AGAIN } else { COPY_OF_SYN };
        if syn.last_sent.is_none_or(|t| now - t >= least) {
            syn.pending = true;
        }
        true
    }

    /// Second step: RST (RFC 5961 §3.2). Only its number counts, not its timestamp (RFC 7323 §5.2), and not
    /// whether other parts of it reach into the window.
    //= rfc9293 SHLD-2
    //= rfc7323 5.2-e
    fn take_reset(&mut self, segment: &Segment<'_>, now: Instant, pool: &mut Pool) -> Disposition {
        let seq = segment.seq;
        //= rfc5961 3.2-d
        if !self.rcv.acceptable(seq, 0, false) {
            return Disposition::Dropped(DropReason::OutOfWindow);
        }
        //= rfc5961 3.2-b 3.2-c
        if seq != self.rcv.nxt {
            self.facts.reset_ahead |= self.is_behind_data(seq);
            self.challenge(now);
            return Disposition::Dropped(DropReason::RstUnacceptable);
        }
        //= rfc5961 3.2-a 4.2-c
        //= rfc9293 MUST-11
        let refused = matches!(&self.state, State::SynRcvd(s) if s.origin == Origin::Simultaneous);
        self.facts.reset_acknowledged_syn =
            matches!(self.state, State::SynRcvd(_)) && self.acknowledges_syn(segment);
        self.die(if refused { CloseReason::Refused } else { CloseReason::Reset }, pool);
        Disposition::Processed
    }

    /// Whether a segment in SYN-RECEIVED acknowledges our SYN, and nothing that was not sent.
    #[inline]
    fn acknowledges_syn(&self, segment: &Segment<'_>) -> bool {
        segment.flags.contains(Flags::ACK) && segment.ack.gt(self.snd.iss) && segment.ack.le(self.snd.nxt)
    }

    /// Whether a segment with this number and without FIN shows that the peer has sent data that did not
    /// arrive. A distance of one number is not enough: it may be the FIN of a peer that closes without an
    /// answer.
    fn is_behind_data(&self, seq: SeqNum) -> bool {
        seq.gt(self.rcv.nxt + 1)
    }

    /// RFC 5961 §5.2: the acknowledgement must lie in [UNA − MAX.SND.WND, MAX].
    //= rfc5961 5.2-a 5.2-b
    #[inline]
    fn check_ack(&mut self, segment: &Segment<'_>, now: Instant) -> Result<(), DropReason> {
        let ack = segment.ack;
        let unsent = ack.gt(self.snd.nxt);
        if unsent || ack.lt(self.snd.una - self.snd.max_wnd) {
            if !unsent || self.config.answer_unsent_acks {
                self.challenge(now);
            }
            return Err(DropReason::AckUnacceptable);
        }
        Ok(())
    }

    /// Owes a challenge ACK, at most a fixed number in a second.
    //= rfc5961 7-a
    fn challenge(&mut self, now: Instant) {
        if now - self.challenged_at >= Duration::from_secs(1) {
            (self.challenged_at, self.challenges) = (now, 0);
        }
        if self.challenges < CHALLENGES_PER_SECOND {
            self.challenges += 1;
            self.owed.set(DueSegments::CHALLENGE);
        }
    }

    /// Notes that the peer is alive.
    #[inline]
    fn heard(&mut self, now: Instant) {
        self.last_heard = now;
        self.probes = 0;
    }

    /// Seventh step: the data, and the FIN behind it.
    #[inline]
    fn take_text(
        &mut self,
        segment: &Segment<'_>,
        seq: SeqNum,
        now: Instant,
        pool: &mut Pool,
    ) -> Disposition {
        let fin = segment.flags.contains(Flags::FIN);
        if segment.payload.is_empty() && !fin {
            return Disposition::Processed;
        }
        if unlikely(!self.state.receives()) {
            // After the peer's FIN there is no data; a repeated FIN is acknowledged.
            self.rcv.need = AckNeed::Now;
            return Disposition::Processed;
        }
        if unlikely(self.facts.released)
            && !segment.payload.is_empty()
            && (seq + segment.payload.len() as u32).gt(self.rcv.nxt)
        {
            //= rfc9293 SHLD-3
            // The application will not read the data, which a reset reports (RFC 9293 §3.6.1). Like a reset for
            // a connection that no longer exists (§3.10.7.1), it has the number that the peer expects. With
            // another number the peer would challenge it if our FIN was lost (RFC 5961 §3.2).
            self.facts.other_data = true;
            let unproved = self.facts.silent;
            self.abort(pool);
            if unlikely(unproved) {
                // Our FIN has not left, so our own reset, behind the handshake's ACK, has the expected number.
                return Disposition::Processed;
            }
            self.owed.clear(DueSegments::RESET);
            return Disposition::Reset;
        }
        self.take_payload(pool, seq, segment.payload, fin || segment.flags.contains(Flags::PSH));
        self.rcv.tune(self.config.receive_buffer, self.rtt.srtt_nanos(), now);
        if fin {
            self.rcv.note_fin(seq + segment.payload.len() as u32);
            self.rcv.need = AckNeed::Now;
            self.take_fin(now);
        } else if self.rcv.readable() > 0 {
            self.take_fin(now);
        }
        Disposition::Processed
    }

    /// Takes payload whose first byte is `seq`. `pushed` says that it ends a write of its sender.
    #[inline(always)]
    pub(super) fn take_payload(&mut self, pool: &mut Pool, seq: SeqNum, payload: &[u8], pushed: bool) {
        if payload.is_empty() {
            return;
        }
        let most = self.config.quick_acks;
        let rcv = &self.rcv;
        self.quick.data(self.last_heard, self.rtt.rto_nanos(), || rcv.segments(), most);
        let taken = self.rcv.take(pool, seq, payload);
        if unlikely(!matches!(taken, Taken::InOrder(_))) {
            self.facts.other_data = true;
            self.quick.trouble(self.rcv.segments(), most);
        }
        // Our answer often leaves soon after a short segment and carries the acknowledgement: see `ack_delay`.
        let full = self.rcv.measure(payload.len(), pushed);
        self.rcv.want_ack(taken, full && self.quick.is_quick());
        if let Taken::InOrder(n) = taken {
            self.totals.bytes_received += u64::from(n);
            self.ready |= Readiness::READABLE;
        }
    }

    /// Eighth step: the peer's FIN, once everything before it has arrived.
    #[inline(always)]
    pub(super) fn take_fin(&mut self, now: Instant) {
        if !self.rcv.take_fin() {
            return;
        }
        self.ready |= Readiness::READABLE;
        self.rcv.need = AckNeed::Now;
        if self.state.name() != StateName::SynRcvd {
            self.transit(Trigger::Fin);
            if self.state.name() == StateName::TimeWait {
                return;
            }
        }
        self.last_heard = now;
        self.timers.stop(Timer::FinWait2);
    }
}
