//! A client's session tickets, by site and network.

use crate::groups::Groups;
use firstflight::Authority;
use firstflight::credential::NetworkId;
use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tickets that are kept for one site on one network. Servers usually send two.
const TICKETS: usize = 2;
/// How many sites and networks have tickets. A ticket with its certificates has at most some 128 KiB, usually 2.
const SITES: usize = 256;

/// What a ticket belongs to. A ticket identifies the client to the server, so it is not used on another network, where the
/// client may want to be somebody else (RFC 8446 appendix C.4).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TicketPlace {
    pub(crate) server: Authority,
    pub(crate) network: NetworkId,
    /// The protocol that was agreed on, because early data is in the protocol of its ticket (RFC 8446 §4.2.10). If none was,
    /// the protocols that were offered.
    pub(crate) alpn: Vec<Vec<u8>>,
}

impl TicketPlace {
    /// The place of what was agreed on, out of what this one offers.
    fn agreed(&self, protocol: Option<&[u8]>) -> Self {
        let agreed = self.alpn.iter().find(|offered| Some(offered.as_slice()) == protocol);
        let alpn = agreed.map_or_else(|| self.alpn.clone(), |agreed| vec![agreed.clone()]);
        Self { alpn, ..self.clone() }
    }

    /// The places whose tickets may be offered, this one first.
    fn usable(&self) -> impl Iterator<Item = Self> {
        let agreed = self.alpn.iter().filter(|_| self.alpn.len() > 1).map(|name| self.agreed(Some(name)));
        std::iter::once(self.clone()).chain(agreed)
    }
}

#[derive(Default)]
struct Entry {
    tickets: VecDeque<Tls13ClientSessionValue>,
    /// The group that the server chose, by the groups that were offered.
    hints: Vec<(Groups, NamedGroup)>,
    /// The number of the last use.
    used: u64,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<TicketPlace, Entry>,
    uses: u64,
    network: Option<NetworkId>,
    epoch: Epoch,
}

/// Counts what makes this client somebody else. A connection keeps the one of its ClientHello: what it learns after a
/// change is forgotten as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Epoch {
    moves: u64,
    forgets: u64,
}

/// The tickets of a connector.
#[derive(Default)]
pub(crate) struct Tickets(Mutex<Inner>);

/// Leaves out the tickets, which are secret.
impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("places", &self.lock().entries.len()).finish()
    }
}

impl Tickets {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This host is on `network`. What was learnt on an unknown network before a change is forgotten: there may be several
    /// of them.
    pub(crate) fn on(&self, network: NetworkId) {
        let mut inner = self.lock();
        if inner.network.replace(network).is_some_and(|last| last != network) {
            inner.entries.retain(|place, _| place.network.is_known());
            inner.epoch.moves += 1;
        }
    }

    pub(crate) fn forget(&self) {
        let mut inner = self.lock();
        inner.entries.clear();
        inner.epoch.forgets += 1;
    }

    /// What to offer to a server so that early data can ride: one of `protocols` at most. `None` if no ticket of this network
    /// allows it.
    pub(crate) fn for_early_data(&self, server: &Authority, protocols: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        let inner = self.lock();
        let allows =
            |entry: &Entry| entry.tickets.back().is_some_and(|ticket| ticket.max_early_data_size() > 0);
        let fits = |alpn: &[Vec<u8>]| match alpn {
            [] => protocols.is_empty(),
            [one] => protocols.contains(one),
            _ => false,
        };
        let places = inner.entries.iter().filter(|(place, entry)| {
            place.server == *server
                && inner.network == Some(place.network)
                && fits(&place.alpn)
                && allows(entry)
        });
        places.max_by_key(|(_, entry)| entry.used).map(|(place, _)| place.alpn.clone())
    }
}

impl Inner {
    fn entry(&mut self, place: &TicketPlace) -> &mut Entry {
        self.uses += 1;
        let used = self.uses;
        if !self.entries.contains_key(place) && self.entries.len() >= SITES {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(oldest) = oldest.map(|(place, _)| place.clone()) {
                self.entries.remove(&oldest);
            }
        }
        let entry = self.entries.entry(place.clone()).or_default();
        entry.used = used;
        entry
    }
}

/// The tickets of one connection, as rustls wants them.
#[derive(Debug)]
pub(crate) struct AtPlace {
    tickets: Arc<Tickets>,
    /// With what is offered.
    place: TicketPlace,
    groups: Groups,
    /// When its ClientHello was made.
    epoch: Epoch,
    learnt: Mutex<TicketSink>,
}

/// Where tickets go that come.
enum TicketSink {
    /// The protocol is not known yet, so they wait.
    Waiting(VecDeque<Tls13ClientSessionValue>),
    To(TicketPlace),
}

/// Leaves out the tickets, which are secret.
impl fmt::Debug for TicketSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(tickets) => f.debug_tuple("Waiting").field(&tickets.len()).finish(),
            Self::To(place) => f.debug_tuple("To").field(place).finish(),
        }
    }
}

impl AtPlace {
    /// Of a ClientHello that is made now, and offers what `place` says.
    pub(crate) fn new(tickets: &Arc<Tickets>, place: TicketPlace, groups: Groups) -> Self {
        let learnt = Mutex::new(match place.alpn.len() {
            0 | 1 => TicketSink::To(place.clone()),
            _ => TicketSink::Waiting(VecDeque::new()),
        });
        Self { tickets: Arc::clone(tickets), epoch: tickets.lock().epoch, place, groups, learnt }
    }

    /// Whether there is a ticket to offer.
    pub(crate) fn resumes(&self) -> bool {
        let inner = self.tickets.lock();
        self.place
            .usable()
            .any(|place| inner.entries.get(&place).is_some_and(|entry| !entry.tickets.is_empty()))
    }

    /// The server has chosen this protocol, or none. Tickets are for it.
    pub(crate) fn agreed(&self, protocol: Option<&[u8]>) {
        let mut learnt = self.learnt();
        let TicketSink::Waiting(waiting) = &mut *learnt else { return };
        let (waiting, place) = (std::mem::take(waiting), self.place.agreed(protocol));
        let mut inner = self.tickets.lock();
        if self.learns(&inner) {
            let hints = inner.entries.get(&self.place).map(|entry| entry.hints.clone());
            let entry = inner.entry(&place);
            if let Some(hints) = hints {
                entry.hints = hints;
            }
            waiting.into_iter().for_each(|ticket| entry.keep(ticket));
        }
        *learnt = TicketSink::To(place);
    }

    /// The server does not speak the protocol of its tickets any more.
    pub(crate) fn forget(&self) {
        self.tickets.lock().entries.remove(&self.place);
    }

    fn learnt(&self) -> MutexGuard<'_, TicketSink> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what is learnt now may be remembered. An unknown network is another one after each move.
    fn learns(&self, inner: &Inner) -> bool {
        let Epoch { moves, forgets } = self.epoch;
        forgets == inner.epoch.forgets && (self.place.network.is_known() || moves == inner.epoch.moves)
    }
}

impl Entry {
    fn keep(&mut self, ticket: Tls13ClientSessionValue) {
        self.tickets.push_back(ticket);
        while self.tickets.len() > TICKETS {
            self.tickets.pop_front();
        }
    }
}

impl ClientSessionStore for AtPlace {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        let mut inner = self.tickets.lock();
        if !self.learns(&inner) {
            return;
        }
        let hints = &mut inner.entry(&self.place).hints;
        hints.retain(|(groups, _)| *groups != self.groups);
        hints.push((self.groups, group));
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        let inner = self.tickets.lock();
        let hints = &inner.entries.get(&self.place)?.hints;
        hints.iter().find(|(groups, _)| *groups == self.groups).map(|(_, group)| *group)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        match &mut *self.learnt() {
            TicketSink::Waiting(waiting) => {
                waiting.push_back(ticket);
                while waiting.len() > TICKETS {
                    waiting.pop_front();
                }
            }
            TicketSink::To(place) => {
                let mut inner = self.tickets.lock();
                if self.learns(&inner) {
                    inner.entry(place).keep(ticket);
                }
            }
        }
    }

    /// The newest one. Each is used once (RFC 8446 appendix C.4).
    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut inner = self.tickets.lock();
        self.place.usable().find_map(|place| inner.entries.get_mut(&place)?.tickets.pop_back())
    }
}

#[cfg(test)]
mod tests;
