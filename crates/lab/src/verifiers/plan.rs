//! An attacker that knows the verifiers' positions and chooses one node after the other (greedy).

use super::graph::Node;
use super::route::Paths;

/// Paths of several sources to a few destinations, as lists of nodes.
#[derive(Debug)]
pub struct Sample {
    destinations: Vec<Node>,
    /// Where the path number `source * destinations + destination` begins.
    offsets: Vec<usize>,
    nodes: Vec<Node>,
}

impl Sample {
    /// Starts without sources.
    pub fn new(destinations: &[Node]) -> Self {
        Self { destinations: destinations.to_vec(), offsets: vec![0], nodes: Vec::new() }
    }

    /// Adds a source.
    pub fn push(&mut self, paths: &Paths) {
        for &destination in &self.destinations {
            self.nodes.extend(paths.to(destination));
            self.offsets.push(self.nodes.len());
        }
    }

    fn sources(&self) -> usize {
        (self.offsets.len() - 1) / self.destinations.len().max(1)
    }

    fn path(&self, source: usize, destination: usize) -> &[Node] {
        let at = source * self.destinations.len() + destination;
        &self.nodes[self.offsets[at]..self.offsets[at + 1]]
    }
}

/// What the attacker maximises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Destinations that are attackable in ASAP.
    Attackable,
    /// Destinations that are attackable in ASAP and not highly attackable in TCP.
    Excess,
    /// Destinations that are highly attackable in TCP.
    Tcp,
    /// Pairs of a source and a destination that are attackable in TCP.
    TcpPairs,
}

/// The value of a destination while only some of the verifiers' paths to it can be overheard. Without such a value,
/// all first nodes would look alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Credit {
    /// Proportional to the paths overheard. Finds nodes that many paths pass.
    Linear,
    /// Reduced by this factor for each missing path. A small factor looks further ahead. A large factor does not
    /// waste nodes on destinations that cannot be cut off.
    Falling(f64),
}

impl Credit {
    /// No value is the best for all graphs, so an attacker tries them all.
    pub const ALL: [Self; 3] = [Self::Linear, Self::Falling(2.0), Self::Falling(8.0)];
}

/// Everything that the attacker knows.
#[derive(Debug)]
pub struct Planner<'a> {
    /// The verifiers' paths, in the order in which the verifiers are asked.
    pub verifiers: &'a Sample,
    /// Paths of some sources.
    pub sources: &'a Sample,
    /// Nodes of the graph.
    pub nodes: usize,
}

/// Counts of paths to one destination.
#[derive(Debug, Clone, Copy, Default)]
struct PathCounts {
    verifiers: u16,
    sources: u16,
}

/// A greedy choice in progress.
struct Search<'a> {
    planner: &'a Planner<'a>,
    goal: Goal,
    credit: Credit,
    asked: usize,
    sampled: usize,
    heard: Vec<PathCounts>,
    /// Whether a path can be overheard, in the order of [`Sample::path`].
    verifier_heard: Vec<bool>,
    source_heard: Vec<bool>,
    gain: Vec<f64>,
    /// Paths to one destination that pass a node and cannot be overheard yet. Zero between destinations.
    more: Vec<PathCounts>,
}

impl Planner<'_> {
    /// Chooses at most `eavesdroppers` nodes against the first `asked` verifiers. Fewer if a further node does not
    /// help.
    pub fn choose(&self, goal: Goal, credit: Credit, asked: usize, eavesdroppers: usize) -> Vec<Node> {
        let asked =
            if matches!(goal, Goal::Tcp | Goal::TcpPairs) { 0 } else { asked.min(self.verifiers.sources()) };
        let sampled = if goal == Goal::Attackable { 0 } else { self.sources.sources() };
        let destinations = self.verifiers.destinations.len();
        let mut search = Search {
            planner: self,
            goal,
            credit,
            asked,
            sampled,
            heard: vec![PathCounts::default(); destinations],
            verifier_heard: vec![false; asked * destinations],
            source_heard: vec![false; sampled * destinations],
            gain: vec![0.0; self.nodes],
            more: vec![PathCounts::default(); self.nodes],
        };
        let mut chosen = Vec::new();
        while chosen.len() < eavesdroppers {
            let Some(node) = search.best() else { break };
            search.take(node);
            chosen.push(node);
        }
        chosen
    }
}

impl Search<'_> {
    fn value(&self, heard: PathCounts) -> f64 {
        let (verifiers, asked) = (f64::from(heard.verifiers), self.asked as f64);
        let (sources, sampled) = (f64::from(heard.sources), self.sampled as f64);
        let toward = match self.credit {
            Credit::Linear => verifiers / asked,
            Credit::Falling(factor) => factor.powf(verifiers - asked),
        };
        match self.goal {
            Goal::Attackable => toward,
            Goal::Excess if 2.0 * sources >= sampled => 0.0,
            Goal::Excess => toward,
            Goal::TcpPairs => sources / sampled,
            Goal::Tcp => (2.0 * sources / sampled).min(1.0),
        }
    }

    /// The node that adds most. If there are several, the first one.
    fn best(&mut self) -> Option<Node> {
        self.gain.fill(0.0);
        let mut touched: Vec<Node> = Vec::new();
        let destinations = self.heard.len();
        for destination in 0..destinations {
            let mut passed = |nodes: &[Node], one: PathCounts| {
                for &node in nodes {
                    let more = &mut self.more[node as usize];
                    if more.verifiers == 0 && more.sources == 0 {
                        touched.push(node);
                    }
                    more.verifiers += one.verifiers;
                    more.sources += one.sources;
                }
            };
            let one = PathCounts { verifiers: 1, sources: 0 };
            for source in (0..self.asked).filter(|at| !self.verifier_heard[at * destinations + destination]) {
                passed(self.planner.verifiers.path(source, destination), one);
            }
            let one = PathCounts { verifiers: 0, sources: 1 };
            for source in (0..self.sampled).filter(|at| !self.source_heard[at * destinations + destination]) {
                passed(self.planner.sources.path(source, destination), one);
            }
            let now = self.heard[destination];
            for node in touched.drain(..) {
                let more = std::mem::take(&mut self.more[node as usize]);
                let then = PathCounts {
                    verifiers: now.verifiers + more.verifiers,
                    sources: now.sources + more.sources,
                };
                self.gain[node as usize] += self.value(then) - self.value(now);
            }
        }
        let (mut best, mut most) = (None, 0.0);
        for (node, &gain) in self.gain.iter().enumerate() {
            if gain > most {
                (best, most) = (Some(node as Node), gain);
            }
        }
        best
    }

    fn take(&mut self, node: Node) {
        for destination in mark(self.planner.verifiers, &mut self.verifier_heard, node) {
            self.heard[destination].verifiers += 1;
        }
        for destination in mark(self.planner.sources, &mut self.source_heard, node) {
            self.heard[destination].sources += 1;
        }
    }
}

/// Marks the paths that `node` can overhear. Returns the destinations of those that were not marked before.
fn mark(sample: &Sample, heard: &mut [bool], node: Node) -> Vec<usize> {
    let destinations = sample.destinations.len();
    let mut new = Vec::new();
    for (at, heard) in heard.iter_mut().enumerate().filter(|(_, heard)| !**heard) {
        if sample.path(at / destinations, at % destinations).contains(&node) {
            *heard = true;
            new.push(at % destinations);
        }
    }
    new
}
