//! Errors of a service's key file.

use firstflight_verifier::KeyFileError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The file and its error.
#[derive(Debug)]
pub enum KeyFault {
    /// It cannot be used. The command given here makes a new one.
    Unusable(PathBuf, KeyFileError, &'static str),
    /// The new file already exists.
    Exists(PathBuf),
    /// The new file cannot be written.
    Write(PathBuf, io::Error),
}

impl KeyFault {
    /// The error when a new file was not written.
    pub fn not_written(path: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists(path.to_owned()),
            _ => Self::Write(path.to_owned(), error),
        }
    }
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(path, error @ KeyFileError::Read(_), maker) => {
                write!(f, "key file {} {error}; make one with `{maker}`", path.display())
            }
            Self::Unusable(path, error, _) => write!(f, "key file {} {error}", path.display()),
            Self::Exists(path) => write!(
                f,
                "{} exists already, and its key would be lost: choose another file, or remove it",
                path.display()
            ),
            Self::Write(path, error) => {
                write!(f, "cannot write {}: {error}; choose a file in a directory of yours", path.display())
            }
        }
    }
}
