//! The server's side of first flights: listeners, SYNs that wait for a verdict, and what is kept of admitted ones until
//! their client's ACK.

pub(crate) mod admission;
pub(crate) mod children;
pub(crate) mod clients;
mod deferral;
pub(crate) mod deferred_syns;
pub(crate) mod listeners;
pub(crate) mod syn;
pub(crate) mod syn_cookies;
mod time_wait_syns;

use crate::asap::state::ServerState;
use crate::config::Limits;
use crate::event::{Job, JobId, ListenerId};
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::flows::slot::Slot;
use crate::flows::table::Table;
use crate::owners::Claims;
use crate::server::clients::Clients;
use crate::server::deferred_syns::DeferredSyns;
use crate::server::listeners::{Listener, Listeners};
use crate::server::syn_cookies::SynCookies;
use crate::server::time_wait_syns::Challenged;
use crate::stack::gauges::Gauges;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::time::Duration;
use firstflight_credential::{Decision, JobResult, PendingPermit, Serial};
use firstflight_tcp::CloseReason;
use firstflight_wire::{Instant, SeqNum};

/// How long a first flight that was reset while the application had it keeps its permit: the SYN may have been
/// spoofed, and the RST may be the victim's (RFC 7413 §5.1).
const QUARANTINE: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct Server {
    pub listeners: Listeners,
    pub deferred: DeferredSyns,
    pub cookies: SynCookies,
    challenged: Challenged,
    /// First flights with certificates.
    pub asap: ServerState,
    /// Permits of first flights that a RST ended after the application had them, and until when the permits stay
    /// taken.
    quarantine: VecDeque<(Instant, PendingPermit)>,
    /// One-time cookies granted to connections (by index) that have not acknowledged.
    grants: BTreeMap<u32, (ListenerId, Serial)>,
    /// The connections of each client, if their number is limited.
    clients: Option<Clients>,
}

impl Server {
    pub(crate) fn new(limits: &Limits, cookies: [u8; 16], claims: Option<Claims>) -> Self {
        Self {
            listeners: Listeners::default(),
            deferred: DeferredSyns::new(limits.deferred, limits.deferred_bytes, limits.deferred_for)
                .telling(claims),
            cookies: SynCookies::new(cookies),
            challenged: Challenged::default(),
            asap: ServerState::new(limits.asap),
            quarantine: VecDeque::new(),
            grants: BTreeMap::new(),
            clients: Clients::new(limits.connections_per_client),
        }
    }

    // --- listeners ---------------------------------------------------------------------------------

    /// The listener (index) that a SYN of connection `key` is for.
    #[inline]
    pub(crate) fn listener(&self, key: &FlowKey) -> Option<u32> {
        self.listeners.find(key)
    }

    /// Whether a listener (index) has no room for another connection that waits to be accepted.
    #[inline]
    pub(crate) fn is_full(&self, listener: u32) -> bool {
        self.listeners.at(listener).is_some_and(Listener::is_full)
    }

    /// A child of a listener (index) ended before its handshake was complete.
    pub(crate) fn left_syn_queue(&mut self, listener: u32) {
        self.listeners.left_syn_queue(listener);
    }

    /// The listener (index) that was announced to have a connection to accept, if it still listens.
    pub(crate) fn announced(&mut self, listener: u32) -> Option<ListenerId> {
        self.listeners.announced(listener)
    }

    /// Changes the settings of the listeners' connections.
    pub(crate) fn tune(&mut self, tune: impl Fn(&mut Arc<firstflight_tcp::Config>)) {
        self.listeners.tune(tune);
    }

    // --- SYNs that wait, and segments of no connection -----------------------------------------------

    /// The SYN with the four-tuple `key` that waits for a verdict, and its sequence number.
    pub(crate) fn waiting_syn(&self, key: &FlowKey) -> Option<(JobId, SeqNum)> {
        self.deferred.find(key)
    }

    /// A SYN met a connection in TIME-WAIT, which acknowledges `ack`.
    pub(crate) fn syn_met_time_wait(&mut self, hash: u64, ack: SeqNum) {
        self.challenged.note(hash, ack);
    }

    /// A RST answers what a connection in TIME-WAIT acknowledged.
    pub(crate) fn time_wait_was_reset(&mut self, hash: u64, ack: SeqNum) {
        self.challenged.reset(hash, ack);
    }

    /// The next question that the application has to answer.
    pub(crate) fn poll_job(&mut self) -> Option<Job> {
        self.deferred.poll_job().map(|(id, request)| Job { id, request })
    }

    /// Takes the answer to a question. An answer that comes too late is ignored.
    pub(crate) fn handle_job(&mut self, flows: &mut Flows, id: JobId, result: JobResult, now: Instant) {
        let Some(deferred) = self.deferred.take(id) else { return };
        let fallen = if result == JobResult::Accept { self.fallen(&flows.env, &deferred, now) } else { None };
        match fallen {
            Some(handshake) => self.resume_with(flows, deferred, Decision::Refuse(handshake), now),
            None => self.resume(flows, deferred, result, now),
        }
    }

    // --- connections -----------------------------------------------------------------------------------

    /// Whether the connections of each client are counted.
    #[inline]
    pub(crate) const fn counts_clients(&self) -> bool {
        self.clients.is_some()
    }

    /// Connection `index` was opened. If its client has more than it may have, returns one (index) that has to go.
    pub(crate) fn joined(&mut self, table: &mut Table, index: u32, now: Instant) -> Option<u32> {
        self.clients.as_mut()?.join(&mut table.slots, index, now)
    }

    /// Connection `index` of a client whose connections are counted is over.
    pub(crate) fn left(&mut self, slot: &mut Slot, index: u32) {
        if let Some(clients) = &mut self.clients {
            clients.leave(slot, index);
        }
    }

    /// Connection `index` ended before the client acknowledged the one-time cookie that it was granted.
    pub(crate) fn forget_grant(&mut self, index: u32) {
        self.grants.remove(&index);
    }

    /// The connection is over, and the permit of its first flight becomes free: at once, or after [`QUARANTINE`].
    pub(crate) fn give_back_permit(&mut self, slot: &mut Slot, now: Instant) {
        if let Some(permit) = slot.permit.take()
            && slot.conn.close_reason() == Some(CloseReason::Reset)
            && self.listeners.keeps_permit(slot.owner)
        {
            self.quarantine.push_back((now + QUARANTINE, permit));
        }
    }

    // --- time, and what is told ------------------------------------------------------------------------

    /// Does what is due at `now`.
    pub(crate) fn handle_timeout(&mut self, flows: &mut Flows, now: Instant) {
        while self.quarantine.front().is_some_and(|(until, _)| *until <= now) {
            self.quarantine.pop_front();
        }
        while let Some(deferred) = self.deferred.take_expired(now) {
            let handshake = self.expired(flows, &deferred, now);
            self.resume_with(flows, deferred, Decision::Refuse(handshake), now);
        }
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let quarantine = self.quarantine.front().map(|(until, _)| *until);
        self.deferred.next_deadline().into_iter().chain(quarantine).min()
    }

    pub(crate) fn add_gauges(&self, gauges: &mut Gauges) {
        gauges.deferred += self.deferred.len();
        gauges.quarantined += self.quarantine.len();
        gauges.add_listeners(&self.listeners);
    }
}
