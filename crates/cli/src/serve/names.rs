//! `--dns-listen`: the name server of the carriage zone, inside the web server. It takes the first flights out of
//! resolvers' queries (the thesis' SDNS, §5.3).

use super::log::Log;
use super::relay::Server;
use crate::dns::{Carriage, DnsError, Forward, ForwardKeyFile, KeyFiles, Starts, ZoneFiles, name, published};
use crate::error::Error;
use firstflight::Endpoint;
use firstflight_daemon::Hangup;
use firstflight_dns::front::Kind;
use firstflight_dns::service::{FrontHandle, STREAM_LIMITS, Service, Sockets};
use firstflight_dns::{Destination, Front, Name};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
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
    /// File of the key that first flights are sealed to (dns keygen --key makes one); read again while running
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

/// The files that are read again while the server runs.
struct Files {
    keys: KeyFiles,
    zones: ZoneFiles,
    hangup: Hangup,
}

/// A name server whose ports are bound.
pub struct Prepared {
    sockets: Sockets,
    front: Front,
    files: Files,
    server: Server,
    /// The log lines about it.
    says: Vec<String>,
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

    /// Binds the ports and reads the files that the options name.
    pub async fn prepare(&self, server: Server) -> Result<Option<Prepared>, Error> {
        let (true, Some(zone), Some(key)) = (self.wanted(), &self.carriage.carriage_zone, &self.carriage_key)
        else {
            return Ok(None);
        };
        let hangup = Hangup::new().map_err(Error::Runtime)?;
        let (front, zones, keys, public) = self.front(zone, key, server).map_err(Error::Dns)?;
        let files = Files { keys, zones, hangup };
        let sockets = Sockets::bind(&self.dns_listen).await;
        let mut sockets = sockets.map_err(|error| Error::Dns(DnsError::Service(error)))?;
        let fronts = self.forward.bind(&mut sockets).await.map_err(Error::Dns)?;
        let listening = sockets.addresses();
        let mut says: Vec<String> =
            listening.iter().map(|at| format!("listening on {at} for names")).collect();
        says.push(format!("carriage zone {zone}, carriage-key {public}"));
        says.extend(fronts.map(|at| format!("listening on {at} for the zone's other name servers")));
        Ok(Some(Prepared { sockets, front, files, server, says }))
    }

    /// The front, its zone files, its key files, and the key to be published.
    fn front(
        &self,
        zone: &Name,
        key: &Path,
        server: Server,
    ) -> Result<(Front, ZoneFiles, KeyFiles, String), DnsError> {
        let mut others = ZoneFiles::new(&self.dns_zone, &self.dns_origin, ("dns-zone", "dns-origin"))?;
        let mut front = self.carriage.front(others.read()?)?;
        let mut addresses = self.carriage.carriage_address.clone();
        if addresses.is_empty() {
            match server.seen_as.ip() {
                IpAddr::V4(address) => addresses.push(address),
                address => return Err(DnsError::NoAddress(address)),
            }
        }
        let (starts, fronts) = match (self.forward.key(), &self.dns_state, self.front_id) {
            (Some(path), Some(state), Some(id)) => {
                (Some(Starts::open(state.clone())?), Some(ForwardKeyFile::new(path.to_owned(), id)))
            }
            _ => (None, None),
        };
        let mut files = KeyFiles::new(key.to_owned(), starts, None, fronts);
        let keys = files.carriage()?;
        let (id, public) = keys.current();
        self.carriage.carry(&mut front, zone, &addresses, keys, Destination::Here)?;
        if let Some(keys) = files.forward()? {
            self.forward.set(&mut front, keys)?;
        }
        Ok((front, others, files, published(id, &public)))
    }
}

impl Prepared {
    /// A service that gives first flights to `endpoint`.
    pub fn over(self, endpoint: Endpoint) -> Result<Serving, Error> {
        let Self { sockets, front, files, server, says } = self;
        let service = sockets.serve_here(front, STREAM_LIMITS, move |relayed| {
            tracing::debug!(resolver = %relayed.resolver, "a first flight by DNS");
            server.take(&endpoint, relayed);
        });
        let service = service.map_err(|error| Error::Dns(DnsError::Service(error)))?;
        Ok(Serving { handle: service.handle(), service, files, says })
    }
}

/// A name server that starts to answer when it runs.
pub struct Serving {
    pub handle: FrontHandle,
    /// The lines for the log.
    pub says: Vec<String>,
    service: Service,
    files: Files,
}

impl Serving {
    /// Answers until `stopping` closes, and then until queries under way are answered. Zones that are read again are
    /// reported to `log`.
    pub fn run(self, mut stopping: watch::Receiver<()>, log: Log) -> JoinHandle<()> {
        tokio::spawn(async move {
            let Files { keys, zones, hangup } = self.files;
            let zones = zones.follow(self.handle.clone(), hangup, move |line| log.zone(line));
            let following = [tokio::spawn(keys.follow(self.handle)), tokio::spawn(zones)];
            let stopped = async move {
                // Nothing is sent through this channel; it closes.
                let _ = stopping.changed().await;
            };
            self.service.run(stopped).await;
            following.iter().for_each(JoinHandle::abort);
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
