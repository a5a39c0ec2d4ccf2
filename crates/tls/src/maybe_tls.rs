//! A stream with TLS or without, for programs to which a URL says which.

use crate::error::ConnectError;
use crate::lazy::LazyTlsStream;
use crate::sealed::SealReport;
use crate::stream::{Handshake, TlsStream};
use firstflight::credential::{Outcome, Reason};
use firstflight::{ClientError, LazyStream, Stream};
use std::io;
use std::task::{Context, Poll};

/// A stream that connects with its first write, with TLS or without.
#[derive(Debug)]
pub enum MaybeTlsStream {
    /// Without TLS.
    Plain(LazyStream),
    /// With TLS.
    Tls(LazyTlsStream),
}

impl From<LazyStream> for MaybeTlsStream {
    fn from(stream: LazyStream) -> Self {
        Self::Plain(stream)
    }
}

impl From<LazyTlsStream> for MaybeTlsStream {
    fn from(stream: LazyTlsStream) -> Self {
        Self::Tls(stream)
    }
}

impl MaybeTlsStream {
    /// The connection that carries it, once there is one.
    #[must_use]
    pub fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Plain(stream) => stream.stream(),
            Self::Tls(stream) => stream.stream().map(TlsStream::io),
        }
    }

    /// The outcome of the first flight, after what was done with the stream failed with `error`, if it did. A library may have
    /// wrapped the error. Without a connection, `Undecided` if nothing was executed, and `Handshake(Unknown)` if the server may
    /// have executed the first data; with TLS that is the request inside it, and not the ClientHello.
    #[must_use]
    pub fn outcome(&self, error: Option<&(dyn std::error::Error + 'static)>) -> Outcome {
        let maybe_delivered = error.is_some_and(|error| match self {
            Self::Plain(_) => ClientError::of(error).is_some_and(ClientError::maybe_delivered),
            Self::Tls(_) => ConnectError::of(error).is_some_and(ConnectError::maybe_delivered),
        });
        match maybe_delivered {
            true => Outcome::Handshake(Reason::Unknown),
            false => self.stream().map_or(Outcome::Undecided, Stream::outcome),
        }
    }

    /// How the handshake of TLS went, if there was one.
    #[must_use]
    pub fn handshake(&self) -> Option<Handshake> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.stream().map(TlsStream::handshake),
        }
    }

    /// What became of the seal: [`LazyTlsStream::seal_report`].
    #[must_use]
    pub fn seal_report(&self) -> Option<SealReport> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.seal_report(),
        }
    }

    /// Closes TLS, and reads a ticket for the next visit: [`TlsStream::poll_leave`]. Ready at once without TLS.
    ///
    /// # Errors
    /// As [`TlsStream::leave`].
    pub fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => stream.poll_leave(cx),
        }
    }
}

firstflight::forward_io!([] MaybeTlsStream, Self::Plain(stream) => *stream, Self::Tls(stream) => *stream);
