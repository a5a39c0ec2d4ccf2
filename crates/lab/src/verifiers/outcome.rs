//! What was found out.

use super::graph::Family;
use super::route::Routing;
use super::single::Single;
use super::target::Attacker;

/// The theorem's number of verifiers: (k + 2) log₂ n (thesis, Appendix A), rounded up.
pub fn bound(eavesdroppers: usize, nodes: usize) -> usize {
    ((eavesdroppers + 2) as f64 * (nodes as f64).log2()).ceil() as usize
}

/// Numbers of verifiers to try: each about a half or a third more than the one before, `bound` the last one.
pub fn counts(bound: usize) -> Vec<usize> {
    let steps = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
    // One next to the bound would only crowd the table.
    let below = steps.into_iter().filter(|&count| 10 * count <= 9 * bound);
    below.chain([bound]).collect()
}

/// What TCP gives to attackers who choose their nodes against it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp {
    /// Share of the destinations that are highly attackable.
    pub highly: f64,
    /// Share of the pairs of a source and a destination that are attackable.
    pub pairs: f64,
}

/// One placement of so many verifiers. Shares of the destinations.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shares {
    /// Attackable in ASAP by the best set found.
    pub attackable: f64,
    /// Attackable in ASAP and not highly attackable in TCP, by the set found that has most of these.
    pub excess: f64,
    /// The same, where each destination is attacked by the one node that suits it; only for one eavesdropping node.
    pub excess_of_any: Option<f64>,
    /// Attackable in ASAP by nodes chosen at random, mean.
    pub random: f64,
}

/// All placements of so many verifiers.
#[derive(Debug)]
pub struct Row {
    /// How many.
    pub verifiers: usize,
    /// One entry for each placement.
    pub placements: Vec<Shares>,
}

impl Row {
    /// Mean over the placements.
    pub fn mean(&self, value: impl Fn(&Shares) -> f64) -> f64 {
        self.placements.iter().map(value).sum::<f64>() / self.placements.len() as f64
    }

    /// Placements in which a destination is attackable in ASAP that is not highly attackable in TCP.
    pub fn bad_placements(&self) -> usize {
        let bad = |shares: &&Shares| shares.excess_of_any.unwrap_or(shares.excess) > 0.0;
        self.placements.iter().filter(bad).count()
    }
}

/// All about one number of eavesdropping nodes.
#[derive(Debug)]
pub struct Part {
    /// Nodes that overhear.
    pub eavesdroppers: usize,
    /// The theorem's number of verifiers.
    pub bound: usize,
    /// Without verifiers.
    pub tcp: Tcp,
    /// By number of verifiers, the bound last.
    pub rows: Vec<Row>,
}

impl Part {
    /// Nothing found out yet, about graphs of at most `nodes` nodes.
    pub fn new(eavesdroppers: usize, nodes: usize, placements: u32) -> Self {
        let bound = bound(eavesdroppers, nodes);
        let placements = vec![Shares::default(); placements as usize];
        let row = |verifiers| Row { verifiers, placements: placements.clone() };
        let rows = counts(bound).into_iter().map(row).collect();
        Self { eavesdroppers, bound, tcp: Tcp::default(), rows }
    }

    /// What a set gets that was chosen against TCP.
    pub fn record_tcp(&mut self, attacker: &Attacker) {
        self.tcp.highly = self.tcp.highly.max(attacker.highly_attackable());
        self.tcp.pairs = self.tcp.pairs.max(attacker.pairs());
    }

    /// What a set gets that was chosen against so many verifiers; with fewer it attacks as well.
    pub fn record(&mut self, placement: usize, verifiers: usize, attacker: &Attacker) {
        let (attackable, excess) = (attacker.attackable(verifiers), attacker.excess(verifiers));
        for row in self.rows.iter_mut().filter(|row| row.verifiers <= verifiers) {
            let shares = &mut row.placements[placement];
            shares.attackable = shares.attackable.max(attackable);
            shares.excess = shares.excess.max(excess);
        }
    }

    /// What a set gets that was chosen at random, one of `sets`.
    pub fn record_random(&mut self, placement: usize, sets: usize, attacker: &Attacker) {
        for row in &mut self.rows {
            row.placements[placement].random += attacker.attackable(row.verifiers) / sets as f64;
        }
    }

    /// What single nodes get in a graph of `nodes` nodes: every one was tried.
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

/// All about one graph and routing.
#[derive(Debug)]
pub struct Outcome {
    /// Its family.
    pub family: Family,
    /// Its routing.
    pub routing: Routing,
    /// Nodes of the connected graph.
    pub nodes: usize,
    /// Its links.
    pub links: usize,
    /// Destinations looked at.
    pub destinations: usize,
    /// Sources looked at.
    pub sources: usize,
    /// By number of eavesdropping nodes.
    pub parts: Vec<Part>,
}

impl Outcome {
    /// Graph and routing, for people.
    pub fn name(&self) -> String {
        format!("{}, {}", self.family.name(), self.routing.name())
    }
}
