//! What is remembered of servers, paths, names and resolvers, each on the local network where it was learnt. What was
//! learnt on one network is not used on another.
//!
//! One file for each subject, without I/O. [`file`] keeps all of it in one file for later runs, and is the only part that
//! blocks; the tasks that call it are elsewhere. Nothing here needs an async runtime.

pub(crate) mod closed;
pub(crate) mod contacts;
pub(crate) mod cookie_requests;
#[cfg_attr(not(feature = "cache"), path = "memory/no_file.rs")]
pub(crate) mod file;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod kernel;
#[cfg(feature = "asap")]
pub(crate) mod lookups;
pub(crate) mod records;

use closed::ClosedPorts;
use firstflight_credential::{CredentialStore, Entry, NetworkId};
use firstflight_wire::Instant;
use health::{Networks, Pause};
use history::{History, HistoryWay};
use records::{KnownServer, NamedServer, Records};
use std::net::{IpAddr, SocketAddr};

/// Something that was in the file.
#[derive(Debug)]
pub(crate) enum Fact {
    Server(NetworkId, IpAddr, Entry),
    LostRace(HistoryWay, Instant),
    Closed(NetworkId, SocketAddr, Instant),
    UdpPause(NetworkId, Pause),
    Record(NamedServer, KnownServer),
}

/// What a holder knows, by subject.
#[derive(Debug)]
pub(crate) struct HolderMemory<'a> {
    pub servers: &'a CredentialStore,
    pub history: &'a History,
    /// What an engine does not learn.
    pub others: Option<Others<'a>>,
}

/// What only a client learns.
#[derive(Debug)]
pub(crate) struct Others<'a> {
    pub closed: &'a ClosedPorts,
    pub udp: &'a Networks,
    pub records: &'a Records,
}

impl HolderMemory<'_> {
    /// The number of changes. A holder that saves compares it with the number at the last save.
    pub(crate) fn changes(&self) -> u64 {
        let others = self.others.as_ref();
        let others = others.map_or(0, |of| of.closed.changes() + of.udp.changes() + of.records.changes());
        self.servers.changes() + self.history.changes() + others
    }
}
