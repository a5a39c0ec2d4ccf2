//! Errors of key files.

use crate::ExitKind;
use firstflight_files::lines::LineError;
use firstflight_files::{KeyFileError, ReadError};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The message about a key file at `path`. If it cannot be read, says that the command `maker` makes one.
pub fn unusable<C: fmt::Display>(path: &Path, error: &KeyFileError<C>, maker: &str) -> String {
    let advice = match error {
        KeyFileError::Read(ReadError::Io(_)) => format!("; make one with `{maker}`"),
        _ => String::new(),
    };
    format!("key file {} {error}{advice}", path.display())
}

/// The file of a service, and its error.
#[derive(Debug)]
pub enum KeyFault {
    /// It cannot be used. The command given here makes a new one.
    Unusable(PathBuf, KeyFileError<LineError>, &'static str),
    /// The new file already exists.
    Exists(PathBuf),
    /// The new file cannot be written.
    Write(PathBuf, io::Error),
}

impl KeyFault {
    /// The error when a new file was not written.
    #[must_use]
    pub fn not_written(path: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists(path.to_owned()),
            _ => Self::Write(path.to_owned(), error),
        }
    }

    /// Whether it is a mistake.
    #[must_use]
    pub fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Unusable(_, error, _) => ExitKind::of_key_file(error),
            Self::Exists(_) => ExitKind::Mistake,
            Self::Write(_, error) => ExitKind::of_file(error),
        }
    }
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(path, error, maker) => f.write_str(&unusable(path, error, maker)),
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
