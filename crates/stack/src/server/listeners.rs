//! Listeners and their two queues.

use crate::config::ListenConfig;
use crate::env::Env;
use crate::event::{ConnId, ListenerId, PacketDrop};
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::flows::slab::Slab;
use crate::flows::slot::{Owner, SlotMarks};
use crate::queue::Queue;
use crate::server::syn_cookies::CookiesSent;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
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

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub config: ListenConfig,
    pub tcp: Arc<firstflight_tcp::Config>,
    pub accept_queue: Queue<u32>,
    pub syn_queue: usize,
    pub cookies: CookiesSent,
    pub announced: bool,
    /// A limit of pending first flights was reached, and no first flight has been accepted since.
    pub limited: bool,
}

impl Listener {
    /// Whether as many connections wait to be accepted as may.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.accept_queue.len() >= self.config.backlog
    }
}

/// What a listener and its stack have room for at one moment.
pub(crate) struct ListenerRoom {
    /// Why no connection can be added.
    pub full: Option<PacketDrop>,
    /// Too many handshakes are under way: SYN cookies answer.
    pub pressed: bool,
    /// A SYN cookie was sent a moment ago, so no first flight is accepted (see [`CookiesSent::is_in_tail`]).
    pub tail: bool,
}

impl ListenerRoom {
    #[inline]
    pub(crate) fn of(listener: &Listener, flows: &Flows, now: Instant) -> Self {
        let full = if listener.is_full() {
            Some(PacketDrop::AcceptQueueFull)
        } else if flows.is_full() {
            Some(PacketDrop::TooManyConnections)
        } else {
            None
        };
        Self {
            full,
            pressed: listener.syn_queue >= listener.config.syn_backlog,
            tail: listener.cookies.is_in_tail(now),
        }
    }

    /// Whether there is room for a first flight that a front delivered.
    pub(crate) fn takes_relayed(&self) -> bool {
        self.full.is_none() && !self.pressed && !self.tail
    }
}

/// All listeners of a stack.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    slab: Slab<Listener>,
    by_port: BTreeMap<u16, Vec<u32>>,
    /// Ports from which a listener was removed.
    pub left: BTreeSet<u16>,
}

impl Listeners {
    pub(crate) fn get(&self, id: ListenerId) -> Option<&Listener> {
        self.slab.lives(id.index, id.generation).then(|| self.slab.get(id.index)).flatten()
    }

    pub(crate) fn at(&self, index: u32) -> Option<&Listener> {
        self.slab.get(index)
    }

    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Listener> {
        self.slab.get_mut(index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.slab.indices().filter_map(|index| self.slab.get(index))
    }

    /// Changes the settings of the connections that every listener makes from now on.
    pub(crate) fn tune(&mut self, tune: impl Fn(&mut Arc<firstflight_tcp::Config>)) {
        let indices: Vec<u32> = self.slab.indices().collect();
        for index in indices {
            if let Some(listener) = self.slab.get_mut(index) {
                tune(&mut listener.tcp);
            }
        }
    }

    /// The id of the listener that is at `index` now.
    pub(crate) fn id(&self, index: u32) -> ListenerId {
        ListenerId { index, generation: self.slab.generation(index) }
    }

    pub(crate) fn get_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        if !self.slab.lives(id.index, id.generation) {
            return None;
        }
        self.slab.get_mut(id.index)
    }

    /// The listener for a SYN to `key.local`. One bound to the address has priority over one bound to all
    /// addresses.
    pub(crate) fn find(&self, key: &FlowKey) -> Option<u32> {
        let list = self.by_port.get(&key.local_port())?;
        let bound = |i: &&u32, all: bool| {
            self.slab.get(**i).is_some_and(|l| {
                let ip = l.config.local.ip();
                if all {
                    ip.is_unspecified() && ip.is_ipv4() == key.local_ip().is_ipv4()
                } else {
                    ip == key.local_ip()
                }
            })
        };
        list.iter().find(|i| bound(i, false)).or_else(|| list.iter().find(|i| bound(i, true))).copied()
    }

    pub(crate) fn insert(&mut self, listener: Listener) -> Option<ListenerId> {
        let local = listener.config.local;
        let list = self.by_port.entry(local.port()).or_default();
        if list.iter().any(|i| self.slab.get(*i).is_some_and(|l| l.config.local == local)) {
            return None;
        }
        let (index, generation) = self.slab.insert(listener);
        list.push(index);
        Some(ListenerId { index, generation })
    }

    pub(crate) fn remove(&mut self, id: ListenerId) -> Option<Listener> {
        self.get(id)?;
        let listener = self.slab.remove(id.index)?;
        let port = listener.config.local.port();
        if let Some(list) = self.by_port.get_mut(&port) {
            list.retain(|i| *i != id.index);
        }
        self.left.insert(port);
        Some(listener)
    }

    pub(crate) fn of_port(&self, port: u16) -> impl Iterator<Item = &Listener> {
        self.by_port.get(&port).into_iter().flatten().filter_map(|i| self.slab.get(*i))
    }

    /// Whether the permit of a connection that was reset stays taken for a while. It does if the application had the
    /// connection, or if the listener is strict.
    pub(crate) fn keeps_permit(&self, owner: Owner) -> bool {
        match owner {
            Owner::Application | Owner::Nobody | Owner::SecondAttempt(_) => true,
            Owner::AcceptQueue(listener) | Owner::SynQueue(listener) => {
                self.at(listener).is_some_and(|listener| listener.config.quarantines_every())
            }
        }
    }

    pub(crate) fn left_syn_queue(&mut self, index: u32) {
        if let Some(listener) = self.slab.get_mut(index) {
            listener.syn_queue = listener.syn_queue.saturating_sub(1);
        }
    }

    /// Clears the pending notification. Returns the id if there is something to accept.
    pub(crate) fn announced(&mut self, index: u32) -> Option<ListenerId> {
        let listener = self.slab.get_mut(index)?;
        listener.announced = false;
        (!listener.accept_queue.is_empty()).then(|| self.id(index))
    }
}

/// Commands of the application.
impl Listeners {
    /// See [`Stack::listen`](crate::Stack::listen).
    //= rfc9293 MUST-41 MUST-42
    pub(crate) fn listen(&mut self, env: &mut Env, config: ListenConfig) -> Result<ListenerId, ListenError> {
        let ip = config.local.ip();
        if config.local.port() == 0 {
            return Err(ListenError::NoPort);
        }
        if !ip.is_unspecified() && !env.is_ours(ip) {
            return Err(ListenError::AddressNotOurs);
        }
        if let Some(policy) = &config.fast_open {
            policy.validate().map_err(ListenError::Policy)?;
            config.certificates_allow(policy).map_err(ListenError::Policy)?;
        }
        self.begins(env, &config);
        let tcp = config.tcp.clone().unwrap_or_else(|| env.tcp.clone());
        let listener = Listener {
            config,
            tcp,
            accept_queue: Queue::default(),
            syn_queue: 0,
            cookies: CookiesSent::default(),
            announced: false,
            limited: false,
        };
        self.insert(listener).ok_or(ListenError::AddressInUse)
    }

    /// See [`Stack::unlisten`](crate::Stack::unlisten). Returns the listener's port.
    pub(crate) fn unlisten(&mut self, flows: &mut Flows, id: ListenerId, now: Instant) -> Option<u16> {
        let gone = self.remove(id)?;
        self.ended(&flows.env, &gone.config, now);
        let ours = |o: Owner| o == Owner::SynQueue(id.index) || o == Owner::AcceptQueue(id.index);
        let orphans: Vec<u32> = flows
            .table
            .slots
            .indices()
            .filter(|i| flows.table.slots.get(*i).is_some_and(|s| ours(s.owner)))
            .collect();
        for index in orphans {
            if let Some(slot) = flows.table.slots.get_mut(index) {
                // No application has seen its data.
                slot.marks.clear(SlotMarks::ONCE);
                slot.owner = Owner::Nobody;
                slot.conn.abort(&mut flows.env.pool);
                flows.touched(index);
            }
        }
        Some(gone.config.local.port())
    }

    /// See [`Stack::set_keys`](crate::Stack::set_keys).
    pub(crate) fn set_keys(&mut self, id: ListenerId, keys: Arc<KeyRing>) -> bool {
        let listener = self.get_mut(id);
        let Some(policy) = listener.and_then(|listener| listener.config.fast_open.as_mut()) else {
            return false;
        };
        policy.keys = keys;
        true
    }

    /// See [`Stack::set_fast_open`](crate::Stack::set_fast_open).
    pub(crate) fn set_fast_open(&mut self, id: ListenerId, policy: Option<FastOpenPolicy>) -> bool {
        let Some(listener) = self.get_mut(id) else { return false };
        if policy.as_ref().is_some_and(|policy| policy.validate().is_err()) {
            return false;
        }
        listener.config.fast_open = policy;
        true
    }

    /// See [`Stack::set_listener_config`](crate::Stack::set_listener_config).
    pub(crate) fn set_listener_config(&mut self, id: ListenerId, tcp: Arc<firstflight_tcp::Config>) -> bool {
        let Some(listener) = self.get_mut(id) else { return false };
        listener.tcp = tcp;
        true
    }

    /// See [`Stack::queues`](crate::Stack::queues).
    #[must_use]
    pub(crate) fn queues(&self, id: ListenerId) -> Option<(usize, usize)> {
        self.get(id).map(|l| (l.accept_queue.len(), l.syn_queue))
    }

    /// See [`Stack::accept`](crate::Stack::accept).
    pub(crate) fn accept(&mut self, flows: &mut Flows, id: ListenerId) -> Option<ConnId> {
        let index = self.get_mut(id)?.accept_queue.pop_front()?;
        let (slot, generation) = flows.table.slots.get_mut_with_generation(index)?;
        slot.owner = Owner::Application;
        slot.announce(index, generation, &mut flows.env.journal);
        Some(ConnId { index, generation })
    }
}
