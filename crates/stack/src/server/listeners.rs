//! Listeners and their two queues.

use crate::config::ListenConfig;
use crate::event::{Drop, ListenerId};
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::flows::slab::Slab;
use crate::flows::slot::Owner;
use crate::queue::Queue;
use crate::server::syn_cookies::CookiesSent;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use firstflight_credential::Quarantine;
use firstflight_credential::asap::AsapPolicy;
use firstflight_wire::Instant;

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
pub(crate) struct Room {
    /// Why no connection can be added.
    pub full: Option<Drop>,
    /// Too many handshakes are under way: SYN cookies answer.
    pub pressed: bool,
    /// A SYN cookie was sent a moment ago, so no first flight is accepted (see [`CookiesSent::is_in_tail`]).
    pub tail: bool,
}

impl Room {
    /// The room of `listener`.
    #[inline]
    pub(crate) fn of(listener: &Listener, flows: &Flows, now: Instant) -> Self {
        let full = if listener.is_full() {
            Some(Drop::AcceptQueueFull)
        } else if flows.is_full() {
            Some(Drop::TooManyConnections)
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
    left: BTreeSet<u16>,
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

    fn of_port(&self, port: u16) -> impl Iterator<Item = &Listener> {
        self.by_port.get(&port).into_iter().flatten().filter_map(|i| self.slab.get(*i))
    }

    /// Whether a listener of this port may have refused first flights that one with `policy` accepts: a listener there
    /// takes no certificates, or fewer, or one was removed.
    pub(crate) fn refused_before(&self, port: u16, policy: &AsapPolicy) -> bool {
        let refuses = |other: &AsapPolicy| policy.admits_more_than(other);
        self.left.contains(&port)
            || self.of_port(port).any(|listener| listener.config.asap.as_ref().is_none_or(refuses))
    }

    /// The certificate policies of this port's listeners.
    pub(crate) fn policies(&self, port: u16) -> impl Iterator<Item = &AsapPolicy> {
        self.of_port(port).filter_map(|listener| listener.config.asap.as_ref())
    }

    /// Whether the place of a connection that was reset stays taken for a while. It does if the application had the
    /// connection, or if the listener is strict.
    pub(crate) fn keeps_place(&self, owner: Owner) -> bool {
        match owner {
            Owner::Application | Owner::Nobody | Owner::Twin(_) => true,
            Owner::AcceptQueue(listener) | Owner::SynQueue(listener) => {
                let config = self.at(listener).map(|listener| &listener.config);
                let fast_open = config.and_then(|config| config.fast_open.as_ref()).map(|p| p.quarantine);
                let asap = config.and_then(|config| config.asap.as_ref()).map(|p| p.quarantine);
                [fast_open, asap].contains(&Some(Quarantine::Every))
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
