//! Exit codes.

use firstflight_files::{KeyFileError, ReadError};
use std::io::{self, ErrorKind};
use std::process::ExitCode;

/// Why a command ends. A service manager starts it again after a failure, and not after a mistake
/// (`RestartPreventExitStatus=2` in systemd).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    /// The text of options and files decides it, and a person has to change the text: 2.
    Mistake,
    /// It may be otherwise in a minute: another process has the address, or the address, the device or the server is not there
    /// yet: 1.
    Failure,
}

impl ExitKind {
    /// The exit code.
    #[must_use]
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failure => 1,
            Self::Mistake => 2,
        })
    }

    /// Of an address that cannot be used. A port for which the process lacks the right is a mistake.
    #[must_use]
    pub fn of_address(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::InvalidInput => Self::Mistake,
            _ => Self::Failure,
        }
    }

    /// Of something that may be otherwise in a minute, or not.
    #[must_use]
    pub const fn of_passing(may_pass: bool) -> Self {
        match may_pass {
            true => Self::Failure,
            false => Self::Mistake,
        }
    }

    /// Of a file that cannot be read or written. One that is missing, or that belongs to others, is a mistake; a full disk, a
    /// lack of descriptors or a lost connection to a file server is not ([`firstflight_files::may_pass`]).
    #[must_use]
    pub fn of_file(error: &io::Error) -> Self {
        Self::of_passing(firstflight_files::may_pass(error))
    }

    /// Of a file that was not read.
    #[must_use]
    pub fn of_reading(error: &ReadError) -> Self {
        Self::of_passing(error.may_pass())
    }

    /// Of a key file.
    #[must_use]
    pub fn of_key_file<C>(error: &KeyFileError<C>) -> Self {
        match error {
            KeyFileError::Read(error) => Self::of_reading(error),
            KeyFileError::Content(_) => Self::Mistake,
        }
    }
}

#[cfg(test)]
mod tests;
