//! The life of a connection in the stack: it is inserted, something happens to it, it ends, its slot is free again.

use crate::slot::{Beginning, Owner, Slot};
use crate::stack::Stack;
use alloc::sync::Arc;
use core::hint::cold_path;
use core::time::Duration;
use firstflight_credential::Outcome;
use firstflight_tcp::{CloseReason, Pool, Readiness, StateName};
use firstflight_wire::Instant;
use firstflight_wire::hint::unlikely;

/// How long a first flight that was reset while the application had it keeps its place: the SYN may have been
/// spoofed, and the RST may be the victim's (RFC 7413 §5.1).
const QUARANTINE: Duration = Duration::from_secs(60);

/// Boxes kept for later connections.
const SPARE: usize = 256;

/// The settings of a new connection, by reference, so that no reference count changes.
pub(crate) enum Settings<'a> {
    /// The stack's.
    Stack,
    /// Those of the listener at this index.
    Listener(u32),
    /// The given settings.
    Own(&'a Arc<firstflight_tcp::Config>),
}

impl Stack {
    /// Collects what changed for connection `index` and queues it for transmission.
    #[inline]
    pub(crate) fn touched(&mut self, index: u32, now: Instant) {
        let tracing = self.journal.is_tracing();
        let Some(slot) = self.slots.get_mut(index) else { return };
        if slot.touch(index, &mut self.outbox, tracing) {
            self.take_news(index, now);
        }
    }

    /// Takes the pending notifications that [`Slot::touch`] reports.
    #[inline(never)]
    pub(crate) fn take_news(&mut self, index: u32, now: Instant) {
        if unlikely(self.journal.is_tracing()) {
            self.trace_transitions(index);
        }
        let Some((mut slot, generation)) = self.slots.get_mut_with_generation(index) else { return };
        slot.conn.forget_transitions();
        let ready = slot.conn.poll_readiness();
        slot.ready |= ready;
        if ready.contains(Readiness::CONNECTED) {
            slot.place = None;
            self.journal.counters.established += 1;
            let kept = slot.certificate || slot.granted || slot.pair.is_some() || self.clients.is_some();
            if unlikely(kept) || matches!(slot.owner, Owner::SynQueue(_)) {
                self.opened(index, now);
                let Some(again) = self.slots.get_mut(index) else { return };
                slot = again;
            }
        }
        if ready.contains(Readiness::CLOSED) {
            self.ended(index, now);
            let Some(again) = self.slots.get_mut(index) else { return };
            slot = again;
        }
        if !ready.is_empty() {
            slot.announce(index, generation, &mut self.journal);
        }
        if !slot.counted && slot.outcome != Outcome::Undecided {
            slot.counted = true;
            let side = if slot.client {
                &mut self.journal.counters.client
            } else {
                &mut self.journal.counters.server
            };
            side.add(slot.outcome);
        }
    }

    /// The handshake of connection `index` is complete: does what was deferred until now.
    #[inline(never)]
    fn opened(&mut self, index: u32, now: Instant) {
        if let Some(clients) = &mut self.clients
            && let Some(one) = clients.join(&mut self.slots, index, now)
        {
            // A connection beyond the limit is reset before the application can accept it.
            self.journal.counters.clients_limited += 1;
            self.shed(one, now);
        }
        if unlikely(self.carrier.is_some()) {
            self.carried_opened(index, now);
        }
        let Some(mut slot) = self.slots.get_mut(index) else { return };
        if slot.certificate {
            self.proved(index, now);
            let Some(again) = self.slots.get_mut(index) else { return };
            slot = again;
        }
        let granted = core::mem::take(&mut slot.granted);
        if let Owner::SynQueue(listener) = slot.owner {
            self.promote(index, listener);
        }
        if granted {
            self.activate(index);
        }
    }

    /// Resets a connection so that another one has room.
    pub(crate) fn shed(&mut self, index: u32, now: Instant) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.conn.abort(&mut self.pool);
            self.touched(index, now);
        }
    }

    /// Queues the connection for [`Stack::poll_event`].
    pub(crate) fn announce(&mut self, index: u32) {
        if let Some((slot, generation)) = self.slots.get_mut_with_generation(index) {
            slot.announce(index, generation, &mut self.journal);
        }
    }

    /// The connection is over: removes it from the table, and adds a TIME-WAIT record if needed.
    #[inline(always)]
    fn ended(&mut self, index: u32, now: Instant) {
        let Some(mut slot) = self.slots.get_mut(index) else { return };
        if slot.client {
            self.visit_over(index, now);
            let Some(again) = self.slots.get_mut(index) else { return };
            slot = again;
        }
        if unlikely(core::mem::take(&mut slot.granted)) {
            self.grants.remove(&index);
        }
        if unlikely(slot.certificate) {
            self.vouched_for_nothing(index, now);
            let Some(again) = self.slots.get_mut(index) else { return };
            slot = again;
        }
        if unlikely(slot.place.is_some())
            && let Some(place) = slot.place.take()
            && slot.conn.close_reason() == Some(CloseReason::Reset)
            && self.listeners.keeps_place(slot.owner)
        {
            self.quarantine.push_back((now + QUARANTINE, place));
        }
        if unlikely(!core::mem::take(&mut slot.mapped)) {
            return;
        }
        if unlikely(slot.of_client)
            && let Some(clients) = &mut self.clients
        {
            clients.leave(slot, index);
        }
        if unlikely(!self.armed.is_empty()) {
            let key = slot.key;
            self.disarm(&key, index);
            let Some(again) = self.slots.get_mut(index) else { return };
            slot = again;
        }
        let hash = slot.hash;
        if unlikely(slot.pair.is_some()) {
            self.carried_ended(index, now);
            let Some(again) = self.slots.get_mut(index) else { return };
            slot = again;
        }
        if let Owner::SynQueue(listener) = slot.owner {
            cold_path();
            slot.owner = Owner::Nobody;
            self.listeners.left_syn_queue(listener);
        }
        if slot.conn.state() == StateName::TimeWait {
            self.journal.counters.time_waits += 1;
            let record = slot.conn.time_wait();
            let before = self.time_wait.len();
            if unlikely(self.time_wait.insert(hash, record, now, self.tcp.time_wait)) {
                self.journal.counters.time_waits_evicted += (before + 1 - self.time_wait.len()) as u64;
            }
        }
        if unlikely(slot.hold)
            && slot.conn.close_reason() == Some(CloseReason::Finished)
            && slot.conn.state() == StateName::Closed
        {
            self.journal.counters.last_acks_held += 1;
            let record = slot.conn.time_wait();
            self.held.insert(hash, record, now, self.tcp.time_wait);
        }
        // The timer stays in the wheel. At worst it fires without effect, and the slot's next connection usually
        // wants a later one.
        self.flows.remove(hash, index);
    }

    /// Limits, from now on, the time that a connection waits for its peer's FIN once the application has released
    /// it ([`firstflight_tcp::Config::fin_wait2`]). This is meant for a program that ends: in FIN-WAIT-2 the peer
    /// has acknowledged everything, and nobody reads what it may still send.
    pub fn limit_fin_wait2(&mut self, most: Duration, now: Instant) {
        let limit = |tcp: &mut Arc<firstflight_tcp::Config>| {
            if tcp.fin_wait2 > most {
                Arc::make_mut(tcp).fin_wait2 = most;
            }
        };
        limit(&mut self.tcp);
        self.listeners.tune(limit);
        // Most connections share their settings.
        let (mut before, mut after) = (Arc::clone(&self.tcp), Arc::clone(&self.tcp));
        let indices: alloc::vec::Vec<u32> = self.slots.indices().collect();
        for index in indices {
            let Some(slot) = self.slots.get_mut(index) else { continue };
            if !Arc::ptr_eq(slot.conn.config(), &before) {
                before = Arc::clone(slot.conn.config());
                after = Arc::clone(&before);
                limit(&mut after);
            }
            slot.conn.set_config(Arc::clone(&after), now);
            self.touched(index, now);
        }
    }

    /// Frees the slot if the connection is over and nobody owns it.
    #[inline(always)]
    pub(crate) fn reap(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let over = matches!(slot.conn.state(), StateName::Closed | StateName::TimeWait);
        if over && slot.owner == Owner::Nobody && !slot.queued {
            if let Some(asked) = slot.asked.take()
                && self.spare.len() < SPARE
            {
                self.spare.push(asked);
            }
            slot.retire(&mut self.pool);
            self.slots.retire(index);
        }
    }

    /// Inserts a new connection, in CLOSED, into slab and table, and calls `begin` for it.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        tcp: Settings<'_>,
        with: Beginning<'_>,
        begin: impl FnOnce(&mut Slot, &mut Pool),
    ) -> u32 {
        let Beginning { key, hash, owner, now, .. } = with;
        let tcp = match tcp {
            Settings::Stack => &self.tcp,
            Settings::Own(own) => own,
            Settings::Listener(listener) => self.listeners.at(listener).map_or(&self.tcp, |l| &l.tcp),
        };
        let (index, slot) = self.slots.reserve(|| Slot::vacant(tcp));
        slot.renew(tcp, with);
        begin(slot, &mut self.pool);
        slot.queued = true;
        self.outbox.queue(index);
        // A connect carried in a lookup has no server yet, so it has no mapping of a translator to keep.
        if unlikely(key.is_carried()) && key.outer_remote() != 0 {
            self.join_pair(key, index, owner == Owner::Application, now);
        }
        let slots = &self.slots;
        self.flows.insert(hash, index, |i| slots.get(i).map_or(0, |s| s.hash));
        index
    }
}
