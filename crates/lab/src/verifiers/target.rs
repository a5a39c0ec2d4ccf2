//! What a given set of eavesdropping nodes can attack.

use super::graph::Node;
use super::route::Paths;

/// A destination, against one set of nodes.
#[derive(Debug, Clone, Copy)]
struct Target {
    destination: Node,
    /// The paths of the first `verifiers` verifiers to it can all be overheard.
    verifiers: u16,
    /// Sampled sources whose path to it can be overheard.
    sources: u16,
}

/// A set of eavesdropping nodes, and its results.
#[derive(Debug)]
pub struct Attacker {
    nodes: Vec<Node>,
    targets: Vec<Target>,
    destinations: usize,
    asked: u16,
    sampled: u16,
}

impl Attacker {
    pub fn new(nodes: Vec<Node>, destinations: &[Node]) -> Self {
        let target = |&destination: &Node| Target { destination, verifiers: 0, sources: 0 };
        let targets = destinations.iter().map(target).collect();
        Self { nodes, targets, destinations: destinations.len(), asked: 0, sampled: 0 }
    }

    /// Adds a verifier, with its paths.
    pub fn verifier(&mut self, paths: &Paths) {
        for target in self.targets.iter_mut().filter(|target| target.verifiers == self.asked) {
            target.verifiers += u16::from(paths.passes_any(&self.nodes, target.destination));
        }
        self.asked += 1;
    }

    /// Removes the destinations that it cannot attack when `verifiers` verifiers must be asked.
    pub fn keep_attackable(&mut self, verifiers: usize) {
        self.targets.retain(|target| usize::from(target.verifiers) >= verifiers);
    }

    /// Adds a source, with its paths.
    pub fn source(&mut self, paths: &Paths) {
        for target in &mut self.targets {
            target.sources += u16::from(paths.passes_any(&self.nodes, target.destination));
        }
        self.sampled += 1;
    }

    fn share(&self, wanted: impl Fn(&Target) -> bool) -> f64 {
        self.targets.iter().filter(|target| wanted(target)).count() as f64 / self.destinations as f64
    }

    fn highly(&self, target: &Target) -> bool {
        2 * target.sources >= self.sampled
    }

    /// Share of the destinations that it can attack in ASAP.
    pub fn attackable(&self, verifiers: usize) -> f64 {
        self.share(|target| usize::from(target.verifiers) >= verifiers)
    }

    /// Share of the destinations that it can attack in ASAP and that are not highly attackable in TCP.
    pub fn excess(&self, verifiers: usize) -> f64 {
        self.share(|target| usize::from(target.verifiers) >= verifiers && !self.highly(target))
    }

    /// Share of the destinations that are highly attackable in TCP.
    pub fn highly_attackable(&self) -> f64 {
        self.share(|target| self.highly(target))
    }

    /// Share of all pairs of a source and a destination that it can attack in TCP.
    pub fn pairs(&self) -> f64 {
        let heard: u64 = self.targets.iter().map(|target| u64::from(target.sources)).sum();
        heard as f64 / (self.destinations as f64 * f64::from(self.sampled))
    }
}
