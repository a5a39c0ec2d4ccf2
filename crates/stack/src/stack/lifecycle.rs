//! The life of a connection in the stack: it is inserted, something happens to it, it ends, its slot is free again.

use crate::flows::slot::{Owner, ShownCertificate, SlotMarks, SlotStage};
use crate::output::Reply;
use crate::stack::Stack;
use alloc::sync::Arc;
use core::hint::cold_path;
use core::time::Duration;
use firstflight_credential::Outcome;
use firstflight_tcp::{CloseReason, Readiness, StateName};
use firstflight_wire::Instant;
use firstflight_wire::hint::unlikely;

impl Stack {
    /// Takes the notifications that the parts have noted. Every command and every packet ends with it.
    #[inline]
    pub(crate) fn settle(&mut self, now: Instant) {
        if unlikely(self.flows.table.has_notifications()) {
            self.take_all_notifications(now);
        }
    }

    fn take_all_notifications(&mut self, now: Instant) {
        while self.flows.table.has_notifications() {
            let notifications = self.flows.table.take_notifications();
            for index in &notifications {
                self.take_notifications(*index, now);
            }
            self.flows.table.notifications_taken(notifications);
        }
    }

    /// Takes the notifications of connection `index` (see [`crate::flows::slot::Slot::touch`]), and those that this
    /// brings to others.
    pub(crate) fn take_notifications(&mut self, index: u32, now: Instant) {
        if unlikely(self.flows.env.journal.is_tracing()) {
            self.flows.trace_transitions(index);
        }
        let Some((mut slot, generation)) = self.flows.table.slots.get_mut_with_generation(index) else {
            return;
        };
        slot.conn.forget_transitions();
        let ready = slot.conn.poll_readiness();
        slot.ready |= ready;
        if ready.contains(Readiness::CONNECTED) {
            slot.permit = None;
            self.flows.env.journal.counters.established += 1;
            let kept = slot.shown != ShownCertificate::Nothing
                || slot.marks.has(SlotMarks::GRANTED)
                || slot.pair.is_some()
                || self.server.counts_clients();
            if unlikely(kept) || matches!(slot.owner, Owner::SynQueue(_)) {
                self.opened(index, now);
                let Some(again) = self.flows.table.slots.get_mut(index) else { return };
                slot = again;
            }
        }
        if ready.contains(Readiness::CLOSED) {
            self.ended(index, now);
            let Some(again) = self.flows.table.slots.get_mut(index) else { return };
            slot = again;
        }
        if !ready.is_empty() {
            slot.announce(index, generation, &mut self.flows.env.journal);
        }
        if !slot.marks.has(SlotMarks::COUNTED) && slot.outcome != Outcome::Undecided {
            slot.marks.set(SlotMarks::COUNTED);
            let side = if slot.is_client() {
                &mut self.flows.env.journal.counters.client
            } else {
                &mut self.flows.env.journal.counters.server
            };
            side.add(slot.outcome);
        }
    }

    /// The handshake of connection `index` is complete: does what was deferred until now.
    fn opened(&mut self, index: u32, now: Instant) {
        if let Some(one) = self.server.joined(&mut self.flows.table, index, now) {
            // A connection beyond the limit is reset before the application can accept it.
            self.flows.env.journal.counters.clients_limited += 1;
            self.flows.shed(one);
            self.settle(now);
        }
        if unlikely(self.flows.encapsulation.is_some()) {
            self.flows.carried_opened(index, now);
            self.settle(now);
        }
        let Some(mut slot) = self.flows.table.slots.get_mut(index) else { return };
        if slot.shown != ShownCertificate::Nothing {
            self.server.proved(&mut self.flows.table, index, now);
            let Some(again) = self.flows.table.slots.get_mut(index) else { return };
            slot = again;
        }
        let granted = slot.marks.take(SlotMarks::GRANTED);
        if unlikely(slot.marks.has(SlotMarks::REPEAT)) {
            self.flows.env.journal.counters.repeats_reset += 1;
            self.flows.shed(index);
            self.settle(now);
        } else if let Owner::SynQueue(listener) = slot.owner {
            self.server.promote(&mut self.flows, index, listener);
        }
        if granted {
            self.server.activate(index);
        }
    }

    /// The connection is over: removes it from the table, and adds a TIME-WAIT record if needed.
    #[inline]
    fn ended(&mut self, index: u32, now: Instant) {
        let Some(mut slot) = self.flows.table.slots.get_mut(index) else { return };
        // From now on, the peer's segments belong to no connection. What is left to send comes after the resets for them.
        if slot.is_client()
            && self.flows.env.outbox.has_room(1)
            && let Some((header, options)) = slot.conn.take_proof(now)
        {
            let reply = Reply::Segment { key: slot.key, header, options };
            self.flows.env.reply(reply);
        }
        if slot.is_client()
            && let Some(other) = self.client.visit_over(&self.flows.env.config, slot, now)
        {
            self.client.tell_other(&mut self.flows, other);
            self.settle(now);
            let Some(again) = self.flows.table.slots.get_mut(index) else { return };
            slot = again;
        }
        if unlikely(slot.marks.take(SlotMarks::GRANTED)) {
            if slot.conn.has_reset_acknowledged_syn() {
                // The cookie has arrived where it was sent to, which is all that its activation needs.
                self.server.activate(index);
            } else {
                self.server.forget_grant(index);
            }
        }
        if unlikely(slot.shown != ShownCertificate::Nothing) {
            self.server.vouched_for_nothing(&mut self.flows, index, now);
            let Some(again) = self.flows.table.slots.get_mut(index) else { return };
            slot = again;
        }
        if unlikely(slot.permit.is_some()) {
            let (key, hash, isn) = (slot.key, slot.hash, slot.conn.peer_isn());
            let once = slot.marks.has(SlotMarks::ONCE);
            self.server.give_back_permit(slot, now);
            if once {
                self.flows.table.note_early_end(&key, hash, isn, now);
                let Some(again) = self.flows.table.slots.get_mut(index) else { return };
                slot = again;
            }
        }
        if unlikely(core::mem::replace(&mut slot.stage, SlotStage::Ended) == SlotStage::Ended) {
            return;
        }
        if unlikely(slot.marks.has(SlotMarks::OF_CLIENT)) {
            self.server.left(slot, index);
        }
        if unlikely(self.client.has_in_lookup()) {
            let key = slot.key;
            self.client.forget_in_lookup(&key, index);
            let Some(again) = self.flows.table.slots.get_mut(index) else { return };
            slot = again;
        }
        let hash = slot.hash;
        let mut remembered = false;
        if unlikely(slot.pair.is_some()) {
            self.flows.carried_ended(index, now);
            let Some(again) = self.flows.table.slots.get_mut(index) else { return };
            slot = again;
        }
        if let Owner::SynQueue(listener) = slot.owner {
            cold_path();
            slot.owner = Owner::Nobody;
            self.server.left_syn_queue(listener);
        }
        if slot.conn.state() == StateName::TimeWait {
            self.flows.env.journal.counters.time_waits += 1;
            remembered = true;
            let record = slot.conn.time_wait();
            let before = self.flows.table.time_wait.len();
            if unlikely(self.flows.table.time_wait.insert(
                hash,
                record,
                now,
                self.flows.env.tcp.time_wait_lasts(),
            )) {
                self.flows.env.journal.counters.time_waits_evicted +=
                    (before + 1 - self.flows.table.time_wait.len()) as u64;
            }
        }
        if unlikely(slot.marks.has(SlotMarks::HOLD))
            && slot.conn.close_reason() == Some(CloseReason::Finished)
            && slot.conn.state() == StateName::Closed
        {
            self.flows.env.journal.counters.last_acks_held += 1;
            remembered = true;
            let record = slot.conn.time_wait();
            self.flows.table.last_ack_records.insert(hash, record, now, self.flows.env.tcp.time_wait_lasts());
        }
        if remembered {
            self.flows.table.early_ends.give_up_claim(hash);
        } else if !self.flows.table.early_ends.claims(hash) {
            self.flows.table.release(hash);
        }
        // The timer stays in the wheel. At worst it fires without effect, and the slot's next connection usually
        // wants a later one.
        self.flows.table.index.remove(hash, index);
    }

    /// Limits, from now on, the time that a connection waits for its peer's FIN once the application has released
    /// it ([`firstflight_tcp::Config::fin_wait2`]). This is meant for a program that ends: in FIN-WAIT-2 the peer
    /// has acknowledged everything, and nobody reads what it may still send.
    pub fn limit_fin_wait2(&mut self, most: Duration, now: Instant) {
        let limit = |tcp: &mut Arc<firstflight_tcp::Config>| {
            if tcp.fin_wait2_lasts() > most {
                Arc::make_mut(tcp).set_fin_wait2(most);
            }
        };
        limit(&mut self.flows.env.tcp);
        self.server.tune(limit);
        // Most connections share their settings.
        let (mut before, mut after) = (Arc::clone(&self.flows.env.tcp), Arc::clone(&self.flows.env.tcp));
        let indices: alloc::vec::Vec<u32> = self.flows.table.slots.indices().collect();
        for index in indices {
            let Some(slot) = self.flows.table.slots.get_mut(index) else { continue };
            if !Arc::ptr_eq(slot.conn.config(), &before) {
                before = Arc::clone(slot.conn.config());
                after = Arc::clone(&before);
                limit(&mut after);
            }
            slot.conn.set_config(Arc::clone(&after), now);
            self.flows.touched(index);
        }
        self.settle(now);
    }
}
