//! Runs a front on sockets: UDP and TCP on the same addresses, UDP to the servers unless the front is a part
//! of one, and UDP to the other fronts of the zone, if there are any.

mod fronts;
mod keys;
mod relayed;
mod running;
mod set_up;
mod settings;
mod zones;

use crate::forward::{ForwardCounters, ForwardSender};
use crate::front::{Front, FrontCounters, FrontError, RelayServer, Transport};
use crate::keys::DnsPathKeys;
use crate::reassembly::ReassemblyCounters;
use crate::relay::{RelayKey, Relayed};
use crate::seal::OpenBuffer;
use crate::zone::ZoneData;
use core::fmt;
use core::time::Duration;
use firstflight_service::{Messages, StreamLimits};
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha20Rng;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::UdpSocket;

pub use firstflight_service::secure_rng;
pub use keys::RelayTo;
pub use relayed::{RelayCounts, RelaySocket};
pub use running::{FollowingFront, OpenFront};
pub use set_up::{Fault, SetUpError};
pub use settings::{
    DnsPathSettings, FrontSettings, OtherFronts, Ports, Servers, complete_name, published_key,
};
pub use zones::{FollowedZones, ZoneFile};

/// The default limits for resolvers over TCP.
pub const STREAM_LIMITS: StreamLimits = StreamLimits::per_client(32);

/// Unix time, milliseconds.
#[must_use]
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Sockets that are bound but do not serve yet. The caller can now drop privileges, and read files after
/// that.
#[derive(Debug)]
pub struct Sockets {
    listening: firstflight_service::Sockets,
    /// For datagrams from and to the other fronts of the zone.
    fronts: Option<UdpSocket>,
}

impl Sockets {
    /// As [`firstflight_service::Sockets::bind`].
    ///
    /// # Errors
    /// [`ServiceError::Listen`]: the caller is at fault.
    pub async fn bind(addresses: &[SocketAddr]) -> Result<Self, ServiceError> {
        let bound = firstflight_service::Sockets::bind(addresses).await;
        let listening = bound.map_err(|(address, error)| ServiceError::Listen(address, error))?;
        Ok(Self { listening, fronts: None })
    }

    /// Also listens at `address` for the other fronts of the zone, over UDP, and sends to them from there.
    ///
    /// # Errors
    /// [`ServiceError::ListenForFronts`]: the caller is at fault.
    pub async fn bind_for_fronts(&mut self, address: SocketAddr) -> Result<SocketAddr, ServiceError> {
        let fail = |error| ServiceError::ListenForFronts(address, error);
        let socket = UdpSocket::bind(address).await.map_err(fail)?;
        let bound = socket.local_addr().map_err(fail)?;
        self.fronts = Some(socket);
        Ok(bound)
    }

    /// The addresses at which it listens, with the ports that were chosen for port 0.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listening.addresses()
    }

    /// Where it listens for the other fronts of the zone. `None` without others.
    #[must_use]
    pub fn for_fronts(&self) -> Option<SocketAddr> {
        self.fronts.as_ref()?.local_addr().ok()
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
                // The host does not have this family.
                Err(error) => tracing::debug!(%any, %error, "no socket for first flights"),
            }
        }
        self.run_with(front, limits, Outlet::Relay(sockets))
    }

    /// A service of `front`, whose [`Destination`](crate::Destination) is `Here`. `server` accepts first
    /// flights, and must return quickly.
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
        let Self { listening: sockets, fronts } = self;
        Ok(Service { sockets, limits, shared: Arc::new(Shared { inner, started, outlet, fronts }) })
    }
}

/// The outlet for first flights.
enum Outlet {
    /// One socket for each family that the host has.
    Relay(Vec<UdpSocket>),
    Here(Box<dyn Fn(Relayed<'_>) + Send + Sync>),
}

/// The front and its environment, shared by all sockets.
struct Shared {
    inner: Mutex<(Front, ChaCha20Rng)>,
    started: std::time::Instant,
    outlet: Outlet,
    fronts: Option<UdpSocket>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (Front, ChaCha20Rng)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.started.elapsed()
    }

    fn handle(&self, from: SocketAddr, transport: Transport, query: &[u8]) -> Option<Vec<u8>> {
        // No query comes from port 0, and nothing can be sent there.
        if from.port() == 0 {
            return None;
        }
        let (front, rng) = &mut *self.lock();
        front.handle_query(self.now(), from.ip().to_canonical(), transport, query, rng)
    }

    fn clock(&self) -> Clock {
        Clock { mono: self.now(), unix_ms: unix_ms(), uncertainty: Duration::from_secs(1) }
    }

    /// Hands over the complete first flights.
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
            // The lock on the front is released while the server accepts it.
            let opened = self.lock().0.poll_opened(&self.clock(), &mut buffer);
            match opened {
                Some(Ok(relayed)) => server(relayed),
                Some(Err(error)) => tracing::debug!(%error, "a first flight was not opened"),
                None => return,
            }
        }
    }
}

impl Messages for Shared {
    /// Room for one question and EDNS, with a margin.
    const LARGEST: usize = 4096;
    /// After that, a resolver opens another connection.
    const PER_CONNECTION: usize = 256;
    type Answer = Vec<u8>;

    fn handle_datagram(&self, from: SocketAddr, query: &[u8]) -> Option<Vec<u8>> {
        self.handle(from, Transport::Udp, query)
    }

    fn handle_stream(&self, from: SocketAddr, query: &[u8]) -> Option<Vec<u8>> {
        self.handle(from, Transport::Tcp, query)
    }

    /// Forwards fragments and hands over complete first flights, after the answer to their last fragment.
    fn answered(&self) {
        self.forward();
        self.hand_over();
    }
}

/// A handle to a running service: its counts, and its keys.
#[derive(Clone)]
pub struct FrontHandle(Arc<Shared>);

impl FrontHandle {
    /// The present counts of the front, and of its table of fragments.
    #[must_use]
    pub fn counters(&self) -> (FrontCounters, ReassemblyCounters) {
        let front = &self.0.lock().0;
        (*front.counters(), front.reassembly())
    }

    /// The present number of sets of fragments.
    #[must_use]
    pub fn sets(&self) -> usize {
        self.0.lock().0.sets()
    }

    /// The counts of the traffic with other fronts, and how many are alive, including this one. `None`
    /// without others.
    #[must_use]
    pub fn forwarding(&self) -> Option<(ForwardCounters, usize)> {
        self.0.lock().0.forwarding(self.0.now())
    }

    /// As [`Front::set_forward_keys`].
    pub fn set_forward_keys(&self, sender: Option<ForwardSender>, keys: &[(u8, RelayKey)]) -> bool {
        self.0.lock().0.set_forward_keys(sender, keys)
    }

    /// As [`Front::set_keys`].
    pub fn set_keys(&self, keys: DnsPathKeys) -> bool {
        self.0.lock().0.set_keys(keys)
    }

    /// As [`Front::set_zones`]. After it returns, no query is answered from the previous zones.
    ///
    /// # Errors
    /// As [`Front::set_zones`].
    pub fn set_zones(&self, zones: Vec<ZoneData>) -> Result<(), FrontError> {
        // The lock on the front is released before the previous zones are dropped.
        let before = self.0.lock().0.set_zones(zones)?;
        drop(before);
        Ok(())
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
    sockets: firstflight_service::Sockets,
    limits: StreamLimits,
    shared: Arc<Shared>,
}

impl Service {
    /// A handle to its counts and its keys, while it runs.
    #[must_use]
    pub fn handle(&self) -> FrontHandle {
        FrontHandle(Arc::clone(&self.shared))
    }

    /// Answers until `stop` is ready. Then it accepts nothing new, and gives open connections the time that
    /// one query may take.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { sockets, limits, shared } = self;
        tokio::select! {
            () = sockets.run(Arc::clone(&shared), limits, stop) => {}
            // This part does not end by itself.
            () = shared.meet_fronts() => {}
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("sockets", &self.sockets).finish_non_exhaustive()
    }
}

/// Why a service does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// Listening at an address failed.
    #[error(
        "cannot listen on {0}: {1}; give an address of this machine and a port that is free for UDP and TCP"
    )]
    Listen(SocketAddr, io::Error),
    /// Listening at an address for other fronts failed.
    #[error(
        "cannot listen on {0} for other fronts: {1}; give an address of this machine and a UDP port that is free"
    )]
    ListenForFronts(SocketAddr, io::Error),
    /// Listening at an address for first flights from fronts failed.
    #[error(
        "cannot listen on {0} for first flights from name servers: {1}; give an address of this machine and a UDP port that is free"
    )]
    ListenForRelays(SocketAddr, io::Error),
    /// No random numbers.
    #[error("the system gives no random numbers: {0}")]
    System(io::Error),
}
