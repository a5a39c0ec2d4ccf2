//! Commands for listeners.

use crate::config::ListenConfig;
use crate::event::{ConnId, ListenerId};
use crate::flows::Flows;
use crate::flows::slot::Owner;
use crate::queue::Queue;
use crate::server::Server;
use crate::server::listeners::Listener;
use crate::server::syn_cookies::CookiesSent;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use firstflight_credential::asap::TrustStore;
use firstflight_credential::{FastOpenPolicy, KeyRing, PolicyError};
use firstflight_wire::Instant;

/// Why a listener was not made. The caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenError {
    /// Another listener has this address already.
    AddressInUse,
    /// The stack does not have that address.
    AddressNotOurs,
    /// Port 0 cannot be listened on.
    NoPort,
    /// The policy of first flights cannot keep what it promises.
    Policy(PolicyError),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Policy(error) = self {
            return error.fmt(f);
        }
        f.write_str(match self {
            Self::Policy(_) => "",
            Self::AddressInUse => "address in use: another listener has it",
            Self::AddressNotOurs => "the stack does not have that address",
            Self::NoPort => "port 0 cannot be listened on: name one",
        })
    }
}

impl core::error::Error for ListenError {}

impl Server {
    /// See [`Stack::listen`](crate::Stack::listen).
    //= rfc9293 MUST-41 MUST-42
    pub(crate) fn listen(
        &mut self,
        flows: &mut Flows,
        config: ListenConfig,
    ) -> Result<ListenerId, ListenError> {
        let ip = config.local.ip();
        if config.local.port() == 0 {
            return Err(ListenError::NoPort);
        }
        if !ip.is_unspecified() && !flows.env.is_ours(ip) {
            return Err(ListenError::AddressNotOurs);
        }
        if let Some(policy) = &config.fast_open {
            policy.validate().map_err(ListenError::Policy)?;
            if policy.no_cookie && config.asap.is_some() {
                return Err(ListenError::Policy(PolicyError::AsapWithoutCookie));
            }
        }
        if let Some(policy) = &config.asap {
            policy.key(flows.env.random.next_u64());
            if self.listeners.refused_before(config.local.port(), policy) {
                policy.close(&flows.env.clock);
            }
        }
        let tcp = config.tcp.clone().unwrap_or_else(|| flows.env.tcp.clone());
        let listener = Listener {
            config,
            tcp,
            accept_queue: Queue::default(),
            syn_queue: 0,
            cookies: CookiesSent::default(),
            announced: false,
            limited: false,
        };
        self.listeners.insert(listener).ok_or(ListenError::AddressInUse)
    }

    /// See [`Stack::unlisten`](crate::Stack::unlisten). Returns the listener's port.
    pub(crate) fn unlisten(&mut self, flows: &mut Flows, id: ListenerId, now: Instant) -> Option<u16> {
        let gone = self.listeners.remove(id)?;
        if gone.config.asap.is_none() {
            // Another listener of this port may accept requests that this one refused.
            let clock = flows.env.clock_at(now);
            self.listeners.policies(gone.config.local.port()).for_each(|policy| policy.close(&clock));
        }
        let ours = |o: Owner| o == Owner::SynQueue(id.index) || o == Owner::AcceptQueue(id.index);
        let orphans: Vec<u32> = flows
            .table
            .slots
            .indices()
            .filter(|i| flows.table.slots.get(*i).is_some_and(|s| ours(s.owner)))
            .collect();
        for index in orphans {
            if let Some(slot) = flows.table.slots.get_mut(index) {
                slot.owner = Owner::Nobody;
                slot.conn.abort(&mut flows.env.pool);
                flows.touched(index);
            }
        }
        Some(gone.config.local.port())
    }

    /// See [`Stack::set_keys`](crate::Stack::set_keys).
    pub(crate) fn set_keys(&mut self, id: ListenerId, keys: Arc<KeyRing>) -> bool {
        let listener = self.listeners.get_mut(id);
        let Some(policy) = listener.and_then(|listener| listener.config.fast_open.as_mut()) else {
            return false;
        };
        policy.keys = keys;
        true
    }

    /// See [`Stack::set_fast_open`](crate::Stack::set_fast_open).
    pub(crate) fn set_fast_open(&mut self, id: ListenerId, policy: Option<FastOpenPolicy>) -> bool {
        let Some(listener) = self.listeners.get_mut(id) else { return false };
        if policy.as_ref().is_some_and(|policy| policy.validate().is_err()) {
            return false;
        }
        listener.config.fast_open = policy;
        true
    }

    /// See [`Stack::set_listener_config`](crate::Stack::set_listener_config).
    pub(crate) fn set_listener_config(&mut self, id: ListenerId, tcp: Arc<firstflight_tcp::Config>) -> bool {
        let Some(listener) = self.listeners.get_mut(id) else { return false };
        listener.tcp = tcp;
        true
    }

    /// See [`Stack::set_trust`](crate::Stack::set_trust).
    pub(crate) fn set_trust(
        &mut self,
        flows: &Flows,
        id: ListenerId,
        trust: Arc<TrustStore>,
        now: Instant,
    ) -> bool {
        let clock = flows.env.clock_at(now);
        let listener = self.listeners.get_mut(id);
        let Some(policy) = listener.and_then(|listener| listener.config.asap.as_mut()) else {
            return false;
        };
        policy.set_trust(trust, &clock);
        self.asap.trust_changed();
        true
    }

    /// See [`Stack::queues`](crate::Stack::queues).
    #[must_use]
    pub(crate) fn queues(&self, id: ListenerId) -> Option<(usize, usize)> {
        self.listeners.get(id).map(|l| (l.accept_queue.len(), l.syn_queue))
    }

    /// See [`Stack::accept`](crate::Stack::accept).
    pub(crate) fn accept(&mut self, flows: &mut Flows, id: ListenerId) -> Option<ConnId> {
        let index = self.listeners.get_mut(id)?.accept_queue.pop_front()?;
        let (slot, generation) = flows.table.slots.get_mut_with_generation(index)?;
        slot.owner = Owner::Application;
        slot.announce(index, generation, &mut flows.env.journal);
        Some(ConnId { index, generation })
    }
}
