//! Where graphs come from: a random family, or a file as CAIDA's AS relationships. And where verifiers are placed in them.

use super::dice::Dice;
use super::graph::{Family, Graph, Node};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest file, bytes.
const LARGEST_FILE: u64 = 256 << 20;
/// Most and fewest nodes of a file's largest component.
const NODES: std::ops::RangeInclusive<usize> = 16..=200_000;

/// The value of `--graph`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Family(Family),
    File(PathBuf),
}

impl Source {
    /// A family of this name, or a file.
    pub fn parse(text: &str) -> Result<Self, String> {
        match Family::from_str(text, true) {
            Ok(family) => Ok(Self::Family(family)),
            Err(_) if Path::new(text).exists() => Ok(Self::File(text.into())),
            Err(_) => Err("neither a file nor erdos-renyi, preferential, geometric or tree".into()),
        }
    }
}

/// A graph of a file, with the names of its nodes.
#[derive(Debug)]
pub struct MeasuredGraph {
    name: String,
    graph: Graph,
    names: Vec<String>,
}

impl MeasuredGraph {
    /// Reads links, one a line: two names with `|`, `,` or spaces between, as `1|11537|0`. What follows is not used, and
    /// lines that begin with `#` are not read. Nodes outside the largest component are left out.
    /// Errors: one line that says what is wrong with the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |what: String| format!("{}: {what}", path.display());
        let len = fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if len > LARGEST_FILE {
            return Err(wrong(format!("more than {} MB", LARGEST_FILE >> 20)));
        }
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self::parse(&text, name.chars().take(16).collect()).map_err(wrong)
    }

    pub(super) fn parse(text: &str, name: String) -> Result<Self, String> {
        let mut numbers: BTreeMap<&str, Node> = BTreeMap::new();
        let mut links = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut ends = line.split(['|', ',', ' ', '\t']).filter(|field| !field.is_empty());
            let (Some(a), Some(b)) = (ends.next(), ends.next()) else {
                return Err(format!("line {number}: not a link, as 1|11537|0"));
            };
            let [a, b] = [a, b].map(|name| {
                let count = numbers.len() as Node;
                *numbers.entry(name).or_insert(count)
            });
            links.push((a, b));
        }
        let mut names = vec![String::new(); numbers.len()];
        for (name, number) in numbers {
            names[number as usize] = name.to_owned();
        }
        let (graph, kept) = Graph::new(names.len(), &links).largest_component();
        if !NODES.contains(&graph.nodes()) {
            let (least, most) = (NODES.start(), NODES.end());
            return Err(format!("{} connected nodes, and not from {least} to {most}", graph.nodes()));
        }
        let names = kept.into_iter().map(|old| std::mem::take(&mut names[old as usize])).collect();
        Ok(Self { name, graph, names })
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    fn node(&self, name: &str) -> Result<Node, String> {
        let name = name.trim();
        let same = |other: &String| other == name || name.strip_prefix("AS") == Some(other);
        let found = self.names.iter().position(same);
        found.map(|at| at as Node).ok_or_else(|| format!("--place: {name:?} is not a node of the graph"))
    }
}

/// A graph to examine.
#[derive(Debug, Clone)]
pub enum Topology {
    Random(Family),
    Measured(Arc<MeasuredGraph>),
}

impl Topology {
    /// Its name in tables.
    pub fn name(&self) -> &str {
        match self {
            Self::Random(family) => family.name(),
            Self::Measured(measured) => &measured.name,
        }
    }

    /// The graph; a random one has at most `nodes` nodes.
    pub fn graph(&self, nodes: usize, seed: u64) -> Graph {
        match self {
            Self::Random(family) => family.graph(nodes, seed),
            Self::Measured(measured) => measured.graph.clone(),
        }
    }
}

/// Where the verifiers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifierPlacement {
    /// At any nodes, as in the theorem. Two can be at one node.
    Random,
    /// At the nodes with the most links, in this order.
    Hubs,
    /// At random nodes with at most as many links as half of the nodes have.
    Edge,
    /// At these nodes, in this order.
    At(Vec<Node>),
}

impl VerifierPlacement {
    /// The value of `--place`. Names are those of the file's nodes.
    pub fn parse(text: &str, file: Option<&MeasuredGraph>) -> Result<Self, String> {
        match (text, file) {
            ("random", _) => Ok(Self::Random),
            ("hubs", _) => Ok(Self::Hubs),
            ("edge", _) => Ok(Self::Edge),
            (_, Some(file)) => {
                text.split(',').map(|name| file.node(name)).collect::<Result<_, _>>().map(Self::At)
            }
            (_, None) => {
                Err("--place: random, hubs or edge; or nodes of the file of --graph, with commas".into())
            }
        }
    }

    /// Whether all placements are alike.
    pub fn is_fixed(&self) -> bool {
        matches!(self, Self::Hubs | Self::At(_))
    }

    /// Most verifiers that can be placed.
    pub fn most(&self) -> usize {
        match self {
            Self::At(nodes) => nodes.len(),
            _ => usize::MAX,
        }
    }

    /// Places `count` verifiers.
    pub fn verifiers(&self, graph: &Graph, count: usize, dice: &mut Dice) -> Vec<Node> {
        let links = |node: &Node| graph.neighbours(*node).len();
        let mut nodes: Vec<Node> = (0..graph.nodes() as Node).collect();
        match self {
            // The draws are independent, as in the theorem.
            Self::Random => (0..count).map(|_| dice.below(graph.nodes()) as Node).collect(),
            Self::Hubs => {
                nodes.sort_by_key(|node| (std::cmp::Reverse(links(node)), *node));
                nodes.truncate(count);
                nodes
            }
            Self::Edge => {
                let mut all: Vec<usize> = nodes.iter().map(links).collect();
                all.sort_unstable();
                let half = all.get(all.len() / 2).copied().unwrap_or_default();
                nodes.retain(|node| links(node) <= half);
                (0..count).filter_map(|_| nodes.get(dice.below(nodes.len())).copied()).collect()
            }
            Self::At(places) => places.iter().copied().take(count).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
