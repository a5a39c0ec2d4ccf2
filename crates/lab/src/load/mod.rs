//! The server's load with and without Fast Open, as in section 6.2 of the Fast Open paper.

pub mod client;
mod cookies;
pub mod flood;
mod plot;
mod report;
mod server;
mod site;

use crate::bench::progress;
use clap::{Args, ValueEnum};
use client::ClientView;
use flood::Flood;
use server::Server;
use site::LoadSite;
use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A server's rate and CPU time with and without Fast Open, as in the Fast Open paper (section 6.2 and Figure 6).
///
/// Transactions a second in a closed loop with one request outstanding, whose response is one packet; and the server's
/// CPU time at constant rates, for a page of 5 KB; and between the two, the CPU time of both ends with many requests
/// outstanding. HTTP/1.0, one connection for each request, two network namespaces.
/// Client and server have a processor each, if there are two. Needs root, iproute2 and util-linux.
#[derive(Debug, Args)]
pub struct Load {
    /// Only these servers, with commas between them [default: all but serve-xdp-2]
    #[arg(long, value_name = "SERVER", value_delimiter = ',')]
    servers: Vec<Kind>,
    /// Requests that are outstanding in the second table
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=4096))]
    in_flight: u32,
    /// Requests a second, several numbers with commas [default: 500,1000,2000,3000,4000,5000, with --quick 200]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rates: Vec<u32>,
    /// Rounds; medians are taken over them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=1000))]
    rounds: u32,
    /// Duration of each measurement [default: 3s, with --quick 200ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Round-trip time of an emulated wire between client and server, without serve-xdp; 0 joins them by a veth pair
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = round_trip)]
    rtt: Duration,
    /// Addresses of the client, which take turns. With one, ports come again within a minute, and meet what the server remembers of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=100))]
    sources: u8,
    /// In place of all this: honest requests at a constant rate beside a flood of SYNs, without data, with forged cookies, and with
    /// valid ones
    #[arg(long)]
    flood: bool,
    /// By how much the flood's priority is lower than the honest client's (nice); less on a machine with other work
    #[arg(long, value_name = "N", default_value_t = 19, requires = "flood", value_parser = clap::value_parser!(u8).range(0..=19))]
    flood_nice: u8,
    /// Initial window of the servers, segments; the paper's kernel had 3 [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    initcwnd: Option<u32>,
    /// The firstflight command [default: the one beside this command]
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
    /// Write the CPU time over the rate (Figure 6) as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Short measurements: for a first look
    #[arg(long)]
    quick: bool,
}

fn round_trip(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        text => humantime::parse_duration(text).map_err(|error| error.to_string()),
    }
}

/// A server program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The gateway with a directory, as `firstflight serve`, on the kernel's TCP.
    Serve,
    /// The same on a TUN device: the engine.
    ServeTun,
    /// The same on a network card: the engine beside the kernel, on a veth pair of its own.
    ServeXdp,
    /// The same on a card with two queues, with two threads and both processors.
    #[value(name = "serve-xdp-2")]
    ServeXdpTwo,
    /// nginx.
    Nginx,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Serve, Self::ServeTun, Self::ServeXdp, Self::ServeXdpTwo, Self::Nginx];

    /// The name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::ServeTun => "serve-tun",
            Self::ServeXdp => "serve-xdp",
            Self::ServeXdpTwo => "serve-xdp-2",
            Self::Nginx => "nginx",
        }
    }

    /// Receive queues of its network card, if it has one.
    const fn queues(self) -> Option<u32> {
        match self {
            Self::ServeXdp => Some(1),
            Self::ServeXdpTwo => Some(2),
            Self::Serve | Self::ServeTun | Self::Nginx => None,
        }
    }

    /// Whether the kernel's TCP serves.
    const fn is_kernel(self) -> bool {
        matches!(self, Self::Serve | Self::Nginx)
    }
}

/// How the client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// This many requests outstanding.
    Closed(u32),
    /// Requests at a constant rate, a second.
    Open(u32),
    /// Requests at the rate [`BESIDE`], beside a flood.
    Flooded(Flood),
}

/// Honest requests a second beside a flood.
pub const BESIDE: u32 = 500;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The system refused a step.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// A program is missing. The caller is at fault.
    #[error("no {0}; {1}")]
    Missing(String, &'static str),
    /// A program did not do what it has to.
    #[error("{0}")]
    Wrong(String),
}

impl LoadError {
    fn system(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System(step, error)
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub seen: ClientView,
    /// CPU time of the server's process, µs.
    pub process_us: f64,
    /// Time for which the server's processor was busy, µs.
    pub core_us: Option<f64>,
    /// Time for which all processors were busy, less what they are without requests, µs.
    pub machine_us: Option<f64>,
    /// Packets of the flood a second.
    pub flood_per_s: Option<f64>,
}

/// A server with or without Fast Open, and a way to ask it.
#[derive(Debug)]
pub struct Row {
    pub kind: Kind,
    pub fast_open: bool,
    pub mode: Mode,
    pub samples: Vec<Sample>,
}

/// Everything that was measured.
#[derive(Debug)]
pub struct Results {
    pub rows: Vec<Row>,
    pub rounds: u32,
    pub time: Duration,
    pub rtt: Duration,
    pub initcwnd: Option<u32>,
    pub site: site::SiteFacts,
    pub cookies: cookies::Cookies,
    /// Servers that were not measured, and why.
    pub skipped: Vec<(Kind, &'static str)>,
}

/// Measures. Returns the text to print.
pub fn run(options: &Load) -> Result<String, LoadError> {
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text)
            .map_err(|error| LoadError::Wrong(format!("cannot write {}: {error}", path.display())))
    };
    if let Some(path) = &options.plot {
        // Fail now, not after minutes.
        write(path, "")?;
    }
    let results = measure(options)?;
    if let Some(path) = &options.plot {
        write(path, &plot::svg(&results.rows).map_err(LoadError::Wrong)?)?;
    }
    Ok(report::report(&results).print(options.json))
}

fn measure(options: &Load) -> Result<Results, LoadError> {
    let lab = env::current_exe().map_err(LoadError::system("find this program"))?;
    let bin = options.bin.clone().unwrap_or_else(|| lab.with_file_name("firstflight"));
    let time = options.time.unwrap_or(Duration::from_millis(if options.quick { 200 } else { 3_000 }));
    let mut kinds = match options.servers.as_slice() {
        [] => Kind::ALL.into_iter().filter(|kind| *kind != Kind::ServeXdpTwo).collect(),
        given => given.to_vec(),
    };
    let has_nginx = server::has_nginx();
    let why_not = |kind: Kind| match kind {
        Kind::Nginx if !has_nginx => Some("is not installed"),
        _ if kind.queues().is_some() && !options.rtt.is_zero() => Some("needs a veth pair"),
        _ => None,
    };
    let skipped = kinds.iter().filter_map(|kind| Some((*kind, why_not(*kind)?))).collect();
    kinds.retain(|kind| why_not(*kind).is_none());
    if !bin.is_file() && kinds.iter().any(|kind| *kind != Kind::Nginx) {
        let advice = "build it with `cargo build --profile dist -p firstflight-cli`, or name one with --bin";
        return Err(LoadError::Missing(bin.display().to_string(), advice));
    }
    let mut site = LoadSite::new(&lab, options.rtt, options.initcwnd, options.sources)?;
    site.flood_nice = options.flood_nice;
    let rates = match (options.rates.as_slice(), options.quick) {
        ([], true) => vec![200],
        ([], false) => vec![500, 1000, 2000, 3000, 4000, 5000],
        (given, _) => given.to_vec(),
    };
    let closed = [1, options.in_flight].map(Mode::Closed);
    let modes: Vec<Mode> = match options.flood {
        true => Flood::ALL.map(Mode::Flooded).into(),
        false => closed.into_iter().chain(rates.into_iter().map(Mode::Open)).collect(),
    };
    let ways = if options.flood { &[true][..] } else { &[false, true] };
    let mut servers = Vec::new();
    let mut rows = Vec::new();
    for kind in kinds {
        for &fast_open in ways {
            progress(&format!("{}: start", kind.name()));
            let server = Server::start(&site, (&lab, &bin), kind, fast_open, servers.len() as u8)?;
            // Gets the cookie, and shows that the server answers.
            server.ask(&site, &lab, Mode::Closed(1), Duration::from_millis(50))?;
            let rows_of =
                |mode: &Mode| (servers.len(), Row { kind, fast_open, mode: *mode, samples: Vec::new() });
            rows.extend(modes.iter().map(rows_of));
            servers.push(server);
        }
    }
    let facts = site.facts()?;
    let rounds = 1..=options.rounds;
    let turns: Vec<_> = match options.flood {
        // What a flood leaves behind does not end with it: first flights that wait for their ACK.
        true => modes.iter().flat_map(|mode| rounds.clone().map(move |round| (round, mode))).collect(),
        false => rounds.flat_map(|round| modes.iter().map(move |mode| (round, mode))).collect(),
    };
    for (round, mode) in turns {
        // Each server in turn at each rate, so that those that are compared are measured one after the other.
        for (server, row) in rows.iter_mut().filter(|(_, row)| row.mode == *mode) {
            progress(&format!("round {round} of {}: {} {:?}", options.rounds, row.kind.name(), row.mode));
            let server = servers.get(*server).ok_or(LoadError::Wrong("no server".to_owned()))?;
            row.samples.push(server.measure(&site, &lab, &facts, row.mode, time)?);
        }
    }
    progress("the cookies' share");
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    let cookies = cookies::Cookies::measure(&site, &lab, &servers, &rows, time)?;
    progress("");
    Ok(Results {
        rows,
        rounds: options.rounds,
        time,
        rtt: options.rtt,
        initcwnd: options.initcwnd,
        site: facts,
        cookies,
        skipped,
    })
}
