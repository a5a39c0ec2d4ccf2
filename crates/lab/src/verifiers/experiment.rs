//! One graph with one routing: verifiers are placed, then attackers choose.
//!
//! Paths are computed one source at a time and forgotten: what is kept of them is what the sampled destinations need.

use super::dice::{Dice, Purpose};
use super::graph::{Family, Graph, Node};
use super::outcome::{Outcome, Part};
use super::plan::{Credit, Goal, Planner, Sample};
use super::route::{Router, Routing};
use super::single::Single;
use super::target::Attacker;

/// What is the same for all graphs.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Of graphs, paths, placements and attackers.
    pub seed: u64,
    /// Nodes of a graph, before the largest connected part is taken.
    pub nodes: usize,
    /// Numbers of eavesdropping nodes.
    pub eavesdroppers: Vec<usize>,
    /// How often verifiers are placed anew.
    pub placements: u32,
    /// Destinations looked at; all of a graph that has not more.
    pub destinations: usize,
    /// Sources from whose paths TCP's shares are taken; all of a graph that has not more.
    pub sources: usize,
    /// Of these destinations and sources, as many as a greedy attacker looks at.
    pub known_destinations: usize,
    /// See `known_destinations`.
    pub known_sources: usize,
    /// Sets of nodes chosen at random.
    pub random: usize,
}

/// Why a set of nodes was chosen.
#[derive(Debug, Clone, Copy)]
enum Choice {
    /// Against TCP.
    Tcp,
    /// Knowing a placement, against so many verifiers.
    Planned { placement: usize, verifiers: usize },
    /// At random, to be tried on a placement.
    Random { placement: usize },
}

/// A set of nodes that somebody chose.
struct Candidate {
    /// Index of its part.
    part: usize,
    choice: Choice,
    attacker: Attacker,
}

/// What is looked at in one graph.
struct World<'a> {
    setting: &'a Setting,
    nodes: usize,
    destinations: Vec<Node>,
    sources: Vec<Node>,
    known_destinations: Vec<Node>,
    known_sources: Vec<Node>,
    router: Router<'a>,
    parts: Vec<Part>,
    singles: Vec<Single>,
    candidates: Vec<Candidate>,
}

/// Runs it; `progress` is told what is being done.
pub fn measure(
    setting: &Setting,
    family: Family,
    routing: Routing,
    progress: &mut dyn FnMut(&str),
) -> Outcome {
    let name = format!("{} graph, {} paths", family.name(), routing.name());
    progress(&format!("{name}: links"));
    let graph = family.graph(setting.nodes, setting.seed);
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
        family,
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
        let part = |&eavesdroppers: &usize| Part::new(eavesdroppers, setting.nodes, setting.placements);
        Self {
            setting,
            nodes,
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

    /// What an attacker knows about paths of sources.
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

    /// Places verifiers, lets attackers choose, and tries what they chose on all paths of the verifiers.
    fn place(&mut self, placement: u32, known: &Sample) {
        let most = self.parts.iter().map(|part| part.bound).max().unwrap_or_default();
        let mut dice = Dice::new(self.setting.seed, Purpose::Placement(placement));
        // Independent draws, as in the theorem: two verifiers may stand at the same place.
        let verifiers: Vec<Node> = (0..most).map(|_| dice.below(self.nodes) as Node).collect();
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

    /// Greedy choices of all who have more than one node; every single node is tried anyhow. Who has as many nodes as
    /// there are verifiers can sit on their `places`.
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

    /// The same nodes for every placement.
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

    /// How much of TCP can be attacked, for all who chose.
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
