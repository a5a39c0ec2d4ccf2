//! `bench gateway`: the gateway as a reverse proxy, in turn with HAProxy and nginx in the same place.

mod load;
mod report;
mod testbed;

use super::{BenchError, progress};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use testbed::GatewayTestbed;

/// The gateway, HAProxy and nginx as reverse proxies of one nginx: requests for each second of the proxy's CPU time, in turn.
///
/// One thread each, without TLS and without logs, all on the kernel's TCP in one network namespace. The proxy has a processor of
/// its own, if there are two; clients and backend share another one. CPU time is user and system time of the proxy's process.
/// Needs root, iproute2, util-linux, nginx, wrk and h2load; without HAProxy it is left out.
#[derive(Debug, Args)]
pub struct Gateway {
    /// Rounds; medians are taken over them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Duration of each measurement, whole seconds [default: 3s, with --quick 1s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Only cases with this text in their name
    #[arg(short = 'k', value_name = "TEXT")]
    pattern: Option<String>,
    /// The firstflight command [default: the one beside this command]
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Short measurements: for a first look
    #[arg(long)]
    quick: bool,
}

/// A program that forwards requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proxy {
    Gateway,
    Haproxy,
    Nginx,
}

impl Proxy {
    const ALL: [Self; 3] = [Self::Gateway, Self::Haproxy, Self::Nginx];

    const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
        }
    }
}

/// How clients connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientWay {
    /// HTTP/1.1, 64 connections that are kept.
    Kept,
    /// HTTP/1.1, one connection for each request.
    Once,
    /// HTTP/2, four connections with 100 streams each.
    Streams,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GatewayCase {
    way: ClientWay,
    /// Name of the file.
    file: &'static str,
}

const SMALL: &str = "100B";
const LARGE: &str = "100KB";
/// The files, and their lengths in bytes.
const FILES: [(&str, usize); 2] = [(SMALL, 100), (LARGE, 100_000)];

impl GatewayCase {
    fn all() -> impl Iterator<Item = Self> {
        [ClientWay::Kept, ClientWay::Once, ClientWay::Streams]
            .into_iter()
            .flat_map(|way| [SMALL, LARGE].map(|file| Self { way, file }))
    }

    fn name(self) -> String {
        let way = match self.way {
            ClientWay::Kept => "HTTP/1.1 keep-alive",
            ClientWay::Once => "HTTP/1.1 one request a connection",
            ClientWay::Streams => "HTTP/2 100 streams",
        };
        let size = if self.file == SMALL { "100 B" } else { "100 KB" };
        format!("{way}, {size}")
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
struct Sample {
    requests: f64,
    /// Seconds of the load.
    seconds: f64,
    /// CPU time of the proxy, seconds.
    cpu: f64,
}

/// A case at a proxy.
#[derive(Debug)]
struct Row {
    case: GatewayCase,
    proxy: Proxy,
    samples: Vec<Sample>,
}

/// Measures and returns the report.
pub fn run(options: &Gateway) -> Result<String, BenchError> {
    let time = options.time.unwrap_or(Duration::from_secs(if options.quick { 1 } else { 3 }));
    // wrk measures whole seconds.
    let time = Duration::from_secs(time.as_secs().max(1));
    let wanted =
        |case: &GatewayCase| options.pattern.as_ref().is_none_or(|text| case.name().contains(text.as_str()));
    let cases: Vec<GatewayCase> = GatewayCase::all().filter(wanted).collect();
    if cases.is_empty() {
        return Err(BenchError::Needs(
            "a pattern that fits a case: keep-alive, connection, streams, 100 B, 100 KB",
        ));
    }
    let place = GatewayTestbed::make(options.bin.as_deref())?;
    let proxies: Vec<Proxy> = Proxy::ALL.into_iter().filter(|proxy| place.has(*proxy)).collect();
    let rows = cases
        .iter()
        .flat_map(|case| proxies.iter().map(|proxy| Row { case: *case, proxy: *proxy, samples: Vec::new() }));
    let mut rows: Vec<Row> = rows.collect();
    for round in 0..=options.rounds {
        for row in &mut rows {
            let (name, proxy) = (row.case.name(), row.proxy.name());
            progress(&format!("round {round} of {}: {name}, {proxy}", options.rounds));
            // The first round warms up.
            let sample = place.measure(row.proxy, row.case, if round == 0 { time / 4 } else { time })?;
            if round > 0 {
                row.samples.push(sample);
            }
        }
    }
    progress("");
    let facts = report::GatewayFacts { rounds: options.rounds, time, cores: place.cores() };
    Ok(report::report(&rows, facts).print(options.json))
}
