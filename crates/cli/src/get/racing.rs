//! A stream that connects with its first write, over TLS if the URL says so.

use firstflight::credential::{Outcome, Reason};
use firstflight::{Authority, Client, LazyStream, ReplaySafety, Stream};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The stream.
pub struct Racing {
    stream: Wire,
    /// There is no connection, and the server may have executed the request.
    unclear: Arc<AtomicBool>,
}

enum Wire {
    Plain(LazyStream),
    Tls(firstflight_tls::LazyTlsStream),
}

impl Racing {
    /// To `server`. `safety` says whether the first write may ride in a SYN and be executed twice.
    pub fn new(client: &Client, server: &Authority, safety: ReplaySafety) -> Self {
        let unclear = Arc::new(AtomicBool::new(false));
        let (told, client, server) = (Arc::clone(&unclear), client.clone(), server.clone());
        let stream = LazyStream::new(move |first: Vec<u8>| async move {
            client.connect(&server, safety.flight(&first)).await.map_err(|error| {
                told.store(error.maybe_delivered(), Ordering::Relaxed);
                io::Error::from(error)
            })
        });
        Self { stream: Wire::Plain(stream), unclear }
    }

    /// The same over TLS.
    pub fn over(
        tls: &firstflight_tls::Connector,
        client: &Client,
        server: &Authority,
        safety: ReplaySafety,
    ) -> Self {
        let stream = Wire::Tls(tls.connect_lazy(client, server.clone(), safety));
        Self { stream, unclear: Arc::default() }
    }

    /// The outcome of the first flight.
    pub fn outcome(&self) -> Outcome {
        match self.unclear.load(Ordering::Relaxed) {
            true => Outcome::Handshake(Reason::Unknown),
            false => self.stream().map_or(Outcome::Undecided, Stream::outcome),
        }
    }

    /// The connection that won, if there is one.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.stream {
            Wire::Plain(stream) => stream.stream(),
            Wire::Tls(stream) => stream.stream().map(firstflight_tls::TlsStream::io),
        }
    }

    /// Closes TLS, and reads a ticket for the next visit.
    pub fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Wire::Plain(_) => Poll::Ready(Ok(())),
            Wire::Tls(stream) => stream.poll_leave(cx),
        }
    }

    /// How the handshake of TLS went, if there was one.
    pub fn handshake(&self) -> Option<firstflight_tls::Handshake> {
        match &self.stream {
            Wire::Plain(_) => None,
            Wire::Tls(stream) => stream.stream().map(firstflight_tls::TlsStream::handshake),
        }
    }

    /// What became of the seal.
    pub fn seal(&self) -> Option<firstflight_tls::SealReport> {
        match &self.stream {
            Wire::Plain(_) => None,
            Wire::Tls(stream) => stream.seal_report(),
        }
    }
}

impl AsyncRead for Racing {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Wire::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Racing {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Wire::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Wire::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
