//! Accepted connections.

use crate::watched::{Watch, Watched, forward_io};
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
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok(stream) => return Poll::Ready(ServerStream(Watched::new(stream))),
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
pub struct ServerStream(Watched<Stream>);

impl ServerStream {
    /// A handle for those who handle its requests.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer(self.0.watch())
    }
}

impl From<Stream> for ServerStream {
    fn from(stream: Stream) -> Self {
        Self(Watched::new(stream))
    }
}

forward_io!(ServerStream);

/// The client's end of an accepted connection, as the server sees it at the moment of the call. It does not keep the
/// connection open.
///
/// Requests have it: with axum as `ConnectInfo<Peer>`, with tonic as an extension. A program that serves connections with
/// hyper inserts [`ServerStream::peer`] into the extensions of each request.
#[derive(Debug, Clone)]
pub struct Peer(Watch<Stream>);

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

    /// Whether the handshake is not complete now, so that the request may be a copy that the network made
    /// ([`Stream::is_early`]).
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.0.look(Stream::is_early, |facts| facts.early)
    }

    /// How many bytes arrived before the handshake was complete ([`Stream::early_bytes`]).
    #[must_use]
    pub fn early_bytes(&self) -> u32 {
        self.0.look(Stream::early_bytes, |facts| facts.early_bytes)
    }

    /// The outcome of the client's first flight.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.look(Stream::outcome, |facts| facts.outcome)
    }

    /// How the segments travel.
    #[must_use]
    pub fn way(&self) -> Option<Way> {
        self.0.look(|stream| Some(stream.way()), |facts| facts.way)
    }

    /// Waits until the client's ACK has proved its address. Any task may wait.
    ///
    /// # Errors
    /// When the connection ends before the ACK arrives.
    pub async fn confirmed(&self) -> io::Result<()> {
        poll_fn(|cx| self.0.poll_confirmed(cx)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Fails with these errors, the last one first. Then there is nothing to accept.
    struct Fails(Mutex<Vec<io::ErrorKind>>);

    impl Accept for Fails {
        fn poll_accept(&self, _: &mut Context<'_>) -> Poll<io::Result<Stream>> {
            match self.0.lock().unwrap().pop() {
                Some(kind) => Poll::Ready(Err(kind.into())),
                None => Poll::Pending,
            }
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            Err(io::ErrorKind::AddrNotAvailable.into())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn errors_end_no_server() {
        use io::ErrorKind::{ConnectionAborted, Other, OutOfMemory};
        let mut incoming = Incoming::new(Fails(Mutex::new(vec![Other, OutOfMemory, ConnectionAborted])));
        let mut left_after = async |wait| {
            assert!(tokio::time::timeout(wait, incoming.accept()).await.is_err());
            incoming.listener().0.lock().unwrap().len()
        };
        // A client that has gone costs nothing, a lack of memory a pause.
        assert_eq!(left_after(Duration::from_millis(900)).await, 1);
        assert_eq!(left_after(Duration::from_millis(200)).await, 0);
    }
}
