//! Why a verifier cannot run, or a certificate cannot be obtained.

use crate::key_fault::KeyFault;
use firstflight_verifier::pool::PoolFileError;
use firstflight_verifier::{Fault, GroupError, KeyFileError, ObtainError, ServiceError};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Why `verifier` or `certificate` stopped.
#[derive(Debug)]
pub enum VerifierError {
    /// There is neither an option nor a subcommand.
    Nothing,
    /// A key file, or the path for a new one.
    Key(KeyFault),
    /// A group file cannot be used.
    Group(PathBuf, GroupError),
    /// The service does not start.
    Service(ServiceError),
    /// No certificate was obtained.
    Obtain(ObtainError),
    /// A verifier did not answer the question about this network.
    Reach(SocketAddr, Fault),
    /// Two addresses of different families, or one address twice.
    ReachPair,
    /// The certificate cannot be written.
    Certificate(PoolFileError),
    /// The system's random source failed.
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

    /// Returns 2 for errors that the user can correct, 1 for failures at run time.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Random(_) | Self::Reach(..) | Self::Service(ServiceError::System(_)) => ExitCode::from(1),
            Self::Obtain(ObtainError::NoAddress { .. }) => ExitCode::from(2),
            Self::Obtain(_) => ExitCode::from(1),
            _ => ExitCode::from(2),
        }
    }
}

impl fmt::Display for VerifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("say where to answer, with --listen ADDR:PORT, and --key FILE"),
            Self::Key(fault) => fault.fmt(f),
            Self::Group(path, error) => write!(f, "group file {} {error}", path.display()),
            Self::Service(error) => error.fmt(f),
            Self::Obtain(error) => error.fmt(f),
            Self::Reach(verifier, error) => write!(f, "verifier {verifier}: {error}"),
            Self::ReachPair => {
                f.write_str("give two verifiers at different addresses of one family: --verifier A:PORT --verifier B:PORT")
            }
            Self::Certificate(error) => write!(f, "{error}; choose another --out"),
            Self::Random(error) => write!(f, "the system gives no random numbers: {error}"),
        }
    }
}

impl std::error::Error for VerifierError {}
