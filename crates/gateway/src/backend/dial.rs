//! Connects to backends.

use super::{Backend, Service};
use crate::budget;
use crate::config::{self, Address, BackendProtocol};
use firstflight::forward_io;
use firstflight::{Authority, FirstFlight, Stream};
use firstflight_tls::{ConfigError, ConnectError, Connector, TlsStream};
use nix::errno::Errno;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// Why no backend was reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("no backend is up")]
    NoBackend,
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// All descriptors that backends may have are in use.
    #[error("no descriptor is left for a connection to a backend")]
    Full,
    /// This machine, or this process, has nothing left that a connection needs. No backend is at fault.
    #[error("this machine is short of resources: {0}")]
    Shortage(io::Error),
    #[error("{0}")]
    Io(io::Error),
    #[error("TLS: {0}")]
    Tls(#[from] ConnectError),
}

impl DialError {
    /// Whether the gateway itself could not connect, so that nothing is known of the backend.
    pub(crate) const fn is_own(&self) -> bool {
        matches!(self, Self::NoBackend | Self::Full | Self::Shortage(_))
    }

    /// The same error, for another request that waited.
    pub(super) fn again(&self) -> Self {
        let copy = |error: &io::Error| match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        match self {
            Self::NoBackend => Self::NoBackend,
            Self::TimedOut(within) => Self::TimedOut(*within),
            Self::Full => Self::Full,
            Self::Shortage(error) => Self::Shortage(copy(error)),
            Self::Io(error) => Self::Io(copy(error)),
            Self::Tls(error) => Self::Io(io::Error::other(error.to_string())),
        }
    }
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        if is_shortage(&error) { Self::Shortage(error) } else { Self::Io(error) }
    }
}

/// Whether an error says that this machine has no descriptor, port or memory left.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(
        code,
        Some(Errno::EMFILE | Errno::ENFILE | Errno::EADDRNOTAVAIL | Errno::ENOBUFS | Errno::ENOMEM)
    )
}

/// TLS to the backends of a service.
/// Errors: when a file cannot be used.
pub(super) fn connector(config: &config::Service) -> Result<Option<Connector>, ConfigError> {
    let Some(tls) = config.tls.as_ref().map(toml::Spanned::get_ref) else { return Ok(None) };
    let builder = Connector::builder().timeout(config.connect_timeout.0);
    let builder = match (tls.alpn, config.protocol) {
        (false, _) => builder,
        (true, BackendProtocol::Http1) => builder.http1(),
        (true, BackendProtocol::H2) => builder.h2(),
    };
    let builder = match &tls.ca {
        Some(file) => builder.ca_file(file)?,
        None => builder,
    };
    let builder = match (&tls.chain, &tls.key) {
        (Some(chain), Some(key)) => builder.client_files(chain, key)?,
        _ => builder,
    };
    builder.build().map(Some)
}

/// Connects, writes a PROXY header if there is one, and makes TLS if the service has it. The connection has its share of
/// the process's descriptors.
/// Errors: when any of it fails, or takes longer than `within`.
pub(super) async fn dial(
    service: &Service,
    backend: &Backend,
    header: Option<&[u8]>,
    within: Duration,
) -> Result<BackendIo, DialError> {
    let close_one = || _ = service.backends.iter().any(|backend| backend.pool.close_one());
    let permit = budget::take(within, close_one).await.ok_or(DialError::Full)?;
    dial_with(service, backend, header, within, Some(permit)).await
}

/// The same for a check, which has one of the descriptors that are left for other purposes.
/// Errors: as above.
pub(super) async fn dial_with(
    service: &Service,
    backend: &Backend,
    header: Option<&[u8]>,
    within: Duration,
    permit: Option<OwnedSemaphorePermit>,
) -> Result<BackendIo, DialError> {
    let connecting = async {
        let mut socket = match &backend.address {
            Address::Unix(path) => unix(path).await?,
            Address::Tcp(at) => tcp(backend, at, within).await?,
        };
        socket.permit = permit;
        if let Some(header) = header {
            socket.write_all(header).await?;
        }
        let Some(connector) = &service.connector else { return Ok(BackendIo::Plain(socket)) };
        let server = authority(service, &backend.address);
        let server = server.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let stream = connector.connect_over(socket, &server, FirstFlight::empty()).await?;
        Ok(BackendIo::Tls(Box::new(stream)))
    };
    timeout(within, connecting).await.unwrap_or(Err(DialError::TimedOut(within)))
}

/// Whose certificate is expected.
fn authority(service: &Service, address: &Address) -> Option<Authority> {
    let name = service.config.tls.as_ref().and_then(|tls| tls.get_ref().name.as_deref());
    match (name, address) {
        (Some(name), Address::Tcp(at)) => {
            let port = at.rsplit_once(':').and_then(|(_, port)| port.parse().ok())?;
            Authority::new(name, port).ok()
        }
        (Some(name), Address::Unix(_)) => Authority::new(name, 443).ok(),
        (None, Address::Tcp(at)) => at.parse().ok(),
        (None, Address::Unix(_)) => None,
    }
}

async fn unix(path: &PathBuf) -> io::Result<Socket> {
    UnixStream::connect(path).await.map(|stream| Socket { stream: Kind::Unix(stream), permit: None })
}

async fn tcp(backend: &Backend, at: &str, within: Duration) -> io::Result<Socket> {
    let stream = backend.reach.connect(at, &backend.turn, within).await?;
    stream.set_nodelay(true)?;
    Ok(Socket { stream: Kind::Tcp(stream), permit: None })
}

/// A socket to a backend.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Kind,
    /// The descriptor counts until it is closed.
    permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum Kind {
    Tcp(Stream),
    Unix(UnixStream),
}

/// A connection to a backend.
#[derive(Debug)]
pub(crate) enum BackendIo {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl BackendIo {
    /// Ends the connection with a RST, as far as the kind of socket has one.
    pub(crate) fn abort(self) {
        let socket = match &self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.io(),
        };
        if let Kind::Tcp(stream) = &socket.stream {
            stream.abort();
        }
    }
}

forward_io!([] Kind, Self::Tcp(stream) => *stream, Self::Unix(stream) => *stream);
forward_io!([] Socket, Self { stream, .. } => *stream);
forward_io!([] BackendIo, Self::Plain(stream) => *stream, Self::Tls(stream) => *stream);
