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
pub(crate) struct Named {
    pub network: NetworkId,
    pub name: Box<str>,
    pub port: u16,
}

impl Named {
    pub(crate) fn new(network: NetworkId, name: &str, port: u16) -> Self {
        Self { network, name: name.to_ascii_lowercase().into(), port }
    }
}

/// What is known of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    /// The parameter. `None`: it publishes nothing, or nobody answered.
    pub parameter: Option<Arc<[u8]>>,
    pub until: Instant,
    /// First flights inside lookups that were sealed to it and lost, in a row.
    pub lost: u32,
    /// When it was last queried again because of that.
    pub asked: Option<Instant>,
}

/// The records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    known: HashMap<Named, Known>,
    /// Counts changes.
    changes: u64,
}

impl Records {
    /// What is known of `server` now.
    pub(crate) fn get(&self, server: &Named, now: Instant) -> Option<&Known> {
        self.known.get(server).filter(|known| now < known.until)
    }

    /// Whether the server published something at the last look, however long ago.
    pub(crate) fn published_before(&self, server: &Named) -> bool {
        self.known.get(server).is_some_and(|known| known.parameter.is_some())
    }

    /// The answer to a question counts for `lasts`.
    pub(crate) fn learn(&mut self, server: Named, parameter: Option<&[u8]>, lasts: Duration, now: Instant) {
        self.put(server, parameter, lasts, None, now);
    }

    fn put(
        &mut self,
        server: Named,
        parameter: Option<&[u8]>,
        lasts: Duration,
        asked: Option<Instant>,
        now: Instant,
    ) {
        let until = now + lasts.min(MOST_LASTS);
        self.restore(server, Known { parameter: parameter.map(Arc::from), until, lost: 0, asked });
    }

    /// Takes a saved entry.
    pub(crate) fn restore(&mut self, server: Named, known: Known) {
        if self.known.len() >= CAPACITY && !self.known.contains_key(&server) {
            let first = self.known.iter().min_by_key(|(_, one)| one.until).map(|(server, _)| server.clone());
            first.and_then(|server| self.known.remove(&server));
        }
        self.known.insert(server, known);
        self.changes += 1;
    }

    /// Takes the answer to a question that was repeated because first flights were lost. A changed record replaces the
    /// known one. Without a record, the known one is forgotten.
    pub(crate) fn learn_again(&mut self, server: &Named, found: Option<(&[u8], Duration)>, now: Instant) {
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
    pub(crate) fn set_asked(&mut self, server: &Named, now: Instant) {
        if let Some(known) = self.known.get_mut(server) {
            known.asked = Some(now);
            self.changes += 1;
        }
    }

    /// Whether the record may be queried again: the last query was at least ten minutes ago.
    pub(crate) fn may_ask_again(&self, server: &Named, now: Instant) -> bool {
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
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Named, &Known)> {
        self.known.iter()
    }

    /// The number of changes.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const NOW: Instant = Instant::from_secs(1_000_000);
    const DAY: Duration = Duration::from_secs(86_400);

    fn server(port: u16) -> Named {
        Named::new(NetworkId([1; 16]), "www.XYZ.com", port)
    }

    #[test]
    fn a_record_that_is_asked_for_again_replaces_what_was_known_at_once() {
        let mut records = Records::default();
        let later = |seconds| NOW + Duration::from_secs(seconds);
        let known = |records: &Records| {
            records
                .get(&server(80), later(1000))
                .and_then(|known| known.parameter.as_deref().map(<[u8]>::to_vec))
        };
        let losses = |records: &Records| records.iter().filter(|(_, known)| known.lost > 0).count();
        records.learn(server(80), Some(&[1]), DAY, NOW);
        records.set_losses(NetworkId([1; 16]), |parameter| u32::from(parameter == [1]) * 2);
        assert!(losses(&records) == 1 && records.may_ask_again(&server(80), NOW));
        // An unchanged record: neither its expiry nor its losses change.
        records.learn_again(&server(80), Some((&[1], Duration::from_secs(1))), later(600));
        assert_eq!((known(&records), losses(&records)), (Some(vec![1]), 1));
        // At most once in ten minutes.
        assert!(!records.may_ask_again(&server(80), later(1199)));
        assert!(records.may_ask_again(&server(80), later(1200)));
        // Another port is another server.
        records.learn_again(&server(81), None, later(600));
        assert_eq!(known(&records), Some(vec![1]));
        records.learn_again(&server(80), Some((&[2], DAY)), later(700));
        assert_eq!((known(&records), losses(&records)), (Some(vec![2]), 0));
        assert!(!records.may_ask_again(&server(80), later(701)));
        records.learn_again(&server(80), None, later(800));
        assert_eq!(known(&records), None);
    }

    #[test]
    fn a_record_counts_for_its_ttl_and_at_most_a_day_on_its_network() {
        let mut records = Records::default();
        records.learn(server(80), Some(&[1]), Duration::from_secs(60), NOW);
        records.learn(server(81), Some(&[1]), DAY * 9, NOW);
        assert!(records.get(&server(80), NOW + Duration::from_secs(59)).is_some());
        assert!(records.get(&server(80), NOW + Duration::from_secs(60)).is_none());
        assert!(records.get(&server(81), NOW + DAY).is_none());
        assert!(records.get(&Named { network: NetworkId([2; 16]), ..server(80) }, NOW).is_none());
    }

    #[test]
    fn memory_is_bounded() {
        let mut records = Records::default();
        for port in 0..=CAPACITY as u16 {
            records.learn(server(port), None, Duration::from_secs(60 + u64::from(port)), NOW);
        }
        assert_eq!(records.known.len(), CAPACITY);
        assert!(records.get(&server(0), NOW).is_none() && records.get(&server(1), NOW).is_some());
    }
}
