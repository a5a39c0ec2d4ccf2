//! Runs a verifier on sockets: UDP and TCP on the same addresses.

use crate::clock::clocks;
use crate::config::{Config, ConfigError};
use crate::counters::Counters;
use crate::machine::{Answer, Verifier};
use firstflight_service::{Messages, Sockets, StreamLimits, secure_rng};
use firstflight_wire::Clock;
use firstflight_wire::asap::message::{MESSAGE_MAX, MessageBytes};
use rand_chacha::ChaCha20Rng;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::UdpSocket;

/// The default limits for clients over TCP.
pub const STREAM_LIMITS: StreamLimits = StreamLimits::per_client(8);

/// The machine and its environment, shared by all sockets.
struct Shared {
    inner: Mutex<(Verifier, ChaCha20Rng)>,
    /// The sockets that send probes.
    probing: Vec<UdpSocket>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (Verifier, ChaCha20Rng)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clock(&self) -> Option<Clock> {
        let clock = clocks();
        clock.inspect_err(|error| tracing::error!(%error, "no clock: a request is not answered")).ok()
    }

    fn send_probe(&self, probe: &[u8], to: SocketAddr) -> io::Result<()> {
        let ipv4 = to.ip().to_canonical().is_ipv4();
        let fits = |socket: &&UdpSocket| socket.local_addr().is_ok_and(|from| from.is_ipv4() == ipv4);
        let socket = self.probing.iter().find(fits).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        socket.try_send_to(probe, to).map(drop)
    }
}

impl Messages for Shared {
    const LARGEST: usize = MESSAGE_MAX;
    const PER_CONNECTION: usize = 8;
    type Answer = MessageBytes;

    fn handle_datagram(&self, from: SocketAddr, message: &[u8]) -> Option<MessageBytes> {
        let clock = self.clock()?;
        let answer = {
            let (verifier, rng) = &mut *self.lock();
            verifier.handle_datagram(&clock, from, message, rng)?
        };
        match answer {
            Answer::Reply(answer) => Some(answer),
            Answer::Probe(probe) => {
                if let Err(error) = self.send_probe(&probe, from) {
                    tracing::debug!(%from, %error, "a probe was not sent");
                }
                None
            }
        }
    }

    fn handle_stream(&self, from: SocketAddr, message: &[u8]) -> Option<MessageBytes> {
        let clock = self.clock()?;
        let (verifier, rng) = &mut *self.lock();
        verifier.handle_stream(&clock, from, message, rng)
    }
}

/// A handle to the counters of a running verifier.
#[derive(Clone)]
pub struct CounterHandle(Arc<dyn Fn() -> Counters + Send + Sync>);

impl CounterHandle {
    /// A handle to counters that `read` reads, for a verifier that is not a [`Service`].
    pub fn new(read: impl Fn() -> Counters + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The counts now.
    #[must_use]
    pub fn get(&self) -> Counters {
        (self.0)()
    }
}

impl fmt::Debug for CounterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CounterHandle").field(&self.get()).finish()
    }
}

/// A handle to the configuration of a running service.
#[derive(Clone)]
pub struct ConfigHandle(Arc<Shared>);

impl ConfigHandle {
    /// Takes other keys, durations and prefixes at once. Its sockets and limits stay.
    ///
    /// # Errors
    /// When the configuration is invalid. The former one then stays.
    pub fn set(&self, config: Config) -> Result<(), ConfigError> {
        let verifier = &mut self.0.lock().0;
        let probe_from = verifier.config().probe_from.clone();
        verifier.set_config(config.probe_from(probe_from))
    }
}

impl fmt::Debug for ConfigHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigHandle").finish_non_exhaustive()
    }
}

/// A verifier that listens.
pub struct Service {
    sockets: Sockets,
    limits: StreamLimits,
    shared: Arc<Shared>,
}

impl Service {
    /// Listens at all `addresses`, with UDP and TCP. The unspecified address works on hosts with one address
    /// of the family. On other hosts list the addresses one by one, so that answers come from the address
    /// that was asked.
    ///
    /// # Errors
    /// When the configuration is invalid, or listening at an address fails.
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
        let bound = Sockets::bind(addresses).await;
        let sockets = bound.map_err(|(address, error)| ServiceError::Listen(address, error))?;
        Ok(Self { sockets, limits, shared: Arc::new(Shared { inner: Mutex::new((verifier, rng)), probing }) })
    }

    /// The addresses at which it listens, with the ports that were chosen for port 0.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.addresses()
    }

    /// Its counts, while it runs.
    #[must_use]
    pub fn counters(&self) -> CounterHandle {
        let shared = Arc::clone(&self.shared);
        CounterHandle::new(move || *shared.lock().0.counters())
    }

    /// Changes its configuration, while it runs.
    #[must_use]
    pub fn config(&self) -> ConfigHandle {
        ConfigHandle(Arc::clone(&self.shared))
    }

    /// Answers until `stop` is ready. Then it accepts nothing new, and gives open connections the time that
    /// one message may take.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { sockets, limits, shared } = self;
        sockets.run(shared, limits, stop).await;
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

/// Why a service does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The configuration is invalid. Its author is at fault.
    #[error("{0}")]
    Config(ConfigError),
    /// Listening at an address failed.
    #[error(
        "cannot listen on {0}: {1}; give an address of this machine and a port that is free for UDP and TCP"
    )]
    Listen(SocketAddr, io::Error),
    /// Probes would come from an address that clients ask at, and would then prove nothing.
    #[error(
        "probes cannot come from {0}: clients ask there, and networks let in whom they asked; give another address of this machine"
    )]
    ProbeAddress(SocketAddr),
    /// No clock or no random numbers.
    #[error("the system gives no clock or no random numbers: {0}")]
    System(io::Error),
}
