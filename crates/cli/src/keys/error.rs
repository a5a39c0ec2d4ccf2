//! Why `keys` cannot do what was asked.

use crate::error::CommandError;
use firstflight::credential::ScheduleError;
use std::path::PathBuf;

/// Why `keys` stopped.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// `keys` was given a file that holds neither keys nor secrets.
    #[error("{0} holds neither cookie keys nor a farm secret: make one with `firstflight keys new`")]
    NotKeys(PathBuf),
    /// `keys schedule` was given a file without a farm secret.
    #[error(
        "{0} holds cookie keys, which no schedule changes: name a farm secret (`firstflight keys new --secret`)"
    )]
    NoSecret(PathBuf),
    /// `keys new -o` names a file that exists.
    #[error("{0} exists already, and its secret would be lost: choose another -o, or remove it")]
    KeyExists(PathBuf),
    /// The key schedule cannot be created.
    #[error("{0}")]
    Schedule(ScheduleError),
}

impl CommandError for KeysError {}
