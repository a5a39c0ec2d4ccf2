//! What became of first flights, for each server: for the status page, and for the PAC file.

use firstflight::credential::{Outcome, Reason};
use firstflight::dns_path::HeldBack;
use firstflight::{Authority, Host, ServerKnowledge, Stream};
use lru::LruCache;
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Servers remembered. The one whose last contact is the longest ago is forgotten first.
const SERVERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);
/// Contacts of a server that are kept for its plot.
const RECENT: usize = 40;

/// A connection to a server that was made, in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Contact {
    /// How the segments travel: `kernel` or `udp`.
    pub way: &'static str,
    /// `accepted`, `handshake` or `unknown`.
    pub outcome: &'static str,
    /// Why the first flight was not accepted; see `docs/guide/outcomes.md`.
    pub reason: Option<&'static str>,
    /// The client was told yes before the connect.
    pub early_yes: bool,
    /// Round trips that the first flight saved: 1 if the server took all of it before the handshake was complete.
    pub round_trips_saved: u32,
    /// How long these round trips would have lasted, milliseconds. `None` if the round-trip time was not measured.
    pub saved_ms: Option<f64>,
    /// From the first bytes, or from the request if the proxy connected first, until the server had answered.
    pub connect_ms: f64,
    /// The round-trip time, if it was measured.
    pub rtt_ms: Option<f64>,
    /// If requests also travel inside lookups: `lookup` if this one did and was answered so, `direct` if its direct copy was
    /// first, `ordinary` if it did not travel so.
    pub inside_lookup: Option<&'static str>,
    /// Why it did not travel inside the lookup.
    pub held_back: Option<&'static str>,
}

impl Contact {
    pub(crate) fn new(stream: &Stream, early_yes: bool, took: Duration) -> Self {
        let outcome = stream.outcome();
        let saved = outcome.is_accepted() && outcome != Outcome::AcceptedPart;
        let inside = stream.inside_lookup();
        Self {
            way: stream.way().as_str(),
            outcome: outcome.as_str(),
            reason: outcome.reason().map(|reason| reason.as_str()),
            early_yes,
            round_trips_saved: saved.into(),
            saved_ms: stream.rtt().filter(|_| saved).map(millis),
            connect_ms: millis(took),
            rtt_ms: stream.rtt().map(millis),
            inside_lookup: inside.map(|report| report.way.as_str()),
            held_back: inside.and_then(|report| report.held_back.as_ref()).map(HeldBack::as_str),
        }
    }

    /// The proxy connected first although it had been there before: the server has granted no cookie.
    pub(crate) fn grants_none(mut self) -> Self {
        if self.is_first_contact() {
            self.reason = Some(Reason::PeerWithoutFastOpen.as_str());
        }
        self
    }

    /// Whether the proxy knew too little of the server to answer early, so that it connected first. That connection asks for the
    /// cookie of the next ones.
    pub fn is_first_contact(&self) -> bool {
        let is = |reason: Reason| self.reason == Some(reason.as_str());
        !self.early_yes && (is(Reason::NoData) || is(Reason::NoCredential))
    }

    /// A sentence about its reason.
    fn means(&self) -> Option<String> {
        let label = self.reason?;
        if self.is_first_contact() {
            return Some(
                "the proxy connected before it answered, and asked for the cookie of the next connection"
                    .to_owned(),
            );
        }
        Reason::ALL.iter().find(|reason| reason.as_str() == label).map(ToString::to_string)
    }
}

pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// One bar of the plot.
#[derive(Debug, Clone, Serialize)]
struct Bar {
    ms: f64,
    /// By how much later the answer to the program's first bytes comes: behind an ordinary handshake they have a round trip of
    /// their own.
    later_ms: f64,
    /// By how much longer the program's first bytes would have been on their way.
    saved_ms: f64,
    outcome: &'static str,
    /// When it was, so that the contacts of all servers can be put in order.
    unix_ms: u64,
}

/// What is known of one server.
#[derive(Debug, Clone, Default, Serialize)]
struct Entry {
    contacts: u64,
    accepted: u64,
    early_yes: u64,
    failures: u64,
    /// Connections that were reset, because the connect failed after an early yes.
    resets: u64,
    round_trips_saved: u64,
    saved_ms: f64,
    sent: u64,
    received: u64,
    last: Option<Contact>,
    error: Option<String>,
    recent: VecDeque<Bar>,
    /// Whether first flights gain something at the host, as far as is known.
    speaks: Option<bool>,
    /// Of the last contact.
    unix_ms: u64,
}

/// The table. Its memory is bounded.
pub(crate) struct Board {
    table: Mutex<Table>,
    changed: watch::Sender<u64>,
}

struct Table {
    servers: LruCache<Authority, Entry>,
    total: Total,
}

/// What a proxy did since it was started, for all servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Total {
    /// Connections to servers.
    pub contacts: u64,
    /// Of these, the ones whose first flight the server accepted.
    pub accepted: u64,
    /// Connections whose client was told yes before the connect.
    pub early_yes: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Of these, the ones whose client had been told yes, so that it was reset.
    pub resets: u64,
    /// Round trips that first flights saved.
    pub round_trips_saved: u64,
    /// How long these would have lasted, milliseconds, as far as round-trip times were measured.
    pub saved_ms: f64,
}

/// What a [`Proxy`](crate::Proxy) did so far. It can be read while the proxy runs, and afterwards.
#[derive(Clone)]
pub struct Tally(pub(crate) std::sync::Arc<crate::shared::Shared>);

impl Tally {
    /// The counts until now.
    pub fn total(&self) -> Total {
        self.0.board.total()
    }
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tally").field(&self.total()).finish()
    }
}

#[derive(Serialize)]
struct Row<'a> {
    server: String,
    /// What the reason of the last contact means.
    means: Option<String>,
    #[serde(flatten)]
    entry: &'a Entry,
}

impl Default for Board {
    fn default() -> Self {
        let table = Table { servers: LruCache::new(SERVERS), total: Total::default() };
        Self { table: Mutex::new(table), changed: watch::Sender::new(0) }
    }
}

impl Board {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, server: &Authority, now: u64, change: impl FnOnce(&mut Entry, &mut Total)) {
        let mut table = self.table();
        let Table { servers, total } = &mut *table;
        let entry = servers.get_or_insert_mut(server.clone(), Entry::default);
        entry.unix_ms = now;
        change(entry, total);
        drop(table);
        self.changed.send_modify(|revision| *revision += 1);
    }

    /// Wakes at each change.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// What the client knew of the server before the connect.
    pub(crate) fn expect(&self, server: &Authority, outlook: ServerKnowledge, now: u64) {
        if outlook.is_good() {
            self.change(server, now, |entry, _| entry.speaks = entry.speaks.or(Some(true)));
        }
    }

    /// A server was reached.
    pub(crate) fn reached(&self, server: &Authority, contact: &Contact, now: u64) {
        let (accepted, saved) = (contact.outcome == "accepted", u64::from(contact.round_trips_saved));
        self.change(server, now, |entry, total| {
            entry.contacts += 1;
            entry.accepted += u64::from(accepted);
            entry.early_yes += u64::from(contact.early_yes);
            entry.round_trips_saved += saved;
            entry.saved_ms += contact.saved_ms.unwrap_or_default();
            if saved > 0 {
                entry.speaks = Some(true);
            } else if contact.early_yes && contact.reason != Some(Reason::NoData.as_str()) {
                // The data left, or would have, and gained nothing.
                entry.speaks = Some(false);
            }
            entry.error = None;
            if entry.recent.len() >= RECENT {
                entry.recent.pop_front();
            }
            let (ms, saved_ms) = (contact.connect_ms, contact.saved_ms.unwrap_or_default());
            let later_ms = if accepted { 0.0 } else { contact.rtt_ms.unwrap_or_default() };
            entry.recent.push_back(Bar { ms, later_ms, saved_ms, outcome: contact.outcome, unix_ms: now });
            entry.last = Some(contact.clone());
            total.contacts += 1;
            total.accepted += u64::from(accepted);
            total.early_yes += u64::from(contact.early_yes);
            total.round_trips_saved += saved;
            total.saved_ms += contact.saved_ms.unwrap_or_default();
        });
    }

    /// A server was not reached. With `reset` its client had been told yes.
    pub(crate) fn failed(&self, server: &Authority, error: &str, reset: bool, now: u64) {
        self.change(server, now, |entry, total| {
            entry.failures += 1;
            entry.resets += u64::from(reset);
            entry.error = Some(error.chars().take(200).collect());
            total.failures += 1;
            total.resets += u64::from(reset);
        });
    }

    /// Bytes that a connection carried.
    pub(crate) fn carried(&self, server: &Authority, sent: u64, received: u64, now: u64) {
        self.change(server, now, |entry, _| {
            entry.sent += sent;
            entry.received += received;
        });
    }

    pub(crate) fn total(&self) -> Total {
        self.table().total
    }

    /// The servers as JSON, the one of the last contact first.
    pub(crate) fn servers(&self) -> serde_json::Result<serde_json::Value> {
        let table = self.table();
        let row = |(server, entry): (&Authority, _)| (server.to_string(), entry);
        let rows = table.servers.iter().map(row).map(|(server, entry)| Row {
            server,
            means: entry.last.as_ref().and_then(Contact::means),
            entry,
        });
        serde_json::to_value(rows.collect::<Vec<_>>())
    }

    /// The names of hosts at which first flights gain something, as far as is known.
    pub(crate) fn speakers(&self) -> BTreeSet<String> {
        let table = self.table();
        let speaks = table.servers.iter().filter(|(_, entry)| entry.speaks == Some(true));
        speaks
            .filter_map(|(server, _)| match server.host() {
                Host::Name(name) => Some(name.clone()),
                Host::Ip(_) => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
