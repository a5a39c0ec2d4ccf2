//! `firstflight cache`: shows or empties a cache file.

use crate::error::Error;
use crate::output;
use data_encoding::HEXLOWER;
use firstflight::{CachedServer, CredentialCache};
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Show a cache of cookies, or empty it
///
/// `get --cache FILE` stores there what it learns about servers: cookies, round-trip times, segment sizes, failures.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight cache list cookies.json
  firstflight cache list cookies.json --json --reveal
  firstflight cache flush cookies.json --server 10.9.0.1")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Show its content, most recently used server last
    List {
        /// The cache
        file: PathBuf,
        /// Print one JSON object for each server
        #[arg(long)]
        json: bool,
        /// Show the cookies. Anyone who has one can send data in the name of your address
        #[arg(long)]
        reveal: bool,
    },
    /// Forget every server, or one
    Flush {
        /// The cache
        file: PathBuf,
        /// Only this server, on every network
        #[arg(long, value_name = "IP")]
        server: Option<IpAddr>,
    },
}

/// Runs the command.
pub fn run(args: Args) -> Result<(), Error> {
    match args.action {
        Action::List { file, json, reveal } => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            for server in &CredentialCache::read(&file).map_err(Error::Cache)? {
                let row = Row::of(server, now.as_millis() as u64, reveal);
                if json { output::json(&row) } else { output::line(&row) }
            }
        }
        Action::Flush { file, server } => {
            // A file that is missing or is no cache is refused.
            CredentialCache::read(&file).map_err(Error::Cache)?;
            let (mut forgotten, mut kept) = (0, 0);
            CredentialCache::update(&file, |servers| {
                let before = servers.len();
                servers.retain(|known| server.is_some_and(|ip| ip != known.server));
                (forgotten, kept) = (before - servers.len(), servers.len());
            })
            .map_err(Error::Cache)?;
            output::line(&format_args!("{forgotten} forgotten, {kept} kept"));
        }
    }
    Ok(())
}

/// One server. Unknown values are `null`.
#[derive(Serialize)]
struct Row {
    server: IpAddr,
    network: String,
    /// The number of cookies of this server.
    cookies: usize,
    /// The age of the newest cookie.
    cookie_age_s: Option<u64>,
    one_time: bool,
    rtt_ms: Option<f64>,
    mss: Option<u16>,
    failures: u32,
    /// Seconds for which the server is still avoided.
    avoided_s: Option<u64>,
    /// Whether a cookie is still requested while the server is avoided.
    asking: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revealed: Option<Vec<String>>,
}

impl Row {
    fn of(server: &CachedServer, now: u64, reveal: bool) -> Self {
        let avoided = server.avoided.as_ref().filter(|avoided| avoided.until > now);
        let revealed = || server.cookies.iter().map(|held| HEXLOWER.encode(held.cookie.as_bytes())).collect();
        Self {
            server: server.server,
            network: HEXLOWER.encode(&server.network.0),
            cookies: server.cookies.len(),
            cookie_age_s: server.cookies.first().map(|held| now.saturating_sub(held.granted) / 1000),
            one_time: server.one_time,
            rtt_ms: server.rtt.as_ref().map(|rtt| rtt.srtt_us as f64 / 1e3),
            mss: server.mss,
            failures: server.failures,
            avoided_s: avoided.map(|avoided| (avoided.until - now).div_ceil(1000)),
            asking: avoided.map(|avoided| avoided.asking),
            revealed: reveal.then(revealed),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: ", self.server, self.network.get(..8).unwrap_or_default())?;
        match (self.cookies, self.cookie_age_s) {
            (0, _) | (_, None) => write!(f, "no cookie")?,
            (1, Some(age)) => write!(f, "cookie {age} s old")?,
            (n, Some(age)) => write!(f, "{n} cookies, newest {age} s old")?,
        }
        if self.one_time {
            write!(f, ", one-time")?;
        }
        if let Some(rtt) = self.rtt_ms {
            write!(f, ", rtt {rtt:.1} ms")?;
        }
        if let Some(mss) = self.mss {
            write!(f, ", mss {mss} B")?;
        }
        if self.failures > 0 {
            write!(f, ", {} failures", self.failures)?;
        }
        match (self.avoided_s, self.asking) {
            (Some(left), Some(true)) => write!(f, ", no data for {left} s")?,
            (Some(left), _) => write!(f, ", avoided for {left} s")?,
            (None, _) => {}
        }
        for cookie in self.revealed.iter().flatten() {
            write!(f, "\n  {cookie}")?;
        }
        Ok(())
    }
}
