//! A connector for hyper-util's client.

use crate::watched::{LibraryEnd, StreamFacts, Watch};
use firstflight::credential::Outcome;
use firstflight::{
    Authority, BadAuthority, Client, ConnectTimes, FirstFlight, LazyStream, Race, ReplaySafety, Stream, Way,
};
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use tower_service::Service;

/// Connects for `hyper_util::client::legacy::Client`, and for the `Endpoint` of tonic. It returns at once: the connection
/// begins with the first request, which is the first flight.
///
/// ```
/// # use bytes::Bytes;
/// # use http_body_util::Empty;
/// use firstflight_adapters::Connector;
/// use hyper_util::{client::legacy, rt::TokioExecutor};
/// let connector = Connector::new(firstflight::Client::new());
/// let client: legacy::Client<_, Empty<Bytes>> = legacy::Client::builder(TokioExecutor::new()).build(connector);
/// ```
///
/// **What may run twice.** A request with a safe method may; a POST of the same client waits for the handshake
/// ([`ReplaySafety::ByMethod`]). [`Connector::replay_safety`] changes that for all requests.
///
/// **Errors.** If there is no connection, the request fails, and not the connect: `is_connect` of hyper-util's error is
/// false.
///
/// **TLS**: `HttpsConnector` has it (feature `tls`). Another connector of TLS around this one needs
/// [`Connector::enforce_http`].
#[derive(Debug, Clone)]
pub struct Connector {
    client: Client,
    safety: ReplaySafety,
    enforce_http: bool,
}

impl Connector {
    /// A connector that uses `client`.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client, safety: ReplaySafety::ByMethod, enforce_http: true }
    }

    /// Whether the first request of a connection may be executed twice.
    #[must_use]
    pub const fn replay_safety(mut self, safety: ReplaySafety) -> Self {
        self.safety = safety;
        self
    }

    /// Whether URIs must have the scheme `http`, which is the default. A connector of TLS around this one passes URIs
    /// with `https`. Its first write is a ClientHello, which no method makes safe: declare it with
    /// [`Connector::replay_safety`], if it carries no early data.
    #[must_use]
    pub const fn enforce_http(mut self, enforce: bool) -> Self {
        self.enforce_http = enforce;
        self
    }

    fn authority(&self, uri: &Uri) -> Result<Authority, ConnectorError> {
        match Scheme::of(uri)? {
            Scheme::Https if self.enforce_http => Err(ConnectorError::Https),
            scheme => scheme.authority(uri),
        }
    }

    /// A stream to a server, by the kernel's TCP or in UDP, without TLS.
    pub(crate) fn lazy(&self, server: Authority) -> LibraryEnd<LazyStream> {
        LibraryEnd::new(self.client.connect(server, FirstFlight::empty()).lazy(self.safety))
    }

    #[cfg(feature = "tls")]
    pub(crate) const fn parts(&self) -> (&Client, ReplaySafety) {
        (&self.client, self.safety)
    }
}

/// The schemes that are known.
#[derive(Clone, Copy)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) fn of(uri: &Uri) -> Result<Self, ConnectorError> {
        match uri.scheme_str() {
            Some("http") => Ok(Self::Http),
            Some("https") => Ok(Self::Https),
            _ => Err(ConnectorError::Scheme(uri.clone())),
        }
    }

    pub(crate) fn authority(self, uri: &Uri) -> Result<Authority, ConnectorError> {
        let port = match self {
            Self::Http => 80,
            Self::Https => 443,
        };
        let host = uri.host().ok_or_else(|| ConnectorError::NoHost(uri.clone()))?;
        Ok(Authority::new(host, uri.port_u16().unwrap_or(port))?)
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectorError {
    /// The URI has the scheme `https`, and the connector no TLS. The caller is at fault.
    #[error("this connector has no TLS: for https use HttpsConnector (feature tls)")]
    Https,
    /// The URI has the scheme `http`, and the connector takes only https. The caller is at fault.
    #[error("{0} is not encrypted, and this connector takes only https")]
    NotEncrypted(Uri),
    /// Neither http nor https. The caller is at fault.
    #[error("the scheme of {0} is neither http nor https")]
    Scheme(Uri),
    /// There is no host. The caller is at fault.
    #[error("{0} has no host")]
    NoHost(Uri),
    /// The host or the port is not valid. The caller is at fault.
    #[error(transparent)]
    Authority(#[from] BadAuthority),
    /// The connect of [`HttpsConnector`](crate::HttpsConnector) has failed.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Tls(#[from] firstflight_tls::ConnectError),
}

impl Service<Uri> for Connector {
    type Response = TokioIo<ClientStream>;
    type Error = ConnectorError;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        ready(self.authority(&uri).map(|server| TokioIo::new(ClientStream(self.lazy(server)))))
    }
}

/// A connection of [`Connector`].
#[derive(Debug)]
pub struct ClientStream(LibraryEnd<LazyStream>);

impl ClientStream {
    /// What became of the first flight.
    #[must_use]
    pub fn info(&self) -> FirstFlightInfo {
        FirstFlightInfo(SeenConnection::Plain(self.0.watch()))
    }
}

impl Connection for ClientStream {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.info())
    }
}

firstflight::forward_io!([] ClientStream, Self(stream, ..) => *stream);

/// What became of the first flight of a connection. hyper-util's client puts it into the extensions of each response of
/// that connection: `response.extensions().get::<FirstFlightInfo>()`. It does not keep the connection open.
#[derive(Debug, Clone)]
pub struct FirstFlightInfo(pub(crate) SeenConnection);

#[derive(Debug, Clone)]
pub(crate) enum SeenConnection {
    Plain(Watch<LazyStream>),
    #[cfg(feature = "tls")]
    Tls(Watch<firstflight_tls::LazyTlsStream>),
}

impl SeenConnection {
    fn look<T>(&self, stream: impl FnOnce(&Stream) -> T, otherwise: impl FnOnce(&StreamFacts) -> T) -> T {
        match self {
            Self::Plain(watch) => watch.look(stream, otherwise),
            #[cfg(feature = "tls")]
            Self::Tls(watch) => watch.look(stream, otherwise),
        }
    }

    #[cfg(feature = "tls")]
    fn tls(&self) -> Option<crate::watched::Tls> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(watch) => watch.facts().tls,
        }
    }
}

impl FirstFlightInfo {
    /// The outcome; `Undecided` before there is a connection.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.look(Stream::outcome, |facts| facts.outcome)
    }

    /// How the segments travel. `None` before there is a connection.
    #[must_use]
    pub fn way(&self) -> Option<Way> {
        self.0.look(|stream| Some(stream.way()), |facts| facts.way)
    }

    /// Whether the connection won a race against an attempt with Fast Open ([`Stream::race`]).
    #[must_use]
    pub fn race(&self) -> Option<Race> {
        self.0.look(Stream::race, |facts| facts.race)
    }

    /// How long the connect took. `None` before there is a connection.
    #[must_use]
    pub fn times(&self) -> Option<ConnectTimes> {
        self.0.look(Stream::times, |facts| facts.times)
    }

    /// The server's address. `None` before there is a connection.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.look(|stream| stream.peer_addr().ok(), |facts| facts.peer)
    }

    /// How the handshake of TLS went, and what became of early data. `None` without TLS, or before there is a connection.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(&self) -> Option<firstflight_tls::Handshake> {
        self.0.tls().map(|tls| tls.handshake)
    }

    /// How many session tickets of TLS have come. They come behind the handshake, one round trip after the client's Finished.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tickets(&self) -> u32 {
        self.0.tls().map_or(0, |tls| tls.tickets)
    }

    /// The local address. `None` before there is a connection.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.look(|stream| stream.local_addr().ok(), |facts| facts.local)
    }
}

#[cfg(test)]
mod tests;
