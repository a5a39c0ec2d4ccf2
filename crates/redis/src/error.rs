//! What can go wrong with Redis, and which party is at fault.

use firstflight::StoreError;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why there can be no store at that address. The configuration is at fault.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is invalid.
    Url(RedisError),
    /// Redis refuses the user, or one of the commands that the store needs.
    Refused(RedisError),
    /// Redis evicts keys when its memory is full. Holds its `maxmemory-policy`.
    Evicts(String),
    /// The file of [`Options::state`](crate::Options::state) cannot be used.
    State(PathBuf, StateError),
}

/// Why a state file cannot be used. The configuration or the disk is at fault.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateError {
    /// It cannot be read, removed or written.
    Io(io::Error),
    /// It is damaged, or it is not a state file.
    Damaged,
    /// Another process uses it.
    Locked,
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Damaged => {
                f.write_str("it is damaged, or it is not a state file: name another file, or delete it")
            }
            Self::Locked => f.write_str("another process uses it: give every member its own file"),
        }
    }
}

impl Error for StateError {}

impl From<io::Error> for StateError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => {
                write!(f, "{error}; an address is redis://HOST[:PORT][/DATABASE] or redis+unix:///PATH")
            }
            Self::Refused(error) => {
                write!(f, "Redis refuses: {error}; check the user, its password and its rights")
            }
            Self::Evicts(policy) => write!(
                f,
                "Redis has maxmemory-policy {policy} and may forget what was seen: set it to noeviction"
            ),
            Self::State(path, error) => write!(f, "the state file {}: {error}", path.display()),
        }
    }
}

impl Error for ConnectError {}

/// Why a question has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    Redis(RedisError),
    TimedOut,
    /// The memory that answered is not the one that the connection began with.
    OtherMemory,
    Replica,
    NoInfo,
    Evicts(String),
}

impl Failure {
    pub fn as_store_error(&self) -> StoreError {
        match self {
            Self::TimedOut => StoreError::TimedOut,
            Self::Evicts(_) => StoreError::Unfit,
            Self::Redis(_) | Self::OtherMemory | Self::Replica | Self::NoInfo => StoreError::Unreachable,
        }
    }

    /// Whether the operator must act.
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Evicts(_) | Self::Replica | Self::NoInfo)
    }

    /// The mistake, if waiting does not mend the failure. The failure itself, if waiting may mend it.
    pub fn into_mistake(self) -> Result<ConnectError, Self> {
        match self {
            Self::Evicts(policy) => Ok(ConnectError::Evicts(policy)),
            Self::Redis(error) => match error.kind() {
                ErrorKind::AuthenticationFailed
                | ErrorKind::InvalidClientConfig
                | ErrorKind::Server(ServerErrorKind::NoPerm) => Ok(ConnectError::Refused(error)),
                _ if error.code() == Some("NOAUTH") => Ok(ConnectError::Refused(error)),
                _ => Err(Self::Redis(error)),
            },
            other => Err(other),
        }
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(error) => error.fmt(f),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::OtherMemory => {
                f.write_str("another memory answers: Redis was restarted, emptied or replaced, it evicted keys, or a member began a new memory")
            }
            Self::Replica => f.write_str("it is a replica, which may be behind: name the master"),
            Self::NoInfo => f.write_str("INFO lacks role, run_id, master_replid, evicted_keys, maxmemory_policy or server_time_usec"),
            Self::Evicts(policy) => {
                write!(f, "maxmemory-policy {policy} may forget what was seen: set noeviction")
            }
        }
    }
}
