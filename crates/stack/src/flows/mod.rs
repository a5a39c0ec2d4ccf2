//! The connections of a stack, and what they need: every part of the stack that acts on connections gets them together.
//! [`Server`](crate::server::Server) and [`Client`](crate::client::Client) decide how connections begin and what they
//! show; this part knows neither.

pub(crate) mod early_ends;
pub(crate) mod icmp;
pub(crate) mod slab;
pub(crate) mod slot;
pub(crate) mod table;
pub(crate) mod time_wait;
pub(crate) mod wheel;

use crate::config::Config;
use crate::encapsulation::UdpEncapsulation;
use crate::env::Env;
use crate::event::Trace;
use crate::flow::FlowKey;
use crate::flows::slot::{Beginning, InQueue, Owner, Slot};
use crate::flows::table::Table;
use crate::random::Random;
use alloc::boxed::Box;
use alloc::sync::Arc;
use firstflight_credential::Outcome;
use firstflight_tcp::{Disposition, Pool, StateName};
use firstflight_wire::Instant;
use firstflight_wire::hint::unlikely;
use firstflight_wire::tcp::Segment;

/// Boxes kept for later connections.
const SPARE: usize = 256;

/// See the module.
pub(crate) struct Flows {
    /// What a packet is looked up in.
    pub table: Table,
    /// What surrounds the connections.
    pub env: Env,
    /// TCP in UDP, if it is in use.
    pub encapsulation: Option<Box<UdpEncapsulation>>,
}

impl Flows {
    /// `hashes` is the key of the table, `numbers` the secret of initial sequence numbers.
    pub(crate) fn new(config: Config, hashes: u64, numbers: [u8; 16], random: Random, now: Instant) -> Self {
        let limits = &config.limits;
        let claims = config.claims();
        Self {
            table: Table::new(hashes, limits, claims, now),
            encapsulation: (config.encapsulation.as_ref())
                .and_then(|encapsulation| UdpEncapsulation::new(encapsulation, limits.time_wait, now))
                .map(Box::new),
            env: Env::new(config, numbers, random, now),
        }
    }

    /// Whether there are as many connections as are allowed.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.table.slots.len() >= self.env.config.limits.connections
    }

    // --- trace ---------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn trace_outcome(&mut self, index: u32, outcome: Outcome) {
        if unlikely(self.env.journal.is_tracing()) {
            let id = self.table.id(index);
            self.env.journal.trace(Trace::Outcome(id, outcome));
        }
    }

    pub(crate) fn trace_transitions(&mut self, index: u32) {
        let id = self.table.id(index);
        while let Some(t) = self.table.slots.get_mut(index).and_then(|s| s.conn.poll_transition()) {
            self.env.journal.trace(Trace::Transition(id, t));
        }
    }

    // --- what happens to a connection ------------------------------------------------------------------

    pub(crate) fn not_processed(&mut self, index: u32, disposition: Disposition, segment: &Segment<'_>) {
        match disposition {
            Disposition::Processed => {}
            Disposition::Dropped(reason) => {
                self.env.journal.counters.segments_dropped += 1;
                let id = self.table.id(index);
                self.env.journal.trace(Trace::Segment(id, reason));
            }
            Disposition::Reset => {
                if let Some(key) = self.table.slots.get(index).map(|slot| slot.key) {
                    self.env.reply_reset(key, segment);
                }
            }
        }
    }

    /// Something happened to connection `index`: queues it for transmission, and notes its notifications.
    pub(crate) fn touched(&mut self, index: u32) {
        if self.touch(index) {
            self.table.note(index);
        }
    }

    /// Like [`Self::touched`], but returns whether the connection has notifications instead of noting that.
    #[inline]
    pub(crate) fn touch(&mut self, index: u32) -> bool {
        let tracing = self.env.journal.is_tracing();
        self.table.slots.get_mut(index).is_some_and(|slot| slot.touch(index, &mut self.env.outbox, tracing))
    }

    /// Gives a segment to connection `index`, which is not in SYN-SENT. Returns whether the connection has
    /// notifications.
    #[inline(always)]
    pub(crate) fn deliver(&mut self, index: u32, segment: &Segment<'_>, now: Instant) -> bool {
        let Some(slot) = self.table.slots.get_mut(index) else { return false };
        let disposition = slot.conn.handle_segment(segment, now, &mut self.env.pool);
        let notifications = slot.touch(index, &mut self.env.outbox, self.env.journal.is_tracing());
        if unlikely(disposition != Disposition::Processed) {
            self.not_processed(index, disposition, segment);
        }
        notifications
    }

    /// Resets a connection so that another one has room.
    pub(crate) fn shed(&mut self, index: u32) {
        if let Some(slot) = self.table.slots.get_mut(index) {
            slot.conn.abort(&mut self.env.pool);
            self.touched(index);
        }
    }

    /// Queues the connection for [`Stack::poll_event`](crate::Stack::poll_event).
    pub(crate) fn announce(&mut self, index: u32) {
        if let Some((slot, generation)) = self.table.slots.get_mut_with_generation(index) {
            slot.announce(index, generation, &mut self.env.journal);
        }
    }

    // --- how a connection begins and ends --------------------------------------------------------------

    /// Frees the slot if the connection is over and nobody owns it.
    #[inline]
    pub(crate) fn reap(&mut self, index: u32) {
        let Some(slot) = self.table.slots.get_mut(index) else { return };
        let over = matches!(slot.conn.state(), StateName::Closed | StateName::TimeWait);
        if over && slot.owner == Owner::Nobody && slot.turn == InQueue::No {
            if let Some(pending) = slot.pending.take()
                && self.table.spare.len() < SPARE
            {
                self.table.spare.push(pending);
            }
            slot.retire(&mut self.env.pool);
            self.table.slots.retire(index);
        }
    }

    /// Inserts a new connection, in CLOSED, into slab and table, and calls `begin` for it. `tcp` are its
    /// settings, if they are not the stack's. They are taken by reference, so that no reference count changes twice.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        tcp: Option<&Arc<firstflight_tcp::Config>>,
        with: Beginning<'_>,
        begin: impl FnOnce(&mut Slot, &mut Pool),
    ) -> u32 {
        let Beginning { key, hash, owner, now, .. } = with;
        let tcp = tcp.unwrap_or(&self.env.tcp);
        let (index, slot) = self.table.slots.reserve(Slot::default);
        slot.renew(tcp, with);
        begin(slot, &mut self.env.pool);
        slot.turn = InQueue::Yes;
        self.env.outbox.queue(index);
        // A connect carried in a lookup has no server yet, so it has no mapping of a translator to keep.
        if unlikely(key.is_carried()) && key.outer_remote() != 0 {
            self.join_pair(key, index, owner == Owner::Application, now);
        }
        self.table.map(hash, index);
        index
    }

    /// Gives connection `index` another peer. `opened` says whether this stack opened the connection.
    pub(crate) fn rekey(&mut self, index: u32, key: &FlowKey, opened: bool, now: Instant) {
        self.leave_pair(index);
        let hash = self.table.hasher.hash(key);
        let Some(slot) = self.table.slots.get_mut(index) else { return };
        let before = core::mem::replace(&mut slot.hash, hash);
        slot.key = *key;
        self.table.unmap(before, index);
        self.table.map(hash, index);
        if key.is_carried() {
            self.join_pair(key, index, opened, now);
        }
    }
}
