//! First flights from fronts: name servers that found them in resolvers' queries (`firstflight dns`), or the name
//! server in this server (`--dns-listen`).

use super::ServeError;
use crate::error::Error;
use firstflight::credential::PendingLimit;
use firstflight::credential::asap::AsapPolicy;
use firstflight::{Endpoint, RelayedFlight};
use firstflight_dns::metrics::RelayPublisher;
use firstflight_dns::relay::{ClockReport, MAX_RELAY, RelayCounters, Relayed};
use firstflight_dns::{OpenBuffer, RelayReceiver, read_relay_keys};
use firstflight_files::LastProblem;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UdpSocket;

/// How often the key file is checked.
const EVERY: Duration = Duration::from_secs(1);
/// How many relayed first flights may wait for their client's ACK, in total and for one client.
const PENDING: (u32, u32) = (64, 4);

/// Options for what is accepted from fronts.
#[derive(clap::Args)]
pub struct Relay {
    /// Accept first flights that name servers found in lookups (firstflight dns), at this address and port, which
    /// clients must not reach
    #[arg(long, value_name = "ADDR:PORT", requires_all = ["udp", "trust", "relay_key"])]
    relay_listen: Option<SocketAddr>,
    /// File of the keys shared with the name servers; read again while running
    #[arg(long, value_name = "FILE", requires = "relay_listen")]
    relay_key: Option<PathBuf>,
    /// This server's address and UDP port as clients see them [default: those of --udp]
    #[arg(long, value_name = "ADDR:PORT", requires = "fronts")]
    relay_seen_as: Option<SocketAddr>,
}

/// The server that gets first flights from fronts.
#[derive(Debug, Clone, Copy)]
pub struct Server {
    /// The address to which the client would have sent its SYN.
    address: IpAddr,
    /// The address at which clients see the server.
    pub seen_as: SocketAddr,
}

impl Server {
    /// Gives an opened first flight to the listener.
    pub fn take(&self, endpoint: &Endpoint, relayed: Relayed<'_>) {
        let segment = relayed.ci.segment();
        endpoint.handle_relayed(RelayedFlight {
            client: SocketAddr::new(relayed.ci.address, relayed.ci.outer_port.get()),
            server: self.address,
            segment: &segment,
            key: relayed.reply,
            seen_as: Some(self.seen_as),
        });
    }
}

/// A socket for fronts that is not served yet.
pub struct Prepared {
    socket: UdpSocket,
    receiver: RelayReceiver,
    keys: KeyFile,
    server: Server,
    counts: Counts,
}

/// Counts what fronts have sent.
#[derive(Clone, Default)]
pub struct Counts(Arc<Mutex<RelayCounters>>);

impl Counts {
    /// Publishes the counters to the recorder of metrics.
    pub fn publish(&self, publisher: &mut RelayPublisher) {
        publisher.publish(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn set(&self, now: &RelayCounters) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = *now;
    }
}

impl Relay {
    /// Where they are accepted.
    pub fn address(&self) -> Option<SocketAddr> {
        self.relay_listen
    }

    /// Whether first flights are accepted from external fronts.
    pub fn wanted(&self) -> bool {
        self.relay_listen.is_some()
    }

    /// The server that gets first flights from fronts, internal or external. Lets `asap` accept them.
    pub fn server(&self, udp: SocketAddr, asap: &mut AsapPolicy) -> Result<Server, Error> {
        let seen_as = self.relay_seen_as.unwrap_or(udp);
        if seen_as.ip().is_unspecified() {
            return Err(ServeError::RelaySeenAs(udp).into());
        }
        let address = if udp.ip().is_unspecified() { seen_as.ip() } else { udp.ip() };
        let (all, each) = PENDING;
        asap.relayed =
            Some(Arc::new(PendingLimit::with_clients(all, each).within(Arc::clone(&asap.pending))));
        Ok(Server { address, seen_as })
    }

    /// Binds the socket and reads the key file that the options name.
    pub async fn prepare(&self, server: Server) -> Result<Option<Prepared>, Error> {
        let (Some(at), Some(path)) = (self.relay_listen, &self.relay_key) else { return Ok(None) };
        let mut receiver = RelayReceiver::new();
        let mut keys = KeyFile { path: path.clone(), ids: Vec::new() };
        keys.read(&mut receiver)?;
        let socket = UdpSocket::bind(at).await.map_err(|error| Error::Udp(at, error))?;
        Ok(Some(Prepared { socket, receiver, keys, server, counts: Counts::default() }))
    }
}

/// The keys shared with fronts, and which of them the receiver has.
struct KeyFile {
    path: PathBuf,
    ids: Vec<u8>,
}

impl KeyFile {
    fn read(&mut self, receiver: &mut RelayReceiver) -> Result<(), ServeError> {
        let keys =
            read_relay_keys(&self.path).map_err(|error| ServeError::RelayKey(self.path.clone(), error))?;
        for id in self.ids.iter().filter(|id| keys.iter().all(|(other, _)| other != *id)) {
            receiver.remove_key(*id);
        }
        for (id, key) in &keys {
            receiver.set_key(*id, key);
        }
        self.ids = keys.iter().map(|(id, _)| *id).collect();
        Ok(())
    }
}

impl Prepared {
    /// The counters of what fronts send while this runs.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Gives `endpoint` the first flights that fronts send.
    pub async fn run(mut self, endpoint: Endpoint) {
        let mut bytes = [0; MAX_RELAY + 1];
        let mut every = tokio::time::interval(EVERY);
        let mut last = LastProblem::default();
        loop {
            tokio::select! {
                received = self.socket.recv_from(&mut bytes) => match received {
                    Ok((len, from)) => self.take(bytes.get(..len).unwrap_or_default(), from, &endpoint),
                    // The error is about another host's packet, because this socket never sends.
                    Err(error) => self.pause(&error).await,
                },
                _ = every.tick() => match self.keys.read(&mut self.receiver) {
                    Ok(()) => last.over(),
                    Err(error) => if let Some(error) = last.new_message(&error) {
                        tracing::warn!(%error, "the keys of before are used on");
                    }
                },
            }
        }
    }

    async fn pause(&self, error: &io::Error) {
        tracing::debug!(%error, "nothing was received");
        tokio::time::sleep(EVERY).await;
    }

    fn take(&mut self, datagram: &[u8], from: SocketAddr, endpoint: &Endpoint) {
        let mut buffer = OpenBuffer::new();
        match self.receiver.handle_datagram(datagram, firstflight::unix_ms(), &mut buffer) {
            Ok(relayed) => self.server.take(endpoint, relayed),
            Err(refused) => tracing::debug!(%from, %refused, "a relay datagram was dropped"),
        }
        if let Some(report) = self.receiver.poll_clock() {
            tell(from, &report);
        }
        self.counts.set(self.receiver.counters());
    }
}

/// Logs how the clock of the front at `from` differs from this server's clock.
fn tell(from: SocketAddr, report: &ClockReport) {
    let ClockReport { key_id, front, clock } = report;
    let front = format_args!("front {front} (relay key {key_id}) at {from}");
    let Some((seconds, direction)) = clock.apart() else {
        tracing::warn!("the clock of {front} agrees with this server's again: its first flights are taken");
        return;
    };
    tracing::warn!(
        "the clock of {front} is {seconds:.1} s {direction} this server's, so its first flights are dropped (5 s are \
         allowed): one of the two clocks is wrong, run NTP on both machines"
    );
}
