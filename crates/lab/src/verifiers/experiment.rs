//! One graph with one routing: verifiers are placed, then attackers choose their nodes.
//!
//! Paths are computed one source at a time and then dropped. Only what the sampled destinations need is kept.

use super::dice::{Dice, Purpose};
use super::graph::{Graph, Node};
use super::outcome::{NodeResults, Outcome};
use super::plan::{Credit, Goal, Planner, Sample};
use super::route::{Router, Routing};
use super::single::Single;
use super::target::Attacker;
use super::topology::{Topology, VerifierPlacement};

/// The settings that are the same for all graphs.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Seed of graphs, paths, placements and attackers.
    pub seed: u64,
    /// Nodes of a graph, before the largest connected component is taken.
    pub nodes: usize,
    /// Numbers of eavesdropping nodes.
    pub eavesdroppers: Vec<usize>,
    /// How often verifiers are placed.
    pub placements: u32,
    /// Where they are placed.
    pub place: VerifierPlacement,
    /// Number of destinations examined. If the graph has fewer, all of them.
    pub destinations: usize,
    /// Number of sources whose paths are used for TCP's shares. If the graph has fewer, all of them.
    pub sources: usize,
    /// Number of these destinations, and of these sources, that a greedy attacker examines.
    pub known_destinations: usize,
    /// See `known_destinations`.
    pub known_sources: usize,
    /// Number of sets of nodes chosen at random.
    pub random: usize,
}

/// Why a set of nodes was chosen.
#[derive(Debug, Clone, Copy)]
enum Choice {
    /// Against TCP.
    Tcp,
    /// With knowledge of a placement, against this many verifiers.
    Planned { placement: usize, verifiers: usize },
    /// At random, to be tried on a placement.
    Random { placement: usize },
}

/// A set of nodes that an attacker chose.
struct Candidate {
    /// Index of the number of eavesdroppers that it belongs to.
    part: usize,
    choice: Choice,
    attacker: Attacker,
}

/// What is examined in one graph.
struct World<'a> {
    setting: &'a Setting,
    nodes: usize,
    graph: &'a Graph,
    destinations: Vec<Node>,
    sources: Vec<Node>,
    known_destinations: Vec<Node>,
    known_sources: Vec<Node>,
    router: Router<'a>,
    parts: Vec<NodeResults>,
    singles: Vec<Single>,
    candidates: Vec<Candidate>,
}

/// Runs the experiment. `progress` is called with the present step.
pub fn measure(
    setting: &Setting,
    topology: &Topology,
    routing: Routing,
    progress: &mut dyn FnMut(&str),
) -> Outcome {
    let name = format!("{} graph, {} paths", topology.name(), routing.name());
    progress(&format!("{name}: links"));
    let graph = topology.graph(setting.nodes, setting.seed);
    let mut world = World::new(setting, &graph, routing);
    progress(&format!("{name}: attackers of TCP"));
    let known = world.known_paths();
    world.plan_against_tcp(&known);
    for placement in 0..setting.placements {
        progress(&format!("{name}: placement {} of {}", placement + 1, setting.placements));
        world.place(placement, &known);
    }
    world.ask_sources(&mut |at, all| progress(&format!("{name}: source {at} of {all}")));
    world.record();
    Outcome {
        topology: topology.clone(),
        routing,
        nodes: graph.nodes(),
        links: graph.links(),
        destinations: world.destinations.len(),
        sources: world.sources.len(),
        parts: world.parts,
    }
}

/// `count` of `list`, chosen at random.
fn pick(list: &[Node], count: usize, dice: &mut Dice) -> Vec<Node> {
    dice.sample(list.len(), count).into_iter().map(|at| list[at as usize]).collect()
}

impl<'a> World<'a> {
    fn new(setting: &'a Setting, graph: &'a Graph, routing: Routing) -> Self {
        let nodes = graph.nodes();
        let mut dice = Dice::new(setting.seed, Purpose::Destinations);
        let destinations = dice.sample(nodes, setting.destinations);
        let known_destinations = pick(&destinations, setting.known_destinations, &mut dice);
        let mut dice = Dice::new(setting.seed, Purpose::Sources);
        let sources = dice.sample(nodes, setting.sources);
        let known_sources = pick(&sources, setting.known_sources, &mut dice);
        let part = |&eavesdroppers: &usize| {
            NodeResults::new(eavesdroppers, setting.nodes, setting.placements, setting.place.most())
        };
        Self {
            setting,
            nodes,
            graph,
            destinations,
            sources,
            known_destinations,
            known_sources,
            router: Router::new(graph, routing, setting.seed),
            parts: setting.eavesdroppers.iter().map(part).collect(),
            singles: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// What an attacker knows about the paths of sources.
    fn known_paths(&mut self) -> Sample {
        let mut known = Sample::new(&self.known_destinations);
        for &source in &self.known_sources {
            known.push(self.router.from(source));
        }
        known
    }

    fn candidate(&self, part: usize, choice: Choice, nodes: Vec<Node>) -> Candidate {
        Candidate { part, choice, attacker: Attacker::new(nodes, &self.destinations) }
    }

    fn plan_against_tcp(&mut self, known: &Sample) {
        let verifiers = Sample::new(&self.known_destinations);
        for part in 0..self.parts.len() {
            let planner = Planner { verifiers: &verifiers, sources: known, nodes: self.nodes };
            for goal in [Goal::Tcp, Goal::TcpPairs] {
                let nodes = planner.choose(goal, Credit::Linear, 0, self.parts[part].eavesdroppers);
                let candidate = self.candidate(part, Choice::Tcp, nodes);
                self.candidates.push(candidate);
            }
        }
    }

    /// Places verifiers, lets attackers choose, and tries their choices on all paths of the verifiers.
    fn place(&mut self, placement: u32, known: &Sample) {
        let most = self.parts.iter().map(NodeResults::most).max().unwrap_or_default();
        let mut dice = Dice::new(self.setting.seed, Purpose::Placement(placement));
        let verifiers = self.setting.place.verifiers(self.graph, most, &mut dice);
        let mut sample = Sample::new(&self.known_destinations);
        let mut single = Single::new(&self.destinations);
        for &verifier in &verifiers {
            let paths = self.router.from(verifier);
            single.verifier(paths);
            sample.push(paths);
        }
        self.singles.push(single);
        let planner = Planner { verifiers: &sample, sources: known, nodes: self.nodes };
        let placement = placement as usize;
        let mut found = self.plan(&planner, placement, &verifiers);
        found.extend(self.random(placement));
        for &verifier in &verifiers {
            let paths = self.router.from(verifier);
            found.iter_mut().for_each(|candidate| candidate.attacker.verifier(paths));
        }
        for candidate in &mut found {
            match candidate.choice {
                Choice::Planned { verifiers, .. } => candidate.attacker.keep_attackable(verifiers),
                Choice::Random { .. } => candidate.attacker.keep_attackable(1),
                Choice::Tcp => {}
            }
        }
        self.candidates.append(&mut found);
    }

    /// Greedy choices of all attackers with more than one node; every single node is tried separately. An attacker
    /// with as many nodes as there are verifiers can take their `places`.
    fn plan(&self, planner: &Planner<'_>, placement: usize, places: &[Node]) -> Vec<Candidate> {
        let mut found = Vec::new();
        for part in 0..self.parts.len() {
            let eavesdroppers = self.parts[part].eavesdroppers;
            if eavesdroppers == 1 {
                continue;
            }
            let counts: Vec<usize> = self.parts[part].rows.iter().map(|row| row.verifiers).collect();
            for verifiers in counts {
                let choice = Choice::Planned { placement, verifiers };
                if verifiers <= eavesdroppers {
                    found.push(self.candidate(part, choice, places[..verifiers].to_vec()));
                }
                for goal in [Goal::Attackable, Goal::Excess] {
                    for credit in Credit::ALL {
                        let nodes = planner.choose(goal, credit, verifiers, eavesdroppers);
                        found.push(self.candidate(part, choice, nodes));
                    }
                }
            }
        }
        found
    }

    /// The same random nodes for every placement.
    fn random(&self, placement: usize) -> Vec<Candidate> {
        let mut dice = Dice::new(self.setting.seed, Purpose::Attackers);
        let mut found = Vec::new();
        for part in 0..self.parts.len() {
            for _ in 0..self.setting.random {
                let nodes = dice.sample(self.nodes, self.parts[part].eavesdroppers);
                found.push(self.candidate(part, Choice::Random { placement }, nodes));
            }
        }
        found
    }

    /// Computes how much of TCP each chosen set can attack.
    fn ask_sources(&mut self, progress: &mut dyn FnMut(usize, usize)) {
        for (at, &source) in self.sources.iter().enumerate() {
            if at % 50 == 0 {
                progress(at, self.sources.len());
            }
            let paths = self.router.from(source);
            self.singles.iter_mut().for_each(|single| single.source(paths));
            let matter = |candidate: &&mut Candidate| !matches!(candidate.choice, Choice::Random { .. });
            let candidates = self.candidates.iter_mut().filter(matter);
            candidates.for_each(|candidate| candidate.attacker.source(paths));
        }
    }

    fn record(&mut self) {
        for Candidate { part, choice, attacker } in &self.candidates {
            let part = &mut self.parts[*part];
            match *choice {
                Choice::Tcp => part.record_tcp(attacker),
                Choice::Planned { placement, verifiers } => part.record(placement, verifiers, attacker),
                Choice::Random { placement } => part.record_random(placement, self.setting.random, attacker),
            }
        }
        for part in self.parts.iter_mut().filter(|part| part.eavesdroppers == 1) {
            for (placement, single) in self.singles.iter().enumerate() {
                part.record_single(placement, self.nodes, single);
            }
        }
    }
}
