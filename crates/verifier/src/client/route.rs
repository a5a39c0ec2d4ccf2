//! How verifiers are reached.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UdpSocket};

/// A stream in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A stream that is being opened.
pub type Dialled<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Duplex>>> + Send + 'a>>;

/// Opens streams from the address that is to be certified.
pub trait Dial: Send + Sync {
    /// Opens one.
    fn dial(&self, to: SocketAddr) -> Dialled<'_>;
}

/// Decides about datagrams to a verifier that is not trusted with more.
pub trait Permit: Send + Sync {
    /// Whether a datagram may leave from this address of this host to this address now. It is asked just before each one.
    fn may_send(&self, from: IpAddr, to: SocketAddr) -> bool;

    /// The verifier at this address has answered with a challenge, or a refusal.
    fn handle_answer(&self, from: SocketAddr);
}

/// How verifiers are reached.
#[derive(Clone, Default)]
pub enum Route {
    /// By the system's sockets: over UDP, and over TCP if UDP gives no answer.
    #[default]
    System,
    /// By these streams only, for protocol engines that have their own address.
    Streams(Arc<dyn Dial>),
    /// By datagrams of the system's sockets only, each of which has to be permitted.
    Permitted(Arc<dyn Permit>),
}

impl Route {
    pub(super) async fn stream(&self, to: SocketAddr) -> io::Result<Box<dyn Duplex>> {
        match self {
            Self::System => Ok(Box::new(TcpStream::connect(to).await?)),
            Self::Streams(dial) => dial.dial(to).await,
            Self::Permitted(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "only UDP is used")),
        }
    }

    /// Whether a datagram may leave.
    pub(super) fn may_send(&self, from: &UdpSocket, to: SocketAddr) -> bool {
        match self {
            Self::System | Self::Streams(_) => true,
            Self::Permitted(permit) => from.local_addr().is_ok_and(|from| permit.may_send(from.ip(), to)),
        }
    }

    pub(super) fn handle_answer(&self, from: SocketAddr) {
        if let Self::Permitted(permit) = self {
            permit.handle_answer(from);
        }
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Streams(_) => "Streams(..)",
            Self::Permitted(_) => "Permitted(..)",
        })
    }
}
