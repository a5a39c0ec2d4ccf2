//! One call that connects by the best way that this machine, the network and the server offer.

#[cfg_attr(not(feature = "asap"), path = "client/no_asap.rs")]
pub(crate) mod asap;
pub(crate) mod authority;
mod builder;
#[cfg_attr(not(feature = "engine"), path = "client/no_engine.rs")]
mod by_engine;
pub(crate) mod connect;
pub(crate) mod known_server;
mod network;
pub mod race;
pub(crate) mod transport;

pub use authority::{Authority, BadAuthority, Host, ToAuthority};
pub use builder::ClientBuilder;
pub use connect::{Connect, ConnectMade, ServerPlace};
pub use known_server::ServerKnowledge;

use crate::attempts::ConnectAnyError;
use crate::cache::CredentialCache;
use crate::first_flight::{FirstFlight, Flights};
use crate::kernel::Kernel;
use crate::lookup::Lookups;
use crate::stream::{ConnectTimes, Stream};
use firstflight_credential::NetworkId;
use network::Networks;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use transport::kernel::KernelTcp;
use transport::{Finish, RaceLost};

/// The environment variable that switches first flights off: `FIRSTFLIGHT=off`.
const SWITCH: &str = "FIRSTFLIGHT";

/// How long addresses are used while lookups fail.
const ADDRESSES_KEPT: Duration = Duration::from_secs(10 * 60);

/// Connects to servers by name, by the best way there is: in UDP with a certificate (ASAP), by the kernel's TCP with
/// Fast Open, or by an ordinary handshake. It needs no privileges. Clones share one memory.
///
/// ```no_run
/// # async fn ask() -> std::io::Result<()> {
/// use firstflight::{Client, FirstFlight};
/// let client = Client::new();
/// let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\nHost: www.example.com\r\n\r\n");
/// let stream = client.connect("www.example.com:80", request).await?;
/// println!("{:?}, {}: {}", stream.way(), stream.outcome().as_str(), stream.outcome());
/// # Ok(())
/// # }
/// ```
///
/// **Addresses** come from the system (`getaddrinfo`), which sorts them (RFC 6724). A name is looked up once at a time, and
/// what is known is used while a resolver does not answer, for ten minutes ([`Lookups`]). The addresses race as RFC 8305
/// says, with at most two attempts at a time.
///
/// **What may run twice.** Data that is [`FirstFlight::safely_replayable`] may leave by a second way if the first one
/// gives no answer. Data that is [`FirstFlight::at_most_once`] never does: once it has left, a failure is
/// [`ClientError::maybe_delivered`].
///
/// **Off.** [`ClientBuilder::off`], or `FIRSTFLIGHT=off` in the environment, makes every connect an ordinary one.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
    ways: Ways,
}

/// By which ways a handle connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ways {
    All,
    /// Only TCP, without certificates.
    Tcp,
    /// Only ordinary handshakes of TCP.
    Ordinary,
}

#[derive(Debug)]
struct Shared {
    kernel: Kernel,
    /// The kernel may use Fast Open.
    fast_open: bool,
    /// The engine that carries the connections in place of the system's sockets.
    by_engine: Option<by_engine::ByEngine>,
    networks: Networks,
    lookups: Lookups,
    /// The cache, until the network is known.
    cache: Mutex<Option<CredentialCache>>,
    /// It was told that the cache is not used, because the network is not known.
    told_unknown: AtomicBool,
    asap: Option<asap::Asap>,
    /// The resolver that the caller named, in place of the system's.
    resolver: asap::Resolver,
}

/// The addresses of a server, and since when they were looked up ([`Client::look_up`]).
#[derive(Debug, Clone)]
pub struct FoundAddresses {
    addresses: Vec<SocketAddr>,
    began: Instant,
    lookup: Duration,
    /// Those of the other family were not asked for.
    is_partial: bool,
}

impl FoundAddresses {
    /// Addresses that the caller knows.
    fn known(addresses: Vec<SocketAddr>) -> Self {
        Self { addresses, began: Instant::now(), lookup: Duration::ZERO, is_partial: false }
    }

    /// The addresses, best one first.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Default for Client {
    /// Settings that fit most programs: Fast Open by the kernel, no certificates, memory in this process only.
    fn default() -> Self {
        ClientBuilder::default().without_files()
    }
}

impl Client {
    /// The same as [`Client::default`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A client with other settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A handle that connects by TCP only. Use it for what leaves a request's shape: upgrades (WebSocket), connections
    /// that will be idle for long, and large transfers.
    #[must_use]
    pub fn tcp_only(&self) -> Self {
        let ways = if self.ways == Ways::All { Ways::Tcp } else { self.ways };
        Self { shared: Arc::clone(&self.shared), ways }
    }

    /// A handle that makes ordinary handshakes only, behind which all data follows. Use it for a request that a server found
    /// too early (status 425, RFC 8470 §5.2).
    #[must_use]
    pub fn ordinary(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ways: Ways::Ordinary }
    }

    /// Connects to `server`, and sends `first`, when it is awaited. The server is a host and a port in any form: text as
    /// `www.example.com:443` and `[2001:db8::1]:53`, a pair as `("www.example.com", 443)`, a `SocketAddr`, an [`Authority`].
    /// Resolves when the handshake is complete, or the server has accepted the first flight, and all of the data is sent.
    /// [`Connect`] says what else can be wanted.
    ///
    /// # Errors
    /// When `server` is not a host and a port, has no address, or none of its addresses answers. With
    /// [`ClientError::maybe_delivered`] the server may have executed the data.
    ///
    /// # Panics
    /// When it is awaited outside a tokio runtime with I/O and time.
    pub fn connect<'a>(&self, server: impl ToAuthority, first: FirstFlight<'a>) -> Connect<'a> {
        Connect::new(self, &server, first)
    }

    /// Looks up the addresses of `server`, and asks beside it what the server publishes, as [`Client::connect`] does. For a
    /// caller that wants to see the addresses, or does something else, before it connects to them ([`Connect::at`]).
    ///
    /// # Errors
    /// When `server` is not a host and a port, or has no address.
    ///
    /// # Panics
    /// As [`Client::connect`].
    pub async fn look_up(&self, server: impl ToAuthority) -> Result<FoundAddresses, ClientError> {
        let (server, began) = (server.to_authority()?, Instant::now());
        self.find(&server, began, true).await
    }

    /// Connects to what was found.
    async fn reach(
        &self,
        server: &Authority,
        found: &FoundAddresses,
        flights: Flights<'_>,
    ) -> Result<(Stream, u32), ClientError> {
        let FoundAddresses { addresses, began, lookup, is_partial: _ } = found;
        let Finish { stream, won, departed } = self.race(server, addresses, flights).await?;
        let connect = began.elapsed().saturating_sub(*lookup);
        let times = ConnectTimes { lookup: *lookup, connect, first_syn: departed };
        Ok((stream.took(times), won.number))
    }

    /// The addresses of a server, and how long they took since `began`. With `all` of both families, also if those of one are enough for
    /// now.
    async fn find(
        &self,
        server: &Authority,
        began: Instant,
        all: bool,
    ) -> Result<FoundAddresses, ClientError> {
        let shared = &self.shared;
        let asked = self.ask(server);
        let (addresses, ()) = tokio::join!(self.addresses(server, all), shared.networks.refresh(shared));
        let (addresses, is_partial) =
            addresses.map_err(|error| ClientError::Lookup { server: server.clone(), error })?;
        let lookup = began.elapsed();
        if let Some(asked) = asked {
            asked.wait(lookup).await;
        }
        Ok(FoundAddresses { addresses, began, lookup, is_partial })
    }

    async fn race(
        &self,
        server: &Authority,
        addresses: &[SocketAddr],
        flights: Flights<'_>,
    ) -> Result<Finish, ClientError> {
        let shared = &self.shared;
        shared.networks.refresh(shared).await;
        shared.follow_engine();
        let network = shared.kernel.network();
        let hidden = asap::is_hidden(&flights);
        let by_engine =
            shared.race_by_engine(server, addresses, flights, self.ways == Ways::All, self.fast_open());
        let result = match by_engine.await {
            Some(result) => result,
            None => self.race_by_system(server, addresses, flights).await,
        };
        shared.kernel.note_contact(network, server, result.is_ok());
        if let (Some(asap), Ok(finish)) = (self.asap(), &result) {
            asap.handle_visit(server, &finish.stream, hidden);
        }
        result.map_err(|RaceLost { error, once, .. }| ClientError::Connect { at_most_once: once, error })
    }

    async fn race_by_system(
        &self,
        server: &Authority,
        addresses: &[SocketAddr],
        flights: Flights<'_>,
    ) -> Result<Finish, RaceLost> {
        let shared = &self.shared;
        let tcp = KernelTcp::new(&shared.kernel, flights, self.fast_open());
        match self.asap() {
            Some(asap) => asap.race(server, addresses, tcp).await,
            None => shared.kernel.race(&tcp, ready(Ok(addresses.to_vec()))).await,
        }
    }

    /// Reports that this host is on another network now. The client also looks by itself, every few seconds while it
    /// connects. A client by an engine asks the engine.
    pub async fn network_changed(&self) {
        self.shared.leave_unknown();
        self.shared.lookups.forget();
        self.shared.follow_engine();
        self.shared.networks.look(&self.shared).await;
        if let Some(asap) = &self.shared.asap {
            asap.moved();
        }
    }

    /// The host is on this network now. For a client whose network the program names ([`ClientBuilder::network`]).
    pub fn move_to(&self, network: NetworkId) {
        self.shared.move_to(network);
    }

    /// Forgets what was learnt about servers and paths. The kernel keeps its cookies.
    pub fn forget(&self) {
        self.shared.kernel.forget();
        self.shared.forget_by_engine();
        self.shared.lookups.forget();
        if let Some(cache) = &mut *self.shared.cache.lock().unwrap_or_else(PoisonError::into_inner) {
            // It waits for its network.
            cache.clear();
        }
        if let Some(asap) = &self.shared.asap {
            asap.forget();
        }
    }

    /// Writes the files, if anything has changed. Call it at the end of the program.
    pub async fn close(self) {
        if let Some(asap) = &self.shared.asap {
            asap.remember().await;
        }
        let kernel = self.shared.kernel.clone();
        // It fails only when the runtime shuts down.
        let _ = tokio::task::spawn_blocking(move || kernel.save()).await;
        if let Some(asap) = &self.shared.asap {
            asap.close().await;
        }
    }

    /// The addresses of a server, best one first, and whether there may be others of the other family.
    async fn addresses(&self, server: &Authority, all: bool) -> io::Result<(Vec<SocketAddr>, bool)> {
        if let Some(address) = server.address() {
            return Ok((vec![address], false));
        }
        let (name, port) = match server.host() {
            Host::Ip(_) => return Ok((Vec::new(), false)),
            Host::Name(name) => (name.as_str(), server.port()),
        };
        if let Some(found) = self.ask_resolver(server, name, all).await {
            let (found, is_partial) = found?;
            return Ok((found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect(), is_partial));
        }
        Ok((self.shared.lookups.addresses(name, port, Lookups::PATIENCE).await?, false))
    }

    /// For connects in the program's own event loop.
    pub(crate) fn kernel(&self) -> &Kernel {
        &self.shared.kernel
    }

    fn asap(&self) -> Option<&asap::Asap> {
        self.shared.asap.as_ref().filter(|_| self.ways == Ways::All)
    }

    pub(crate) fn fast_open(&self) -> bool {
        self.shared.fast_open && self.ways != Ways::Ordinary
    }
}

/// Why there is no connection. The text says all of it. The source is the lookup's [`io::Error`] or the [`ConnectAnyError`], for
/// programs that ask for the kind; a report of the whole chain says the reason twice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server is not a host and a port.
    #[error(transparent)]
    Authority(#[from] BadAuthority),
    /// The name has no address, or cannot be looked up.
    #[error("cannot look up {server}: {error}")]
    Lookup {
        /// The server.
        server: Authority,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// No address answered.
    #[error("{}{error}", if *at_most_once && maybe_delivered(error) { "maybe delivered: " } else { "" })]
    Connect {
        /// Data that must not run twice has left, so it was not sent again.
        at_most_once: bool,
        /// Why, for each attempt.
        #[source]
        error: ConnectAnyError,
    },
}

impl ClientError {
    /// The error of the connect behind `error`, which a library returned to which a [`LazyStream`](crate::LazyStream) was
    /// given. hyper's errors carry it, for example.
    #[must_use]
    pub fn of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        crate::causes(error).find_map(|cause| cause.downcast_ref())
    }

    /// Whether a request may have been executed that ended with `error`: unless a connect says that it was not
    /// ([`ClientError::maybe_delivered`]). What came after the connect is no `ClientError`: a reset, an early end, a time limit, an
    /// error of hyper's. Nobody knows then what the server did.
    ///
    /// ```
    /// # use firstflight::ClientError;
    /// let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    /// assert!(ClientError::may_have_run(&reset));
    /// ```
    #[must_use]
    pub fn may_have_run(error: &(dyn std::error::Error + 'static)) -> bool {
        Self::of(error).is_none_or(Self::maybe_delivered)
    }

    /// Whether the server may have executed the data of the connect. Data that may run twice can be sent again; other data cannot.
    /// Of errors after the connect see [`ClientError::may_have_run`].
    #[must_use]
    pub fn maybe_delivered(&self) -> bool {
        matches!(self, Self::Connect { error, .. } if maybe_delivered(error))
    }

    /// Whether the data of the connect may leave again, if it must not run twice.
    fn lets_once_leave(&self) -> bool {
        !self.maybe_delivered() && !matches!(self, Self::Connect { at_most_once: true, .. })
    }
}

fn maybe_delivered(error: &ConnectAnyError) -> bool {
    error.attempts.iter().any(|attempt| attempt.may_have_run)
}

impl From<ClientError> for io::Error {
    fn from(error: ClientError) -> Self {
        let kind = match &error {
            ClientError::Authority(_) => io::ErrorKind::InvalidInput,
            ClientError::Lookup { error, .. } => error.kind(),
            ClientError::Connect { error, .. } => {
                error.attempts.first().map_or(io::ErrorKind::InvalidInput, |first| first.error.kind())
            }
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod error_tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_may_have_run() {
        let error = || io::Error::from(io::ErrorKind::NotFound);
        let lookup = ClientError::Lookup { server: "a.example:80".parse().unwrap(), error: error() };
        assert!(!ClientError::may_have_run(&lookup));
        // As hyper and lazy streams pass it on.
        assert!(!ClientError::may_have_run(&io::Error::from(lookup)));
        for kind in [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof, io::ErrorKind::TimedOut] {
            assert!(ClientError::may_have_run(&io::Error::from(kind)), "{kind}");
        }
    }
}
