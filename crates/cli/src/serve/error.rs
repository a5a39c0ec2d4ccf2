//! Why `serve` cannot do what was asked.

use super::replays::ReplayError;
use crate::error::one_line;
use firstflight::RelayTargetError;
use firstflight::credential::{ClockError, KeyParseError};
use firstflight::trust::TrustFileError;
use firstflight_daemon::ExitKind;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why `serve` stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// `--root` does not exist or cannot be read.
    #[error("cannot serve {0}: {1}; name a readable directory with --root")]
    Root(PathBuf, io::Error),
    /// An address of `--listen` cannot be used.
    #[error("cannot listen at {0}: {1}; give another --listen ADDR:PORT")]
    Listen(SocketAddr, io::Error),
    /// The addresses of `--listen` have different ports.
    #[error("--listen: all addresses need the same port")]
    Ports,
    /// The kernel has one cookie function.
    #[error("the kernel's TCP has Linux' cookie function only: leave --scheme out, or add --udp or --tun")]
    Scheme,
    /// A certificate of TLS or its key.
    #[error("{0}")]
    Tls(firstflight_tls::ConfigError),
    /// Certificates and keys are not as many.
    #[error("give one --tls-key for each --tls-cert")]
    TlsPairs,
    /// Options of sealed first flights.
    #[error("--seal: {0}")]
    Seal(firstflight_tls::SealFileError),
    /// `--root` is a file.
    #[error("--root {0} is not a directory: name the one that holds the files")]
    RootNotDirectory(PathBuf),
    /// The text is not a key.
    #[error("{0}: {1}")]
    Key(&'static str, KeyParseError),
    /// The clock is not accurate enough for a key schedule.
    #[error("{0}")]
    Clock(ClockError),
    /// The requested limit of executions of a first flight is not possible.
    #[error("{0}")]
    Replays(ReplayError),
    /// The file of trusted verifiers.
    #[error("{}: {}", .0.display(), one_line(.1))]
    TrustFile(PathBuf, Box<TrustFileError>),
    /// The text is not the name of a server.
    #[error("{0}: an identity is a host name, or one with a port, as www.example.com:8080")]
    Identity(String),
    /// The server listens on all addresses and has no name.
    #[error("a server at every address is called by a name: say --identity NAME, or name one address")]
    NoIdentity,
    /// The server's own verifier cannot work.
    #[error("--verifier: {0}")]
    OwnVerifier(io::Error),
    /// The UDP port is that of another protocol, with messages that look alike.
    #[error(
        "--verifier: the UDP port of {0} takes DNS or relay datagrams, so it takes no messages to a verifier: give the server another port"
    )]
    VerifierPort(SocketAddr),
    /// The members of a farm have no memory of certificates in common.
    #[error(
        "--verifier-members: members do not know which requests with certificates the others took: add --per-site"
    )]
    VerifierMembers,
    /// The verifier answers in UDP.
    #[error("--verifier answers in UDP: leave --udp-port 0 out")]
    VerifierUdp,
    /// The engine has stopped.
    #[error("the engine has stopped, because its device or socket failed; start again when it is back")]
    Stopped,
    /// Clients do not see the address that `--udp` names.
    #[error(
        "--udp {0} is all addresses: say with --relay-seen-as ADDR:PORT which one clients are answered from"
    )]
    RelaySeenAs(SocketAddr),
    /// Clients cannot see the server at the address of `--relay-seen-as`.
    #[error("--relay-seen-as: {0}")]
    RelayTarget(RelayTargetError),
}

impl ServeError {
    /// Whether it is a mistake.
    pub fn exit_kind(&self) -> ExitKind {
        match self {
            // A clock is set after the start of the machine.
            Self::Clock(_) | Self::Stopped => ExitKind::Failure,
            Self::Listen(_, error) => ExitKind::of_address(error),
            Self::OwnVerifier(error) if error.kind() == io::ErrorKind::InvalidInput => ExitKind::Mistake,
            Self::OwnVerifier(_) => ExitKind::Failure,
            Self::Root(_, error) => ExitKind::of_file(error),
            Self::Replays(error) => error.exit_kind(),
            Self::TrustFile(_, error) => match &**error {
                TrustFileError::Read(error) => ExitKind::of_file(error),
                _ => ExitKind::Mistake,
            },
            Self::Seal(firstflight_tls::SealFileError::Unusable(_, error)) => ExitKind::of_key_file(error),
            _ => ExitKind::Mistake,
        }
    }
}
