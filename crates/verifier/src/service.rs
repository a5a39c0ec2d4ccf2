//! A verifier on sockets: UDP and TCP on the same addresses.

mod stream;

use crate::clock::{clocks, secure_rng};
use crate::config::{Config, ConfigError};
use crate::counters::Counters;
use crate::machine::{Answer, Verifier};
use firstflight_wire::asap::message::MESSAGE_MAX;
use rand_chacha::ChaCha20Rng;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How often a free port for both protocols is looked for, if any port will do.
const ATTEMPTS: usize = 16;
/// Pause after a socket failed: it may be for want of memory.
const PAUSE: Duration = Duration::from_millis(100);

/// What the service allows its clients over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// Connections at once.
    pub connections: usize,
    /// Of those, from one IPv4 address or IPv6 /64.
    pub per_client: usize,
    /// How long a client may take for each message.
    pub patience: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self { connections: 512, per_client: 8, patience: Duration::from_secs(5) }
    }
}

/// The machine and what it needs, for all sockets.
struct Shared {
    inner: Mutex<(Verifier, ChaCha20Rng)>,
    /// What probes leave by.
    probing: Vec<UdpSocket>,
    limits: StreamLimits,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (Verifier, ChaCha20Rng)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, from: SocketAddr, message: &[u8], stream: bool) -> Option<Answer> {
        let clock = match clocks() {
            Ok(clock) => clock,
            Err(error) => {
                tracing::error!(%error, "no clock: a request is not answered");
                return None;
            }
        };
        let (verifier, rng) = &mut *self.lock();
        if stream {
            verifier.handle_stream(&clock, from, message, rng).map(Answer::Reply)
        } else {
            verifier.handle_datagram(&clock, from, message, rng)
        }
    }
}

impl Shared {
    fn send_probe(&self, probe: &[u8], to: SocketAddr) -> io::Result<()> {
        let ipv4 = to.ip().to_canonical().is_ipv4();
        let fits = |socket: &&UdpSocket| socket.local_addr().is_ok_and(|from| from.is_ipv4() == ipv4);
        let socket = self.probing.iter().find(fits).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        socket.try_send_to(probe, to).map(drop)
    }
}

/// The counts of a service that runs elsewhere.
#[derive(Clone)]
pub struct CounterHandle(Arc<Shared>);

impl CounterHandle {
    /// The counts now.
    #[must_use]
    pub fn get(&self) -> Counters {
        *self.0.lock().0.counters()
    }
}

impl fmt::Debug for CounterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CounterHandle").field(&self.get()).finish()
    }
}

/// A verifier that listens.
pub struct Service {
    sockets: Vec<(UdpSocket, TcpListener)>,
    shared: Arc<Shared>,
}

impl Service {
    /// Listens at all `addresses`, with UDP and TCP. An address for all interfaces works on hosts with one
    /// address of the family; others name them one by one, so that answers come from where they were asked.
    ///
    /// # Errors
    /// When the configuration makes no sense, or an address cannot be listened at.
    pub async fn bind(
        config: Config,
        addresses: &[SocketAddr],
        limits: StreamLimits,
    ) -> Result<Self, ServiceError> {
        let mut rng = secure_rng().map_err(ServiceError::System)?;
        let now = clocks().map_err(ServiceError::System)?.mono;
        let verifier = Verifier::new(config, now, &mut rng).map_err(ServiceError::Config)?;
        let mut probing = Vec::new();
        for &from in &verifier.config().probe_from {
            if addresses.iter().any(|address| address.ip() == from.ip()) {
                return Err(ServiceError::ProbeAddress(from));
            }
            probing.push(UdpSocket::bind(from).await.map_err(|error| ServiceError::Listen(from, error))?);
        }
        let mut sockets = Vec::new();
        for &address in addresses {
            sockets.push(bind(address).await.map_err(|error| ServiceError::Listen(address, error))?);
        }
        Ok(Self { sockets, shared: Arc::new(Shared { inner: Mutex::new((verifier, rng)), probing, limits }) })
    }

    /// Where it listens: the ports, where any would do.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().filter_map(|(_, tcp)| tcp.local_addr().ok()).collect()
    }

    /// Its counts, while it runs.
    #[must_use]
    pub fn counters(&self) -> CounterHandle {
        CounterHandle(Arc::clone(&self.shared))
    }

    /// Answers until `stop` is ready; then takes nothing new, and gives connections under way the time that one
    /// message may take.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { sockets, shared } = self;
        let (stopping, stopped) = watch::channel(());
        let mut listening = JoinSet::new();
        for (udp, tcp) in sockets {
            listening.spawn(datagrams(udp, Arc::clone(&shared), stopped.clone()));
            listening.spawn(stream::accept(tcp, Arc::clone(&shared), stopped.clone()));
        }
        drop(stopped);
        stop.await;
        tracing::info!("stopping");
        drop(stopping);
        let all = async { while listening.join_next().await.is_some() {} };
        // What is still open then is dropped with the set.
        let _ = tokio::time::timeout(shared.limits.patience, all).await;
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

/// Both sockets, on the same port.
async fn bind(address: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    let mut attempt = 1;
    loop {
        let tcp = TcpListener::bind(address).await?;
        match UdpSocket::bind(tcp.local_addr()?).await {
            Ok(udp) => return Ok((udp, tcp)),
            // The port that was chosen for TCP is taken for UDP: there are others.
            Err(error) if address.port() != 0 || attempt == ATTEMPTS => return Err(error),
            Err(_) => attempt += 1,
        }
    }
}

async fn datagrams(socket: UdpSocket, shared: Arc<Shared>, mut stopped: watch::Receiver<()>) {
    // One byte more than a message has: what fills it is too long to be one.
    let mut buffer = [0; MESSAGE_MAX + 1];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            _ = stopped.changed() => return,
        };
        match received {
            Ok((len, from)) => {
                let message = buffer.get(..len).unwrap_or_default();
                // A full socket buffer: the client asks again.
                let sent = match shared.handle(from, message, false) {
                    Some(Answer::Reply(answer)) => socket.try_send_to(&answer, from).map(drop),
                    Some(Answer::Probe(probe)) => shared.send_probe(&probe, from),
                    None => Ok(()),
                };
                if let Err(error) = sent {
                    tracing::debug!(%from, %error, "an answer was not sent");
                }
            }
            // An ICMP error about an answer, or no memory.
            Err(error) => {
                tracing::debug!(%error, "nothing was received");
                if error.kind() != io::ErrorKind::ConnectionRefused {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Why a service does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServiceError {
    /// The configuration makes no sense: who wrote it is at fault.
    Config(ConfigError),
    /// An address cannot be listened at.
    Listen(SocketAddr, io::Error),
    /// Probes are to come from an address that clients ask at: they would show nothing.
    ProbeAddress(SocketAddr),
    /// No clock or no random numbers.
    System(io::Error),
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => write!(f, "{error}"),
            Self::Listen(address, error) => write!(
                f,
                "cannot listen on {address}: {error}; give an address of this machine and a port that is free for UDP and TCP"
            ),
            Self::ProbeAddress(from) => write!(
                f,
                "probes cannot come from {from}: clients ask there, and networks let in whom they asked; give another address of this machine"
            ),
            Self::System(error) => write!(f, "the system gives no clock or no random numbers: {error}"),
        }
    }
}

impl std::error::Error for ServiceError {}
