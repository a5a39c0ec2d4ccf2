//! The settings of `verifier` in a file.

use super::{Run, seconds, vantage_id};
use crate::life::Metrics;
use firstflight_daemon::config::{self, ConfigError, Mistake};
use firstflight_verifier::{FIRST_DURATION, LONGEST_DURATION};
use ipnet::IpNet;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What a file says.
pub type Settings = (Run, Metrics);

/// The keys of a file. They are the names of the options.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Vec<SocketAddr>,
    key_file: Option<PathBuf>,
    #[serde(default = "first", deserialize_with = "duration")]
    first_duration: u32,
    #[serde(default = "longest", deserialize_with = "duration")]
    max_duration: u32,
    #[serde(default)]
    allow_prefix: Vec<IpNet>,
    vantage_id: Option<u16>,
    vantage_key: Option<PathBuf>,
    group: Option<PathBuf>,
    #[serde(default)]
    probe_from: Vec<SocketAddr>,
    metrics: Option<SocketAddr>,
    #[serde(default)]
    metrics_host: Vec<String>,
}

fn first() -> u32 {
    FIRST_DURATION
}

fn longest() -> u32 {
    LONGEST_DURATION
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let text = String::deserialize(deserializer)?;
    seconds(&text).map_err(|error| D::Error::custom(format_args!("{text:?}: {error}")))
}

/// Reads a file with settings.
/// Errors: when it cannot be read, or has a mistake.
pub fn read(path: &Path) -> Result<Settings, ConfigError> {
    config::read(path, parse)
}

/// Reads the file of a verifier that runs and began with `began`.
/// Errors: as [`read`], and when a setting needs a restart to change.
pub fn read_again(path: &Path, began: &Settings) -> Result<Run, ConfigError> {
    config::read(path, |text| {
        let new = parse(text)?;
        let key = match (&new, began) {
            (new, began) if new.0.listen != began.0.listen => "listen",
            (new, began) if new.1 != began.1 => "metrics",
            _ => return Ok(new.0),
        };
        Err(Mistake::of_key(text, key, "needs a restart to change"))
    })
}

fn parse(text: &str) -> Result<Settings, Mistake> {
    let file: File = config::parse(text)?;
    let needs = |key, needed: &str| Err(Mistake::of_key(text, key, format!("needs {needed}")));
    if file.listen.is_empty() {
        return needs("listen", "an address and port, as \"192.0.2.1:4433\"");
    }
    if file.key_file.is_none() && file.vantage_id.is_none() {
        return Err(Mistake::of_whole(
            "needs key_file, the key that certifies, or vantage_id and vantage_key",
        ));
    }
    if file.vantage_id.is_some() && file.vantage_key.is_none() {
        return needs("vantage_id", "vantage_key");
    }
    if file.vantage_key.is_some() && file.vantage_id.is_none() {
        return needs("vantage_key", "vantage_id");
    }
    if file.group.is_some() && file.key_file.is_none() {
        return needs("group", "key_file");
    }
    if !file.metrics_host.is_empty() && file.metrics.is_none() {
        return needs("metrics_host", "metrics");
    }
    let id = file.vantage_id.map(|id| vantage_id(&id.to_string())).transpose();
    let run = Run {
        listen: file.listen,
        key_file: file.key_file,
        key: None,
        first_duration: file.first_duration,
        max_duration: file.max_duration,
        allow_prefix: file.allow_prefix,
        vantage_id: id.map_err(|problem| Mistake::of_key(text, "vantage_id", problem))?,
        vantage_key: file.vantage_key,
        group: file.group,
        probe_from: file.probe_from,
    };
    Ok((run, Metrics::new(file.metrics, file.metrics_host)))
}

#[cfg(test)]
mod tests;
