//! How many verifiers a client has to ask (ASAP thesis, §4.3 and Appendix A): the theorem as an experiment.

mod dice;
mod experiment;
mod graph;
mod outcome;
mod plan;
mod plot;
mod report;
mod route;
mod single;
mod target;
#[cfg(test)]
mod tests;
mod topology;

use crate::bench::progress;
use clap::Args;
use experiment::{Setting, measure};
use graph::Family;
use outcome::Outcome;
use route::Routing;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;
use topology::{MeasuredGraph, Source, Topology, VerifierPlacement};

/// How many verifiers are needed: what an attacker achieves who overhears some well-chosen nodes of a network.
///
/// Verifiers are at random nodes, all servers trust them, and a client has to ask all of them. The attacker knows
/// their positions and then chooses nodes to overhear. The theorem: with (k + 2) log2 n verifiers, every attackable
/// destination is also highly attackable in TCP.
#[derive(Debug, Args)]
pub struct Verifiers {
    /// Nodes of each graph; nodes outside its largest component are left out
    #[arg(long, value_name = "N", default_value_t = 75_000, value_parser = clap::value_parser!(u32).range(16..=100_000))]
    nodes: u32,
    /// Nodes that the attacker overhears; several numbers with commas
    #[arg(long, value_name = "K", default_value = "1,4", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=8))]
    eavesdroppers: Vec<u8>,
    /// Only this family of graphs: erdos-renyi, preferential, geometric or tree; or the graph of a file with a link a line,
    /// as CAIDA's AS relationships (1|11537|0). Its paths have no regard to who is whose customer
    #[arg(long, value_name = "FAMILY|FILE", value_parser = Source::parse)]
    graph: Option<Source>,
    /// Where the verifiers are: random; hubs, at the nodes with the most links; edge, at random nodes with few links; or
    /// nodes of the file, with commas
    #[arg(long, value_name = "WHERE", default_value = "random")]
    place: String,
    /// Only these paths
    #[arg(long, value_enum)]
    paths: Option<Routing>,
    /// Number of random placements of the verifiers
    #[arg(long, value_name = "P", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    placements: u32,
    /// Seed of graphs, paths, placements and attackers
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Graphs of at most 5,000 nodes and fewer samples: seconds
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw a plot into this file (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifiersError {
    /// The plot's file cannot be written.
    #[error("cannot write {0}: {1}; give --plot another file")]
    Write(PathBuf, std::io::Error),
    /// The plot cannot be drawn.
    #[error("the plot cannot be drawn: {0}")]
    Draw(String),
    /// The graph's file or the places are wrong.
    #[error("{0}")]
    Input(String),
}

impl Verifiers {
    fn setting(&self, place: VerifierPlacement) -> Setting {
        let mut eavesdroppers: Vec<usize> = self.eavesdroppers.iter().copied().map(usize::from).collect();
        eavesdroppers.sort_unstable();
        eavesdroppers.dedup();
        let nodes = self.nodes as usize;
        let all = Setting {
            seed: self.seed,
            nodes,
            eavesdroppers,
            placements: if place.is_fixed() { 1 } else { self.placements },
            place,
            destinations: 5000,
            sources: 500,
            known_destinations: 250,
            known_sources: 64,
            random: 8,
        };
        if !self.quick {
            return all;
        }
        Setting {
            nodes: nodes.min(5000),
            destinations: 1000,
            sources: 100,
            known_destinations: 100,
            known_sources: 32,
            ..all
        }
    }

    /// The graphs and paths that the options select.
    fn cases(&self, file: Option<&Arc<MeasuredGraph>>) -> Vec<(Topology, Routing)> {
        if let Some(file) = file {
            let wanted = |routing: &Routing| self.paths.is_none_or(|only| only == *routing);
            let all = [Routing::Shortest, Routing::Arbitrary].into_iter().filter(wanted);
            return all.map(|routing| (Topology::Measured(Arc::clone(file)), routing)).collect();
        }
        let families = [Family::ErdosRenyi, Family::Preferential, Family::Geometric, Family::Tree];
        let all = families
            .into_iter()
            .flat_map(|family| [Routing::Shortest, Routing::Arbitrary].map(|routing| (family, routing)));
        let wanted = |&(family, routing): &(Family, Routing)| {
            self.graph.as_ref().is_none_or(|only| *only == Source::Family(family))
                && match family {
                    // There is only one path between two nodes of a tree.
                    Family::Tree => routing == Routing::Shortest,
                    _ => self.paths.is_none_or(|only| only == routing),
                }
        };
        all.filter(wanted).map(|(family, routing)| (Topology::Random(family), routing)).collect()
    }
}

/// Runs the experiments. Returns the text to print.
pub fn run(options: &Verifiers) -> Result<String, VerifiersError> {
    if let Some(file) = &options.plot {
        // Check the file before the work starts.
        let opened = OpenOptions::new().create(true).append(true).open(file);
        opened.map_err(|error| VerifiersError::Write(file.clone(), error))?;
    }
    let file = match &options.graph {
        Some(Source::File(path)) => Some(Arc::new(MeasuredGraph::read(path).map_err(VerifiersError::Input)?)),
        _ => None,
    };
    let place = VerifierPlacement::parse(&options.place, file.as_deref()).map_err(VerifiersError::Input)?;
    let mut setting = options.setting(place);
    if let Some(file) = &file {
        setting.nodes = file.nodes();
    }
    let measured = |(topology, routing)| measure(&setting, &topology, routing, &mut |text| progress(text));
    let outcomes: Vec<Outcome> = options.cases(file.as_ref()).into_iter().map(measured).collect();
    progress("");
    if let Some(file) = &options.plot {
        let svg = plot::svg(&outcomes).map_err(VerifiersError::Draw)?;
        std::fs::write(file, svg).map_err(|error| VerifiersError::Write(file.clone(), error))?;
    }
    Ok(if options.json { report::json(&setting, &outcomes) } else { report::text(&setting, &outcomes) })
}
