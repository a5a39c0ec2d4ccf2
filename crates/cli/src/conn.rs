//! An accepted connection, with TLS or without.

use firstflight::Stream;
use firstflight::credential::Outcome;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

type Accepting = Pin<
    Box<dyn Future<Output = Result<firstflight_tls::TlsStream<Stream>, firstflight_tls::AcceptError>> + Send>,
>;

/// An accepted connection.
pub struct Conn(Kind);

enum Kind {
    Plain(Stream),
    /// The first read or write completes the handshake.
    Accepting(Accepting, Outcome),
    Tls(Box<firstflight_tls::TlsStream<Stream>>),
    /// What became of the sealed flight that the connection began with, if its request was stopped.
    Failed(Option<firstflight_tls::ServedSeal>),
}

impl From<Stream> for Conn {
    fn from(stream: Stream) -> Self {
        Self(Kind::Plain(stream))
    }
}

impl Conn {
    /// A connection by TLS.
    pub fn tls(stream: Stream, acceptor: firstflight_tls::Acceptor) -> Self {
        let outcome = stream.outcome();
        Self(Kind::Accepting(Box::pin(async move { acceptor.accept(stream).await }), outcome))
    }

    /// The outcome of the client's first flight.
    pub fn outcome(&self) -> Outcome {
        match &self.0 {
            Kind::Plain(stream) => stream.outcome(),
            Kind::Accepting(_, outcome) => *outcome,
            Kind::Tls(stream) => stream.io().outcome(),
            Kind::Failed(_) => Outcome::Undecided,
        }
    }

    /// What became of the sealed flight that the connection began with, and why. `None` if it began in clear.
    pub fn seal(&self) -> Option<(&'static str, &'static str)> {
        match &self.0 {
            Kind::Tls(stream) => stream.served_seal().map(|seal| (seal.outcome.name(), seal.reason)),
            _ => None,
        }
    }

    /// What became of a sealed flight whose request was stopped, because it has run or may have. hyper tells of no error
    /// before the first byte of a request.
    pub const fn stopped(&self) -> Option<firstflight_tls::ServedSeal> {
        match &self.0 {
            Kind::Failed(seal) => *seal,
            _ => None,
        }
    }

    /// The name of the server in the sealed flight that was taken.
    pub fn sealed_name(&self) -> Option<String> {
        match &self.0 {
            Kind::Tls(stream) => stream.sealed_info().and_then(|_| stream.server_name()).map(str::to_owned),
            _ => None,
        }
    }

    /// Bytes that came before it was sure that the first flight is no copy: TCP's, or TLS early data.
    pub fn early_bytes(&self) -> u32 {
        match &self.0 {
            Kind::Plain(stream) => stream.early_bytes(),
            Kind::Tls(stream) => u32::try_from(stream.early_bytes()).unwrap_or(u32::MAX),
            Kind::Accepting(..) | Kind::Failed(_) => 0,
        }
    }

    /// Whether what was read may be a copy.
    pub fn is_early(&self) -> bool {
        match &self.0 {
            Kind::Plain(stream) => stream.is_early(),
            Kind::Tls(stream) => stream.is_early(),
            Kind::Accepting(..) | Kind::Failed(_) => true,
        }
    }

    /// Waits until it is no copy: TCP's ACK, or the client's Finished.
    pub fn poll_confirmed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Plain(stream) => stream.poll_handshake_confirmed(cx),
            _ => {
                let stream = std::task::ready!(self.poll_open(cx))?;
                stream.poll_confirmed(cx)
            }
        }
    }

    fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<&mut firstflight_tls::TlsStream<Stream>>> {
        if let Kind::Accepting(accepting, _) = &mut self.0 {
            self.0 = match std::task::ready!(accepting.as_mut().poll(cx)) {
                Ok(stream) => Kind::Tls(Box::new(stream)),
                Err(error) => {
                    self.0 = Kind::Failed(firstflight_tls::ServedSeal::failed(&error));
                    return Poll::Ready(Err(error.into()));
                }
            };
        }
        match &mut self.0 {
            Kind::Tls(stream) => Poll::Ready(Ok(stream)),
            _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

/// Passes a call on to the stream inside.
macro_rules! forward {
    ($self:ident, $cx:ident, $call:ident($($argument:expr),*)) => {
        match &mut $self.0 {
            Kind::Plain(stream) => Pin::new(stream).$call($cx, $($argument),*),
            _ => Pin::new(std::task::ready!($self.poll_open($cx))?).$call($cx, $($argument),*),
        }
    };
}

impl AsyncRead for Conn {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        forward!(self, cx, poll_read(buf))
    }
}

impl AsyncWrite for Conn {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        forward!(self, cx, poll_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self, cx, poll_write_vectored(bufs))
    }

    /// Without TLS, a large body is not copied behind its head.
    fn is_write_vectored(&self) -> bool {
        match &self.0 {
            Kind::Plain(stream) => stream.is_write_vectored(),
            _ => false,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.0, Kind::Accepting(..)) {
            // There is nothing to flush.
            return Poll::Ready(Ok(()));
        }
        forward!(self, cx, poll_flush())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.0, Kind::Accepting(..)) {
            self.0 = Kind::Failed(None);
            return Poll::Ready(Ok(()));
        }
        forward!(self, cx, poll_shutdown())
    }
}
