//! Servers whose last connect succeeded.

use crate::client::authority::Authority;
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
mod tests;
