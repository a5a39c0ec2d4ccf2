//! `--dns-listen`: the name server of the carriage zone, inside the web server. It takes the first flights out of
//! resolvers' queries (the thesis' SDNS, §5.3).

use super::log::Log;
use crate::dns::{Carriage, DnsError, Forward, lines, name, read_again_on, zone_files};
use crate::error::Error;
use firstflight::{Endpoint, RelayTarget};
use firstflight_daemon::Hangup;
use firstflight_dns::Name;
use firstflight_dns::front::Kind;
use firstflight_dns::service::{
    CarriageSettings, FollowingFront, FrontHandle, OpenFront, SetUpError, Sockets,
};
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Options of the name server in this server.
#[derive(clap::Args)]
#[command(
    next_help_heading = "First flights by DNS",
    mut_arg("carriage_zone", |zone| zone.requires("dns_listen")),
    mut_arg("answers_per_second", |n| n.requires("dns_listen")),
    mut_arg("opens_per_second", |n| n.requires("dns_listen")),
    mut_arg("forward_listen", |listen| listen.requires_all(["dns_listen", "dns_state"]))
)]
pub struct Names {
    /// Answer names at this address and port, over UDP and TCP, and accept the first flights in them; may be repeated
    #[arg(
        long, value_name = "ADDR:PORT", requires_all = ["udp", "trust", "carriage_zone", "carriage_key"]
    )]
    dns_listen: Vec<SocketAddr>,
    /// File of the key that first flights are sealed to (dns keygen -o makes one); read again while running
    #[arg(long, value_name = "FILE", requires = "dns_listen")]
    carriage_key: Option<PathBuf>,
    #[command(flatten)]
    carriage: Carriage,
    /// Zone file (RFC 1035) of other names to answer; may be repeated. Read again when it changes, and on SIGHUP
    #[arg(long, value_name = "FILE", requires = "dns_listen")]
    dns_zone: Vec<PathBuf>,
    /// Name that the zone begins at; one for each --dns-zone, in the same order
    #[arg(long, value_name = "NAME", value_parser = name, requires = "dns_listen")]
    dns_origin: Vec<Name>,
    #[command(flatten)]
    forward: Forward,
    /// Number of this name server among those of the carriage zone
    #[arg(long, value_name = "N", requires = "forward_listen")]
    front_id: Option<u16>,
    /// File that records when this name server was last started; created if it does not exist
    #[arg(long, value_name = "FILE", requires = "forward_listen")]
    dns_state: Option<PathBuf>,
}

/// A name server whose ports are bound.
pub struct Prepared {
    sockets: Sockets,
    front: OpenFront,
    hangup: Hangup,
    target: RelayTarget,
}

impl Names {
    /// Where it answers.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.dns_listen
    }

    /// Whether the options ask for a name server.
    pub fn wanted(&self) -> bool {
        !self.dns_listen.is_empty()
    }

    /// Reads the files that the options name, and binds the ports.
    pub async fn prepare(&self, target: RelayTarget) -> Result<Option<Prepared>, Error> {
        let (true, Some(zone), Some(key)) = (self.wanted(), &self.carriage.carriage_zone, &self.carriage_key)
        else {
            return Ok(None);
        };
        let hangup = Hangup::new().map_err(Error::Runtime)?;
        let zones = zone_files(&self.dns_zone, &self.dns_origin, ("dns-zone", "dns-origin"))?;
        let mut settings = self.carriage.front(&self.dns_listen, zones);
        let mut carriage = CarriageSettings {
            others: self.forward.others(),
            front_id: self.front_id.unwrap_or_default(),
            state: self.dns_state.clone(),
            ..self.carriage.carry(zone, key)
        };
        if carriage.addresses.is_empty() {
            carriage.addresses.extend(target.ipv4());
        }
        if carriage.addresses.is_empty() {
            return Err(DnsError::NoAddress.into());
        }
        settings.carriage = Some(carriage);
        let ports = settings.ports();
        let front = settings.open().map_err(DnsError::from)?;
        let sockets = ports.bind().await.map_err(DnsError::from)?;
        Ok(Some(Prepared { sockets, front, hangup, target }))
    }
}

impl Prepared {
    /// A service that gives first flights to `endpoint`.
    pub fn over(self, endpoint: Endpoint) -> Result<Serving, Error> {
        let Self { sockets, front, hangup, target } = self;
        let says = lines(&front, &sockets, " for names");
        let front = front.serve_here(sockets, move |relayed| {
            tracing::debug!(resolver = %relayed.resolver, "a first flight by DNS");
            target.take(&endpoint, relayed);
        });
        let front = front.map_err(SetUpError::from).map_err(DnsError::from)?;
        Ok(Serving { handle: front.handle(), front, hangup, says })
    }
}

/// A name server that starts to answer when it runs.
pub struct Serving {
    pub handle: FrontHandle,
    /// The lines for the log.
    pub says: Vec<String>,
    front: FollowingFront,
    hangup: Hangup,
}

impl Serving {
    /// Answers until `stopping` closes, and then until queries under way are answered. Zones that are read again are
    /// reported to `log`.
    pub fn run(self, mut stopping: watch::Receiver<()>, log: Log) -> JoinHandle<()> {
        tokio::spawn(async move {
            let again = tokio::spawn(read_again_on(self.hangup, self.front.zones()));
            let stopped = async move {
                // Nothing is sent through this channel; it closes.
                let _ = stopping.changed().await;
            };
            self.front.run(move |line| log.zone(line), stopped).await;
            again.abort();
        })
    }
}

/// The counters for the last lines of the log.
#[derive(serde::Serialize)]
pub struct Report {
    queries: u64,
    answers: u64,
    answers_to_fragments: u64,
    put_together: u64,
    taken: u64,
}

impl Report {
    /// The counters of the front with this handle.
    pub fn new(handle: &FrontHandle) -> Self {
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

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "names:         {} queries, {} answers ({} to fragments); first flights: {} put together, {} taken",
            self.queries, self.answers, self.answers_to_fragments, self.put_together, self.taken
        )
    }
}
