//! What is known of a server before a connect.

use super::{Authority, Client};
use crate::stream::Way;
use firstflight_credential::NetworkId;
use std::collections::HashMap;
use std::net::SocketAddr;

/// What is known of a server before a connect ([`Client::outlook`]). A program that must answer for the connect before it
/// knows how it ends, such as a proxy, does so only if the outlook is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Outlook {
    /// The way by which a first flight that may run twice would leave now, because there is a credential for the server: a
    /// cookie of the kernel, or a certificate. Without one the data waits for the handshake.
    pub credential: Option<Way>,
    /// The last connect to the server by this client, or a clone of it, succeeded, and it was on this network.
    pub answered: bool,
}

impl Outlook {
    /// Whether there is a credential, and the last connect succeeded.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.credential.is_some() && self.answered
    }
}

impl Client {
    /// What is known of `server` before a connect to `addresses`, best one first. Nothing is sent to the server.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub async fn outlook(&self, server: &Authority, addresses: &[SocketAddr]) -> Outlook {
        let shared = &self.shared;
        shared.networks.refresh(shared).await;
        let answered = shared.kernel.answered(server);
        #[cfg(feature = "asap")]
        {
            use crate::first_flight::{FirstFlight, Flights};
            let any = Flights::Given(FirstFlight::safely_replayable(b"data"));
            if let Some(asap) = self.asap() {
                asap.begin_fixed();
                if asap.offer(server, addresses, &any).is_some() {
                    return Outlook { credential: Some(Way::Udp), answered };
                }
            }
        }
        let credential = if shared.fast_open { shared.cookie(addresses) } else { None };
        Outlook { credential, answered }
    }
}

/// Servers remembered. The one whose connect is the longest ago is forgotten first.
const CAPACITY: usize = 4096;

/// Servers whose last connect succeeded, for each network.
#[derive(Debug, Default)]
pub(crate) struct Contacts {
    last: HashMap<(NetworkId, Authority), u64>,
    /// Counts connects.
    turn: u64,
}

impl Contacts {
    pub(crate) fn note(&mut self, network: NetworkId, server: &Authority, succeeded: bool) {
        let key = (network, server.clone());
        self.last.remove(&key);
        if !succeeded {
            return;
        }
        if self.last.len() >= CAPACITY {
            let oldest = self.last.iter().min_by_key(|(_, turn)| **turn).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.last.remove(&key));
        }
        self.turn += 1;
        self.last.insert(key, self.turn);
    }

    pub(crate) fn answered(&self, network: NetworkId, server: &Authority) -> bool {
        self.last.contains_key(&(network, server.clone()))
    }

    pub(crate) fn clear(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORKS: [NetworkId; 2] = [NetworkId([1; 16]), NetworkId([2; 16])];

    fn server(port: u16) -> Authority {
        Authority::from(SocketAddr::from(([192, 0, 2, 1], port)))
    }

    #[test]
    fn the_last_connect_counts_on_its_own_network() {
        let mut contacts = Contacts::default();
        contacts.note(NETWORKS[0], &server(1), true);
        assert!(contacts.answered(NETWORKS[0], &server(1)));
        assert!(!contacts.answered(NETWORKS[1], &server(1)) && !contacts.answered(NETWORKS[0], &server(2)));
        contacts.note(NETWORKS[0], &server(1), false);
        assert!(!contacts.answered(NETWORKS[0], &server(1)));
    }

    #[test]
    fn the_oldest_contact_is_forgotten_first() {
        let mut contacts = Contacts::default();
        for port in 1..=CAPACITY as u16 {
            contacts.note(NETWORKS[0], &server(port), true);
        }
        contacts.note(NETWORKS[0], &server(1), true);
        contacts.note(NETWORKS[0], &server(60_000), true);
        assert_eq!(contacts.last.len(), CAPACITY);
        assert!(contacts.answered(NETWORKS[0], &server(1)) && !contacts.answered(NETWORKS[0], &server(2)));
    }

    #[test]
    fn both_are_needed() {
        let all = [(None, false), (None, true), (Some(Way::Kernel), false), (Some(Way::Udp), true)];
        let good = all.map(|(credential, answered)| Outlook { credential, answered }.is_good());
        assert_eq!(good, [false, false, false, true]);
    }
}
