//! Random graphs.

use super::dice::{Dice, Purpose};
use clap::ValueEnum;

/// A node's number.
pub type Node = u32;

/// Mean number of neighbours in the graphs in which it is a free parameter.
const MEAN_DEGREE: f64 = 8.0;
/// The mean number of neighbours in the geometric graph, which is disconnected below about 4.5.
const GEOMETRIC_DEGREE: f64 = 12.0;

/// A family of random graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// Any two nodes are linked with the same probability (Erdős–Rényi), 8 neighbours on average
    ErdosRenyi,
    /// New nodes prefer well-linked ones, as networks of the Internet do (Barabási–Albert); 1, 2 or 3 links each
    Preferential,
    /// Points in a square, linked when they are near; 12 neighbours on average
    Geometric,
    /// Each node is linked to an earlier one chosen at random: one path between any two nodes
    Tree,
}

impl Family {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ErdosRenyi => "erdos-renyi",
            Self::Preferential => "preferential",
            Self::Geometric => "geometric",
            Self::Tree => "tree",
        }
    }

    /// A connected graph: nodes outside the largest component of the `nodes` are left out.
    pub fn graph(self, nodes: usize, seed: u64) -> Graph {
        let mut dice = Dice::new(seed, Purpose::Graph);
        let links = match self {
            Self::ErdosRenyi => erdos_renyi(nodes, &mut dice),
            Self::Preferential => preferential(nodes, &mut dice),
            Self::Geometric => geometric(nodes, &mut dice),
            Self::Tree => (1..nodes).map(|node| (node as Node, dice.below(node) as Node)).collect(),
        };
        Graph::new(nodes, &links).largest_component().0
    }
}

/// G(n, M): as many links as the mean degree requires, between nodes chosen at random.
fn erdos_renyi(nodes: usize, dice: &mut Dice) -> Vec<(Node, Node)> {
    let links = (nodes as f64 * MEAN_DEGREE / 2.0) as usize;
    (0..links).map(|_| (dice.below(nodes) as Node, dice.below(nodes) as Node)).collect()
}

/// A random end of a random link is a node chosen in proportion to its degree. 40 % of the nodes get one link, 40 %
/// two, and the rest three: many networks at the edge of the Internet have only one provider.
fn preferential(nodes: usize, dice: &mut Dice) -> Vec<(Node, Node)> {
    let mut links: Vec<(Node, Node)> = vec![(0, 1), (1, 2), (2, 0)];
    for node in 3..nodes {
        let wanted = [1, 1, 2, 2, 3][dice.below(5)];
        let before = links.len();
        for _ in 0..wanted {
            let (a, b) = links[dice.below(before)];
            links.push((node as Node, if dice.below(2) == 0 { a } else { b }));
        }
    }
    links.retain(|&(a, b)| (a as usize) < nodes && (b as usize) < nodes);
    links
}

/// Points in the unit square. Two points are linked if their distance is below the radius that gives the mean degree.
fn geometric(nodes: usize, dice: &mut Dice) -> Vec<(Node, Node)> {
    let radius = (GEOMETRIC_DEGREE / (std::f64::consts::PI * nodes as f64)).sqrt();
    let side = ((1.0 / radius) as usize).max(1);
    let points: Vec<(f64, f64)> = (0..nodes).map(|_| (dice.unit(), dice.unit())).collect();
    let cell = |at: f64| ((at * side as f64) as usize).min(side - 1);
    let mut cells: Vec<Vec<Node>> = vec![Vec::new(); side * side];
    let mut links = Vec::new();
    for (node, &(x, y)) in points.iter().enumerate() {
        let (column, row) = (cell(x), cell(y));
        for column in column.saturating_sub(1)..=(column + 1).min(side - 1) {
            for row in row.saturating_sub(1)..=(row + 1).min(side - 1) {
                let near = |&&other: &&Node| {
                    let (ox, oy) = points[other as usize];
                    (ox - x).powi(2) + (oy - y).powi(2) < radius * radius
                };
                let found = cells[column * side + row].iter().filter(near);
                links.extend(found.map(|&other| (node as Node, other)));
            }
        }
        cells[column * side + row].push(node as Node);
    }
    links
}

/// An undirected graph. The neighbours of all nodes are in one list, in ascending order for each node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    offsets: Vec<u32>,
    neighbours: Vec<Node>,
}

impl Graph {
    /// A graph of `nodes` nodes. Links from a node to itself and repeated links are left out.
    pub fn new(nodes: usize, links: &[(Node, Node)]) -> Self {
        let both = links.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
        let mut ends: Vec<(Node, Node)> = both.filter(|(a, b)| a != b).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut offsets = vec![0; nodes + 1];
        for &(from, _) in &ends {
            offsets[from as usize + 1] += 1;
        }
        for at in 0..nodes {
            offsets[at + 1] += offsets[at];
        }
        Self { offsets, neighbours: ends.into_iter().map(|(_, to)| to).collect() }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Number of links.
    pub fn links(&self) -> usize {
        self.neighbours.len() / 2
    }

    /// The neighbours of a node, in ascending order.
    pub fn neighbours(&self, node: Node) -> &[Node] {
        let at = node as usize;
        &self.neighbours[self.offsets[at] as usize..self.offsets[at + 1] as usize]
    }

    /// The largest component, and which node each of its nodes was.
    pub fn largest_component(self) -> (Self, Vec<Node>) {
        const UNSEEN: u32 = u32::MAX;
        let mut component = vec![UNSEEN; self.nodes()];
        let mut sizes: Vec<usize> = Vec::new();
        for start in 0..self.nodes() as Node {
            if component[start as usize] != UNSEEN {
                continue;
            }
            let number = sizes.len() as u32;
            component[start as usize] = number;
            let mut reached = vec![start];
            let mut at = 0;
            while let Some(&node) = reached.get(at) {
                at += 1;
                for &next in self.neighbours(node) {
                    if component[next as usize] == UNSEEN {
                        component[next as usize] = number;
                        reached.push(next);
                    }
                }
            }
            sizes.push(reached.len());
        }
        let largest = (0..sizes.len()).max_by_key(|&at| sizes[at]).unwrap_or_default() as u32;
        let kept: Vec<Node> =
            (0..self.nodes() as Node).filter(|&n| component[n as usize] == largest).collect();
        let mut renamed = vec![0; self.nodes()];
        for (new, &old) in kept.iter().enumerate() {
            renamed[old as usize] = new as Node;
        }
        let ends = |&old: &Node| self.neighbours(old).iter().map(move |&to| (old, to)).collect::<Vec<_>>();
        let links: Vec<(Node, Node)> =
            kept.iter().flat_map(ends).map(|(a, b)| (renamed[a as usize], renamed[b as usize])).collect();
        (Self::new(kept.len(), &links), kept)
    }
}

#[cfg(test)]
mod tests;
