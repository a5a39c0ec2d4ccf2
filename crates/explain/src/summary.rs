//! The summary of all connections, with a hint about systematic failures.

use super::note::Note;
use super::sightings::apart;
use super::verdict::ConnectionVerdict;
use crate::record;
use firstflight_credential::{Outcome, Reason};
use firstflight_wire::{Instant, SeqNum};
use lru::LruCache;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Number of servers remembered for the hint. The least recently seen ones are forgotten.
const SERVERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);
/// Number of failures from which on they are not accidental.
const SYSTEMATIC: u32 = 2;
/// Number of initial sequence numbers remembered, to find connections that were captured on both sides of an address
/// translator.
const NUMBERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);
/// Two connections with the same number that began within this time are one connection, because a number has 32
/// random bits.
const TOGETHER: Duration = Duration::from_millis(100);

/// The connection that is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    /// The server's address.
    pub server: IpAddr,
    /// Whether the connection is in UDP.
    pub in_udp: bool,
    /// When it began, and the client's initial sequence number if its SYN was captured.
    pub began: (Instant, Option<SeqNum>),
}

/// Counts over a capture. `Display` gives lines for people, with the hint.
#[derive(Debug)]
pub struct Summary {
    connections: u64,
    asked: u64,
    probed: u64,
    certified: u64,
    outcomes: BTreeMap<Outcome, u64>,
    began_before: u64,
    translated: u64,
    servers: LruCache<IpAddr, Server>,
    /// When connections with these initial sequence numbers began.
    numbers: LruCache<u32, Instant>,
}

/// The results of one server.
#[derive(Debug, Clone, Copy, Default)]
struct Server {
    /// SYNs with data or option that were answered, or followed by a plain SYN that was answered.
    decided: u32,
    timed_out: u32,
    /// Those of `decided` without data.
    requests: u32,
    ungranted: u32,
    /// Those of `decided` with data.
    flights: u32,
    unrecognised: u32,
    unacknowledged: u32,
    /// Connections in UDP, and those of them in which nothing was received.
    udp: u32,
    udp_blocked: u32,
    /// A connection on IP was answered.
    answers_tcp: bool,
}

impl Summary {
    /// Starts without connections.
    pub(crate) fn new() -> Self {
        Self {
            connections: 0,
            asked: 0,
            probed: 0,
            certified: 0,
            outcomes: BTreeMap::new(),
            began_before: 0,
            translated: 0,
            servers: LruCache::new(SERVERS),
            numbers: LruCache::new(NUMBERS),
        }
    }

    /// Counts a connection.
    pub(crate) fn add(&mut self, subject: Subject, verdict: &ConnectionVerdict) {
        self.connections += 1;
        self.translated += u64::from(self.was_seen(subject.began));
        self.add_encapsulation(subject, verdict);
        let server = subject.server;
        *self.outcomes.entry(verdict.outcome).or_default() += 1;
        self.probed += u64::from(verdict.probed());
        self.certified += u64::from(verdict.certified());
        // The rest concerns cookies.
        if !verdict.asked() || verdict.certified() {
            self.asked += u64::from(verdict.asked());
            return;
        }
        self.asked += 1;
        let server = self.servers.get_or_insert_mut(server, Server::default);
        let reason = verdict.outcome.reason();
        if matches!(verdict.outcome, Outcome::Undecided | Outcome::Handshake(Reason::Unknown)) {
            return;
        }
        server.decided += 1;
        server.timed_out += u32::from(reason == Some(Reason::SynTimedOut));
        if verdict.carried() {
            server.flights += 1;
            server.unrecognised += u32::from(reason == Some(Reason::StaleOrWrongCredential));
            server.unacknowledged += u32::from(reason == Some(Reason::DataNotAcknowledged));
        } else {
            server.requests += 1;
            server.ungranted += u32::from(reason == Some(Reason::PeerWithoutFastOpen));
        }
    }

    /// Whether another connection has the same initial sequence number.
    fn was_seen(&mut self, (began, isn): (Instant, Option<SeqNum>)) -> bool {
        let Some(isn) = isn else { return false };
        let before = self.numbers.put(isn.get(), began);
        before.is_some_and(|before| apart(before, began) < TOGETHER)
    }

    fn add_encapsulation(&mut self, subject: Subject, verdict: &ConnectionVerdict) {
        let server = self.servers.get_or_insert_mut(subject.server, Server::default);
        if subject.in_udp {
            server.udp += 1;
            server.udp_blocked += u32::from(verdict.notes.contains(&Note::UdpBlocked));
        } else {
            server.answers_tcp |= verdict.acked_bytes.is_some();
        }
    }

    /// Counts a connection of which neither SYN nor SYN-ACK was captured.
    pub(crate) fn add_begun_before(&mut self) {
        self.began_before += 1;
    }

    fn accepted(&self) -> u64 {
        self.outcomes.iter().filter(|(outcome, _)| outcome.is_accepted()).map(|(_, count)| count).sum()
    }

    /// The counts as fields.
    pub(crate) fn record(&self, damage: Option<String>) -> record::Summary {
        let outcomes = self.outcomes.iter().map(|(outcome, count)| (label(*outcome), *count)).collect();
        record::Summary {
            connections: self.connections,
            asked: self.asked,
            probed: self.probed,
            certified: self.certified,
            accepted: self.accepted(),
            outcomes,
            began_before: self.began_before,
            translated: self.translated,
            hint: self.hint(),
            damage,
        }
    }

    /// One line about what fails every time, with the probable cause: the failure of most connections.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        if let Some(hint) = self.servers.iter().find_map(|(ip, server)| server.blocked(*ip)) {
            return Some(hint);
        }
        if self.connections > 0 && self.asked == 0 && self.probed == 0 && self.certified == 0 {
            return Some(
                "no connection asked for Fast Open: the client's system must allow it (Linux: 1 in \
                 net.ipv4.tcp_fastopen) and the program use it (curl --tcp-fastopen)"
                    .to_owned(),
            );
        }
        let systematic = self.servers.iter().filter_map(|(ip, server)| server.systematic(*ip));
        let (_, hint) = systematic.max_by_key(|(count, _)| *count)?;
        Some(hint)
    }
}

impl Server {
    /// The hint if nothing was ever received in UDP.
    fn blocked(&self, ip: IpAddr) -> Option<String> {
        let always = self.udp_blocked == self.udp && self.udp > 0;
        (always && (self.answers_tcp || self.udp >= SYSTEMATIC)).then(|| match self.answers_tcp {
            true => format!(
                "nothing came back from {ip} in UDP, but it answers TCP on IP: something on the path blocks UDP, or \
                 the server does not take TCP in UDP"
            ),
            false => format!(
                "nothing came back from {ip} in UDP, in {} connections: something on the path blocks UDP, or no \
                 server is there",
                self.udp
            ),
        })
    }

    /// How often the same failure happened, if it always did, and the hint about it.
    fn systematic(&self, ip: IpAddr) -> Option<(u32, String)> {
        let always = |failed: u32, of: u32| failed >= SYSTEMATIC && failed == of;
        let Self { decided, timed_out, requests, ungranted, flights, unrecognised, unacknowledged, .. } =
            *self;
        if always(timed_out, decided) {
            let hint = format!(
                "all {decided} SYNs with Fast Open to {ip} got no answer, the plain ones after them did: \
                 something on the path drops SYNs with data or with the option"
            );
            return Some((decided, hint));
        }
        if always(unrecognised, flights) {
            let hint = format!(
                "{ip} recognised none of {flights} cookies: its servers do not share a key, or the clients' \
                 address changes on the way (NAT)"
            );
            return Some((flights, hint));
        }
        if always(unacknowledged, flights) {
            let hint = format!(
                "{ip} took the data of none of {flights} SYNs and granted no other cookie: its limit of pending \
                 connections is reached, Fast Open is off by now, or something before it answers (a SYN proxy)"
            );
            return Some((flights, hint));
        }
        always(ungranted, requests).then(|| {
            let hint = format!(
                "{ip} granted no cookie to any of {requests} requests: its listener does not use Fast Open \
                 (Linux: 2 in net.ipv4.tcp_fastopen, and TCP_FASTOPEN), or the path removes the option"
            );
            (requests, hint)
        })
    }
}

/// `accepted`, `undecided`, or the reason's label.
fn label(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Accepted | Outcome::AcceptedReplyStripped => "accepted",
        Outcome::Handshake(reason) => reason.as_str(),
        _ => "undecided",
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (connections, asked, accepted) = (self.connections, self.asked, self.accepted());
        let plural = if connections == 1 { "" } else { "s" };
        write!(f, "{connections} connection{plural}, {asked} asked for Fast Open, ")?;
        if self.probed > 0 {
            write!(f, "{} asked whether the server takes certificates, ", self.probed)?;
        }
        if self.certified > 0 {
            write!(f, "{} showed a certificate, ", self.certified)?;
        }
        write!(f, "{accepted} accepted")?;
        let width = self.outcomes.values().map(|count| count.to_string().len()).max().unwrap_or(1);
        for (outcome, count) in &self.outcomes {
            write!(f, "\n  {count:>width$} {}: {outcome}", label(*outcome))?;
        }
        match self.translated {
            0 => {}
            1 => f.write_str(
                "\n1 connection was captured on both sides of an address translator and is counted twice",
            )?,
            more => write!(
                f,
                "\n{more} connections were captured on both sides of an address translator and are counted twice"
            )?,
        }
        match self.began_before {
            0 => {}
            1 => f.write_str("\n1 more connection began before the capture")?,
            more => write!(f, "\n{more} more connections began before the capture")?,
        }
        if let Some(hint) = self.hint() {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}
