//! Asks a running gateway whether it lives, for health checks of containers, whose images have no other program for it.

use crate::config::{Config, ConfigError};
use firstflight_daemon::ExitKind;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// How long the answer may take.
const WITHIN: Duration = Duration::from_secs(3);
/// The first line of an answer has no more than this, bytes.
const LONGEST: u64 = 4096;

/// Why a gateway is not known to live.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HealthError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It names no address to ask at. The configuration is at fault.
    #[error(
        "{0} has no gateway.admin, at which the gateway could be asked: set it, as admin = \"127.0.0.1:7416\""
    )]
    NoAdmin(String),
    /// No answer came.
    #[error("the gateway does not answer at {0}: {1}")]
    Io(SocketAddr, io::Error),
    /// Another answer came.
    #[error("what answers at {0} is no gateway that is well: {1:?}")]
    Answer(SocketAddr, String),
}

impl HealthError {
    /// Whether the configuration has a mistake.
    #[must_use]
    pub fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Config(error) => error.exit_kind(),
            Self::NoAdmin(_) => ExitKind::Mistake,
            Self::Io(..) | Self::Answer(..) => ExitKind::Failure,
        }
    }
}

/// Asks the gateway with this configuration on this machine for `/healthz`.
///
/// # Errors
/// When it does not answer within three seconds that it lives.
///
/// # Panics
/// Outside a tokio runtime with I/O and time.
pub async fn is_alive(path: &Path) -> Result<(), HealthError> {
    let config = Config::read(path)?;
    let admin = config.gateway.admin.ok_or_else(|| HealthError::NoAdmin(path.display().to_string()))?;
    let at = SocketAddr::new(reached(admin.ip()), admin.port());
    let asked = tokio::time::timeout(WITHIN, ask(at)).await;
    let answer = asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let first = answer.map_err(|error| HealthError::Io(at, error))?;
    match first.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => Err(HealthError::Answer(at, first)),
    }
}

/// Where a server that listens at `ip` is reached on its own machine.
const fn reached(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    }
}

/// The first line of the answer.
async fn ask(at: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}
