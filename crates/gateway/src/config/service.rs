//! Settings of services.

use super::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error};
use std::fmt;
use std::path::PathBuf;
use toml::Spanned;

/// A service, on one or more backends.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Service {
    /// Its name.
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    /// Backends: `192.0.2.1:8080`, `[2001:db8::1]:8080`, `name:8080` or `unix:/run/app.sock`.
    #[serde(default = "no_backend")]
    #[schemars(with = "Vec<String>")]
    pub backend: Spanned<Vec<Address>>,
    /// HTTP mode: a directory whose files the gateway serves itself, in place of backends.
    pub root: Option<PathBuf>,
    /// Whether names in it that begin with a dot are served, too. `/.well-known/` always is.
    #[serde(default)]
    pub hidden: bool,
    /// For trials: `POST /echo` gives the body back, and `PUT /sink` counts it, whoever asks.
    #[serde(default)]
    pub trial: bool,
    /// How a backend is chosen.
    #[serde(default)]
    pub balance: Balance,
    /// TCP modes: whether bytes that may be copies go to backends before the client is confirmed.
    #[serde(default)]
    pub replay_safe: bool,
    /// TCP mode: whether the backend speaks first, so that it is dialled at once.
    #[serde(default)]
    pub server_first: bool,
    /// Whether connections begin with a header of the PROXY protocol, version 2.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Connections to backends are encrypted.
    #[schemars(with = "Option<BackendTls>")]
    pub tls: Option<Spanned<BackendTls>>,
    /// HTTP mode: what backends speak.
    #[serde(default)]
    pub protocol: BackendProtocol,
    /// How long a connect may take.
    #[serde(default = "connect_timeout")]
    pub connect_timeout: Period,
    /// HTTP mode: how long a backend may take for the head of its response.
    #[serde(default = "response_timeout")]
    pub response_timeout: Period,
    /// Further backends that are tried if a connect fails.
    #[serde(default = "retries")]
    pub retries: u32,
    /// HTTP mode: connections that are kept open for each backend. 0 keeps none.
    #[serde(default = "pool")]
    pub pool: usize,
    /// HTTP mode: how long they are kept.
    #[serde(default = "pool_idle")]
    pub pool_idle: Period,
    /// HTTP/2: requests of one connection to a backend at one time. More make more connections.
    #[serde(default = "max_streams")]
    pub max_streams: u32,
    /// HTTP/2: bytes of one response that may wait for its client, the window of a stream.
    #[serde(default = "stream_window")]
    #[schemars(with = "u32")]
    pub stream_window: Spanned<u32>,
    /// Active checks.
    pub health: Option<Health>,
    /// Passive checks.
    #[serde(default)]
    pub passive: Passive,
}

defaults! {
    yes: bool = true;
    no_backend: Spanned<Vec<Address>> = Spanned::new(0..0, Vec::new());
    connect_timeout: Period = Period::seconds(5);
    response_timeout: Period = Period::seconds(60);
    retries: u32 = 2;
    max_streams: u32 = 32;
    stream_window: Spanned<u32> = Spanned::new(0..0, 256 * 1024);
    pool: usize = 64;
    pool_idle: Period = Period::seconds(30);
}

/// How a backend is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest connections or requests.
    LeastConnections,
}

/// What backends speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum BackendProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, without TLS as gRPC services often do, or with it.
    H2,
}

/// TLS to backends.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BackendTls {
    /// The name whose certificate is expected. The default is the host of each backend.
    pub name: Option<String>,
    /// File with the authorities that are trusted. The default is what the system trusts.
    pub ca: Option<PathBuf>,
    /// Certificate of this client, with its chain, PEM.
    pub chain: Option<PathBuf>,
    /// Its key, PEM, mode 0600.
    pub key: Option<PathBuf>,
    /// Whether the protocol is offered (ALPN). Switch it off for other protocols than HTTP.
    #[serde(default = "yes")]
    pub alpn: bool,
}

/// Active checks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Health {
    /// What is checked.
    #[serde(default)]
    pub kind: HealthKind,
    /// Path of a request.
    #[serde(default = "path")]
    pub path: String,
    /// Host of a request.
    pub host: Option<String>,
    /// Time between checks.
    #[serde(default = "interval")]
    pub interval: Period,
    /// How long a check may take.
    #[serde(default = "interval")]
    pub timeout: Period,
    /// Failed checks in a row after which a backend is down.
    #[serde(default = "fall")]
    pub fall: u32,
    /// Checks in a row that succeed after which it is up.
    #[serde(default = "rise")]
    pub rise: u32,
}

defaults! {
    path: String = "/".to_owned();
    interval: Period = Period::seconds(2);
    fall: u32 = 3;
    rise: u32 = 2;
}

/// What a check does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HealthKind {
    /// Connects.
    #[default]
    Tcp,
    /// Sends a GET. A status of 200 to 399 is good.
    Http,
}

/// Passive checks: connects and requests that fail.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Passive {
    /// Failures in a row after which a backend gets nothing for a while. 0 switches this off.
    pub failures: u32,
    /// How long.
    pub pause: Period,
}

impl Default for Passive {
    fn default() -> Self {
        Self { failures: 3, pause: Period::seconds(10) }
    }
}

/// Where a backend is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An address or a name, and a port.
    Tcp(String),
    /// A unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(at) => f.write_str(at),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if let Some(path) = text.strip_prefix("unix:").filter(|path| path.starts_with('/')) {
            return Ok(Self::Unix(path.into()));
        }
        let good = text.rsplit_once(':').is_some_and(|(host, port)| {
            let brackets = host.starts_with('[') && host.ends_with(']');
            let host_is_good = match brackets {
                true => text.parse::<std::net::SocketAddr>().is_ok(),
                false => !host.is_empty() && !host.contains([':', '/', '[', ']']),
            };
            host_is_good && port.parse::<u16>().is_ok_and(|port| port != 0)
        });
        match good {
            true => Ok(Self::Tcp(text)),
            false => Err(D::Error::custom(format_args!(
                "{text:?} is no backend: write HOST:PORT, or unix: and a path from the root"
            ))),
        }
    }
}
