//! `firstflight cache`: shows or empties a cache file.

use crate::error::Error;
use crate::output;
use data_encoding::HEXLOWER;
use firstflight::credential::NetworkId;
use firstflight::{CacheContent, CachedServer, CredentialCache};
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Show a cache, or empty it
///
/// `get --cache FILE` stores there what it learns on each network: cookies, round-trip times, segment sizes and failures of
/// servers, lost races, closed ports, pauses of UDP, what servers publish, and what resolvers do with requests in lookups.
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
    /// Show its content: the servers, the most recently used one last, and then the rest
    List {
        /// The cache
        file: PathBuf,
        /// Print one JSON object for each entry
        #[arg(long)]
        json: bool,
        /// Show the cookies. Anyone who has one can send data in the name of your address
        #[arg(long)]
        reveal: bool,
    },
    /// Forget everything, or a server
    Flush {
        /// The cache
        file: PathBuf,
        /// Only what is known of this address, on every network
        #[arg(long, value_name = "IP")]
        server: Option<IpAddr>,
    },
}

/// Runs the command.
pub fn run(args: Args) -> Result<(), Error> {
    match args.action {
        Action::List { file, json, reveal } => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let (content, now) =
                (CredentialCache::read_all(&file).map_err(Error::Cache)?, now.as_millis() as u64);
            for server in &content.servers {
                let row = Row::of(server, now, reveal);
                if json { output::json(&row) } else { output::line(&row) }
            }
            for row in others(&content, now) {
                if json { output::json(&row) } else { output::line(&row) }
            }
        }
        Action::Flush { file, server } => {
            // A file that is missing or is no cache is refused.
            CredentialCache::read_all(&file).map_err(Error::Cache)?;
            let (mut forgotten, mut kept) = (0, 0);
            CredentialCache::update_all(&file, |content| {
                let before = content.len();
                content.retain(|_, known| server.is_some_and(|ip| Some(ip) != known));
                (forgotten, kept) = (before - content.len(), content.len());
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

/// An entry that is not about a server's cookies.
#[derive(Serialize)]
struct Other {
    kind: &'static str,
    network: String,
    /// What it is about.
    of: String,
    /// Seconds for which it counts; 0 if it counts no more, or counts only together with the next one.
    left_s: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<String>,
}

/// What the cache holds apart from the servers.
fn others(content: &CacheContent, now: u64) -> impl Iterator<Item = Other> {
    let row = move |kind, network: &NetworkId, of: String, until: u64| Other {
        kind,
        network: HEXLOWER.encode(&network.0),
        of,
        left_s: until.saturating_sub(now).div_ceil(1000),
        parameter: None,
    };
    let races = content.lost_races.iter().map(move |lost| {
        let by = lost.udp_port.map(|port| format!(" in UDP port {port}")).unwrap_or_default();
        row("lost race", &lost.network, format!("{}{by}", lost.server), lost.until())
    });
    let ports = content.closed_ports.iter();
    let ports =
        ports.map(move |port| row("closed port", &port.network, port.server.to_string(), port.until()));
    let pauses = content.udp_pauses.iter();
    let pauses = pauses.map(move |pause| row("no UDP", &pause.network, "all servers".into(), pause.until));
    let records = content.records.iter().map(move |record| Other {
        parameter: Some(HEXLOWER.encode(&record.parameter)),
        ..row("record", &record.network, format!("{}:{}", record.name, record.port), record.until)
    });
    let resolvers = content.resolvers.iter().map(move |one| {
        let of = format!("{} with {} strikes", one.resolver, one.strikes);
        row("resolver", &one.network, of, one.until)
    });
    let unreachable = content.unreachable.iter();
    let unreachable =
        unreachable.map(move |one| row("unreachable", &one.network, "unknown servers".into(), one.until));
    races.chain(ports).chain(pauses).chain(records).chain(resolvers).chain(unreachable)
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = self.network.get(..8).unwrap_or_default();
        write!(f, "{} on {network}: {}, {} s left", self.of, self.kind, self.left_s)
    }
}
