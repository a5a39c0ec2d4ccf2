//! Connects to backends.

use crate::config::Address;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{Instant, timeout};

/// How long the addresses of a name are used.
const FRESH: Duration = Duration::from_secs(5);

/// Why no backend was reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("no backend is up")]
    NoBackend,
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The addresses of a backend's name, as they were lately.
#[derive(Debug, Default)]
pub(crate) struct Resolved(Mutex<Option<(Instant, Vec<SocketAddr>)>>);

impl Resolved {
    async fn addresses(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        if let Ok(literal) = host.parse() {
            return Ok(vec![literal]);
        }
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, addresses)) = &*lock()
            && at.elapsed() < FRESH
        {
            return Ok(addresses.clone());
        }
        match lookup_host(host).await {
            Ok(found) => {
                let addresses: Vec<_> = found.collect();
                *lock() = Some((Instant::now(), addresses.clone()));
                Ok(addresses)
            }
            // A resolver that fails for a while does not take the backend away.
            Err(error) => lock().as_ref().map(|(_, addresses)| addresses.clone()).ok_or(error),
        }
    }
}

/// Connects.
pub(super) async fn dial(
    address: &Address,
    resolved: &Resolved,
    within: Duration,
) -> Result<BackendIo, DialError> {
    let connecting = async {
        match address {
            Address::Unix(path) => unix(path).await,
            Address::Tcp(host) => tcp(&resolved.addresses(host).await?).await,
        }
    };
    match timeout(within, connecting).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(DialError::TimedOut(within)),
    }
}

async fn unix(path: &PathBuf) -> io::Result<BackendIo> {
    UnixStream::connect(path).await.map(BackendIo::Unix)
}

async fn tcp(addresses: &[SocketAddr]) -> io::Result<BackendIo> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(BackendIo::Tcp(stream));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A connection to a backend.
#[derive(Debug)]
pub(crate) enum BackendIo {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl BackendIo {
    /// Ends the connection with a RST, as far as the kind of socket has one.
    pub(crate) fn abort(self) {
        if let Self::Tcp(stream) = self {
            // It fails only when the connection is over.
            let _ = stream.set_zero_linger();
        }
    }
}

macro_rules! forward {
    ($self:ident, $call:ident($($argument:expr),*)) => {
        match $self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).$call($($argument),*),
            Self::Unix(stream) => Pin::new(stream).$call($($argument),*),
        }
    };
}

impl AsyncRead for BackendIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_read(cx, buf))
    }
}

impl AsyncWrite for BackendIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        forward!(self, poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self, poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_shutdown(cx))
    }
}
