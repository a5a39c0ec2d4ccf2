//! What servers publish in their HTTPS records, as found on a network: a network's resolver says what it likes. It selects
//! the way of a first flight and authorises nothing.

use firstflight_credential::NetworkId;
use firstflight_wire::Instant;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Servers remembered. The one whose record expires first is forgotten first.
const CAPACITY: usize = 4096;
/// A record is used for at most this time.
const MOST_LASTS: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a record is not queried again after it was queried because first flights were lost.
const ASKED_AGAIN: Duration = Duration::from_secs(10 * 60);

/// A server: the network, its name in lower case, and its port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NamedServer {
    pub network: NetworkId,
    pub name: Box<str>,
    pub port: u16,
}

impl NamedServer {
    pub(crate) fn new(network: NetworkId, name: &str, port: u16) -> Self {
        Self { network, name: name.to_ascii_lowercase().into(), port }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownServer {
    /// The parameter. `None`: it publishes nothing, or nobody answered.
    pub parameter: Option<Arc<[u8]>>,
    pub until: Instant,
    /// First flights inside lookups that were sealed to it and lost, in a row.
    pub lost: u32,
    /// When it was last queried again because of that.
    pub asked: Option<Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct Records {
    known: HashMap<NamedServer, KnownServer>,
    /// Counts changes.
    changes: u64,
}

impl Records {
    pub(crate) fn get(&self, server: &NamedServer, now: Instant) -> Option<&KnownServer> {
        self.known.get(server).filter(|known| now < known.until)
    }

    /// Whether the server published something at the last look, however long ago.
    pub(crate) fn published_before(&self, server: &NamedServer) -> bool {
        self.known.get(server).is_some_and(|known| known.parameter.is_some())
    }

    /// The answer to a question counts for `lasts`.
    pub(crate) fn learn(
        &mut self,
        server: NamedServer,
        parameter: Option<&[u8]>,
        lasts: Duration,
        now: Instant,
    ) {
        self.put(server, parameter, lasts, None, now);
    }

    fn put(
        &mut self,
        server: NamedServer,
        parameter: Option<&[u8]>,
        lasts: Duration,
        asked: Option<Instant>,
        now: Instant,
    ) {
        let until = now + lasts.min(MOST_LASTS);
        self.restore(server, KnownServer { parameter: parameter.map(Arc::from), until, lost: 0, asked });
    }

    /// Takes a saved entry.
    pub(crate) fn restore(&mut self, server: NamedServer, known: KnownServer) {
        if self.known.len() >= CAPACITY && !self.known.contains_key(&server) {
            let first = self.known.iter().min_by_key(|(_, one)| one.until).map(|(server, _)| server.clone());
            first.and_then(|server| self.known.remove(&server));
        }
        self.known.insert(server, known);
        self.changes += 1;
    }

    /// Takes the answer to a question that was repeated because first flights were lost. A changed record replaces the
    /// known one. Without a record, the known one is forgotten.
    pub(crate) fn learn_again(
        &mut self,
        server: &NamedServer,
        found: Option<(&[u8], Duration)>,
        now: Instant,
    ) {
        let known = self.get(server, now).and_then(|known| known.parameter.clone());
        match found {
            None => {
                self.known.remove(server);
                self.changes += 1;
            }
            Some((parameter, _)) if known.as_deref() == Some(parameter) => self.set_asked(server, now),
            Some((parameter, lasts)) => self.put(server.clone(), Some(parameter), lasts, Some(now), now),
        }
    }

    /// The record was queried again, with or without an answer.
    pub(crate) fn set_asked(&mut self, server: &NamedServer, now: Instant) {
        if let Some(known) = self.known.get_mut(server) {
            known.asked = Some(now);
            self.changes += 1;
        }
    }

    /// Whether the record may be queried again: the last query was at least ten minutes ago.
    pub(crate) fn may_ask_again(&self, server: &NamedServer, now: Instant) -> bool {
        let asked = self.known.get(server).and_then(|known| known.asked);
        asked.is_none_or(|asked| now.saturating_since(asked) >= ASKED_AGAIN)
    }

    /// Sets, for each parameter that is known on `network`, how many first flights were lost in a row.
    pub(crate) fn set_losses(&mut self, network: NetworkId, lost: impl Fn(&[u8]) -> u32) {
        for (_, known) in self.known.iter_mut().filter(|(server, _)| server.network == network) {
            known.lost = known.parameter.as_deref().map_or(0, &lost);
        }
        self.changes += 1;
    }

    /// Forgets what was learnt on `network`.
    pub(crate) fn leave(&mut self, network: NetworkId) {
        self.known.retain(|server, _| server.network != network);
        self.changes += 1;
    }

    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.changes += 1;
    }

    /// What is remembered, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&NamedServer, &KnownServer)> {
        self.known.iter()
    }

    /// The number of changes.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests;
