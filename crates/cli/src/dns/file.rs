//! The settings of `dns` in a file.

use super::{DnsPathArgs, Forward, Run, Settings, name, relay_to};
use crate::life::Metrics;
use firstflight_daemon::config::{self, ConfigError, Mistake};
use firstflight_dns::front::RateLimit;
use firstflight_dns::service::RelayTo;
use firstflight_dns::{DnsPathConfig, ForwardConfig, Name};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// The keys of a file. They are the names of the options.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Vec<SocketAddr>,
    #[serde(default)]
    zone: Vec<PathBuf>,
    #[serde(default, deserialize_with = "names")]
    origin: Vec<Name>,
    user: Option<String>,
    #[serde(default, deserialize_with = "one_name")]
    dns_path_zone: Option<Name>,
    #[serde(default)]
    dns_path_address: Vec<Ipv4Addr>,
    key_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "relays")]
    relay: Vec<RelayTo>,
    state: Option<PathBuf>,
    front_id: Option<u16>,
    nearest: Option<PathBuf>,
    #[serde(default = "answers")]
    answers_per_second: NonZeroU32,
    #[serde(default = "opens")]
    opens_per_second: NonZeroU32,
    forward_listen: Option<SocketAddr>,
    #[serde(default)]
    forward_to: Vec<SocketAddr>,
    forward_key: Option<PathBuf>,
    forwards_per_second: Option<NonZeroU32>,
    metrics: Option<SocketAddr>,
    #[serde(default)]
    metrics_host: Vec<String>,
}

fn answers() -> NonZeroU32 {
    RateLimit::default().per_second
}

fn opens() -> NonZeroU32 {
    DnsPathConfig::OPENS_PER_SECOND
}

/// What the option's parser makes of a text.
fn parsed<T, E: Error>(text: &str, parse: fn(&str) -> Result<T, &'static str>) -> Result<T, E> {
    parse(text).map_err(|problem| E::custom(format_args!("{text:?}: {problem}")))
}

fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Name>, D::Error> {
    Vec::<String>::deserialize(deserializer)?.iter().map(|text| parsed(text, name)).collect()
}

fn one_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Name>, D::Error> {
    parsed(&String::deserialize(deserializer)?, name).map(Some)
}

fn relays<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RelayTo>, D::Error> {
    Vec::<String>::deserialize(deserializer)?.iter().map(|text| parsed(text, relay_to)).collect()
}

/// Reads a file with settings.
/// Errors: when it cannot be read, or has a mistake.
pub fn read(path: &Path) -> Result<Settings, ConfigError> {
    config::read(path, parse)
}

fn parse(text: &str) -> Result<Settings, Mistake> {
    let file: File = config::parse(text)?;
    if let Some((key, needed)) = file.lacks() {
        return Err(Mistake::of_key(text, key, format!("needs {needed}")));
    }
    let run = Run {
        zone: file.zone,
        origin: file.origin,
        listen: file.listen,
        key_file: file.key_file,
        key: None,
        relay: file.relay,
        state: file.state,
        front_id: file.front_id.unwrap_or_default(),
        nearest: file.nearest,
        user: file.user,
    };
    let dns_path = DnsPathArgs {
        dns_path_zone: file.dns_path_zone,
        dns_path_address: file.dns_path_address,
        answers_per_second: file.answers_per_second,
        opens_per_second: file.opens_per_second,
    };
    let forward = Forward {
        forward_listen: file.forward_listen,
        forward_to: file.forward_to,
        forward_key: file.forward_key,
        forwards_per_second: file.forwards_per_second.unwrap_or(ForwardConfig::PER_SECOND),
    };
    Ok(Settings { run, dns_path, forward, metrics: Metrics::new(file.metrics, file.metrics_host) })
}

impl File {
    /// A key, and what it needs beside it: what clap demands of options.
    fn lacks(&self) -> Option<(&'static str, &'static str)> {
        let carries = self.dns_path_zone.is_some();
        let forwards = self.forward_listen.is_some();
        let rules = [
            ("listen", self.listen.is_empty(), "an address and port, as \"192.0.2.53:53\""),
            ("dns_path_zone", carries && self.dns_path_address.is_empty(), "dns_path_address"),
            ("dns_path_zone", carries && self.key_file.is_none(), "key_file"),
            ("dns_path_zone", carries && self.relay.is_empty(), "relay"),
            ("dns_path_zone", carries && self.state.is_none(), "state"),
            ("dns_path_address", !carries && !self.dns_path_address.is_empty(), "dns_path_zone"),
            ("key_file", !carries && self.key_file.is_some(), "dns_path_zone"),
            ("relay", !carries && !self.relay.is_empty(), "dns_path_zone"),
            ("state", !carries && self.state.is_some(), "dns_path_zone"),
            ("front_id", !carries && self.front_id.is_some(), "dns_path_zone"),
            ("nearest", !carries && self.nearest.is_some(), "dns_path_zone"),
            ("forward_listen", forwards && !carries, "dns_path_zone"),
            ("forward_listen", forwards && self.forward_to.is_empty(), "forward_to"),
            ("forward_listen", forwards && self.forward_key.is_none(), "forward_key"),
            ("forward_listen", forwards && self.front_id.is_none(), "front_id"),
            ("forward_to", !forwards && !self.forward_to.is_empty(), "forward_listen"),
            ("forward_key", !forwards && self.forward_key.is_some(), "forward_listen"),
            ("forwards_per_second", !forwards && self.forwards_per_second.is_some(), "forward_listen"),
            ("metrics_host", self.metrics.is_none() && !self.metrics_host.is_empty(), "metrics"),
        ];
        rules.into_iter().find_map(|(key, lacks, needed)| lacks.then_some((key, needed)))
    }
}

#[cfg(test)]
mod tests;
