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
pub(crate) struct Place {
    pub(crate) server: Authority,
    pub(crate) network: NetworkId,
    /// The protocols that are offered. Early data is for one of them.
    pub(crate) alpn: Vec<Vec<u8>>,
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
    entries: HashMap<Place, Entry>,
    uses: u64,
    network: Option<NetworkId>,
    epoch: Epoch,
}

/// Counts what makes this client somebody else. A connection keeps the one of its ClientHello: what it learns after a
/// change is forgotten as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Epoch {
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

    /// The present, for [`AtPlace::epoch`].
    pub(crate) fn epoch(&self) -> Epoch {
        self.lock().epoch
    }

    /// How many tickets there are for a place.
    pub(crate) fn count(&self, place: &Place) -> usize {
        self.lock().entries.get(place).map_or(0, |entry| entry.tickets.len())
    }
}

impl Inner {
    fn entry(&mut self, place: &Place) -> &mut Entry {
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

/// The tickets of one place, as rustls wants them.
#[derive(Debug)]
pub(crate) struct AtPlace {
    pub(crate) tickets: Arc<Tickets>,
    pub(crate) place: Place,
    pub(crate) groups: Groups,
    /// When its ClientHello was made.
    pub(crate) epoch: Epoch,
}

impl AtPlace {
    /// Whether what is learnt now may be remembered. An unknown network is another one after each move.
    fn learns(&self, inner: &Inner) -> bool {
        let Epoch { moves, forgets } = self.epoch;
        forgets == inner.epoch.forgets && (self.place.network.is_known() || moves == inner.epoch.moves)
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
        let mut inner = self.tickets.lock();
        if !self.learns(&inner) {
            return;
        }
        let tickets = &mut inner.entry(&self.place).tickets;
        tickets.push_back(ticket);
        while tickets.len() > TICKETS {
            tickets.pop_front();
        }
    }

    /// The newest one. Each is used once (RFC 8446 appendix C.4).
    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tickets.lock().entries.get_mut(&self.place)?.tickets.pop_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, network: NetworkId) -> Place {
        Place { server: format!("{name}:443").parse().unwrap(), network, alpn: Vec::new() }
    }

    fn hint(tickets: &Arc<Tickets>, place: &Place) -> AtPlace {
        let epoch = tickets.epoch();
        AtPlace { tickets: Arc::clone(tickets), place: place.clone(), groups: Groups::Classical, epoch }
    }

    fn name() -> ServerName<'static> {
        ServerName::try_from("host").unwrap()
    }

    #[test]
    fn places_are_bounded_and_the_one_unused_longest_goes() {
        let tickets = Arc::new(Tickets::default());
        let known = NetworkId([1; 16]);
        for n in 0..=SITES {
            hint(&tickets, &place(&format!("h{n}"), known)).set_kx_hint(name(), NamedGroup::X25519);
        }
        assert_eq!(tickets.lock().entries.len(), SITES);
        assert_eq!(hint(&tickets, &place("h0", known)).kx_hint(&name()), None);
        assert!(hint(&tickets, &place("h1", known)).kx_hint(&name()).is_some());
    }

    #[test]
    fn what_an_unknown_network_taught_goes_with_it() {
        let tickets = Arc::new(Tickets::default());
        let (known, other) = (NetworkId([1; 16]), NetworkId::UNKNOWN);
        for network in [known, other] {
            tickets.on(network);
            hint(&tickets, &place("host", network)).set_kx_hint(name(), NamedGroup::X25519);
        }
        let hints = |network| hint(&tickets, &place("host", network)).kx_hint(&name()).is_some();
        assert!(hints(known) && hints(other));
        assert!(!hints(NetworkId([2; 16])), "nothing is shared across networks");
        tickets.on(known);
        assert!(hints(known) && !hints(other));
        tickets.forget();
        assert!(!hints(known));
    }

    /// A connection that outlives a move, or the user's wish to be a stranger, teaches nothing.
    #[test]
    fn what_is_learnt_late_is_not_remembered() {
        let tickets = Arc::new(Tickets::default());
        let (known, other) = (NetworkId([1; 16]), NetworkId::UNKNOWN);
        tickets.on(other);
        let [at_known, at_unknown] = [known, other].map(|network| hint(&tickets, &place("host", network)));
        let learn = |at: &AtPlace| {
            at.set_kx_hint(name(), NamedGroup::X25519);
            at.kx_hint(&name()).is_some()
        };
        assert!(learn(&at_unknown));
        tickets.on(known);
        assert!(!learn(&at_unknown) && learn(&at_known));
        tickets.forget();
        assert!(!learn(&at_unknown) && !learn(&at_known));
        assert!(learn(&hint(&tickets, &place("host", other))));
    }
}
