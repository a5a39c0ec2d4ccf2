//! How long a page takes if its server's address must be looked up first: the experiments of the thesis' Figure 7.1,
//! with the thesis' own form of first flights in lookups and with that of `docs/spec/dns-carriage.md`, in virtual
//! time.

mod client;
mod names;
mod nodes;
mod plot;
mod report;
#[cfg(test)]
mod tests;
mod thesis;
mod world;

use clap::Args;
use nodes::Nodes;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use world::World;

/// Options of `lookup`.
#[derive(Debug, Args)]
pub struct Lookup {
    /// Chooses where the nodes are.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Size of the page, bytes: the thesis' 11.18 KB.
    #[arg(long, default_value_t = 11_448)]
    size: usize,
    /// Extra round trips of the resolver for a name of several labels, as it asks for them one by one: 0 in 2012, 1 to
    /// 4 with today's resolvers (docs/dns-resolvers.md).
    #[arg(long, default_value_t = 0)]
    label_by_label: u32,
    /// Write the distributions into this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print every measurement as JSON.
    #[arg(long)]
    json: bool,
}

/// Where the name server is, and what the resolver has cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// The address is in the resolver's cache.
    Cached,
    /// The address is not cached, and the name server is at the server's site.
    Near,
    /// The address is not cached, and the name server is at a random node.
    Far,
}

impl Case {
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

impl fmt::Display for Case {
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
pub enum Way {
    /// Lookup, then handshake, then request.
    Today,
    /// Lookup, then the request in the SYN with a cookie.
    FastOpen,
    /// Lookup, then the request in the SYN with a certificate.
    Asap,
    /// The request inside the lookup, in the thesis' form: one name of several labels, in plain text, TCP on IP.
    Thesis,
    /// The request inside the lookup: sealed, in fragments, TCP in UDP. The direct copy is sent when the address
    /// arrives.
    Carriage,
}

impl Way {
    const ALL: [Self; 5] = [Self::Today, Self::FastOpen, Self::Asap, Self::Thesis, Self::Carriage];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Today => "lookup, handshake, request",
            Self::FastOpen => "lookup + Fast Open",
            Self::Asap => "lookup + ASAP in the SYN",
            Self::Thesis => "ASAP inside the lookup, thesis' form",
            Self::Carriage => "ASAP inside the lookup",
        }
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
pub struct Measured {
    pub way: Way,
    pub first_byte: Duration,
    pub total: Duration,
    /// Whether the answer by the lookup came first, if there are two ways.
    pub by_lookup: bool,
    /// How often the server executed the request.
    pub executed: u32,
}

/// Selects a time of a page.
pub type Time = fn(&Measured) -> Duration;
pub const FIRST_BYTE: Time = |page| page.first_byte;
pub const WHOLE: Time = |page| page.total;

/// One experiment: all ways with the same distances.
#[derive(Debug)]
pub struct Trial {
    pub case: Case,
    pub distances: Distances,
    pub pages: Vec<Measured>,
}

impl Trial {
    fn of(&self, way: Way) -> Option<&Measured> {
        self.pages.iter().find(|page| page.way == way)
    }

    /// The time of a page by `way`, divided by the time of today's way (the thesis' "latency savings ratio").
    fn ratio(&self, way: Way, time: Time) -> Option<f64> {
        Some(time(self.of(way)?).div_duration_f64(time(self.of(Way::Today)?)))
    }
}

/// Runs the experiments.
pub fn run(options: &Lookup) -> Result<String, String> {
    let nodes = Nodes::new(options.seed);
    let mut trials = Vec::new();
    for case in Case::ALL {
        for distances in nodes.pairs(case, options.seed) {
            trials.push(trial(case, distances, options)?);
        }
    }
    if let Some(path) = &options.plot {
        let svg = plot::svg(&trials)?;
        std::fs::write(path, svg).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    if options.json {
        return Ok(report::json(&trials, options));
    }
    Ok(report::table(&trials, options))
}

/// All ways in one experiment.
fn trial(case: Case, distances: Distances, options: &Lookup) -> Result<Trial, String> {
    let pages = Way::ALL.map(|way| {
        let mut world = World::new(case, distances, options.size, options.label_by_label);
        world.fetch(way).ok_or_else(|| format!("no page by {} over {distances:?}", way.as_str()))
    });
    Ok(Trial { case, distances, pages: pages.into_iter().collect::<Result<_, _>>()? })
}
