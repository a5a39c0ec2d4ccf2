//! Why `demo` stops.

use crate::error::CommandError;
use firstflight::credential::asap::TrustError;
use firstflight::link::MemoryLinkError;
use firstflight_daemon::ExitKind;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why `demo` stopped.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The emulated path cannot be created.
    #[error("{0}")]
    Path(MemoryLinkError),
    /// The trusted verifiers contradict each other.
    #[error("{0}")]
    Trust(TrustError),
    /// The certificate of the demonstration cannot be used.
    #[error("{0}")]
    Tls(firstflight_tls::ConfigError),
    /// There is no clock for certificates.
    #[error("the system has no clock for certificates: {0}")]
    NoClock(io::Error),
    /// The picture of the demonstration cannot be written.
    #[error("cannot write {}: {}; choose another --timeline", .0.display(), .1)]
    Timeline(PathBuf, io::Error),
    /// A visit of the demonstration failed.
    #[error("the visit {0:?} failed: {1}")]
    Visit(&'static str, io::Error),
    /// A visit of the demonstration took too long.
    #[error("the visit {:?} was not over after {} s: try less --loss or --rtt", .0, .1.as_secs())]
    VisitTimeout(&'static str, Duration),
}

impl CommandError for DemoError {
    fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Tls(_) => ExitKind::Failure,
            Self::NoClock(_) | Self::Visit(..) | Self::VisitTimeout(..) => ExitKind::Failure,
            Self::Path(_) | Self::Trust(_) => ExitKind::Mistake,
            Self::Timeline(_, error) => ExitKind::of_file(error),
        }
    }
}
