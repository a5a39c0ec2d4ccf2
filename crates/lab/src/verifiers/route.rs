//! Fixed single-path routing. The theorem permits any such routing, as long as paths do not depend on the positions
//! of the verifiers.

use super::dice::{Dice, Purpose};
use super::graph::{Graph, Node};
use clap::ValueEnum;

/// How paths are chosen. The paths from one source are a tree. Trees of different sources are independent, so the
/// return path may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Routing {
    /// Fewest links; if there are several such paths, one at random
    Shortest,
    /// Any path: the tree grows by a random link at its edge, whatever the distance
    Arbitrary,
}

impl Routing {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shortest => "shortest",
            Self::Arbitrary => "arbitrary",
        }
    }
}

/// The paths from one source to all nodes.
#[derive(Debug, Default)]
pub struct Paths {
    parent: Vec<Node>,
    /// Positions in a depth-first walk of the tree: a node's subtree has `size` positions, beginning at `enter`.
    enter: Vec<u32>,
    size: Vec<u32>,
}

impl Paths {
    /// Whether `node` is on the path from the source to `destination`. Both ends are on it.
    pub fn passes(&self, node: Node, destination: Node) -> bool {
        let (node, destination) = (node as usize, destination as usize);
        self.enter[destination].wrapping_sub(self.enter[node]) < self.size[node]
    }

    pub fn passes_any(&self, nodes: &[Node], destination: Node) -> bool {
        nodes.iter().any(|&node| self.passes(node, destination))
    }

    /// The nodes of the path, from `destination` to the source.
    pub fn to(&self, destination: Node) -> impl Iterator<Item = Node> {
        std::iter::successors(Some(destination), |&node| {
            let parent = self.parent[node as usize];
            (parent != node).then_some(parent)
        })
    }
}

/// Computes paths, one source at a time, in reused buffers. The paths of all pairs are never stored.
#[derive(Debug)]
pub struct Router<'a> {
    graph: &'a Graph,
    routing: Routing,
    seed: u64,
    paths: Paths,
    /// Nodes of the tree, parents before their children.
    order: Vec<Node>,
    /// `Shortest`: distance from the source, and the number of parents to choose from.
    distance: Vec<u32>,
    choices: Vec<u32>,
    /// `Arbitrary`: links (from, to) at the edge of the tree.
    edge: Vec<(Node, Node)>,
}

const UNREACHED: u32 = u32::MAX;

impl<'a> Router<'a> {
    /// A router for a connected graph.
    pub fn new(graph: &'a Graph, routing: Routing, seed: u64) -> Self {
        Self {
            graph,
            routing,
            seed,
            paths: Paths::default(),
            order: Vec::new(),
            distance: Vec::new(),
            choices: Vec::new(),
            edge: Vec::new(),
        }
    }

    /// The paths from `source`. They are always the same for a graph, a routing and a seed.
    pub fn from(&mut self, source: Node) -> &Paths {
        let nodes = self.graph.nodes();
        let mut dice = Dice::new(self.seed, Purpose::Paths(source));
        self.order.clear();
        reset(&mut self.paths.parent, nodes, UNREACHED);
        self.paths.parent[source as usize] = source;
        match self.routing {
            Routing::Shortest => self.shortest(source, &mut dice),
            Routing::Arbitrary => self.arbitrary(source, &mut dice),
        }
        self.number();
        &self.paths
    }

    /// Breadth-first search. The c-th neighbour that is one step nearer replaces the parent with probability 1 / c,
    /// so that all of them are equally likely.
    fn shortest(&mut self, source: Node, dice: &mut Dice) {
        let nodes = self.graph.nodes();
        reset(&mut self.distance, nodes, UNREACHED);
        reset(&mut self.choices, nodes, 0);
        self.distance[source as usize] = 0;
        self.order.push(source);
        let mut at = 0;
        while let Some(&node) = self.order.get(at) {
            at += 1;
            let reached = self.distance[node as usize] + 1;
            for &next in self.graph.neighbours(node) {
                let index = next as usize;
                if self.distance[index] == UNREACHED {
                    self.distance[index] = reached;
                    self.order.push(next);
                } else if self.distance[index] != reached {
                    continue;
                }
                self.choices[index] += 1;
                if self.choices[index] == 1 || dice.below(self.choices[index] as usize) == 0 {
                    self.paths.parent[index] = node;
                }
            }
        }
    }

    fn arbitrary(&mut self, source: Node, dice: &mut Dice) {
        self.edge.clear();
        let mut newest = source;
        loop {
            self.order.push(newest);
            let parent = &self.paths.parent;
            let open = |to: &&Node| parent[**to as usize] == UNREACHED;
            self.edge.extend(self.graph.neighbours(newest).iter().filter(open).map(|&to| (newest, to)));
            newest = loop {
                if self.edge.is_empty() {
                    return;
                }
                let (from, to) = self.edge.swap_remove(dice.below(self.edge.len()));
                if self.paths.parent[to as usize] == UNREACHED {
                    self.paths.parent[to as usize] = from;
                    break to;
                }
            };
        }
    }

    /// Assigns the positions in the walk to the nodes.
    fn number(&mut self) {
        let Paths { parent, enter, size } = &mut self.paths;
        reset(size, parent.len(), 1);
        reset(enter, parent.len(), 0);
        // The next free position in each node's subtree. This reuses `choices`, which is not needed any more.
        let free = &mut self.choices;
        reset(free, parent.len(), 1);
        for &node in self.order.iter().skip(1).rev() {
            size[parent[node as usize] as usize] += size[node as usize];
        }
        for &node in self.order.iter().skip(1) {
            let above = parent[node as usize] as usize;
            enter[node as usize] = free[above];
            free[above] += size[node as usize];
            free[node as usize] = enter[node as usize] + 1;
        }
    }
}

fn reset<T: Copy>(values: &mut Vec<T>, len: usize, value: T) {
    values.clear();
    values.resize(len, value);
}

#[cfg(test)]
mod tests;
