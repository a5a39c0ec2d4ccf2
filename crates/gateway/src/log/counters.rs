//! What was counted, for the last lines of the log.

use firstflight::credential::Outcome;
use firstflight::{Counters, Outcomes, StoreCounters};
use firstflight_dns::front::Kind;
use firstflight_dns::service::FrontHandle;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The engine's counters by name.
#[derive(Serialize)]
pub(crate) struct Report {
    packets_in: u64,
    packets_out: u64,
    /// Packets that came to another shard than that of their connection.
    packets_handed_over: u64,
    /// Fragments received, and packets reassembled from them.
    fragments: u64,
    packets_reassembled: u64,
    passive_opens: u64,
    established: u64,
    cookies_granted: u64,
    /// Connections by outcome: `accepted`, or the reason of an ordinary handshake. Only outcomes that occurred.
    outcomes: BTreeMap<&'static str, u64>,
    first_flights_accepted: u64,
    first_flights_refused: u64,
    repeats_reset: u64,
    syn_cookies_sent: u64,
    syn_cookies_good: u64,
    resets_sent: u64,
    encapsulation_paths_checked: u64,
    encapsulation_paths_moved: u64,
    clients_limited: u64,
    stuck_reset: u64,
    connections_cut_off: usize,
    segments_dropped: u64,
    packets_dropped: u64,
    /// The dropped packets by reason. Only reasons that occurred.
    dropped: BTreeMap<&'static str, u64>,
}

impl Report {
    /// The counts of a server's engine. `cut_off` connections had not closed in order when it stopped.
    pub(crate) fn new(counters: &Counters, cut_off: usize) -> Self {
        Self {
            packets_in: counters.packets_in,
            packets_out: counters.packets_out,
            packets_handed_over: counters.handed_over,
            fragments: counters.fragments_in,
            packets_reassembled: counters.packets_reassembled,
            passive_opens: counters.passive_opens,
            established: counters.established,
            cookies_granted: counters.cookies_granted,
            outcomes: outcomes(&counters.server),
            first_flights_accepted: counters.first_flights_accepted,
            first_flights_refused: counters.first_flights_refused,
            repeats_reset: counters.repeats_reset,
            syn_cookies_sent: counters.syn_cookies_sent,
            syn_cookies_good: counters.syn_cookies_good,
            resets_sent: counters.resets_sent,
            encapsulation_paths_checked: counters.encapsulation_paths_checked,
            encapsulation_paths_moved: counters.encapsulation_paths_moved,
            clients_limited: counters.clients_limited,
            stuck_reset: counters.stuck_reset,
            connections_cut_off: cut_off,
            segments_dropped: counters.segments_dropped,
            packets_dropped: counters.dropped_in_all(),
            dropped: occurred(counters.drops().map(|(reason, count)| (reason.as_str(), count))),
        }
    }
}

fn outcomes(counts: &Outcomes) -> BTreeMap<&'static str, u64> {
    let label = |outcome: Outcome| outcome.reason().map_or(outcome.as_str(), |reason| reason.as_str());
    occurred(counts.iter().map(|(outcome, count)| (label(outcome), count)))
}

fn occurred(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<&'static str, u64> {
    counts.filter(|(_, count)| *count > 0).collect()
}

fn list(counts: &BTreeMap<&'static str, u64>) -> String {
    counts.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "packets:       {} in, {} out, {} dropped",
            self.packets_in, self.packets_out, self.packets_dropped
        )?;
        if !self.dropped.is_empty() {
            write!(f, " ({})", list(&self.dropped))?;
        }
        writeln!(f)?;
        if self.fragments > 0 {
            let (fragments, packets) = (self.fragments, self.packets_reassembled);
            writeln!(f, "fragments:     {fragments} in, {packets} packets reassembled")?;
        }
        write!(f, "connections:   {} opened, {} established", self.passive_opens, self.established)?;
        match self.connections_cut_off {
            0 => writeln!(f)?,
            cut_off => writeln!(f, ", {cut_off} cut off at the end")?,
        }
        writeln!(
            f,
            "first flights: {} accepted, {} by handshake, {} cookies granted",
            self.first_flights_accepted, self.first_flights_refused, self.cookies_granted
        )?;
        if !self.outcomes.is_empty() {
            writeln!(f, "outcomes:      {}", list(&self.outcomes))?;
        }
        write!(
            f,
            "defence:       {} SYN cookies sent, {} returned, {} resets sent, {} segments dropped",
            self.syn_cookies_sent, self.syn_cookies_good, self.resets_sent, self.segments_dropped
        )?;
        if self.encapsulation_paths_checked > 0 {
            let (checked, moved) = (self.encapsulation_paths_checked, self.encapsulation_paths_moved);
            write!(f, "\nUDP ports:     {checked} checks of a client's new port, {moved} connections moved")?;
        }
        if self.clients_limited + self.stuck_reset > 0 {
            let (clients, stuck) = (self.clients_limited, self.stuck_reset);
            write!(f, "\nlimits:        {clients} reset for their client's limit, {stuck} for memory")?;
        }
        Ok(())
    }
}

/// The results of the questions to the farm's store.
#[derive(Serialize)]
pub(crate) struct Store {
    asked: u64,
    accepted: u64,
    refused: u64,
    activated: u64,
    timed_out: u64,
    failed: u64,
    turned_away: u64,
}

impl Store {
    /// The counters of a server's endpoint.
    pub(crate) fn new(counters: &StoreCounters) -> Self {
        Self {
            asked: counters.asked,
            accepted: counters.accepted,
            refused: counters.refused,
            activated: counters.activated,
            timed_out: counters.timed_out,
            failed: counters.failed,
            turned_away: counters.turned_away,
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "store:         {} asked, {} accepted, {} refused, {} cookies activated, {} too late, {} failed",
            self.asked,
            self.accepted,
            self.refused,
            self.activated,
            self.timed_out,
            self.failed + self.turned_away
        )
    }
}

/// The counters of the name server.
#[derive(Serialize)]
pub(crate) struct Names {
    queries: u64,
    answers: u64,
    answers_to_fragments: u64,
    put_together: u64,
    taken: u64,
}

impl Names {
    pub(crate) fn new(handle: &FrontHandle) -> Self {
        let (counts, table) = handle.counters();
        Self {
            queries: counts.udp + counts.tcp,
            answers: counts.answers_in_all(),
            answers_to_fragments: counts.answers(Kind::Fragment),
            put_together: table.completed,
            taken: counts.relayed,
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "names:         {} queries, {} answers ({} to fragments); first flights: {} put together, {} taken",
            self.queries, self.answers, self.answers_to_fragments, self.put_together, self.taken
        )
    }
}

/// What was accepted on the kernel's TCP.
#[derive(Serialize)]
pub(crate) struct Tcp {
    pub(crate) connections: u64,
    /// Those whose first flight was accepted.
    pub(crate) accepted: u64,
}

impl fmt::Display for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (connections, accepted) = (plural(self.connections), plural(self.accepted));
        write!(
            f,
            "TCP: {} connection{connections}, {} first flight{accepted} accepted",
            self.connections, self.accepted
        )
    }
}

const fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// One of the last lines of the log.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Last<'a> {
    /// Of an engine of a listener.
    Counters {
        time: String,
        listener: &'a str,
        #[serde(flatten)]
        counts: Report,
    },
    /// Of the kernel's TCP at a listener.
    Tcp {
        time: String,
        listener: &'a str,
        #[serde(flatten)]
        counts: Tcp,
    },
    /// Of the questions that an engine of a listener asked the farm's store.
    Store {
        time: String,
        listener: &'a str,
        #[serde(flatten)]
        counts: Store,
    },
    /// Of the name server.
    Names {
        time: String,
        #[serde(flatten)]
        counts: Names,
    },
}

impl fmt::Display for Last<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counters { listener, counts, .. } => write!(f, "{listener}, engine:\n{counts}"),
            Self::Tcp { listener, counts, .. } => write!(f, "{listener}, {counts}"),
            Self::Store { listener, counts, .. } => write!(f, "{listener}, {counts}"),
            Self::Names { counts, .. } => counts.fmt(f),
        }
    }
}
