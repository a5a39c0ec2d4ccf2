//! An attacker who knows where the verifiers stand and chooses nodes one after the other (greedy).

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
    /// Of no source yet.
    pub fn new(destinations: &[Node]) -> Self {
        Self { destinations: destinations.to_vec(), offsets: vec![0], nodes: Vec::new() }
    }

    /// One source more.
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

/// What the attacker wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Many attackable destinations in ASAP.
    Attackable,
    /// Many that are attackable in ASAP and not highly attackable in TCP.
    Excess,
    /// Many that are highly attackable in TCP.
    Tcp,
    /// Many pairs of a source and a destination that are attackable in TCP.
    TcpPairs,
}

/// What a destination is worth on the way, when some of the verifiers' paths to it can be overheard but not all:
/// without any such value all first nodes look alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Credit {
    /// In proportion: finds nodes through which much goes.
    Linear,
    /// Less by this factor for each path that lacks. A small one sees further ahead, a large one wastes nothing on
    /// destinations that it cannot cut off.
    Falling(f64),
}

impl Credit {
    /// None is the best everywhere: an attacker tries them all.
    pub const ALL: [Self; 3] = [Self::Linear, Self::Falling(2.0), Self::Falling(8.0)];
}

/// All that the attacker knows.
#[derive(Debug)]
pub struct Planner<'a> {
    /// Paths of the verifiers, in the order in which they are asked.
    pub verifiers: &'a Sample,
    /// Paths of some sources.
    pub sources: &'a Sample,
    /// Nodes of the graph.
    pub nodes: usize,
}

/// Paths to one destination, in numbers.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    verifiers: u16,
    sources: u16,
}

/// One choice in progress.
struct Search<'a> {
    planner: &'a Planner<'a>,
    goal: Goal,
    credit: Credit,
    asked: usize,
    sampled: usize,
    heard: Vec<Heard>,
    /// Whether a path can be overheard, in the order of [`Sample::path`].
    verifier_heard: Vec<bool>,
    source_heard: Vec<bool>,
    gain: Vec<f64>,
    /// Paths to one destination that pass a node and cannot be overheard yet; zero between destinations.
    more: Vec<Heard>,
}

impl Planner<'_> {
    /// At most `eavesdroppers` nodes, against the first `asked` verifiers. Fewer, if one more would do no good.
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
            heard: vec![Heard::default(); destinations],
            verifier_heard: vec![false; asked * destinations],
            source_heard: vec![false; sampled * destinations],
            gain: vec![0.0; self.nodes],
            more: vec![Heard::default(); self.nodes],
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
    fn value(&self, heard: Heard) -> f64 {
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

    /// The node that adds most, the first one of several.
    fn best(&mut self) -> Option<Node> {
        self.gain.fill(0.0);
        let mut touched: Vec<Node> = Vec::new();
        let destinations = self.heard.len();
        for destination in 0..destinations {
            let mut passed = |nodes: &[Node], one: Heard| {
                for &node in nodes {
                    let more = &mut self.more[node as usize];
                    if more.verifiers == 0 && more.sources == 0 {
                        touched.push(node);
                    }
                    more.verifiers += one.verifiers;
                    more.sources += one.sources;
                }
            };
            let one = Heard { verifiers: 1, sources: 0 };
            for source in (0..self.asked).filter(|at| !self.verifier_heard[at * destinations + destination]) {
                passed(self.planner.verifiers.path(source, destination), one);
            }
            let one = Heard { verifiers: 0, sources: 1 };
            for source in (0..self.sampled).filter(|at| !self.source_heard[at * destinations + destination]) {
                passed(self.planner.sources.path(source, destination), one);
            }
            let now = self.heard[destination];
            for node in touched.drain(..) {
                let more = std::mem::take(&mut self.more[node as usize]);
                let then =
                    Heard { verifiers: now.verifiers + more.verifiers, sources: now.sources + more.sources };
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

/// Marks the paths that `node` can overhear; the destinations of those that were not marked before.
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
