//! The client's end.

mod any_certificate;
mod attempt;
mod builder;

pub use builder::ConnectorBuilder;

use crate::error::{ConnectError, HiddenError};
use crate::groups::Groups;
use crate::hello::{Hello, Protocol};
use crate::sealed::{self, Considered, Ended, Looked, Ordinary, SealClient, SealReport, SealedRequest};
use crate::stream::TlsStream;
use crate::tickets::{self, AtPlace, Tickets};
use firstflight::credential::NetworkId;
use firstflight::{AttemptInfo, Authority, Client, FirstFlight, Host, ServerPlace, Stream, Time, Way};
use firstflight_seal::{DIGEST_PREFIX, Reason};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Connects by TLS 1.3, with the ClientHello in the first flight. Clones share one memory of tickets, which is in this
/// process only: two tickets for a site and network, 256 sites and networks at most.
///
/// ```no_run
/// # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
/// use firstflight::{Client, FirstFlight};
/// use firstflight_tls::Connector;
/// let connector = Connector::builder().http1().build()?;
/// let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\nHost: www.example.com\r\n\r\n");
/// let stream = connector.connect(&Client::new(), "www.example.com:443", request).await?;
/// println!("{:?}", stream.handshake());
/// # Ok(())
/// # }
/// ```
///
/// **What may run twice.** A ClientHello runs nothing, so it always rides in the first flight. Data that is
/// [`FirstFlight::safely_replayable`] goes with it as early data if a ticket allows that, or sealed
/// ([`ConnectorBuilder::seal`]): it may be executed more than once, and it may go again by itself. Data that is
/// [`FirstFlight::at_most_once`] is never early data. In ordinary TLS it follows the client's Finished. Sealed, it leaves in
/// the first flight too: under a credential block, which it is bound to, the server may execute it before the Finished, and
/// there is one such flight; without a block the server executes it after the Finished, of which there is one. A server
/// remembers for 15 minutes what it has executed (`docs/spec/sealed.md` 6 and 9 say what that needs), so a copy does not run
/// again. Where such data could have run and no answer tells, it does not go again by itself, and the error says
/// [`ConnectError::maybe_delivered`].
///
/// **Privacy.** A ticket tells a server that the client was there before. It is used once, at its site, on its network: that
/// of the connection on which it came.
#[derive(Debug, Clone)]
pub struct Connector {
    shared: Arc<Shared>,
}

#[derive(Debug, Clone)]
struct Shared {
    /// For a ClientHello in a SYN, and elsewhere.
    configs: [(Groups, Arc<ClientConfig>); 2],
    alpn: Vec<Vec<u8>>,
    /// The server has agreed on the protocol before, and the caller counts on it.
    agreed_before: bool,
    early_data: bool,
    seal: Option<SealClient>,
    timeout: Duration,
    time: Time,
    tickets: Arc<Tickets>,
}

/// How a ClientHello leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Departure {
    /// The network that this host is on, [`NetworkId::UNKNOWN`] if that is not known. What is learnt on one network is not
    /// used on another. What is learnt on an unknown network is forgotten when the client of [`Connector::connect`] finds
    /// another one; otherwise call [`Connector::forget`] when the host moves.
    pub network: NetworkId,
    /// Whether a TCP SYN should hold it: see [`Hybrid`](crate::Hybrid).
    pub in_syn: bool,
}

impl Departure {
    /// In a TCP SYN.
    #[must_use]
    pub const fn in_syn(network: NetworkId) -> Self {
        Self { network, in_syn: true }
    }

    /// In UDP, or on a stream that is connected.
    #[must_use]
    pub const fn elsewhere(network: NetworkId) -> Self {
        Self { network, in_syn: false }
    }
}

impl From<&AttemptInfo> for Departure {
    fn from(info: &AttemptInfo) -> Self {
        Self { network: info.network, in_syn: info.way != Way::Udp }
    }
}

impl Connector {
    /// A connector with other settings.
    pub fn builder() -> ConnectorBuilder {
        ConnectorBuilder::default()
    }

    /// A connector that trusts what the platform trusts.
    ///
    /// # Errors
    /// When the platform names no authorities.
    pub fn new() -> Result<Self, crate::ConfigError> {
        Self::builder().build()
    }

    /// Connects to `server`, a host and a port (`www.example.com:443`), and sends `data`. Resolves when the server's
    /// Finished is verified and all of the data is sent.
    ///
    /// The ClientHello and the early data are one write, the first flight of [`Connect::made_by`](firstflight::Connect::made_by): a SYN carries as much
    /// of it as fits. Nagle's algorithm is off on the stream.
    ///
    /// # Errors
    /// See [`ConnectError`]. With [`ConnectError::maybe_delivered`] the server may have executed the data.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub async fn connect(
        &self,
        client: &Client,
        server: &str,
        data: FirstFlight<'_>,
    ) -> Result<TlsStream<Stream>, ConnectError> {
        self.connect_to(client, &server.parse()?, data).await
    }

    /// Like [`Connector::connect`], to a host and port that are parsed already.
    ///
    /// # Errors
    /// As [`Connector::connect`].
    ///
    /// # Panics
    /// As [`Connector::connect`].
    pub async fn connect_to(
        &self,
        client: &Client,
        server: &Authority,
        data: FirstFlight<'_>,
    ) -> Result<TlsStream<Stream>, ConnectError> {
        self.reach(client, None, server, data, true).await
    }

    /// Like [`Connector::connect_to`], for a caller that has looked up the addresses itself, best one first: for example by an
    /// encrypted resolver, because the server's name is hidden.
    ///
    /// # Errors
    /// As [`Connector::connect`].
    ///
    /// # Panics
    /// As [`Connector::connect`].
    pub async fn connect_at(
        &self,
        client: &Client,
        server: &Authority,
        addresses: &[SocketAddr],
        data: FirstFlight<'_>,
    ) -> Result<TlsStream<Stream>, ConnectError> {
        self.reach(client, Some(addresses.into()), server, data, true).await
    }

    /// `complete`: the data is a whole request.
    pub(crate) async fn reach(
        &self,
        client: &Client,
        at: Option<ServerPlace>,
        server: &Authority,
        data: FirstFlight<'_>,
        complete: bool,
    ) -> Result<TlsStream<Stream>, ConnectError> {
        // As large as the largest of its steps, and over soon.
        Box::pin(self.contact(client, at, server, data, complete)).await.0
    }

    /// Like [`Connector::reach`]. Says of failures, too, what became of a seal.
    pub(crate) async fn contact(
        &self,
        client: &Client,
        at: Option<ServerPlace>,
        server: &Authority,
        data: FirstFlight<'_>,
        complete: bool,
    ) -> (Result<TlsStream<Stream>, ConnectError>, Option<SealReport>) {
        let (at, looked) = match (at, &self.shared.seal) {
            (at, None) => (at, Looked::Nothing(Reason::NoRecord)),
            // The key is looked up beside the addresses.
            (None, Some(seal)) => {
                let (looked, found) = seal.look_up(server, self.time(), client.look_up(server)).await;
                match found {
                    Ok(found) => (Some(ServerPlace::from(&found)), looked),
                    Err(error) => return (Err(error.into()), None),
                }
            }
            (at, Some(seal)) => {
                let (looked, ()) = seal.look_up(server, self.time(), std::future::ready(())).await;
                (at, looked)
            }
        };
        let (sealed, report) = match self.consider(server, &looked, data, complete) {
            None => (None, None),
            Some(Considered::Clear(reason)) => (None, Some(reason.into())),
            Some(Considered::Hidden(error, reason)) => {
                return reported(Err(ConnectError::Hidden(error)), Some(reason.into()));
            }
            Some(Considered::Sealed(request)) => (Some(request), None),
        };
        let result = self.send((client, at), server, data, sealed.as_ref(), report).await;
        let report = match &result {
            Ok(stream) => stream.seal_report(),
            Err(error) if sealed.is_some() => SealReport::failed(error),
            Err(_) => report,
        };
        reported(result, report)
    }

    /// Connects, and again if a sealed flight may go again.
    async fn send(
        &self,
        (client, at): (&Client, Option<ServerPlace>),
        server: &Authority,
        data: FirstFlight<'_>,
        sealed: Option<&SealedRequest<'_>>,
        report: Option<SealReport>,
    ) -> Result<TlsStream<Stream>, ConnectError> {
        match self.attempt((client, at.as_ref()), server, data, sealed, report).await {
            Ended::Taken(stream) => Ok(*stream),
            Ended::Over(error) => Err(error),
            Ended::Rejected(stream, read, network) => {
                self.go_on_in_clear(stream, read, server, network, data).await
            }
            Ended::Failed(error) => {
                tracing::debug!("a sealed first flight to {server} failed, and goes again: {error}");
                // In ordinary TLS, unless that would name the server.
                let sealed = sealed.filter(|request| request.is_hidden());
                match self
                    .attempt((client, at.as_ref()), server, data, sealed, Some(Reason::FlightFailed.into()))
                    .await
                {
                    Ended::Taken(stream) => Ok(*stream),
                    Ended::Over(error) | Ended::Failed(error) => Err(error),
                    Ended::Rejected(..) => Err(ConnectError::Closed),
                }
            }
        }
    }

    fn consider<'a>(
        &'a self,
        server: &'a Authority,
        looked: &'a Looked,
        data: FirstFlight<'a>,
        complete: bool,
    ) -> Option<Considered<'a>> {
        let Shared { seal, alpn, time, .. } = &*self.shared;
        let protocol = alpn.first().map(Vec::as_slice);
        seal.as_ref().map(|seal| seal.consider(server, looked, data, complete, protocol, time))
    }

    /// After a REJECT, of which the bytes `read` follow: ordinary TLS on the same connection, without early data. Its
    /// tickets belong to the network of the flight.
    async fn go_on_in_clear<IO>(
        &self,
        io: IO,
        read: Vec<u8>,
        server: &Authority,
        network: NetworkId,
        data: FirstFlight<'_>,
    ) -> Result<TlsStream<IO>, ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let alpn = self.shared.alpn.iter().take(1).cloned().collect();
        let hello = self.hello_offering(server, Departure::elsewhere(network), data, alpn, false)?;
        let finished = hello.finish_over_behind(io, read).await;
        let was = if finished.is_ok() { Ordinary::Worked } else { Ordinary::Failed };
        self.ordinary(network, server, was);
        Ok(finished?.considered(Some(Reason::Rejected.into())))
    }

    /// Remembers what an ordinary connection says about flights that failed (sealed.md 7.4).
    fn ordinary(&self, network: NetworkId, server: &Authority, was: Ordinary) {
        if let Some(seal) = &self.shared.seal {
            seal.ordinary(network, server, was, self.shared.time.now());
        }
    }

    /// Connects over a stream, which may be of any kind. `server` is the one whose certificate is expected, and whose
    /// tickets are used, as on an unknown network. The ClientHello and early data are one write. Turn Nagle's algorithm of
    /// the stream off.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect_over<IO>(
        &self,
        io: IO,
        server: &Authority,
        data: FirstFlight<'_>,
    ) -> Result<TlsStream<IO>, ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        Box::pin(self.handshake_over(io, server, data)).await
    }

    async fn handshake_over<IO>(
        &self,
        io: IO,
        server: &Authority,
        data: FirstFlight<'_>,
    ) -> Result<TlsStream<IO>, ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let departure = Departure::elsewhere(NetworkId::UNKNOWN);
        let looked = match &self.shared.seal {
            Some(seal) => seal.look_up(server, self.time(), std::future::ready(())).await.0,
            None => Looked::Nothing(Reason::NoRecord),
        };
        let (sealed, report) = match self.consider(server, &looked, data, true) {
            None => (None, None),
            Some(Considered::Clear(reason)) => (None, Some(reason.into())),
            Some(Considered::Hidden(error, reason)) => {
                return reported(Err(ConnectError::Hidden(error)), Some(reason.into())).0;
            }
            Some(Considered::Sealed(request)) => {
                (request.seal_over(self, departure)?, Some(request.declined().into()))
            }
        };
        let Some(sealed) = sealed else {
            let finished = self.hello(server, departure, data)?.finish_over(io).await;
            let was = if finished.is_ok() { Ordinary::Worked } else { Ordinary::Failed };
            self.ordinary(departure.network, server, was);
            return reported(Ok(finished?.considered(report)), report).0;
        };
        let result = match sealed::finish_over(sealed, io).await {
            Ended::Taken(stream) => Ok(*stream),
            Ended::Rejected(io, read, network) => self.go_on_in_clear(io, read, server, network, data).await,
            Ended::Over(error) | Ended::Failed(error) => Err(error),
        };
        let report = match &result {
            Ok(stream) => stream.seal_report(),
            Err(error) => SealReport::failed(error),
        };
        reported(result, report).0
    }

    /// The opening bytes of a connection to `server`, for a caller that opens the connection itself, for example by
    /// [`Endpoint::connect`](firstflight::Endpoint::connect). A ticket is used up by it.
    ///
    /// # Errors
    /// [`ConnectError::Name`] and [`ConnectError::Config`]: the caller is at fault. [`ConnectError::Hidden`]: these bytes would
    /// name a server whose name is hidden.
    pub fn hello(
        &self,
        server: &Authority,
        departure: Departure,
        data: FirstFlight<'_>,
    ) -> Result<Hello, ConnectError> {
        let offered = if data.data().is_empty() { self.shared.alpn.len() } else { 1 };
        let alpn = self.shared.alpn.iter().take(offered).cloned().collect();
        self.hello_offering(server, departure, data, alpn, self.shared.early_data)
    }

    /// A ClientHello to be sealed, with these ALPN names.
    pub(crate) fn sealed_hello(
        &self,
        server: &Authority,
        departure: Departure,
        names: Vec<Vec<u8>>,
    ) -> Result<Hello, ConnectError> {
        self.any_hello(server, departure, FirstFlight::empty(), names, false)
    }

    pub(crate) fn time(&self) -> &Time {
        &self.shared.time
    }

    /// Like [`Connector::hello`], offering these protocols. `early`: early data is allowed. Every ClientHello in clear comes
    /// from here.
    fn hello_offering(
        &self,
        server: &Authority,
        departure: Departure,
        data: FirstFlight<'_>,
        alpn: Vec<Vec<u8>>,
        early: bool,
    ) -> Result<Hello, ConnectError> {
        if self.shared.seal.as_ref().is_some_and(|seal| seal.hides(server)) {
            return Err(ConnectError::Hidden(HiddenError::Request));
        }
        self.any_hello(server, departure, data, alpn, early)
    }

    fn any_hello(
        &self,
        server: &Authority,
        departure: Departure,
        data: FirstFlight<'_>,
        alpn: Vec<Vec<u8>>,
        early: bool,
    ) -> Result<Hello, ConnectError> {
        let shared = &self.shared;
        let name = server_name(server)?;
        let [in_syn, elsewhere] = &shared.configs;
        let (groups, config) = if departure.in_syn { in_syn } else { elsewhere };
        // The digest of a sealed request is never offered again, so tickets do not belong to it.
        let lasting = alpn.iter().filter(|name| !name.starts_with(&DIGEST_PREFIX)).cloned().collect();
        let place =
            tickets::TicketPlace { server: server.clone(), network: departure.network, alpn: lasting };
        let mut config = (**config).clone();
        config.enable_early_data = early && data.is_replayable() && !data.data().is_empty();
        let expected = place.alpn.first().filter(|_| shared.agreed_before).cloned();
        let store = Arc::new(AtPlace::new(&shared.tickets, place, *groups));
        let resumes = store.resumes();
        config.resumption = Resumption::store(Arc::<AtPlace>::clone(&store));
        let connection = ClientConnection::new_with_alpn(Arc::new(config), name, alpn);
        let connection = connection.map_err(ConnectError::Config)?;
        let limits = (shared.timeout, shared.time.clone());
        let protocol = Protocol { store, expected };
        Ok(Hello::new(connection, data.data(), data.is_replayable(), resumes, protocol, limits))
    }

    /// What is offered, best one first.
    pub(crate) fn protocols(&self) -> &[Vec<u8>] {
        &self.shared.alpn
    }

    /// Whether a first contact gains if it waits for the request.
    pub(crate) fn waits_with_first(&self, server: &Authority) -> bool {
        let Shared { seal, alpn, .. } = &*self.shared;
        seal.as_ref().is_some_and(|seal| alpn.len() <= 1 || seal.hides(server))
    }

    /// What to offer so that early data can ride: one protocol, or none if the connector has none. `None` if no early data
    /// can.
    pub(crate) fn protocol_for_early_data(&self, server: &Authority) -> Option<Vec<Vec<u8>>> {
        let Shared { alpn, early_data, tickets, .. } = &*self.shared;
        tickets.for_early_data(server, alpn).filter(|_| *early_data)
    }

    /// This connector with the protocol of a ticket alone. The handshake fails if the server has another one by now.
    pub(crate) fn agreed_before(&self, alpn: Vec<Vec<u8>>) -> Self {
        Self { shared: Arc::new(Shared { alpn, agreed_before: true, ..(*self.shared).clone() }) }
    }

    /// Forgets all tickets, and the seal keys that were looked up. Call it when the user wants to be a stranger to the
    /// servers.
    pub fn forget(&self) {
        self.shared.tickets.forget();
        self.shared.seal.iter().for_each(SealClient::forget);
    }
}

/// Counts what became of a seal.
fn reported<T>(result: T, report: Option<SealReport>) -> (T, Option<SealReport>) {
    #[cfg(feature = "metrics")]
    report.into_iter().for_each(crate::metrics::contacted);
    (result, report)
}

/// The name that the certificate must have.
fn server_name(server: &Authority) -> Result<ServerName<'static>, ConnectError> {
    match server.host() {
        Host::Ip(ip) => Ok(ServerName::IpAddress((*ip).into())),
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_| ConnectError::Name(name.clone())),
    }
}
