//! Accepted connections with TLS.

use crate::incoming::{Accept, Incoming, Peer, PeerConnection};
use crate::watched::LibraryEnd;
use firstflight::Stream;
use firstflight_tls::rustls::pki_types::CertificateDer;
use firstflight_tls::{AcceptError, Acceptor, H2, Handshake, TlsStream};
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::task::JoinSet;

/// How many handshakes go on at one time. Each takes about 27 KB.
const HANDSHAKES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

/// The connections that a server accepts, with TLS 1.3 on them. It is an `axum::serve::Listener`, and a
/// `futures_core::Stream` that never ends, for `serve_with_incoming` of tonic.
///
/// A connection is returned as soon as its ClientHello is answered, so that a request in early data is served in the same
/// round trip. [`Peer::is_early`] says that it may be a copy, and `TooEarlyLayer` keeps what must not run twice, as without
/// TLS.
///
/// Handshakes run in tasks of their own, so that a slow client holds up nobody. Each may take as long as the acceptor says
/// ([`AcceptorBuilder::timeout`](firstflight_tls::AcceptorBuilder::timeout)). One that fails is the client's doing: it is
/// logged at the level DEBUG.
///
/// **Protocols.** Give the acceptor what the server speaks, best one first: `[H2, HTTP_1_1]` for `axum::serve`, `[H2]` for
/// tonic. Without a name a client of HTTP/2 falls back to HTTP/1.1, and one of gRPC fails.
///
/// ```no_run
/// # #[cfg(feature = "axum")]
/// # async fn serve(app: axum::Router) -> Result<(), Box<dyn std::error::Error>> {
/// use firstflight_adapters::{Peer, TlsIncoming};
/// use firstflight_tls::{Acceptor, H2, HTTP_1_1};
/// let acceptor = Acceptor::builder().files("chain.pem", "key.pem").alpn([H2, HTTP_1_1]).build()?;
/// let incoming = TlsIncoming::new(firstflight::Server::bind("0.0.0.0:443").await?, acceptor);
/// axum::serve(incoming, app.into_make_service_with_connect_info::<Peer>()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TlsIncoming<A> {
    incoming: Incoming<A>,
    acceptor: Acceptor,
    handshakes: JoinSet<Result<TlsStream<Stream>, AcceptError>>,
    most: NonZeroUsize,
}

impl<A: Accept> TlsIncoming<A> {
    /// The connections that `listener` accepts, with the TLS of `acceptor`.
    #[must_use]
    pub fn new(listener: A, acceptor: Acceptor) -> Self {
        let incoming = Incoming::new(listener);
        Self { incoming, acceptor, handshakes: JoinSet::new(), most: HANDSHAKES }
    }

    /// How many handshakes may go on at one time. Further connections wait in the listener. The default is 1024.
    #[must_use]
    pub const fn max_handshakes(mut self, most: NonZeroUsize) -> Self {
        self.most = most;
        self
    }

    /// What accepts the connections.
    pub const fn listener(&self) -> &A {
        self.incoming.listener()
    }

    /// Returns the next connection.
    ///
    /// # Panics
    /// Outside a tokio runtime with time.
    pub async fn accept(&mut self) -> TlsServerStream {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Poll version of [`TlsIncoming::accept`].
    ///
    /// # Panics
    /// Outside a tokio runtime with time.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<TlsServerStream> {
        loop {
            while self.handshakes.len() < self.most.get()
                && let Poll::Ready(stream) = self.incoming.poll_stream(cx)
            {
                let acceptor = self.acceptor.clone();
                self.handshakes.spawn(async move { acceptor.accept(stream).await });
            }
            match self.handshakes.poll_join_next(cx) {
                Poll::Ready(Some(Ok(Ok(stream)))) => return Poll::Ready(TlsServerStream::new(stream)),
                Poll::Ready(Some(Ok(Err(error)))) => tracing::debug!(%error, "no TLS"),
                // A panic in a handshake ends this connection only.
                Poll::Ready(Some(Err(error))) => tracing::error!(%error, "a TLS handshake was not finished"),
                // The listener or a handshake wakes.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(feature = "stream")]
impl<A: Accept + Unpin> futures_core::Stream for TlsIncoming<A> {
    type Item = std::io::Result<TlsServerStream>;

    /// Always `Some(Ok(_))`. Libraries expect a `Result`.
    fn poll_next(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_accept(cx).map(|stream| Some(Ok(stream)))
    }
}

/// What client and server have agreed on.
#[derive(Debug)]
pub(crate) struct Agreed {
    handshake: Handshake,
    server_name: Option<String>,
    certificates: Option<Vec<CertificateDer<'static>>>,
    is_h2: bool,
}

/// An accepted connection with TLS, for the library that serves it.
#[derive(Debug)]
pub struct TlsServerStream(LibraryEnd<TlsStream<Stream>>, Arc<Agreed>);

impl TlsServerStream {
    fn new(stream: TlsStream<Stream>) -> Self {
        let agreed = Agreed {
            handshake: stream.handshake(),
            server_name: stream.server_name().map(ToOwned::to_owned),
            certificates: stream.peer_certificates().map(ToOwned::to_owned),
            is_h2: stream.alpn() == Some(H2),
        };
        Self(LibraryEnd::new(stream), Arc::new(agreed))
    }

    /// A handle for those who handle its requests.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer(PeerConnection::Tls(self.0.watch(), Arc::clone(&self.1)))
    }

    /// Whether client and server agreed on HTTP/2 (ALPN). A program that serves with hyper alone chooses by it.
    #[must_use]
    pub fn is_h2(&self) -> bool {
        self.1.is_h2
    }
}

impl From<TlsStream<Stream>> for TlsServerStream {
    fn from(stream: TlsStream<Stream>) -> Self {
        Self::new(stream)
    }
}

firstflight::forward_io!([] TlsServerStream, Self(stream, ..) => *stream);

impl Peer {
    fn agreed(&self) -> Option<&Agreed> {
        match &self.0 {
            PeerConnection::Tls(_, agreed) => Some(agreed),
            PeerConnection::Plain(_) => None,
        }
    }

    /// How the handshake of TLS went. `None` if the connection has no TLS.
    #[must_use]
    pub fn tls(&self) -> Option<Handshake> {
        self.agreed().map(|agreed| agreed.handshake)
    }

    /// The name that the client asked for (SNI, RFC 6066 §3). A client of HTTP/2 may send requests for another host of the
    /// certificate on the same connection (RFC 9113 §9.1.1); a server that does not have it answers 421.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.agreed()?.server_name.as_deref()
    }

    /// The client's certificates, its own first, if the acceptor asks for them
    /// ([`AcceptorBuilder::clients`](firstflight_tls::AcceptorBuilder::clients)).
    #[must_use]
    pub fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.agreed()?.certificates.as_deref()
    }
}
