//! Settings of what outlives a connection: how often a first flight runs, sealed first flights, and the memory of a farm.

use firstflight_tls::ServedName;
use serde::{Deserialize, Deserializer, de::Error};
use std::num::NonZeroU32;
use std::path::PathBuf;
use toml::Spanned;

/// The memory that all members of a farm share.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Store {
    /// Its address: `redis://HOST[:PORT][/DATABASE]`, and what else
    /// [`RedisStore::connect`](firstflight_redis::RedisStore::connect) takes.
    pub redis: Spanned<String>,
    /// File with the keys that the farm shares with it: 96 hexadecimal digits.
    pub keys: PathBuf,
    /// File with the user and the password.
    pub login: Option<PathBuf>,
    /// File with the authorities for its certificate. The default is what the system trusts.
    pub ca: Option<PathBuf>,
    /// Certificate that this member shows, with its chain, PEM.
    pub chain: Option<PathBuf>,
    /// Its key, PEM, mode 0600.
    pub key: Option<PathBuf>,
    /// File in which this member notes, when it stops, that it owes the store nothing.
    pub state: Option<PathBuf>,
    /// Prefix of the farm's keys.
    #[serde(default = "prefix")]
    pub prefix: String,
}

fn prefix() -> String {
    "firstflight".to_owned()
}

/// Cookies that are valid for one connection each.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OneTime {
    /// File with this member's state, created if it does not exist.
    pub state: PathBuf,
    /// Number of this member in its farm.
    pub issuer: Option<u16>,
}

/// How often the data of one SYN may be executed before its client is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Replays {
    /// As often as it arrives.
    #[default]
    Allow,
    /// Once, if the network copies it within two minutes.
    NoDuplicates,
    /// Once, even if an attacker records and sends it again.
    AtMostOnce,
}

/// Sealed first flights.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Seal {
    /// Files of seal keys, one for each public name.
    pub keys: Spanned<Vec<PathBuf>>,
    /// Names that are served with them, beside their public names: `NAME`, or `NAME@PUBLIC` where there are several files.
    #[serde(default, deserialize_with = "names")]
    pub names: Vec<ServedName>,
    /// TCP port as clients see it, if it is not the listener's.
    pub port: Option<u16>,
    /// Flights without a certificate that are opened each second.
    pub openings: Option<NonZeroU32>,
}

fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ServedName>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let name =
        |text: &String| text.parse().map_err(|error| D::Error::custom(format_args!("{text:?}: {error}")));
    texts.iter().map(name).collect()
}
