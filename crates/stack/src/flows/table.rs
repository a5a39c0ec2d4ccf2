//! What a packet is looked up in: the connections, and what remains of those that are over.

use crate::config::Limits;
use crate::event::ConnId;
use crate::flow::{FlowHasher, FlowKey, FlowTable};
use crate::flows::early_ends::EarlyEnds;
use crate::flows::slab::Places;
use crate::flows::slot::{PendingConnect, Slot};
use crate::flows::time_wait::TimeWaitTable;
use crate::flows::wheel::TimerWheel;
use crate::owners::Claims;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hint::cold_path;
use firstflight_credential::pending::prefix;
use firstflight_tcp::TimeWait;
use firstflight_wire::{Instant, SeqNum};

/// See the module.
pub(crate) struct Table {
    pub slots: Places<Slot>,
    pub hasher: FlowHasher,
    /// Finds a connection (index of its slot) by its four-tuple.
    pub index: FlowTable,
    pub wheel: TimerWheel,
    pub time_wait: TimeWaitTable,
    /// Connections that the peer closed first, see [`crate::ListenConfig::hold_last_ack`].
    pub last_ack_records: TimeWaitTable,
    /// First flights whose connections ended before their client's ACK.
    pub early_ends: EarlyEnds,
    /// Boxes of earlier connections, kept for later ones.
    #[allow(clippy::vec_box, reason = "the boxes themselves are reused")]
    pub spare: Vec<Box<PendingConnect>>,
    /// Where the stacks of the group note their flows, if they do.
    claims: Option<Claims>,
    /// Connections (index) with notifications that [`Stack`](crate::Stack) has to take.
    notifications: Vec<u32>,
}

impl Table {
    /// `seed` is the key of the hashes.
    pub(crate) fn new(seed: u64, limits: &Limits, claims: Option<Claims>, now: Instant) -> Self {
        Self {
            slots: Places::default(),
            hasher: FlowHasher::new(seed),
            index: FlowTable::default(),
            wheel: TimerWheel::new(now),
            time_wait: TimeWaitTable::new(limits.time_wait).telling(claims.clone()),
            last_ack_records: TimeWaitTable::new(limits.held_last_acks).telling(claims.clone()),
            early_ends: EarlyEnds::new(limits.early_ends),
            spare: Vec::new(),
            claims,
            notifications: Vec::new(),
        }
    }

    /// The connection with this four-tuple.
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey) -> Option<u32> {
        self.find_hashed(self.hasher.hash(key), key)
    }

    /// Like [`Self::find`], if the hash is known already.
    #[inline]
    pub(crate) fn find_hashed(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        self.index.find(hash, |i| self.slots.get(i).is_some_and(|s| s.key == *key))
    }

    /// What remains of a connection with this hash that is over, and whether the peer closed it first.
    #[inline]
    pub(crate) fn remembered(&self, hash: u64) -> Option<(TimeWait, bool)> {
        if let Some(record) = self.time_wait.find(hash) {
            return Some((record, false));
        }
        if self.last_ack_records.len() == 0 {
            return None;
        }
        cold_path();
        self.last_ack_records.find(hash).map(|record| (record, true))
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
        if let Some(claims) = &self.claims {
            claims.claim(hash);
        }
        let slots = &self.slots;
        self.index.insert(hash, index, |i| slots.get(i).map_or(0, |slot| slot.hash));
    }

    /// Takes connection `index` out, whose hash was this. Its flow is free for other stacks of the group.
    pub(crate) fn unmap(&mut self, hash: u64, index: u32) {
        self.release(hash);
        self.index.remove(hash, index);
    }

    /// The flow with this hash is free for other stacks of the group.
    #[inline]
    pub(crate) fn release(&self, hash: u64) {
        if let Some(claims) = &self.claims {
            claims.release(hash);
        }
    }

    /// Notes that a connection with an accepted first flight ended before its client's ACK.
    pub(crate) fn note_early_end(&mut self, key: &FlowKey, hash: u64, isn: SeqNum, now: Instant) {
        let client = self.hasher.hash_client(prefix(key.remote_ip()));
        let forgotten = self.early_ends.note((*key, hash), isn, client, now);
        self.early_end_is_over(forgotten);
    }

    /// Forgets the early ends that are over.
    pub(crate) fn expire_early_ends(&mut self, now: Instant) {
        while let Some(flow) = self.early_ends.take_expired(now) {
            self.early_end_is_over(flow);
        }
    }

    /// Releases a flow that only an early end noted.
    fn early_end_is_over(&self, flow: Option<u64>) {
        if let Some(hash) = flow
            && self.index.find(hash, |_| true).is_none()
            && self.remembered(hash).is_none()
        {
            self.release(hash);
        }
    }

    /// Releases the flow of a packet that is back from its way round the group, if there is no connection of it.
    pub(crate) fn end_round(&self, hash: u64, key: &FlowKey) {
        if self.find_hashed(hash, key).is_none()
            && self.remembered(hash).is_none()
            && !self.early_ends.claims(hash)
        {
            self.release(hash);
        }
    }

    // --- notifications ---------------------------------------------------------------------------------

    /// Notes that connection `index` has notifications.
    pub(crate) fn note(&mut self, index: u32) {
        self.notifications.push(index);
    }

    /// Whether there are notifications to take.
    #[inline]
    pub(crate) fn has_notifications(&self) -> bool {
        !self.notifications.is_empty()
    }

    /// Takes the connections that have notifications, in the order in which they got them. Give the memory back with
    /// [`Self::notifications_taken`].
    pub(crate) fn take_notifications(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.notifications)
    }

    /// The notifications of all these are taken.
    pub(crate) fn notifications_taken(&mut self, mut taken: Vec<u32>) {
        if self.notifications.is_empty() {
            taken.clear();
            self.notifications = taken;
        }
    }
}
