//! Why `measure` cannot do what was asked.

use crate::error::CommandError;
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
