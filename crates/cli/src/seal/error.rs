//! Why there are no seal keys.

use crate::error::{CommandError, Renamed};
use firstflight_daemon::{ExitKind, unusable};
use firstflight_seal::{ChainFault, FarmError, KeyFileError};
use std::io;
use std::path::{Path, PathBuf};

/// How to make a file of seal keys.
const MAKER: &str = "firstflight seal keygen --name NAME -o FILE";

/// Why a command about seal keys stopped.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The key file cannot be read, or is none.
    #[error("{}", unusable(.0, .1, MAKER))]
    Unusable(PathBuf, KeyFileError),
    /// The farm's secret gives no keys now.
    #[error("key file {path}: {fault}", path = .0.display(), fault = .1)]
    Chain(PathBuf, ChainFault),
    /// No key of the file may be published any more.
    #[error(
        "the keys of {path} are over: make a new one with `firstflight seal keygen --after {path} -o NEW`",
        path = .0.display()
    )]
    Over(PathBuf),
    /// Its keys follow the clock.
    #[error("{path} is a farm's secret, whose keys follow the clock: leave --after out", path = .0.display())]
    Farm(PathBuf),
    /// The keys would not be used by clients.
    #[error("{0}")]
    Times(FarmError),
    /// The new file exists.
    #[error("{path} exists already, and its key would be lost: choose another file, or remove it", path = .0.display())]
    Exists(PathBuf),
    /// The new file cannot be written.
    #[error("cannot write {path}: {error}; choose a file in a directory of yours", path = .0.display(), error = .1)]
    Write(PathBuf, io::Error),
    /// An option has another name.
    #[error(transparent)]
    Renamed(#[from] Renamed),
    /// The system's random source failed.
    #[error("the system gives no random numbers: {0}")]
    Random(io::Error),
}

impl SealError {
    /// The error when a new file was not written.
    pub fn not_written(path: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists(path.to_owned()),
            _ => Self::Write(path.to_owned(), error),
        }
    }
}

impl CommandError for SealError {
    fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Random(_) => ExitKind::Failure,
            Self::Unusable(_, error) => ExitKind::of_key_file(error),
            Self::Write(_, error) => ExitKind::of_file(error),
            _ => ExitKind::Mistake,
        }
    }
}
