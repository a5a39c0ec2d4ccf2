//! Servers whose last connect succeeded.

use crate::client::Authority;
use firstflight_credential::NetworkId;
use std::collections::HashMap;

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
    use std::net::SocketAddr;

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
}
