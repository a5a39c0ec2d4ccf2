//! Why `measure` cannot do what was asked.

use crate::error::{CommandError, one_line};
use firstflight_doctor::measure::VisitError;
use firstflight_http::url::UrlError;
use std::io;
use std::net::SocketAddr;

/// Why `measure` stopped before the first visit. The user can correct all of these.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A URL that cannot be fetched.
    #[error("{0:?}: {1}")]
    Url(String, UrlError),
    /// TLS cannot be used.
    #[error("{0}")]
    Tls(firstflight_tls::ConfigError),
    /// The named resolver cannot be used.
    #[error("cannot use the resolver {0}: {1}")]
    Resolver(SocketAddr, io::Error),
}

impl CommandError for MeasureError {}

/// What is said of a failure, with the option that helps.
pub fn told(error: &VisitError) -> String {
    match error {
        VisitError::Lookup(name, why) => format!("cannot look up {name}: {}", one_line(why)),
        VisitError::Tls(_) => format!("{error}; measure speaks TLS 1.3 only"),
        VisitError::Certificate(_) => format!("{error}; name its authority with --ca-file"),
        VisitError::Timeout(..) => format!("{error} (--timeout)"),
        other => other.to_string(),
    }
}
