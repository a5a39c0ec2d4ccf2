//! What a visit that is over, or that the application gives up, shows about first flights to its server.

use crate::client::{Client, Other};
use crate::config::Config;
use crate::event::ConnId;
use crate::flows::Flows;
use crate::flows::slot::{Owner, Slot, SlotMarks, SlotStage};
use core::time::Duration;
use firstflight_credential::store::CookieAnswer;
use firstflight_credential::{Outcome, Reason};
use firstflight_tcp::CloseReason;
use firstflight_wire::Instant;
use firstflight_wire::hint::unlikely;

/// A connection that the application gives up counts as more than slow if no byte of the response came for this
/// long after the SYN-ACK.
const SILENCE: Duration = Duration::from_secs(5);

impl Client {
    /// A client's connection is over. Records what it shows about first flights to its server, and about the path. Returns
    /// what is to be done about its second attempt, or its first one.
    pub(crate) fn visit_over(&mut self, config: &Config, slot: &mut Slot, now: Instant) -> Option<Other> {
        let (succeeded, other) = self.flight_over(slot, now);
        let server = slot.key.remote_ip();
        let network = config.network_of(&slot.key);
        if let Some(mss) = slot.conn.narrowed_mss().filter(|_| slot.is_client()) {
            self.credentials.learn_path_mss(network, server, mss, now);
        }
        if slot.marks.has(SlotMarks::PATH_TOLD) {
            return other;
        }
        if unlikely(slot.pending.as_ref().is_some_and(|pending| pending.first_rtt)) {
            self.credentials.forget_rtt(network, server);
        }
        // An answer on another network says nothing about this one.
        let here = succeeded && slot.pending.as_ref().is_some_and(|pending| pending.network == network);
        match slot.conn.rtt().filter(|_| slot.stage == SlotStage::Mapped) {
            Some((srtt, rttvar)) if here => {
                self.credentials.learn_visit(network, server, srtt, rttvar, now);
                return other;
            }
            Some((srtt, rttvar)) => self.credentials.learn_rtt(network, server, srtt, rttvar, now),
            None => {}
        }
        if let (true, Some(pending)) = (succeeded, &slot.pending) {
            self.credentials.note_success(pending.network, server);
        }
        other
    }

    /// The part of [`Self::visit_over`] about the first flight, and whether it was accepted and answered.
    fn flight_over(&mut self, slot: &mut Slot, now: Instant) -> (bool, Option<Other>) {
        if let Owner::SecondAttempt(first) = slot.owner {
            slot.owner = Owner::Nobody;
            return (false, Some(Other::First(first)));
        }
        let Some(pending) = &mut slot.pending else { return (false, None) };
        let second_attempt = pending.fallback.second_attempt.take().map(Other::SecondAttempt);
        if pending.awaited {
            if pending.shows_credential() {
                slot.outcome = Outcome::Handshake(Reason::Unknown);
            }
            self.unanswered(slot, now);
            return (false, second_attempt);
        }
        if pending.at_most_once
            && slot.outcome == Outcome::Handshake(Reason::SimultaneousOpen)
            && !slot.conn.is_confirmed()
        {
            // A SYN can be forged without knowing any number, and after a forged one the server's own answer does
            // not count.
            slot.outcome = Outcome::Handshake(Reason::Unknown);
        }
        if pending.answered_at == Instant::FAR_FUTURE {
            // The connection was opened without the first flight, so its end says nothing about it.
            return (false, second_attempt);
        }
        let answered = slot.conn.totals().bytes_received > 0;
        if unlikely(!slot.conn.has_heard_data())
            && (slot.conn.close_reason() == Some(CloseReason::TimedOut) || slot.conn.is_swallowed())
        {
            // The handshake went through, and then nothing arrived, or only the end of the response: the path passes
            // the SYN, but not the connection that it opens.
            self.credentials.note_failure(pending.network, slot.key.remote_ip(), now);
        }
        (answered && slot.outcome.is_accepted(), second_attempt)
    }

    /// Does what [`Self::visit_over`] returned.
    pub(crate) fn tell_other(&mut self, flows: &mut Flows, other: Other) {
        match other {
            Other::SecondAttempt(second_attempt) => self.drop_second_attempt(flows, Some(second_attempt)),
            Other::First(first) => self.forget_second_attempt(&mut flows.table, first),
        }
    }

    /// The application releases a connection that it opened. The connection may stay for a while in the background,
    /// and the next connect to its server already uses what it showed of the path.
    pub(crate) fn released(&mut self, flows: &mut Flows, id: ConnId, now: Instant) {
        let Some(slot) = flows.table.slots.get_live(id.index, id.generation).filter(|slot| slot.is_client())
        else {
            return;
        };
        self.tell_path(&flows.env.config, slot, now);
        let second_attempt = self.give_up(slot, now);
        if unlikely(second_attempt.is_some()) {
            self.drop_second_attempt(flows, second_attempt);
        }
    }

    /// The application ends a connection at once.
    pub(crate) fn aborted(&mut self, flows: &mut Flows, id: ConnId, now: Instant) {
        if let Some(slot) = flows.table.slots.get_live(id.index, id.generation) {
            let second_attempt = self.give_up(slot, now);
            self.drop_second_attempt(flows, second_attempt);
        }
    }

    /// A connection that asked for a first flight reports more when it is over, and its round-trip time is known from
    /// its SYN-ACK on.
    fn tell_path(&mut self, config: &Config, slot: &mut Slot, now: Instant) {
        if slot.stage == SlotStage::Ended {
            return;
        }
        let (network, server) = (config.network_of(&slot.key), slot.key.remote_ip());
        if let Some(mss) = slot.conn.narrowed_mss() {
            self.credentials.learn_path_mss(network, server, mss, now);
        }
        if let (None, Some((srtt, rttvar))) = (&slot.pending, slot.conn.rtt()) {
            slot.marks.set(SlotMarks::PATH_TOLD);
            self.credentials.learn_rtt(network, server, srtt, rttvar, now);
        }
    }

    /// The path is considered to pass the SYN but not the connection that it opens, if nothing arrived since the
    /// SYN-ACK for longer than most servers take to respond, or if only the end of the response arrived. Returns a
    /// second attempt, which is to be ended.
    fn give_up(&mut self, slot: &mut Slot, now: Instant) -> Option<u32> {
        let pending = slot.pending.as_ref()?;
        if pending.answered_at == Instant::FAR_FUTURE || slot.conn.has_heard_data() {
            return None;
        }
        let silent = now.saturating_since(pending.answered_at) >= SILENCE;
        if !(silent || slot.conn.is_swallowed()) || slot.conn.close_reason().is_some() {
            return None;
        }
        self.credentials.note_failure(pending.network, slot.key.remote_ip(), now);
        // The end of the connection reports nothing more and ends no second attempt.
        slot.pending.take().and_then(|pending| pending.fallback.second_attempt)
    }

    /// No SYN-ACK will show what happened to the first flight. Gives its cookie back, and ends a second attempt.
    pub(crate) fn no_answer(&mut self, flows: &mut Flows, index: u32, now: Instant) {
        let Some(slot) = flows.table.slots.get_mut(index) else { return };
        let second_attempt = slot.pending.as_mut().and_then(|pending| pending.fallback.second_attempt.take());
        self.unanswered(slot, now);
        self.drop_second_attempt(flows, second_attempt);
    }

    /// The part of [`Self::no_answer`] about the connection itself.
    fn unanswered(&mut self, slot: &mut Slot, now: Instant) {
        let Some(pending) = &mut slot.pending else { return };
        pending.awaited = false;
        if let Some(used) = pending.cookie.take() {
            let (network, server) = (pending.network, slot.key.remote_ip());
            self.credentials.note_answer(network, server, &used, CookieAnswer::Unclear, None, now);
        }
    }
}
