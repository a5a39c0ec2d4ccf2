//! Accepted connections.

use crate::watched::{LibraryEnd, StreamFacts, Watch};
use firstflight::credential::Outcome;
use firstflight::{Listener, Server, Stream, Way};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// The pause after the system could not accept.
const PAUSE: Duration = Duration::from_secs(1);

/// What accepts connections: a [`Server`], a [`Listener`], or one of them in an [`Arc`], so that the program keeps a
/// handle to its keys and to [`Server::drain`].
pub trait Accept: Send + 'static {
    /// Returns the next connection. One task polls it.
    ///
    /// # Errors
    /// When the system cannot accept now.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>>;

    /// The address that it listens on. If there are several, the first one.
    ///
    /// # Errors
    /// When it listens on none.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

impl Accept for Server {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        self.poll_accept(cx)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addrs().first().copied().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }
}

impl Accept for Listener {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        self.poll_accept(cx)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local_addr())
    }
}

impl<A: Accept + Sync> Accept for Arc<A> {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        (**self).poll_accept(cx)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        (**self).local_addr()
    }
}

/// The connections that a server accepts. It is an `axum::serve::Listener`, and a `futures_core::Stream` that never
/// ends.
///
/// If the system cannot accept, for example because the process has too many files open, this is logged, and the next
/// attempt follows after a second. So an error does not end the server.
#[derive(Debug)]
pub struct Incoming<A> {
    listener: A,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<A: Accept> Incoming<A> {
    /// The connections that `listener` accepts.
    pub const fn new(listener: A) -> Self {
        Self { listener, pause: None }
    }

    /// What accepts them.
    pub const fn listener(&self) -> &A {
        &self.listener
    }

    /// Returns the next connection.
    pub async fn accept(&mut self) -> ServerStream {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Poll version of [`Incoming::accept`].
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<ServerStream> {
        self.poll_stream(cx).map(ServerStream::from)
    }

    /// Returns the next connection as it is.
    pub(crate) fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Stream> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok(stream) => return Poll::Ready(stream),
                // The client's doing: the next connection may be fine.
                Err(error) if is_of_client(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot accept");
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                }
            }
        }
    }
}

fn is_of_client(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

#[cfg(feature = "stream")]
impl<A: Accept + Unpin> futures_core::Stream for Incoming<A> {
    type Item = io::Result<ServerStream>;

    /// Always `Some(Ok(_))`. Libraries expect a `Result`.
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_accept(cx).map(|stream| Some(Ok(stream)))
    }
}

/// An accepted connection, for the library that serves it.
#[derive(Debug)]
pub struct ServerStream(LibraryEnd<Stream>);

impl ServerStream {
    /// A handle for those who handle its requests.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer(PeerConnection::Plain(self.0.watch()))
    }
}

impl From<Stream> for ServerStream {
    fn from(stream: Stream) -> Self {
        Self(LibraryEnd::new(stream))
    }
}

firstflight::forward_io!([] ServerStream, Self(stream, ..) => *stream);

/// The client's end of an accepted connection, as the server sees it at the moment of the call. It does not keep the
/// connection open.
///
/// Requests have it: with axum as `ConnectInfo<Peer>`, with tonic as an extension. A program that serves connections with
/// hyper inserts [`ServerStream::peer`], or with TLS `TlsServerStream::peer`, into the extensions of each request.
#[derive(Debug, Clone)]
pub struct Peer(pub(crate) PeerConnection);

/// The connection that a [`Peer`] is of.
#[derive(Debug, Clone)]
pub(crate) enum PeerConnection {
    Plain(Watch<Stream>),
    #[cfg(feature = "tls")]
    Tls(Watch<firstflight_tls::TlsStream<Stream>>, Arc<crate::tls_incoming::Agreed>),
}

impl PeerConnection {
    fn look<T>(&self, stream: impl FnOnce(&Stream) -> T, otherwise: impl FnOnce(&StreamFacts) -> T) -> T {
        match self {
            Self::Plain(watch) => watch.look(stream, otherwise),
            #[cfg(feature = "tls")]
            Self::Tls(watch, _) => watch.look(stream, otherwise),
        }
    }
}

impl Peer {
    /// The client's address. `None` only if the connection was over before it was known.
    #[must_use]
    pub fn addr(&self) -> Option<SocketAddr> {
        self.0.look(|stream| stream.peer_addr().ok(), |facts| facts.peer)
    }

    /// The server's address.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.look(|stream| stream.local_addr().ok(), |facts| facts.local)
    }

    /// Whether the request may be a copy that the network made: the handshake is not complete now. That of TCP
    /// ([`Stream::is_early`]), or with TLS that of TLS: the client's Finished is not verified (RFC 8470 §3), which nobody
    /// can repeat.
    #[must_use]
    pub fn is_early(&self) -> bool {
        match &self.0 {
            PeerConnection::Plain(watch) => watch.is_early(),
            #[cfg(feature = "tls")]
            PeerConnection::Tls(watch, _) => watch.is_early(),
        }
    }

    /// How many bytes of requests arrived before the handshake was complete: in the SYN ([`Stream::early_bytes`]), or with TLS
    /// as early data that was read so far, wherever they rode.
    #[must_use]
    pub fn early_bytes(&self) -> u32 {
        match &self.0 {
            PeerConnection::Plain(watch) => watch.early_bytes(),
            #[cfg(feature = "tls")]
            PeerConnection::Tls(watch, _) => watch.early_bytes(),
        }
    }

    /// The outcome of the client's first flight, which with TLS is the ClientHello with what followed it.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.look(Stream::outcome, |facts| facts.outcome)
    }

    /// How the segments travel.
    #[must_use]
    pub fn way(&self) -> Option<Way> {
        self.0.look(|stream| Some(stream.way()), |facts| facts.way)
    }

    /// Waits until nothing that arrived can be a copy: until the client's ACK has proved its address, with TLS until its
    /// Finished is verified. Any task may wait, whether the connection is read meanwhile or not.
    ///
    /// # Errors
    /// When the connection ends before that.
    pub async fn confirmed(&self) -> io::Result<()> {
        poll_fn(|cx| match &self.0 {
            PeerConnection::Plain(watch) => watch.poll_confirmed(cx),
            #[cfg(feature = "tls")]
            PeerConnection::Tls(watch, _) => watch.poll_confirmed(cx),
        })
        .await
    }
}

#[cfg(test)]
mod tests;
