//! The connections of a stack, and what they need: every part of the stack that acts on connections gets them together.
//! [`Server`](crate::server::Server) and [`Client`](crate::client::Client) decide how connections begin and what they
//! show; this part knows neither.

pub(crate) mod icmp;
pub(crate) mod slab;
pub(crate) mod slot;
pub(crate) mod time_wait;
pub(crate) mod verifier;
pub(crate) mod wheel;

use crate::carrier::Carrier;
use crate::config::Config;
use crate::env::Env;
use crate::event::{ConnId, Trace};
use crate::flow::{FlowHasher, FlowKey, FlowTable};
use crate::flows::slab::Places;
use crate::flows::slot::{Asked, Beginning, Owner, Slot};
use crate::flows::time_wait::TimeWaitTable;
use crate::flows::wheel::TimerWheel;
use crate::random::Random;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hint::cold_path;
use firstflight_credential::Outcome;
use firstflight_tcp::{Disposition, Pool, StateName, TimeWait};
use firstflight_wire::Instant;
use firstflight_wire::hint::unlikely;
use firstflight_wire::tcp::Segment;

/// Boxes kept for later connections.
const SPARE: usize = 256;

/// See the module.
pub(crate) struct Flows {
    pub slots: Places<Slot>,
    pub hasher: FlowHasher,
    /// Finds a connection (index of its slot) by its four-tuple.
    pub table: FlowTable,
    pub wheel: TimerWheel,
    pub time_wait: TimeWaitTable,
    /// Connections that the peer closed first, see [`crate::ListenConfig::hold_last_ack`].
    pub held: TimeWaitTable,
    /// Boxes of earlier connections, kept for later ones.
    #[allow(clippy::vec_box, reason = "the boxes themselves are reused")]
    pub spare: Vec<Box<Asked>>,
    /// Connections (index) with news that [`Stack`](crate::Stack) has to take.
    news: Vec<u32>,
    /// What surrounds the connections.
    pub env: Env,
    /// TCP in UDP, if it is in use.
    pub carrier: Option<Box<Carrier>>,
}

impl Flows {
    /// `hashes` is the key of the table, `numbers` the secret of initial sequence numbers.
    pub(crate) fn new(config: Config, hashes: u64, numbers: [u8; 16], random: Random, now: Instant) -> Self {
        let limits = &config.limits;
        Self {
            slots: Places::default(),
            hasher: FlowHasher::new(hashes),
            table: FlowTable::default(),
            wheel: TimerWheel::new(now),
            time_wait: TimeWaitTable::new(limits.time_wait),
            held: TimeWaitTable::new(limits.held_last_acks),
            spare: Vec::new(),
            news: Vec::new(),
            carrier: (config.carrier.as_ref())
                .and_then(|carrier| Carrier::new(carrier, limits.time_wait, now))
                .map(Box::new),
            env: Env::new(config, numbers, random, now),
        }
    }

    /// Whether there are as many connections as are allowed.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.slots.len() >= self.env.config.limits.connections
    }

    /// The connection with this four-tuple.
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey) -> Option<u32> {
        self.find_hashed(self.hasher.hash(key), key)
    }

    /// Like [`Self::find`], if the hash is known already.
    #[inline]
    pub(crate) fn find_hashed(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        self.table.find(hash, |i| self.slots.get(i).is_some_and(|s| s.key == *key))
    }

    /// What remains of a connection with this hash that is over, and whether the peer closed it first.
    #[inline]
    pub(crate) fn remembered(&self, hash: u64) -> Option<(TimeWait, bool)> {
        if let Some(record) = self.time_wait.find(hash) {
            return Some((record, false));
        }
        if self.held.len() == 0 {
            return None;
        }
        cold_path();
        self.held.find(hash).map(|record| (record, true))
    }

    /// The common hash of all connections that differ only in the client's UDP port.
    pub(crate) fn hash_anywhere(&self, key: &FlowKey) -> u64 {
        self.hasher.hash(&key.anywhere())
    }

    pub(crate) fn slot(&self, id: ConnId) -> Option<&Slot> {
        let (slot, generation) = self.slots.get_with_generation(id.index)?;
        (generation == id.generation).then_some(slot)
    }

    pub(crate) fn id(&self, index: u32) -> ConnId {
        ConnId { index, generation: self.slots.generation(index) }
    }

    /// Enters connection `index`, whose hash is in its slot.
    #[inline]
    pub(crate) fn map(&mut self, hash: u64, index: u32) {
        let slots = &self.slots;
        self.table.insert(hash, index, |i| slots.get(i).map_or(0, |slot| slot.hash));
    }

    // --- news ------------------------------------------------------------------------------------------

    /// Notes that connection `index` has news.
    pub(crate) fn note(&mut self, index: u32) {
        self.news.push(index);
    }

    /// Whether there are news to take.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Takes the connections that have news, in the order in which they got them. Give the memory back with
    /// [`Self::news_taken`].
    pub(crate) fn take_news(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.news)
    }

    /// The news of all these are taken.
    pub(crate) fn news_taken(&mut self, mut taken: Vec<u32>) {
        if self.news.is_empty() {
            taken.clear();
            self.news = taken;
        }
    }

    // --- trace ---------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn trace_outcome(&mut self, index: u32, outcome: Outcome) {
        if unlikely(self.env.journal.is_tracing()) {
            let id = self.id(index);
            self.env.journal.trace(Trace::Outcome(id, outcome));
        }
    }

    pub(crate) fn trace_transitions(&mut self, index: u32) {
        let id = self.id(index);
        while let Some(t) = self.slots.get_mut(index).and_then(|s| s.conn.poll_transition()) {
            self.env.journal.trace(Trace::Transition(id, t));
        }
    }

    // --- what happens to a connection ------------------------------------------------------------------

    #[cold]
    pub(crate) fn not_processed(&mut self, index: u32, disposition: Disposition, segment: &Segment<'_>) {
        match disposition {
            Disposition::Processed => {}
            Disposition::Dropped(reason) => {
                self.env.journal.counters.segments_dropped += 1;
                let id = self.id(index);
                self.env.journal.trace(Trace::Segment(id, reason));
            }
            Disposition::Reset => {
                if let Some(key) = self.slots.get(index).map(|slot| slot.key) {
                    self.env.reply_reset(key, segment);
                }
            }
        }
    }

    /// Something happened to connection `index`: queues it for transmission, and notes its news.
    pub(crate) fn touched(&mut self, index: u32) {
        if self.touch(index) {
            self.note(index);
        }
    }

    /// Like [`Self::touched`], but returns whether the connection has news instead of noting that.
    #[inline]
    pub(crate) fn touch(&mut self, index: u32) -> bool {
        let tracing = self.env.journal.is_tracing();
        self.slots.get_mut(index).is_some_and(|slot| slot.touch(index, &mut self.env.outbox, tracing))
    }

    /// Gives a segment to connection `index`, which is not in SYN-SENT. Returns whether the connection has news.
    #[inline]
    pub(crate) fn deliver(&mut self, index: u32, segment: &Segment<'_>, now: Instant) -> bool {
        let Some(slot) = self.slots.get_mut(index) else { return false };
        let disposition = slot.conn.handle_segment(segment, now, &mut self.env.pool);
        let news = slot.touch(index, &mut self.env.outbox, self.env.journal.is_tracing());
        if unlikely(disposition != Disposition::Processed) {
            self.not_processed(index, disposition, segment);
        }
        news
    }

    /// Resets a connection so that another one has room.
    pub(crate) fn shed(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.conn.abort(&mut self.env.pool);
            self.touched(index);
        }
    }

    /// Queues the connection for [`Stack::poll_event`](crate::Stack::poll_event).
    pub(crate) fn announce(&mut self, index: u32) {
        if let Some((slot, generation)) = self.slots.get_mut_with_generation(index) {
            slot.announce(index, generation, &mut self.env.journal);
        }
    }

    // --- how a connection begins and ends --------------------------------------------------------------

    /// Frees the slot if the connection is over and nobody owns it.
    #[inline]
    pub(crate) fn reap(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let over = matches!(slot.conn.state(), StateName::Closed | StateName::TimeWait);
        if over && slot.owner == Owner::Nobody && !slot.queued {
            if let Some(asked) = slot.asked.take()
                && self.spare.len() < SPARE
            {
                self.spare.push(asked);
            }
            slot.retire(&mut self.env.pool);
            self.slots.retire(index);
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
        let (index, slot) = self.slots.reserve(Slot::default);
        slot.renew(tcp, with);
        begin(slot, &mut self.env.pool);
        slot.queued = true;
        self.env.outbox.queue(index);
        // A connect carried in a lookup has no server yet, so it has no mapping of a translator to keep.
        if unlikely(key.is_carried()) && key.outer_remote() != 0 {
            self.join_pair(key, index, owner == Owner::Application, now);
        }
        self.map(hash, index);
        index
    }

    /// Gives connection `index` another peer. `opened` says whether this stack opened the connection.
    pub(crate) fn rekey(&mut self, index: u32, key: &FlowKey, opened: bool, now: Instant) {
        self.leave_pair(index);
        let hash = self.hasher.hash(key);
        let Some(slot) = self.slots.get_mut(index) else { return };
        let before = core::mem::replace(&mut slot.hash, hash);
        slot.key = *key;
        self.table.remove(before, index);
        self.map(hash, index);
        if key.is_carried() {
            self.join_pair(key, index, opened, now);
        }
    }
}
