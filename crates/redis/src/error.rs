//! What can go wrong with Redis, and which party is at fault.

use crate::farm_keys::KeysFingerprint;
use firstflight::StoreError;
use firstflight_files::ReadError;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::io;
use std::path::PathBuf;

/// Why there can be no store at that address. The configuration is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is invalid.
    #[error(
        "{0}; an address is redis://HOST[:PORT][/DATABASE], with TLS rediss://…, redis+unix:///PATH, or \
         redis+sentinel://HOST[:PORT][,HOST[:PORT]]/NAME or redis+cluster://HOST[:PORT][,HOST[:PORT]], with TLS \
         rediss+sentinel://… and rediss+cluster://…"
    )]
    Url(RedisError),
    /// The configuration of a master that replicas may replace does not exclude two masters. Holds what to change.
    #[error("{0}")]
    Replicas(String),
    /// A file of [`Options::access`](crate::Options::access) cannot be used.
    #[error(transparent)]
    Access(AccessError),
    /// Redis refuses the user, or one of the commands that the store needs.
    #[error("Redis refuses: {0}; check the user, its password and its rights")]
    Refused(RedisError),
    /// Redis evicts keys when its memory is full. Holds its `maxmemory-policy`.
    #[error("Redis has maxmemory-policy {0} and may forget what was seen: set it to noeviction")]
    Evicts(String),
    /// Other members have other keys. Holds what they are called, and what this member's are.
    #[error("{0}")]
    Keys(String),
    /// The file of [`Options::state`](crate::Options::state) cannot be used.
    #[error("the state file {0}: {1}")]
    State(PathBuf, StateError),
}

impl ConnectError {
    /// Whether it may be otherwise in a minute although nobody changes the configuration: Redis, which has a configuration of its
    /// own, refuses now, or another process uses a file.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Evicts(_) | Self::Replicas(_) => true,
            Self::State(_, error) => error.may_pass(),
            Self::Access(error) => error.may_pass(),
            Self::Url(_) | Self::Keys(_) => false,
        }
    }
}

/// Why a file with what a member shows to the store cannot be used. The configuration or the disk is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// It cannot be read, or other users can read a secret.
    #[error("{path} {1}", path = .0.display())]
    Unreadable(PathBuf, ReadError),
    /// It is not a user and a password.
    #[error("{}: it must have a line `password TEXT`, and may have a line `user NAME`", .0.display())]
    Login(PathBuf),
    /// It has no certificate, or one that is damaged.
    #[error("{}: no certificate in PEM format", .0.display())]
    NoCertificate(PathBuf),
    /// It has no private key, or one that is damaged.
    #[error("{}: no private key in PEM format", .0.display())]
    NoKey(PathBuf),
    /// The certificates cannot be used for TLS, or the key is not that of the certificate.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
}

impl AccessError {
    /// Whether it may be otherwise in a minute although nobody changes a file.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreadable(_, error) if error.may_pass())
    }
}

/// Why a state file cannot be used. The configuration or the disk is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// It cannot be read, removed or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is damaged, or it is not a state file.
    #[error("it is damaged, or it is not a state file: name another file, or delete it")]
    Damaged,
    /// Another process uses it.
    #[error("another process uses it: give every member its own file")]
    Locked,
}

impl StateError {
    /// Whether it may be otherwise in a minute although nobody changes a file or a setting.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Io(error) => firstflight_files::may_pass(error),
            Self::Locked => true,
            Self::Damaged => false,
        }
    }
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("no answer in time")]
    TimedOut,
    #[error("the connection was lost")]
    Failed,
    /// The memory that answered is not the one that the connection began with.
    #[error(
        "another memory answers: Redis was restarted, emptied or replaced, it evicted keys, or a member began a new memory"
    )]
    OtherMemory,
    /// As [`Self::OtherMemory`], but the process of Redis is the one that the connection began with.
    #[error("another memory answers: Redis was emptied, or a member began a new memory")]
    OtherMark,
    #[error("it is a replica, which may be behind: name the master")]
    Replica,
    #[error("INFO lacks role, run_id, master_replid, evicted_keys, maxmemory_policy or server_time_usec")]
    NoInfo,
    #[error("maxmemory-policy {0} may forget what was seen: set noeviction")]
    Evicts(String),
    #[error("no sentinel knows a master of this name")]
    NoMaster,
    #[error("most masters of the cluster do not agree on who has this slot, or that master does not answer")]
    NoOwner,
    #[error("the answer to CLUSTER NODES cannot be read")]
    NoMap,
    #[error("a replica may migrate to another master: set cluster-allow-replica-migration no (Redis 7)")]
    Migrates,
    #[error(
        "two masters at one time are not excluded: set min-replicas-to-write to at least {needed} (it is {to_write}), and \
         min-replicas-max-lag to 1 to 10 (it is {max_lag}), at the master and its replicas"
    )]
    FewReplicas { needed: usize, to_write: u64, max_lag: u64 },
    #[error(
        "the master has {0} replicas, more than twice min-replicas-to-write: two masters are not excluded"
    )]
    MoreReplicas(usize),
    #[error("the replicas have confirmed nothing new: the master may have been replaced")]
    NoLease,
    /// The fingerprints of the keys that the store knows, and of this member's.
    #[error(
        "another member has other farm keys ({0}, these are {1}), so neither would know what the other took: give all members          the same file; to change the keys of a farm, change the prefix of its keys in the store, too"
    )]
    OtherKeys(String, KeysFingerprint),
}

impl Failure {
    pub(crate) fn as_store_error(&self) -> StoreError {
        match self {
            Self::TimedOut => StoreError::TimedOut,
            Self::Evicts(_) | Self::OtherKeys(..) => StoreError::Unfit,
            _ => StoreError::Unreachable,
        }
    }

    /// Whether Redis answered, with an error: it does not execute this command for this user, for example.
    pub(crate) fn is_of_command(&self) -> bool {
        matches!(self, Self::Redis(error) if !error.is_io_error() && !error.is_unrecoverable_error())
    }

    /// Whether the server cannot be used, and not only what was asked of it.
    pub(crate) fn is_of_server(&self) -> bool {
        !self.is_of_command() && !matches!(self, Self::OtherMark | Self::NoOwner)
    }

    /// Whether the operator must act.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Access(_) | Self::Evicts(_) | Self::Replica | Self::NoInfo | Self::NoMaster => true,
            Self::OtherKeys(..) => true,
            Self::FewReplicas { .. } | Self::MoreReplicas(_) | Self::Migrates | Self::NoMap => true,
            Self::Redis(_)
            | Self::TimedOut
            | Self::Failed
            | Self::OtherMemory
            | Self::OtherMark
            | Self::NoLease
            | Self::NoOwner => false,
        }
    }

    /// The mistake, if waiting does not mend the failure. The failure itself, if waiting may mend it.
    pub(crate) fn into_mistake(self) -> Result<ConnectError, Self> {
        match self {
            Self::Evicts(policy) => Ok(ConnectError::Evicts(policy)),
            Self::Access(error) => Ok(ConnectError::Access(error)),
            Self::FewReplicas { .. } | Self::Migrates => Ok(ConnectError::Replicas(self.to_string())),
            Self::OtherKeys(..) => Ok(ConnectError::Keys(self.to_string())),
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
