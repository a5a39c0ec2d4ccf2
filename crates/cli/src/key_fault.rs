//! What is wrong with a file for a service's keys.

use firstflight_verifier::KeyFileError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The file, and what is wrong.
#[derive(Debug)]
pub enum KeyFault {
    /// It cannot be used; this command makes one.
    Unusable(PathBuf, KeyFileError, &'static str),
    /// A new one is there already.
    Exists(PathBuf),
    /// A new one cannot be written.
    Write(PathBuf, io::Error),
}

impl KeyFault {
    /// A new file was not written.
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
                "{} is there already, and whoever needs its key would lose it: choose another file, or remove it",
                path.display()
            ),
            Self::Write(path, error) => {
                write!(f, "cannot write {}: {error}; choose a file in a directory of yours", path.display())
            }
        }
    }
}
