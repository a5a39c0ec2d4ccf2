//! A connector with TLS.

use crate::connector::{Connector, ConnectorError, FirstFlightInfo, Scheme, SeenConnection};
use crate::watched::LibraryEnd;
use firstflight::{Client, ReplaySafety};
use firstflight_tls::H2;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service;

/// Connects by TLS 1.3 for `hyper_util::client::legacy::Client`, and for the `Endpoint` of tonic: to `https://` with TLS, to
/// `http://` as [`Connector`].
///
/// ```
/// # use bytes::Bytes;
/// # use http_body_util::Empty;
/// use firstflight_adapters::HttpsConnector;
/// use firstflight_tls::{Connector, H2, HTTP_1_1, rustls};
/// use hyper_util::{client::legacy, rt::TokioExecutor};
/// # fn client(roots: rustls::RootCertStore) -> Result<(), firstflight_tls::ConfigError> {
/// let tls = Connector::builder().roots(roots).alpn([H2, HTTP_1_1]).build()?;
/// let connector = HttpsConnector::new(firstflight::Client::new(), tls).https_only(true);
/// let client: legacy::Client<_, Empty<Bytes>> = legacy::Client::builder(TokioExecutor::new()).build(connector);
/// # Ok(())
/// # }
/// ```
///
/// **Round trips.** The first contact connects at once, with the ClientHello in the SYN, and a request has its answer after two
/// round trips. With a ticket of an earlier visit, the connection waits for the first request: ClientHello and request, as early
/// data, are one first flight, and the answer comes after one round trip.
///
/// **What may run twice.** A request with a safe method may be early data; a POST of the same client waits for the server's
/// Finished ([`ReplaySafety::ByMethod`]). [`HttpsConnector::replay_safety`] changes that for all requests. The ClientHello
/// itself runs nothing, so it always rides in the first flight.
///
/// **Protocols** are those of [`ConnectorBuilder::alpn`](firstflight_tls::ConnectorBuilder::alpn). hyper-util's client speaks
/// HTTP/2 where the server chose it. A ticket is for the protocol of its connection, and its early data is in that protocol.
/// A server that speaks another one by then makes one request fail.
///
/// **The certificate** must have the host of the URI, a name or an address. Names are sent as SNI (RFC 6066 §3), addresses are
/// not.
///
/// **Errors.** If the first contact fails, the connect fails: `is_connect` of hyper-util's error is true. A connection that
/// waits for its first request fails with it.
///
/// **Sealed first flights** ([`ConnectorBuilder::seal`](firstflight_tls::ConnectorBuilder::seal)) carry the request at the
/// first contact, if the connector has one protocol.
#[derive(Debug, Clone)]
pub struct HttpsConnector {
    plain: Connector,
    tls: firstflight_tls::Connector,
    https_only: bool,
}

impl HttpsConnector {
    /// A connector that uses `client` for connections and `tls` on them.
    #[must_use]
    pub const fn new(client: Client, tls: firstflight_tls::Connector) -> Self {
        Self { plain: Connector::new(client), tls, https_only: false }
    }

    /// Whether the first request of a connection may be executed twice.
    #[must_use]
    pub fn replay_safety(mut self, safety: ReplaySafety) -> Self {
        self.plain = self.plain.replay_safety(safety);
        self
    }

    /// Whether URIs with the scheme `http` are refused. The default is false.
    #[must_use]
    pub const fn https_only(mut self, only: bool) -> Self {
        self.https_only = only;
        self
    }

    async fn connect(self, uri: Uri) -> Result<HttpsStream, ConnectorError> {
        let scheme = Scheme::of(&uri)?;
        if self.https_only && matches!(scheme, Scheme::Http) {
            return Err(ConnectorError::NotEncrypted(uri));
        }
        let server = scheme.authority(&uri)?;
        Ok(match scheme {
            Scheme::Http => {
                let stream = self.plain.lazy(server);
                let info = FirstFlightInfo(SeenConnection::Plain(stream.watch()));
                HttpsStream(Box::new(stream), info, false)
            }
            Scheme::Https => {
                let (client, safety) = self.plain.parts();
                let stream = self.tls.connect_or_lazy(client, server, safety).await?;
                let h2 = stream.protocol() == Some(H2);
                let stream = LibraryEnd::new(stream);
                let info = FirstFlightInfo(SeenConnection::Tls(stream.watch()));
                HttpsStream(Box::new(stream), info, h2)
            }
        })
    }
}

impl Service<Uri> for HttpsConnector {
    type Response = TokioIo<HttpsStream>;
    type Error = ConnectorError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(uri).await.map(TokioIo::new) })
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection of [`HttpsConnector`], with TLS or without.
pub struct HttpsStream(Box<dyn Io>, FirstFlightInfo, bool);

impl fmt::Debug for HttpsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpsStream").field(&self.1).finish()
    }
}

impl HttpsStream {
    /// What became of the first flight.
    #[must_use]
    pub fn info(&self) -> FirstFlightInfo {
        self.1.clone()
    }
}

impl Connection for HttpsStream {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(self.info());
        if self.2 { connected.negotiated_h2() } else { connected }
    }
}

firstflight::forward_io!([] HttpsStream, Self(stream, ..) => *stream);
