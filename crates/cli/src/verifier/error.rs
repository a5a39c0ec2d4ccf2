//! Why a verifier cannot run, or a certificate cannot be obtained.

use crate::error::{CommandError, Renamed};
use firstflight_daemon::{ExitKind, KeyFault};
use firstflight_verifier::{Fault, GroupError, KeptError, KeyFileError, ObtainError, ServiceError};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Why `verifier` or `certificate` stopped.
#[derive(Debug, thiserror::Error)]
pub enum VerifierError {
    /// There is neither an option nor a subcommand.
    #[error("say where to answer, with --listen ADDR:PORT and --key-file FILE, or with --config FILE")]
    Nothing,
    /// An option has another name.
    #[error(transparent)]
    Renamed(#[from] Renamed),
    /// A key file, or the path for a new one.
    #[error("{0}")]
    Key(KeyFault),
    /// A group file cannot be used.
    #[error("group file {0} {1}")]
    Group(PathBuf, GroupError),
    /// The service does not start.
    #[error("{0}")]
    Service(ServiceError),
    /// No certificate was obtained.
    #[error("{0}")]
    Obtain(ObtainError),
    /// A verifier's name cannot be looked up.
    #[error("verifier {0}: {1}")]
    Unknown(String, io::Error),
    /// A verifier did not answer the question about this network.
    #[error("verifier {0}: {1}")]
    Reach(SocketAddr, Fault),
    /// Two addresses of different families, or one address twice.
    #[error("give two verifiers at different addresses of one family: --verifier A:PORT --verifier B:PORT")]
    ReachPair,
    /// The certificate cannot be written.
    #[error("{0}; choose another -o")]
    Certificate(KeptError),
    /// The system's random source failed.
    #[error("the system gives no random numbers: {0}")]
    Random(io::Error),
}

impl VerifierError {
    /// A key file cannot be used.
    pub fn unusable(path: &Path, error: KeyFileError) -> Self {
        Self::Key(KeyFault::Unusable(path.to_owned(), error, "firstflight verifier keygen"))
    }

    /// A new key file was not written.
    pub fn not_written(path: &Path, error: io::Error) -> Self {
        Self::Key(KeyFault::not_written(path, error))
    }
}

impl CommandError for VerifierError {
    fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Random(_) | Self::Reach(..) | Self::Service(ServiceError::System(_)) => ExitKind::Failure,
            Self::Obtain(ObtainError::NoAddress { .. }) => ExitKind::Mistake,
            Self::Obtain(_) | Self::Unknown(..) => ExitKind::Failure,
            Self::Service(ServiceError::Listen(_, error)) => ExitKind::of_address(error),
            Self::Key(error) => error.exit_kind(),
            Self::Group(_, GroupError::Read(error))
            | Self::Certificate(KeptError::Read(_, error) | KeptError::Write(_, error)) => {
                ExitKind::of_file(error)
            }
            Self::Certificate(KeptError::Held(_)) => ExitKind::Failure,
            _ => ExitKind::Mistake,
        }
    }
}
