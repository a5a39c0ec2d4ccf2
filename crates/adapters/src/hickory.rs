//! Connections for the resolver of hickory.

use crate::watched::LibraryEnd;
use firstflight::{Client, FirstFlight, LazyStream};
use futures_io::{AsyncRead, AsyncWrite};
use hickory_resolver::net::runtime::{
    DnsTcpStream, QuicSocketBinder, RuntimeProvider, TokioHandle, TokioRuntimeProvider, TokioTime,
};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::UdpSocket;
use tokio::time::timeout;
#[cfg(feature = "tls")]
use {
    firstflight::{Authority, BadAuthority, Stream},
    firstflight_tls::TlsStream,
    std::collections::HashMap,
    std::sync::Arc,
};

/// How long a connect may take if hickory does not say it, as with its own provider.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Length of the header of a DNS message, bytes (RFC 1035 §4.1.1).
const HEADER: usize = 12;
/// In the third byte of a message: the bit of responses and the opcode, both 0 in a query.
const NOT_A_QUERY: u8 = 0b1111_1000;

/// Connects for a resolver of hickory: DNS over TCP in one round trip, because the first query rides in the SYN
/// (RFC 7766 §6.1). DNS over UDP is tokio's.
///
/// ```
/// use firstflight_adapters::HickoryProvider;
/// use hickory_resolver::Resolver;
/// use hickory_resolver::config::{NameServerConfig, ResolverConfig};
/// # fn resolver() -> Result<(), hickory_resolver::net::NetError> {
/// let server = NameServerConfig::tcp([192, 0, 2, 53].into());
/// let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
/// let provider = HickoryProvider::new(firstflight::Client::new());
/// let resolver = Resolver::builder_with_config(config, provider).build()?;
/// # Ok(())
/// # }
/// ```
///
/// **What may run twice.** Queries may. A message with another opcode, such as an update (RFC 2136), waits for the
/// handshake.
///
/// **DNS over TLS** takes one round trip with `HickoryProvider::over_tls`, from the second connection on (feature `tls`).
/// hickory's own TLS works over this provider, too: its ClientHello rides in the SYN, and a query takes two round trips.
///
/// **Errors.** A connect that fails is an error of its query. A connection from an address that hickory's configuration names
/// (`bind_addr`) is an ordinary one.
#[derive(Clone)]
pub struct HickoryProvider {
    client: Client,
    tokio: TokioRuntimeProvider,
    #[cfg(feature = "tls")]
    tls: Arc<HashMap<SocketAddr, (Authority, firstflight_tls::Connector)>>,
}

impl fmt::Debug for HickoryProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HickoryProvider").field("client", &self.client).finish_non_exhaustive()
    }
}

impl HickoryProvider {
    /// A provider that uses `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            tokio: TokioRuntimeProvider::new(),
            #[cfg(feature = "tls")]
            tls: Arc::default(),
        }
    }

    /// Makes all TCP connections to `server` connections of TLS (RFC 7858), whose certificate must have `name`, which may be an
    /// address. In hickory's configuration the server has the protocol TCP, and its port is that of `server`, usually 853.
    /// The connector may offer one protocol (ALPN), `dot`, or none.
    ///
    /// A query has its answer after two round trips at the first connection, and after one with a ticket of an earlier
    /// connection: the ClientHello and the query, as early data, are one first flight. Early data has no forward secrecy
    /// ([`ConnectorBuilder::early_data`](firstflight_tls::ConnectorBuilder::early_data)).
    ///
    /// ```
    /// # use firstflight_adapters::HickoryProvider;
    /// # use hickory_resolver::config::{ConnectionConfig, NameServerConfig};
    /// # fn provider(tls: firstflight_tls::Connector) -> Result<(), firstflight::BadAuthority> {
    /// let provider = HickoryProvider::new(firstflight::Client::new());
    /// let provider = provider.over_tls("192.0.2.53:853".parse().unwrap(), "dns.example.com", tls)?;
    /// let mut tcp = ConnectionConfig::tcp();
    /// tcp.port = 853;
    /// let server = NameServerConfig::new([192, 0, 2, 53].into(), true, vec![tcp]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When `name` is not a host.
    #[cfg(feature = "tls")]
    pub fn over_tls(
        mut self,
        server: SocketAddr,
        name: &str,
        tls: firstflight_tls::Connector,
    ) -> Result<Self, BadAuthority> {
        let name = Authority::new(name, server.port())?;
        Arc::make_mut(&mut self.tls).insert(server, (name, tls));
        Ok(self)
    }

    /// A stream whose first write is the first flight.
    fn first_flight(&self, server: SocketAddr, within: Duration) -> HickoryStream {
        let client = self.client.clone();
        #[cfg(feature = "tls")]
        if let Some((name, tls)) = self.tls.get(&server).cloned() {
            let stream = LazyStream::<TlsStream<Stream>>::connecting(move |first| async move {
                limited(within, tls.connect_at(&client, &name, &[server], message(&first))).await
            });
            return HickoryStream(Box::new(LibraryEnd::new(stream)));
        }
        let stream = LazyStream::new(move |first| async move {
            let flight = if is_client_hello(&first) {
                FirstFlight::safely_replayable(&first)
            } else {
                message(&first)
            };
            let stream = limited(within, client.connect(server, flight).into_future()).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        HickoryStream(Box::new(LibraryEnd::new(stream)))
    }

    /// A stream from an address of the caller's.
    async fn ordinary(
        self,
        server: SocketAddr,
        from: SocketAddr,
        within: Duration,
    ) -> io::Result<HickoryStream> {
        let stream = self.tokio.connect_tcp(server, Some(from), Some(within)).await?.0;
        #[cfg(feature = "tls")]
        if let Some((name, tls)) = self.tls.get(&server) {
            let stream = limited(within, tls.connect_over(stream, name, FirstFlight::empty())).await?;
            return Ok(HickoryStream(Box::new(stream)));
        }
        Ok(HickoryStream(Box::new(stream)))
    }
}

/// Like hickory's own provider, which gives a connect up after this time.
async fn limited<T, E: Into<io::Error>>(
    within: Duration,
    connecting: impl Future<Output = Result<T, E>>,
) -> io::Result<T> {
    match timeout(within, connecting).await {
        Ok(connected) => connected.map_err(Into::into),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the name server did not answer the connect")),
    }
}

/// The first flight of messages of DNS: queries may be executed twice.
fn message(first: &[u8]) -> FirstFlight<'_> {
    if are_queries(first) { FirstFlight::safely_replayable(first) } else { FirstFlight::at_most_once(first) }
}

/// Whether these are whole queries, each behind its length (RFC 1035 §4.2.2), and nothing else.
fn are_queries(mut bytes: &[u8]) -> bool {
    let mut any = false;
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length));
        let Some((message, rest)) = rest.split_at_checked(length) else { return false };
        if length < HEADER || message.get(2).is_none_or(|flags| flags & NOT_A_QUERY != 0) {
            return false;
        }
        bytes = rest;
        any = true;
    }
    any && bytes.is_empty()
}

/// Whether these bytes are the ClientHello of hickory's own TLS (RFC 8446 §4, §5.1). It runs nothing, and its early data
/// comes behind it.
fn is_client_hello(bytes: &[u8]) -> bool {
    let [22, 3, _, high, low, 1, ..] = bytes else { return false };
    bytes.len() == 5 + usize::from(u16::from_be_bytes([*high, *low]))
}

impl RuntimeProvider for HickoryProvider {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = UdpSocket;
    type Tcp = HickoryStream;

    fn create_handle(&self) -> Self::Handle {
        self.tokio.create_handle()
    }

    fn connect_tcp(
        &self,
        server_addr: SocketAddr,
        bind_addr: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Tcp>>>> {
        let within = timeout.unwrap_or(CONNECT_TIMEOUT);
        match bind_addr {
            Some(from) => Box::pin(self.clone().ordinary(server_addr, from, within)),
            None => Box::pin(std::future::ready(Ok(self.first_flight(server_addr, within)))),
        }
    }

    fn bind_udp(
        &self,
        local_addr: SocketAddr,
        server_addr: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Udp>>>> {
        self.tokio.bind_udp(local_addr, server_addr)
    }

    fn quic_binder(&self) -> Option<&dyn QuicSocketBinder> {
        self.tokio.quic_binder()
    }
}

trait Io: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Sync + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Sync + Unpin> Io for T {}

/// A connection of [`HickoryProvider`].
pub struct HickoryStream(Box<dyn Io>);

impl fmt::Debug for HickoryStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HickoryStream").finish_non_exhaustive()
    }
}

impl DnsTcpStream for HickoryStream {
    type Time = TokioTime;
}

impl AsyncRead for HickoryStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    }
}

impl AsyncWrite for HickoryStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
