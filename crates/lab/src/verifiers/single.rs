//! One eavesdropping node: every choice is examined.

use super::graph::Node;
use super::route::Paths;

/// A node and a destination that it can attack, if at most `verifiers` verifiers are asked.
#[derive(Debug, Clone, Copy)]
struct Pair {
    node: Node,
    /// The paths of the first `verifiers` verifiers to the destination all pass the node.
    verifiers: u16,
    /// Sampled sources whose path to the destination passes the node.
    sources: u16,
}

/// What each single node can do against each destination.
///
/// Only nodes on the path from the first verifier can attack a destination, so only those are stored.
#[derive(Debug)]
pub struct Single {
    destinations: Vec<Node>,
    /// The pairs of the destination with the same index.
    pairs: Vec<Vec<Pair>>,
    asked: u16,
    sampled: u16,
}

/// The results as shares of the destinations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Best {
    /// Attackable by the node that can attack most.
    pub attackable: f64,
    /// Attackable and not highly attackable in TCP, by the node with the largest such share.
    pub excess: f64,
    /// Like `excess`, but each destination is attacked by the node that is best for it.
    pub excess_of_any: f64,
}

impl Single {
    /// Starts before any verifier is asked.
    pub fn new(destinations: &[Node]) -> Self {
        Self {
            destinations: destinations.to_vec(),
            pairs: vec![Vec::new(); destinations.len()],
            asked: 0,
            sampled: 0,
        }
    }

    /// Adds a verifier, with its paths.
    pub fn verifier(&mut self, paths: &Paths) {
        for (&destination, pairs) in self.destinations.iter().zip(&mut self.pairs) {
            if self.asked == 0 {
                pairs.extend(paths.to(destination).map(|node| Pair { node, verifiers: 1, sources: 0 }));
                continue;
            }
            for pair in pairs.iter_mut().filter(|pair| pair.verifiers == self.asked) {
                pair.verifiers += u16::from(paths.passes(pair.node, destination));
            }
        }
        self.asked += 1;
    }

    /// Adds a source, with its paths. Call this after all verifiers were added.
    pub fn source(&mut self, paths: &Paths) {
        for (&destination, pairs) in self.destinations.iter().zip(&mut self.pairs) {
            for pair in pairs {
                pair.sources += u16::from(paths.passes(pair.node, destination));
            }
        }
        self.sampled += 1;
    }

    /// The results of the best nodes in a graph of `nodes` nodes, if the first `verifiers` verifiers must be asked.
    pub fn best(&self, verifiers: usize, nodes: usize) -> Best {
        let mut attackable = vec![0_u32; nodes];
        let mut excess = vec![0_u32; nodes];
        let mut of_any = 0;
        for pairs in &self.pairs {
            let mut any = false;
            for pair in pairs.iter().filter(|pair| usize::from(pair.verifiers) >= verifiers) {
                attackable[pair.node as usize] += 1;
                if 2 * pair.sources < self.sampled {
                    excess[pair.node as usize] += 1;
                    any = true;
                }
            }
            of_any += u32::from(any);
        }
        let share = |count: u32| f64::from(count) / self.destinations.len() as f64;
        let most = |counts: Vec<u32>| share(counts.into_iter().max().unwrap_or_default());
        Best { attackable: most(attackable), excess: most(excess), excess_of_any: share(of_any) }
    }
}
