//! Honest clients behind one address that all visit at once: how many first flights the limits against floods permit
//! (the Fast Open paper §§4.3, 7.3; `docs/spec/asap.md`, 7.7).

use super::world::{RTT, World, address, clock_at};
use super::{Cookies, policy};
use crate::certified::{self, LASTS, connect, key};
use crate::table::Table;
use firstflight_credential::asap::ClientCertificate;
use firstflight_credential::{GuardKey, PendingLimit, ReplayTable, Window};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of pending first flights at the listener.
const LIMIT: u32 = 256;
/// Bytes of a response, not more than an initial window.
const RESPONSE: usize = 12_000;
/// Longer than a guard stays closed after it starts.
const OPEN: Duration = Duration::from_secs(15);

/// The credential that the clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// The cookie of their address.
    Cookie,
    /// Each client has its own certificates, for different keys. At each visit it uses a new one.
    NewCertificate,
    /// Each client uses the same certificate at each visit.
    Certificate,
}

/// Clients that have one IPv4 address.
#[derive(Debug, Clone, Copy)]
pub struct Office {
    pub credential: Credential,
    /// How many clients visit at once.
    pub clients: usize,
    /// How often all clients visit, one second apart.
    pub rounds: usize,
    /// A fixed limit of pending first flights for one client, as it was before clients could borrow permits.
    pub fixed: Option<u32>,
    pub seed: u64,
}

/// The results of the visits.
#[derive(Debug, Clone, PartialEq)]
pub struct Visits {
    pub visits: usize,
    pub answered: usize,
    /// The visits whose data in the SYN was accepted.
    pub fast: usize,
    /// The time to the first byte of the slowest visit that was answered, round-trip times.
    pub slowest_rtts: f64,
    /// Why the server did not accept the other first flights.
    pub reasons: Vec<(&'static str, u64)>,
}

impl Office {
    pub fn run(self) -> Option<Visits> {
        let mut world = World::seeded(self.seed);
        let (server, office) = (address(1), address(2));
        let limit = self
            .fixed
            .map_or_else(|| PendingLimit::new(LIMIT), |fixed| PendingLimit::with_clients(LIMIT, fixed));
        let pending = Arc::new(limit);
        let guard = ReplayTable::new(
            GuardKey::from_bytes([3; 16]),
            Window::REQUESTS,
            1 << 20,
            clock_at(world.now).unix_ms,
        );
        let asap = certified::policy(true, Arc::new(guard), &pending);
        world.serve(server, RESPONSE, |config| {
            config.fast_open = Some(policy(Cookies::Plain, &pending));
            config.asap = asap;
        });
        // To the server, an address translator with many hosts looks like one host with many connections.
        let client = world.client(office);
        world.run(world.now + OPEN);
        let mut name = 0;
        if self.credential == Credential::Cookie {
            world.visit(client, server, name);
            world.run(world.now + Duration::from_secs(2));
        }
        let before = world.visits.len();
        let mut certificates: Vec<Arc<ClientCertificate>> = Vec::new();
        for _ in 0..self.rounds {
            if self.credential != Credential::Certificate {
                certificates.clear();
            }
            for n in 0..self.clients {
                name += 1;
                if self.credential == Credential::Cookie {
                    world.visit(client, server, name);
                    continue;
                }
                if certificates.len() <= n {
                    let issued = (world.now, clock_at(world.now).unix_ms / 1000);
                    let key = key(&mut world.random);
                    certificates.push(Arc::new(certified::certificate(key, office, issued, (LASTS, 1))?));
                }
                let config = connect(certificates.get(n)?, world.now).fast_open(false);
                world.visit_with(client, server, name, &config);
            }
            world.run(world.now + Duration::from_secs(1));
        }
        world.run(world.now + Duration::from_secs(5));
        let visits = world.visits.get(before..)?;
        let answered = visits.iter().filter_map(|v| Some((v.first_byte? - v.began).as_secs_f64()));
        let counters = world.servers.get(&server)?.stack.counters();
        let refused = counters.server.iter().filter_map(|(outcome, count)| Some((outcome.reason()?, count)));
        Some(Visits {
            visits: visits.len(),
            answered: answered.clone().count(),
            fast: visits.iter().filter(|v| v.accepted && v.first_byte.is_some()).count(),
            slowest_rtts: answered.fold(0.0, f64::max) / RTT.as_secs_f64(),
            reasons: refused
                .filter(|(reason, count)| *count > 0 && reason.as_str() != "no-credential")
                .map(|(reason, count)| (reason.as_str(), count))
                .collect(),
        })
    }
}

const BASE: Office = Office { credential: Credential::Cookie, clients: 12, rounds: 5, fixed: None, seed: 1 };

/// The rows of `attack one-address`.
pub fn table(seed: u64) -> Table {
    let base = Office { seed, ..BASE };
    let cookies = |clients| Office { clients, ..base };
    let certificates = |credential, clients| Office { credential, clients, rounds: 6, ..base };
    let rows = [
        ("cookies", cookies(12)),
        ("cookies", cookies(64)),
        ("cookies, 8 permits at most", Office { fixed: Some(8), ..cookies(12) }),
        ("a new certificate each", certificates(Credential::NewCertificate, 24)),
        ("a new certificate each", certificates(Credential::NewCertificate, 64)),
        (
            "a new certificate each, 8 permits at most",
            Office { fixed: Some(8), ..certificates(Credential::NewCertificate, 24) },
        ),
        ("a certificate each", certificates(Credential::Certificate, 64)),
        ("a new certificate each", certificates(Credential::NewCertificate, 200)),
    ];
    let mut table = Table::new(
        format!(
            "honest clients behind one address, all at once, again every second; limit {LIMIT}, seed {seed}"
        ),
        &["credential", "clients", "answered", "of them fast", "slowest, RTT", "the others"],
    );
    for (name, office) in rows {
        let Some(all) = office.run() else { continue };
        let reasons: Vec<String> = all.reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
        table.row([
            name.into(),
            office.clients.into(),
            format!("{}/{}", all.answered, all.visits).into(),
            all.fast.into(),
            all.slowest_rtts.into(),
            if reasons.is_empty() { "none".into() } else { reasons.join(", ").into() },
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
