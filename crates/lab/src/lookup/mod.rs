//! How long a page takes if its server's address must be looked up first: the experiments of the thesis' Figure 7.1,
//! with the thesis' own form of first flights in lookups and with that of `docs/spec/dns-path.md`, in virtual
//! time.

mod client;
mod matrix;
pub mod names;
mod nodes;
mod plot;
mod report;
mod rough;
#[cfg(test)]
mod tests;
mod thesis;
pub mod world;

use crate::bench::progress;
use clap::{Args, ValueEnum};
use firstflight_tcp::congestion::InitialWindow;
use matrix::Matrix;
use nodes::Nodes;
use rough::Rough;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use world::{Setting, World};

/// Options of `lookup`.
#[derive(Debug, Args)]
pub struct Lookup {
    /// Chooses where the nodes are, and what is lost and late
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Size of the page, bytes: the thesis' 11.18 KB
    #[arg(long, default_value_t = 11_448)]
    size: usize,
    /// The paths between the nodes
    #[arg(long, value_enum, default_value_t = Model::Plane)]
    model: Model,
    /// Measured round-trip times in place of a model's: a square matrix, lines of two nodes and a time, or CSV with
    /// columns as from, to and rtt. `--model internet` still adds losses and extra delays
    #[arg(long, value_name = "FILE")]
    rtts: Option<PathBuf>,
    /// Unit of the times in that file
    #[arg(long, value_enum, default_value_t = Unit::Ms, requires = "rtts")]
    rtt_unit: Unit,
    /// Number of nodes that are chosen from that file at random
    #[arg(long, value_name = "N", default_value_t = 24, requires = "rtts", value_parser = clap::value_parser!(u16).range(3..=200))]
    nodes: u16,
    /// Initial window of client and server, segments; like UDT: 16 packets, whatever this says
    #[arg(long, value_name = "SEGMENTS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    initial_window: u16,
    /// Mean extra delay of a packet each way, with `--model internet`
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = humantime::parse_duration)]
    jitter: Duration,
    /// Share of the packets that are lost each way, per cent, with `--model internet`
    #[arg(long, value_name = "PERCENT", default_value_t = 0.42)]
    loss: f64,
    /// What the resolver does with names that carry requests
    #[arg(long, value_enum, default_value_t = Resolving::Honest)]
    resolver: Resolving,
    /// A twentieth of the pairs: for a first look
    #[arg(long)]
    quick: bool,
    /// Write the distributions into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print every measurement as JSON
    #[arg(long)]
    json: bool,
}

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Unit {
    /// Milliseconds
    Ms,
    /// Microseconds
    Us,
}

/// The paths between the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// Points on a plane: nothing is lost or late, and hardly a detour is shorter than the direct path
    Plane,
    /// Detours that are shorter than the direct path, extra delays and losses, as published for PlanetLab and others
    Internet,
}

/// What the resolver does with names that carry requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Resolving {
    /// It asks the name server for them
    Honest,
    /// It takes the request out and resolves the rest (the thesis' 5.2), so no name server sees the request
    Strips,
    /// It replaces octets that host names do not have
    Rewrites,
}

/// Where the name server is, and what the resolver has cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolverCase {
    /// The address is in the resolver's cache.
    Cached,
    /// The address is not cached, and the name server is at the server's site.
    Near,
    /// The address is not cached, and the name server is at a random node.
    Far,
}

impl ResolverCase {
    const ALL: [Self; 3] = [Self::Cached, Self::Near, Self::Far];

    /// The letter in the thesis' figure.
    const fn letter(self) -> char {
        match self {
            Self::Cached => 'a',
            Self::Near => 'b',
            Self::Far => 'c',
        }
    }
}

impl fmt::Display for ResolverCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cached => "the name cached at the resolver",
            Self::Near => "not cached, name server near the server",
            Self::Far => "not cached, name server anywhere",
        })
    }
}

/// How the page is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestWay {
    /// Lookup, then handshake, then request.
    Today,
    /// Lookup, then in UDP a round trip for a cookie, one for the handshake, then the request; 16 packets at first.
    UdtLike,
    /// Lookup, then the request in the SYN with a cookie.
    FastOpen,
    /// Lookup, then the request in the SYN with a certificate.
    Asap,
    /// The request inside the lookup, in the thesis' form: one name of several labels, in plain text, TCP on IP. The
    /// resolver needs this number of additional round trips for it.
    Thesis(u32),
    /// The request inside the lookup: sealed, in fragments, TCP in UDP. The direct copy is sent when the address
    /// arrives.
    DnsPath,
    /// Like `DnsPath`, but the resolver does not know the zone's name server yet: one round trip more.
    NewZone,
    /// Like `DnsPath`, with the name server of the zone in the server itself (the thesis' SDNS, 5.3).
    Sdns,
    /// Like `DnsPath`, for a request that is too long: its first line is inside the lookup and the rest follows. The
    /// server acts on the first line (5.1).
    FirstLine,
}

impl RequestWay {
    const ALL: [Self; 12] = [
        Self::Today,
        Self::UdtLike,
        Self::FastOpen,
        Self::Asap,
        Self::Thesis(0),
        Self::Thesis(1),
        Self::Thesis(3),
        Self::Thesis(4),
        Self::DnsPath,
        Self::NewZone,
        Self::Sdns,
        Self::FirstLine,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Today => "lookup, handshake, request",
            Self::UdtLike => "lookup, then like UDT",
            Self::FastOpen => "lookup + Fast Open",
            Self::Asap => "lookup + ASAP in the SYN",
            Self::Thesis(0) => "ASAP inside the lookup, thesis' form",
            Self::Thesis(1) => "…, 1 more round trip of the resolver",
            Self::Thesis(3) => "…, 3 more round trips of the resolver",
            Self::Thesis(_) => "…, 4 more round trips of the resolver",
            Self::DnsPath => "ASAP inside the lookup",
            Self::NewZone => "…, the zone new to the resolver",
            Self::Sdns => "…, name server in the server (SDNS)",
            Self::FirstLine => "…, only the first line of the request",
        }
    }

    /// Whether there are two copies of the first flight: in the lookup, and on the direct way.
    const fn inside(self) -> bool {
        !matches!(self, Self::Today | Self::UdtLike | Self::FastOpen | Self::Asap)
    }
}

/// Round-trip times of one experiment.
#[derive(Debug, Clone, Copy)]
pub struct Distances {
    /// Between client and server.
    pub server: Duration,
    /// Between the client and its resolver, which are at one site.
    pub resolver: Duration,
    /// Between resolver and name server.
    pub front: Duration,
    /// Between name server and server.
    pub relay: Duration,
}

/// The measurements of one page.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredPage {
    pub way: RequestWay,
    pub first_byte: Duration,
    pub total: Duration,
    /// Whether the answer by the lookup came first, if there are two ways.
    pub by_lookup: bool,
    /// How often the server executed the request.
    pub executed: u32,
}

/// Selects a time of a page.
pub type Time = fn(&MeasuredPage) -> Duration;
pub const FIRST_BYTE: Time = |page| page.first_byte;
pub const WHOLE: Time = |page| page.total;

/// One experiment: all ways with the same distances.
#[derive(Debug)]
pub struct Trial {
    pub case: ResolverCase,
    pub distances: Distances,
    pub pages: Vec<MeasuredPage>,
}

impl Trial {
    fn of(&self, way: RequestWay) -> Option<&MeasuredPage> {
        self.pages.iter().find(|page| page.way == way)
    }

    /// The time of a page by `way`, divided by the time of today's way (the thesis' "latency savings ratio").
    fn ratio(&self, way: RequestWay, time: Time) -> Option<f64> {
        Some(time(self.of(way)?).div_duration_f64(time(self.of(RequestWay::Today)?)))
    }
}

impl Lookup {
    fn nodes(&self) -> Result<Nodes, String> {
        let Some(path) = &self.rtts else { return Ok(Nodes::new(self.seed, self.model)) };
        let matrix = Matrix::read(path, if self.rtt_unit == Unit::Us { 1e-3 } else { 1.0 })?;
        let wrong = |what| format!("{}: {what}", path.display());
        let (count, rtts) = matrix.choose(self.nodes.into(), self.seed).map_err(wrong)?;
        progress(&format!("{count} of {} nodes of {}", matrix.nodes(), path.display()));
        Ok(Nodes::measured(count, rtts))
    }

    fn window(&self) -> InitialWindow {
        match self.initial_window {
            10 => InitialWindow::Standard,
            segments => InitialWindow::segments(segments).unwrap_or_default(),
        }
    }
}

/// Runs the experiments.
pub fn run(options: &Lookup) -> Result<String, String> {
    if !(0.0..=50.0).contains(&options.loss) || options.jitter > Duration::from_secs(1) {
        return Err("--loss is a percentage from 0 to 50, and --jitter at most 1s".into());
    }
    let nodes = options.nodes()?;
    let mut trials = Vec::new();
    for case in ResolverCase::ALL {
        let pairs = nodes.pairs(case, options.seed);
        let step = if options.quick { 20 } else { 1 };
        let all = pairs.len().div_ceil(step);
        for (n, distances) in (0..).zip(pairs.into_iter().step_by(step)) {
            if n % 50 == 0 {
                progress(&format!("({}) pair {n} of {all}", case.letter()));
            }
            trials.push(trial(case, distances, n, options)?);
        }
    }
    progress("");
    if let Some(path) = &options.plot {
        let svg = plot::svg(&trials)?;
        std::fs::write(path, svg).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    if options.json {
        return Ok(report::json(&trials, options));
    }
    Ok(report::table(&trials, options, &nodes))
}

/// All ways in one experiment.
fn trial(case: ResolverCase, distances: Distances, number: u64, options: &Lookup) -> Result<Trial, String> {
    let pages = RequestWay::ALL.map(|way| {
        let mut setting = Setting::new(case, distances, options.size, way);
        setting.resolving = options.resolver;
        setting.window = options.window();
        if options.model == Model::Internet {
            let seed = options.seed.wrapping_mul(1_000_003) ^ number << 2 ^ case as u64;
            setting.rough = Some(Rough::new(seed, options.jitter, options.loss / 100.0));
        }
        let mut world = World::new(setting);
        world.fetch().ok_or_else(|| format!("no page by {} over {distances:?}", way.as_str()))
    });
    Ok(Trial { case, distances, pages: pages.into_iter().collect::<Result<_, _>>()? })
}
