//! The configuration: one TOML file. Every mistake names its line and its key.

/// Functions that return the defaults of keys, for `#[serde(default = "name")]`.
macro_rules! defaults {
    ($($key:ident: $type:ty = $value:expr;)*) => {
        $(
            fn $key() -> $type {
                $value
            }
        )*
    };
}

mod card;
mod check;
mod dns;
mod engine;
mod farm;
mod listener;
mod period;
mod schema;
mod service;
mod unused;

pub use card::{Xdp, XdpFirewall, XdpMode};
pub use dns::{Dns, Forward, Relay, Zone};
pub use engine::Engine;
pub use farm::{OneTime, Replays, Seal, Store};
pub use firstflight_http::forwarded::Forwarded;
pub use listener::{Certificate, Early, Listener, Mode, Route, TlsSettings, Traceparent, Tun, Verifier};
pub use period::Period;
pub use service::{Address, BackendProtocol, BackendTls, Balance, Health, HealthKind, Passive, Service};

pub use firstflight_daemon::config::{ConfigError, Mistake};

use firstflight_daemon::config;
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;
use toml::Spanned;

/// The configuration of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// What concerns the process.
    #[serde(default)]
    pub gateway: Global,
    /// The memory that all members of a farm share.
    #[schemars(with = "Option<Store>")]
    pub store: Option<Spanned<Store>>,
    /// Cookies that are valid for one connection each.
    #[schemars(with = "Option<OneTime>")]
    pub one_time: Option<Spanned<OneTime>>,
    /// First flights inside lookups.
    #[schemars(with = "Option<Dns>")]
    pub dns: Option<Spanned<Dns>>,
    /// Where clients connect.
    #[serde(default, rename = "listener")]
    pub listeners: Vec<Listener>,
    /// Where their requests go.
    #[serde(default, rename = "service")]
    pub services: Vec<Service>,
}

/// What concerns the process.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Global {
    /// The user to become after the ports are bound, if the process starts as root.
    pub user: Option<String>,
    /// Address of `/metrics`, `/healthz` and `/readyz`.
    #[schemars(with = "Option<String>")]
    pub admin: Option<SocketAddr>,
    /// Hosts that questions there may name, besides IP addresses and names that nobody else can have.
    pub admin_hosts: Vec<String>,
    /// Format of the access log.
    pub log: LogFormat,
    /// Threads that serve. The default is one for each processor.
    pub threads: Option<NonZeroUsize>,
    /// Connections of clients at one time. Further ones wait in the kernel's queues.
    pub max_connections: NonZeroUsize,
    /// How long connections may take to end after SIGTERM.
    pub drain: Period,
    /// How long the gateway goes on accepting after SIGTERM while `/readyz` says no.
    pub drain_delay: Period,
}

const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

impl Default for Global {
    fn default() -> Self {
        Self {
            user: None,
            admin: None,
            admin_hosts: Vec::new(),
            log: LogFormat::Text,
            threads: None,
            max_connections: MAX_CONNECTIONS,
            drain: Period(Duration::from_secs(30)),
            drain_delay: Period(Duration::ZERO),
        }
    }
}

/// Format of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LogFormat {
    /// One line of text for each request.
    Text,
    /// One JSON object for each request.
    Json,
    /// None.
    Off,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or has a mistake.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        config::read(path, Self::parse)
    }

    /// The JSON Schema of a file, for editors.
    #[must_use]
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).into()
    }

    /// Reads a text.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let config: Self = config::parse(text)?;
        config.check(text)?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests;
