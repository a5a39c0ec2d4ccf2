//! Why `firstflight proxy` cannot do what was asked.

use crate::error::CommandError;
use firstflight_daemon::ExitKind;
use firstflight_proxy::BindError;
use firstflight_verifier::GroupError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the proxy does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// It cannot listen.
    #[error("{0}{advice}", advice = advice(.0))]
    Bind(#[from] BindError),
    /// `--allow-host` is no host.
    #[error("--allow-host {0:?} is not a host: write www.example.com or 192.0.2.1, without a port")]
    Host(String),
    /// `--dns` cannot be used.
    #[error("--dns {0}: {1}")]
    Resolver(SocketAddr, io::Error),
    /// `--via-dns` cannot be done.
    #[error("--second-verifier: {0}")]
    ViaDns(io::Error),
    /// The questions about this network are asked at addresses.
    #[error("--verifier: --via-dns needs an address, as 192.0.2.1:4433")]
    NameViaDns,
    /// `--verifier-key` is not valid.
    #[error("--verifier-key: {0}")]
    Key(String),
    /// The file of `--cache` could not be written.
    #[error("cannot write the cache {path}: {1}; name a file in a directory of yours", path = .0.display())]
    Cache(PathBuf, io::Error),
    /// The file of `--group` is not valid.
    #[error("{0}: {1}")]
    Group(PathBuf, GroupError),
}

impl CommandError for ProxyError {
    fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Bind(BindError::Random(_)) => ExitKind::Failure,
            Self::Bind(BindError::Listen(_, error)) | Self::Resolver(_, error) => ExitKind::of_address(error),
            Self::Cache(_, error) | Self::Group(_, GroupError::Read(error)) => ExitKind::of_file(error),
            _ => ExitKind::Mistake,
        }
    }
}

const fn advice(error: &BindError) -> &'static str {
    match error {
        BindError::NotLoopback(_) => ": listen on 127.0.0.1 or [::1], or add --allow-remote",
        BindError::Listen(..) => "; choose another --listen",
        _ => "",
    }
}
