//! What is to be examined, and the examination.

use crate::asap::{self, RecordLookup, look_up};
use crate::catalogue::Finding;
use crate::gain::Gain;
use crate::network::{self, Passage, Verifier};
use crate::report::{Group, Line, Report, Subject};
use crate::server::Probe;
use crate::{card, http, machine};
use firstflight::kernel::Setting;
use firstflight::record::Names;
use futures_util::future::join_all;
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::sync::Mutex;

/// A server to visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// Its address and port.
    Address(SocketAddr),
    /// A name, of which the first address of each family is visited, and a port. Its HTTPS record is looked at, too.
    Name(String, u16),
}

impl From<SocketAddr> for Server {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// The data in SYNs to servers. A server may execute it twice, as all data in SYNs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Data {
    /// A HEAD request on the ports 80, 8000, 8008, 8080, 8081, 8088 and 8888, and an empty line on others.
    #[default]
    Usual,
    /// None: SYNs only ask for cookies.
    Nothing,
    /// These bytes, to all servers.
    Bytes(Vec<u8>),
}

/// What to examine: this machine at least. Linux.
///
/// Nothing is changed on this machine, but the kernel keeps the cookies that servers grant. Everything works without root; the
/// firewall's rules show to root only.
#[derive(Debug, Default)]
pub struct Doctor {
    servers: Vec<Server>,
    verifiers: Vec<SocketAddr>,
    names: Option<Names>,
    card: Option<String>,
    data: Data,
}

impl Doctor {
    /// This machine alone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Also visits this server: at most ten connections to each of its addresses, some with data in the SYN. If first flights
    /// fail, SYNs with small hop limits show how far the option gets.
    #[must_use]
    pub fn server(mut self, server: impl Into<Server>) -> Self {
        self.servers.push(server.into());
        self
    }

    /// Also asks this verifier in UDP: it says which address it sees, and what time it is.
    #[must_use]
    pub fn verifier(mut self, at: SocketAddr) -> Self {
        self.verifiers.push(at);
        self
    }

    /// Asks this resolver for names and their HTTPS records, not the system's.
    #[must_use]
    pub fn names(mut self, names: Names) -> Self {
        self.names = Some(names);
        self
    }

    /// Also looks whether this network card can be used beside the kernel (AF_XDP).
    #[must_use]
    pub fn card(mut self, device: impl Into<String>) -> Self {
        self.card = Some(device.into());
        self
    }

    /// Sends this in SYNs to servers.
    #[must_use]
    pub fn data(mut self, data: Data) -> Self {
        self.data = data;
        self
    }

    /// Examines everything, in a runtime of tokio. It takes some seconds for a server that does not answer.
    pub async fn examine(&self) -> Report {
        self.examine_with(|| ()).await
    }

    /// Like [`examine`](Self::examine). Calls `done` after each server, and after each verifier.
    pub async fn examine_with(&self, done: impl Fn()) -> Report {
        // The kernel's counters and cookies come first: the visits change them.
        let machine = tokio::task::spawn_blocking(machine::MachineFacts::gather).await.unwrap_or_default();
        let card = self.card.clone();
        let card = tokio::task::spawn_blocking(move || card.as_deref().map(card::look)).await;
        let turns = Turns::default();
        let visits = join_all(self.servers.iter().map(|at| async {
            let found = self.visit(at, &turns).await;
            done();
            found
        }));
        let asked = join_all(self.verifiers.iter().map(|at| async {
            let found = Verifier::ask(*at).await;
            done();
            found
        }));
        let (visited, verifiers) = tokio::join!(visits, asked);
        let visited: Vec<_> = visited.into_iter().flatten().collect();
        let passages: Vec<_> = visited.iter().map(|one| one.passage).collect();
        let differences: Vec<_> = visited.iter().filter_map(|one| one.ahead).collect();
        let mut lines = machine.judge();
        lines.push(network::clock(&verifiers, &differences));
        lines.extend(card.ok().flatten().unwrap_or_default());
        let mut groups = vec![
            Group::new(Subject::Machine, lines),
            Group::new(Subject::Network, network::judge(&verifiers, &passages)),
        ];
        groups.extend(visited.into_iter().map(|one| one.group));
        Report { root: nix::unistd::geteuid().is_root(), groups }
    }

    /// Visits a server: of a name, the first address of each family.
    async fn visit(&self, at: &Server, turns: &Turns) -> Vec<Visited> {
        let host = at.to_string();
        let named = matches!(at, Server::Name(..));
        let found = match at {
            Server::Address(address) => Ok(RecordLookup::address(*address)),
            Server::Name(name, port) => look_up(name, *port, self.names.as_ref()).await,
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                let line = Line::new(Finding::LookupFailed, format_args!("It cannot be looked up: {error}."));
                let gain = Gain::of(std::slice::from_ref(&line), None);
                let subject = Subject::Server(host, None);
                let group = Group { subject, lines: vec![line], gain: Some(gain) };
                return vec![Visited { group, passage: Passage::NotSeen, ahead: None }];
            }
        };
        let mut all = Vec::new();
        for remote in found.first_of_each_family() {
            let turn = turns.of(remote.ip()).await;
            let _turn = turn.lock().await;
            let facts = self.probe(remote, &host).run().await;
            let mut lines = facts.judge();
            lines.extend(asap::judge(named, &found, remote).await);
            let subject = Subject::Server(host.clone(), Some(remote.to_string()));
            let gain = Some(Gain::of(&lines, facts.rtt));
            let group = Group { subject, lines, gain };
            all.push(Visited { group, passage: facts.passage(), ahead: facts.ahead });
        }
        all
    }

    fn probe(&self, remote: SocketAddr, host: &str) -> Probe {
        let http = http::is_port(remote.port());
        let request = match &self.data {
            Data::Nothing => Vec::new(),
            Data::Bytes(bytes) => bytes.clone(),
            Data::Usual if http => http::request(&without_zone(host)),
            Data::Usual => b"\r\n".to_vec(),
        };
        let client = Setting::read().map_or(cfg!(target_os = "linux"), |setting| setting.client);
        Probe { remote, request, http: http && !matches!(self.data, Data::Bytes(_)), client }
    }
}

/// The servers of one address are visited one after the other, because the kernel has one cookie for all of them.
#[derive(Default)]
struct Turns(Mutex<HashMap<IpAddr, Arc<Mutex<()>>>>);

impl Turns {
    async fn of(&self, address: IpAddr) -> Arc<Mutex<()>> {
        Arc::clone(self.0.lock().await.entry(address).or_default())
    }
}

/// One address of a server, and what it showed of the network and the time.
struct Visited {
    group: Group,
    passage: Passage,
    ahead: Option<i64>,
}

/// A zone means something on this host only, and servers refuse a `Host` with one.
fn without_zone(host: &str) -> String {
    match host.parse() {
        Ok(SocketAddr::V6(v6)) => SocketAddr::new(IpAddr::V6(*v6.ip()), v6.port()).to_string(),
        _ => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_no_zone() {
        assert_eq!(without_zone("[fe80::1%3]:8080"), "[fe80::1]:8080");
        assert_eq!(without_zone("www.example.com:80"), "www.example.com:80");
    }
}
