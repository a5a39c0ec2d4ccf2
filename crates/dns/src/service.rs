//! A front on sockets: UDP and TCP on the same addresses, and UDP to the servers, unless it is one itself.

mod stream;

use crate::front::{Front, FrontCounters, RelayServer, Transport};
use crate::keys::CarriageKeys;
use crate::reassembly::ReassemblyCounters;
use crate::relay::Relayed;
use crate::seal::OpenBuffer;
use core::fmt;
use core::time::Duration;
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use zeroize::Zeroizing;

/// How often a free port for both protocols is looked for, if any port will do.
const ATTEMPTS: usize = 16;
/// Pause after a socket failed: it may be for want of memory.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest query that is read, bytes: one question, EDNS, and room.
const QUERY_MAX: usize = 4096;

/// What the service allows its clients over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// Connections at once, at one address.
    pub connections: usize,
    /// Of those, from one IPv4 address or IPv6 /64.
    pub per_client: usize,
    /// How long a client may take for each query and its answer.
    pub patience: Duration,
}

impl Default for StreamLimits {
    /// 512 connections, 32 from one client, 5 s.
    fn default() -> Self {
        Self { connections: 512, per_client: 32, patience: Duration::from_secs(5) }
    }
}

/// A generator fit for keys, from the operating system's random source.
///
/// # Errors
/// When that fails.
pub fn secure_rng() -> io::Result<ChaCha20Rng> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(io::Error::other)?;
    Ok(ChaCha20Rng::from_seed(*seed))
}

/// Unix time, milliseconds.
#[must_use]
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Sockets that are bound and not yet served: privileges can be dropped now, and files read after it.
#[derive(Debug)]
pub struct Sockets {
    listening: Vec<(UdpSocket, TcpListener)>,
}

impl Sockets {
    /// Listens at all `addresses`, with UDP and TCP. An address for all interfaces works on hosts with one
    /// address of the family; others name them one by one, so that answers come from where they were asked.
    ///
    /// # Errors
    /// [`ServiceError::Listen`]: whoever gave the address is at fault.
    pub async fn bind(addresses: &[SocketAddr]) -> Result<Self, ServiceError> {
        let mut listening = Vec::new();
        for &address in addresses {
            listening.push(bind(address).await.map_err(|error| ServiceError::Listen(address, error))?);
        }
        Ok(Self { listening })
    }

    /// Where it listens: the ports, where any would do.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listening.iter().filter_map(|(_, tcp)| tcp.local_addr().ok()).collect()
    }

    /// A service of `front` on these sockets, which relays first flights.
    ///
    /// # Errors
    /// [`ServiceError::System`] without a random source.
    pub async fn serve(self, front: Front, limits: StreamLimits) -> Result<Service, ServiceError> {
        let mut sockets = Vec::new();
        for any in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
            match UdpSocket::bind((any, 0)).await {
                Ok(socket) => sockets.push(socket),
                // A host without this family.
                Err(error) => tracing::debug!(%any, %error, "no socket for first flights"),
            }
        }
        self.run_with(front, limits, Outlet::Relay(sockets))
    }

    /// A service of `front`, whose [`Destination`](crate::Destination) is here: `server` takes first flights, and
    /// must not keep its caller long.
    ///
    /// # Errors
    /// [`ServiceError::System`] without a random source.
    pub fn serve_here(
        self,
        front: Front,
        limits: StreamLimits,
        server: impl Fn(Relayed<'_>) + Send + Sync + 'static,
    ) -> Result<Service, ServiceError> {
        self.run_with(front, limits, Outlet::Here(Box::new(server)))
    }

    fn run_with(self, front: Front, limits: StreamLimits, outlet: Outlet) -> Result<Service, ServiceError> {
        let rng = secure_rng().map_err(ServiceError::System)?;
        let (inner, started) = (Mutex::new((front, rng)), std::time::Instant::now());
        let shared = Arc::new(Shared { inner, started, outlet, limits });
        Ok(Service { listening: self.listening, shared })
    }
}

/// What first flights leave by.
enum Outlet {
    /// One socket a family, if there is one.
    Relay(Vec<UdpSocket>),
    Here(Box<dyn Fn(Relayed<'_>) + Send + Sync>),
}

/// The front and what it needs, for all sockets.
struct Shared {
    inner: Mutex<(Front, ChaCha20Rng)>,
    started: std::time::Instant,
    outlet: Outlet,
    limits: StreamLimits,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (Front, ChaCha20Rng)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.started.elapsed()
    }

    fn handle(&self, from: SocketAddr, transport: Transport, query: &[u8]) -> Option<Vec<u8>> {
        // Nobody asks from there, and nothing can be sent there.
        if from.port() == 0 {
            return None;
        }
        let (front, rng) = &mut *self.lock();
        front.handle_query(self.now(), from.ip().to_canonical(), transport, query, rng)
    }

    fn clock(&self) -> Clock {
        Clock { mono: self.now(), unix_ms: unix_ms(), uncertainty: Duration::from_secs(1) }
    }

    /// Hands over the first flights that are whole, after the answer to their last fragment.
    fn hand_over(&self) {
        match &self.outlet {
            Outlet::Relay(sockets) => self.relay(sockets),
            Outlet::Here(server) => self.open(server),
        }
    }

    fn relay(&self, sockets: &[UdpSocket]) {
        loop {
            let Some(relay) = self.lock().0.poll_relay(&self.clock()) else { return };
            let fits = |socket: &&UdpSocket| {
                socket.local_addr().is_ok_and(|from| from.is_ipv4() == relay.to.is_ipv4())
            };
            let sent = match sockets.iter().find(fits) {
                Some(socket) => socket.try_send_to(&relay.datagram, relay.to).map(drop),
                None => Err(io::ErrorKind::AddrNotAvailable.into()),
            };
            if let Err(error) = sent {
                tracing::debug!(to = %relay.to, %error, "a first flight was not handed over");
            }
        }
    }

    fn open(&self, server: impl Fn(Relayed<'_>)) {
        let mut buffer = OpenBuffer::new();
        loop {
            // The front is free again while the server takes it.
            let opened = self.lock().0.poll_opened(&self.clock(), &mut buffer);
            match opened {
                Some(Ok(relayed)) => server(relayed),
                Some(Err(error)) => tracing::debug!(%error, "a first flight was not opened"),
                None => return,
            }
        }
    }
}

/// A service that runs elsewhere: its counts, and its keys.
#[derive(Clone)]
pub struct FrontHandle(Arc<Shared>);

impl FrontHandle {
    /// The counts now: of the front, and of its table of fragments.
    #[must_use]
    pub fn counters(&self) -> (FrontCounters, ReassemblyCounters) {
        let front = &self.0.lock().0;
        (*front.counters(), front.reassembly())
    }

    /// Sets of fragments that are held now.
    #[must_use]
    pub fn sets(&self) -> usize {
        self.0.lock().0.sets()
    }

    /// As [`Front::set_keys`].
    pub fn set_keys(&self, keys: CarriageKeys) -> bool {
        self.0.lock().0.set_keys(keys)
    }

    /// As [`Front::set_servers`].
    pub fn set_servers(&self, servers: Vec<RelayServer>) -> bool {
        self.0.lock().0.set_servers(servers)
    }
}

impl fmt::Debug for FrontHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrontHandle").field(&self.counters()).finish()
    }
}

/// A front that listens.
pub struct Service {
    listening: Vec<(UdpSocket, TcpListener)>,
    shared: Arc<Shared>,
}

impl Service {
    /// Its counts and its keys, while it runs.
    #[must_use]
    pub fn handle(&self) -> FrontHandle {
        FrontHandle(Arc::clone(&self.shared))
    }

    /// Answers until `stop` is ready; then takes nothing new, and gives connections under way the time that one
    /// query may take.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listening, shared } = self;
        let (stopping, stopped) = watch::channel(());
        let mut tasks = JoinSet::new();
        for (udp, tcp) in listening {
            tasks.spawn(datagrams(udp, Arc::clone(&shared), stopped.clone()));
            tasks.spawn(stream::accept(tcp, Arc::clone(&shared), stopped.clone()));
        }
        drop(stopped);
        stop.await;
        tracing::info!("stopping");
        drop(stopping);
        let all = async { while tasks.join_next().await.is_some() {} };
        // What is still open then is dropped with the set.
        let _ = tokio::time::timeout(shared.limits.patience, all).await;
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("sockets", &self.listening.len()).finish_non_exhaustive()
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
    let mut buffer = vec![0; QUERY_MAX];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            _ = stopped.changed() => return,
        };
        match received {
            Ok((len, from)) => {
                let query = buffer.get(..len).unwrap_or_default();
                if let Some(answer) = shared.handle(from, Transport::Udp, query)
                    // A full socket buffer: the resolver asks again.
                    && let Err(error) = socket.try_send_to(&answer, from)
                {
                    tracing::debug!(%from, %error, "an answer was not sent");
                }
                shared.hand_over();
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
    /// An address cannot be listened at.
    Listen(SocketAddr, io::Error),
    /// No random numbers.
    System(io::Error),
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => write!(
                f,
                "cannot listen on {address}: {error}; give an address of this machine and a port that is free for UDP and TCP"
            ),
            Self::System(error) => write!(f, "the system gives no random numbers: {error}"),
        }
    }
}

impl std::error::Error for ServiceError {}
