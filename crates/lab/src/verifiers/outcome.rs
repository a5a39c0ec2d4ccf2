//! The results.

use super::route::Routing;
use super::single::Single;
use super::target::Attacker;
use super::topology::Topology;

/// The theorem's number of verifiers: (k + 2) log₂ n (thesis, Appendix A), rounded up.
pub fn bound(eavesdroppers: usize, nodes: usize) -> usize {
    ((eavesdroppers + 2) as f64 * (nodes as f64).log2()).ceil() as usize
}

/// Numbers of verifiers to try. Each is about a half or a third larger than the previous one, and `bound` is the
/// last.
pub fn counts(bound: usize) -> Vec<usize> {
    let steps = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
    // A number close to the bound would only make the table larger.
    let below = steps.into_iter().filter(|&count| 10 * count <= 9 * bound);
    below.chain([bound]).collect()
}

/// TCP's results for attackers that choose their nodes against TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp {
    /// Share of the destinations that are highly attackable.
    pub highly: f64,
    /// Share of the pairs of a source and a destination that are attackable.
    pub pairs: f64,
}

/// One placement of a number of verifiers, as shares of the destinations.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shares {
    /// Attackable in ASAP by the best set found.
    pub attackable: f64,
    /// Attackable in ASAP and not highly attackable in TCP, by the set found with the largest such share.
    pub excess: f64,
    /// Like `excess`, but each destination is attacked by the node that is best for it. Only for one eavesdropping
    /// node.
    pub excess_of_any: Option<f64>,
    /// Attackable in ASAP by nodes chosen at random, mean.
    pub random: f64,
}

/// All placements of a number of verifiers.
#[derive(Debug)]
pub struct Row {
    /// The number of verifiers.
    pub verifiers: usize,
    /// One entry for each placement.
    pub placements: Vec<Shares>,
}

impl Row {
    /// Mean over the placements.
    pub fn mean(&self, value: impl Fn(&Shares) -> f64) -> f64 {
        self.placements.iter().map(value).sum::<f64>() / self.placements.len() as f64
    }

    /// Number of placements with a destination that is attackable in ASAP and not highly attackable in TCP.
    pub fn bad_placements(&self) -> usize {
        let bad = |shares: &&Shares| shares.excess_of_any.unwrap_or(shares.excess) > 0.0;
        self.placements.iter().filter(bad).count()
    }
}

/// The results for one number of eavesdropping nodes.
#[derive(Debug)]
pub struct NodeResults {
    /// Number of eavesdropping nodes.
    pub eavesdroppers: usize,
    /// The theorem's number of verifiers.
    pub bound: usize,
    /// The results without verifiers.
    pub tcp: Tcp,
    /// One row for each number of verifiers. The bound is the last one.
    pub rows: Vec<Row>,
}

impl NodeResults {
    /// Starts without results, for graphs of at most `nodes` nodes with at most `most` verifiers.
    pub fn new(eavesdroppers: usize, nodes: usize, placements: u32, most: usize) -> Self {
        let bound = bound(eavesdroppers, nodes);
        let placements = vec![Shares::default(); placements as usize];
        let row = |verifiers| Row { verifiers, placements: placements.clone() };
        let rows = counts(bound.min(most)).into_iter().map(row).collect();
        Self { eavesdroppers, bound, tcp: Tcp::default(), rows }
    }

    /// The largest number of verifiers that is tried.
    pub fn most(&self) -> usize {
        self.rows.last().map_or(0, |row| row.verifiers)
    }

    /// Records the result of a set that was chosen against TCP.
    pub fn record_tcp(&mut self, attacker: &Attacker) {
        self.tcp.highly = self.tcp.highly.max(attacker.highly_attackable());
        self.tcp.pairs = self.tcp.pairs.max(attacker.pairs());
    }

    /// Records the result of a set that was chosen against `verifiers` verifiers. It also attacks with fewer.
    pub fn record(&mut self, placement: usize, verifiers: usize, attacker: &Attacker) {
        let (attackable, excess) = (attacker.attackable(verifiers), attacker.excess(verifiers));
        for row in self.rows.iter_mut().filter(|row| row.verifiers <= verifiers) {
            let shares = &mut row.placements[placement];
            shares.attackable = shares.attackable.max(attackable);
            shares.excess = shares.excess.max(excess);
        }
    }

    /// Records the result of a set that was chosen at random, one of `sets`.
    pub fn record_random(&mut self, placement: usize, sets: usize, attacker: &Attacker) {
        for row in &mut self.rows {
            row.placements[placement].random += attacker.attackable(row.verifiers) / sets as f64;
        }
    }

    /// Records the results of single nodes in a graph of `nodes` nodes. Every node was tried.
    pub fn record_single(&mut self, placement: usize, nodes: usize, single: &Single) {
        for row in &mut self.rows {
            let best = single.best(row.verifiers, nodes);
            let shares = &mut row.placements[placement];
            shares.attackable = best.attackable;
            shares.excess = best.excess;
            shares.excess_of_any = Some(best.excess_of_any);
        }
    }
}

/// The results for one graph and routing.
#[derive(Debug)]
pub struct Outcome {
    /// Where it comes from.
    pub topology: Topology,
    pub routing: Routing,
    /// Nodes of the connected graph.
    pub nodes: usize,
    /// Links of the connected graph.
    pub links: usize,
    /// Destinations examined.
    pub destinations: usize,
    /// Sources examined.
    pub sources: usize,
    /// One entry for each number of eavesdropping nodes.
    pub parts: Vec<NodeResults>,
}

impl Outcome {
    /// Graph and routing, as text.
    pub fn name(&self) -> String {
        format!("{}, {}", self.topology.name(), self.routing.name())
    }
}
