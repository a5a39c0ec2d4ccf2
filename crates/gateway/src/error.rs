//! Why a gateway does not start, or keeps the configuration that it has.

use firstflight::CardError;
use firstflight::link::TunError;
use firstflight::link::xdp::XdpError;
use firstflight::serial_file::SerialFileError;
use firstflight_daemon::ExitKind;
use firstflight_dns::service::{Fault, SetUpError};
use firstflight_http::directory::RootError;
use firstflight_redis::{ConnectError as StoreError, FarmKeysError};
use firstflight_tls::{ConfigError, SealFileError};
use std::io;
use std::path::PathBuf;

/// Why a gateway does not start, or keeps the configuration that it has.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// An address cannot be used.
    #[error("listener {0}: cannot listen: {1}")]
    Bind(String, io::Error),
    /// The device of an engine cannot be made.
    #[error("listener {0}: tun: {1}")]
    Tun(String, TunError),
    /// A queue of the device cannot be used.
    #[error("listener {0}: cannot use the queues of its device: {1}")]
    Queues(String, io::Error),
    /// The network card of an engine cannot be used.
    #[error("listener {0}: xdp: {why}", why = with_keys(.1))]
    Card(String, CardError),
    /// A certificate cannot be used.
    #[error("{0}: {1}")]
    Tls(String, ConfigError),
    /// The system trusts no certificate authority, so no backend's certificate could be valid.
    #[error(
        "service {0}: this system has no certificate authorities: name a file with those of the backends as ca in \
         [service.tls], or install the system's (Debian: ca-certificates)"
    )]
    NoAuthorities(String),
    /// The directory of a service cannot be served.
    #[error("service {0}: root {path}: {2}", path = .1.display())]
    Root(String, PathBuf, RootError),
    /// A file with keys or verifiers cannot be used.
    #[error("listener {0}: {1}")]
    Files(String, String),
    /// A file with seal keys cannot be used.
    #[error("listener {0}: seal: {1}")]
    Seal(String, SealFileError),
    /// Two listeners have seal keys of one public name, and no memory in common.
    #[error(
        "listener {0}: seal: listener {2} has keys of {1}, too, so a request could run at both: give one listener all \
         addresses, or both the same [store]"
    )]
    SharedSeal(String, String, String),
    /// Two listeners take certificates for one name of seal keys, and one would run what the other refused.
    #[error(
        "listener {0}: seal: listener {2} takes certificates for {1}, too, so a request could run at both: give both the same trust, \
         the same [listener.verifier] and the same [store], or set per_site = true at both"
    )]
    SharedName(String, String, String),
    /// The state file of one-time cookies cannot be used.
    #[error("one_time: state {0}: {1}")]
    OneTime(PathBuf, SerialFileError),
    /// The keys of the farm cannot be read.
    #[error("store: keys {0} {1}")]
    FarmKeys(PathBuf, FarmKeysError),
    /// There can be no store at that address.
    #[error("store: {0}")]
    Store(StoreError),
    /// The name server, or what it reads, cannot be used.
    #[error("dns: {0}")]
    Dns(#[from] SetUpError),
    /// The system's random source failed.
    #[error("the system gives no random numbers: {0}")]
    Random(io::Error),
    /// The system refuses a thread.
    #[error("cannot start the access log: {0}")]
    Log(io::Error),
    /// The system refuses the threads of engines.
    #[error("cannot start the threads of engines: {0}")]
    Threads(io::Error),
    /// Only a restart changes this setting.
    #[error("{0} needs a restart to change")]
    NeedsRestart(String),
}

/// The message, with the keys that it is about.
fn with_keys(error: &CardError) -> String {
    match error {
        CardError::Device(XdpError::Firewall { .. }) => format!("{error}: set firewall = \"bypassed\""),
        CardError::Device(XdpError::Mode { .. }) => format!("{error}: set mode = \"generic\""),
        _ => error.to_string(),
    }
}

impl GatewayError {
    /// Whether the configuration, or a file that it names, has a mistake.
    #[must_use]
    pub fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Bind(_, error) | Self::Queues(_, error) => ExitKind::of_address(error),
            Self::Tun(_, error) => ExitKind::of_passing(error.may_pass()),
            Self::Card(_, error) => ExitKind::of_passing(error.may_pass()),
            Self::Dns(error) => match error.fault() {
                Fault::Address(error) => ExitKind::of_address(error),
                Fault::File(error) => ExitKind::of_file(error),
                Fault::Passing => ExitKind::Failure,
                _ => ExitKind::Mistake,
            },
            Self::Root(_, _, RootError::Unreadable(error)) => ExitKind::of_file(error),
            Self::Root(..) => ExitKind::Mistake,
            Self::Tls(..) | Self::NoAuthorities(_) | Self::Files(..) | Self::NeedsRestart(_) => {
                ExitKind::Mistake
            }
            Self::Seal(_, SealFileError::Unusable(_, error)) => ExitKind::of_key_file(error),
            Self::Seal(..) | Self::SharedSeal(..) | Self::SharedName(..) => ExitKind::Mistake,
            Self::OneTime(_, error) => ExitKind::of_passing(error.may_pass()),
            Self::Store(error) => ExitKind::of_passing(error.may_pass()),
            Self::FarmKeys(_, error) => ExitKind::of_passing(error.may_pass()),
            Self::Random(_) | Self::Log(_) | Self::Threads(_) => ExitKind::Failure,
        }
    }
}
