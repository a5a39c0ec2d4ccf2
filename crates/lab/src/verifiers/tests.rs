//! Compares the experiment with a calculation by hand, and with all possible choices in tiny graphs.

use super::dice::Dice;
use super::experiment::{Setting, measure};
use super::graph::{Family, Graph, Node};
use super::outcome::{Outcome, bound, counts};
use super::plan::{Credit, Goal, Planner, Sample};
use super::report;
use super::route::{Router, Routing};
use super::single::{Best, Single};
use super::target::Attacker;
use super::topology::{Topology, VerifierPlacement};

const CASES: [(Family, Routing); 7] = [
    (Family::ErdosRenyi, Routing::Shortest),
    (Family::ErdosRenyi, Routing::Arbitrary),
    (Family::Preferential, Routing::Shortest),
    (Family::Preferential, Routing::Arbitrary),
    (Family::Geometric, Routing::Shortest),
    (Family::Geometric, Routing::Arbitrary),
    (Family::Tree, Routing::Shortest),
];

/// Examines all of a small graph, without sampling.
fn setting(nodes: usize, eavesdroppers: &[usize], placements: u32, seed: u64) -> Setting {
    Setting {
        seed,
        nodes,
        eavesdroppers: eavesdroppers.to_vec(),
        placements,
        place: VerifierPlacement::Random,
        destinations: nodes,
        sources: nodes,
        known_destinations: nodes,
        known_sources: nodes,
        random: 8,
    }
}

fn run(setting: &Setting, (family, routing): (Family, Routing)) -> Outcome {
    measure(setting, &Topology::Random(family), routing, &mut |_| ())
}

/// The nodes on each path, as bit sets: `on[source][destination]`, computed path by path.
fn paths(graph: &Graph, routing: Routing, seed: u64) -> Vec<Vec<u32>> {
    let mut router = Router::new(graph, routing, seed);
    let all = 0..graph.nodes() as Node;
    let row = |source| -> Vec<u32> {
        let paths = router.from(source);
        all.clone().map(|to| paths.to(to).fold(0, |bits, node| bits | 1 << node)).collect()
    };
    all.clone().map(row).collect()
}

/// All sets of at most `k` nodes. With fewer nodes the excess can be larger, because one more node may make a
/// destination highly attackable in TCP. The theorem's n^k includes these sets.
fn sets(nodes: usize, k: usize) -> impl Iterator<Item = u32> {
    (0..1_u32 << nodes).filter(move |set| (1..=k).contains(&(set.count_ones() as usize)))
}

/// Whether `set` can attack `destination` in ASAP, and whether the destination is highly attackable in TCP.
fn exact(on: &[Vec<u32>], verifiers: &[usize], set: u32, destination: usize) -> (bool, bool) {
    let heard = |source: usize| on[source][destination] & set != 0;
    let sources = (0..on.len()).filter(|&source| heard(source)).count();
    (verifiers.iter().all(|&verifier| heard(verifier)), 2 * sources >= on.len())
}

#[test]
fn the_bound_is_the_thesis_number() {
    assert_eq!(bound(1, 75_000), 49);
    assert_eq!(bound(4, 75_000), 98);
    assert_eq!(bound(1, 1024), 30);
    assert_eq!(counts(49).last(), Some(&49));
}

/// 0 - 1 - 2 - 3 - 4. Verifiers at 0, then at 4.
#[test]
fn a_line_calculated_by_hand() {
    let line = Graph::new(5, &[(0, 1), (1, 2), (2, 3), (3, 4)]);
    let all = [0, 1, 2, 3, 4];
    let mut router = Router::new(&line, Routing::Shortest, 1);
    let mut single = Single::new(&all);
    let mut second = Attacker::new(vec![1], &all);
    for verifier in [0, 4] {
        single.verifier(router.from(verifier));
        second.verifier(router.from(verifier));
    }
    for source in all {
        single.source(router.from(source));
        second.source(router.from(source));
    }
    // Node 0, where the verifier is: all five destinations. In TCP it hears one source of five for destinations 1, 2,
    // 3 and 4, and all sources for 0.
    let one = Best { attackable: 1.0, excess: 0.8, excess_of_any: 0.8 };
    assert_eq!(single.best(1, 5), one);
    // Both verifiers: node d attacks only destination d, for which it hears every source.
    let both = Best { attackable: 0.2, excess: 0.0, excess_of_any: 0.0 };
    assert_eq!(single.best(2, 5), both);
    // Node 1: destinations 1 to 4 from verifier 0. For 2, 3 and 4 it hears two sources of five.
    assert_eq!((second.attackable(1), second.excess(1)), (0.8, 0.6));
    assert_eq!((second.attackable(2), second.excess(2)), (0.2, 0.0));
    // For 0 it hears four sources, for itself five: 4 + 5 + 2 + 2 + 2 of 25 pairs.
    assert_eq!(second.pairs(), 15.0 / 25.0);
    assert_eq!(second.highly_attackable(), 0.4);
}

/// The theorem as stated: for each placement, each destination and each choice of k nodes.
#[test]
fn the_bound_holds_for_every_choice_in_tiny_graphs() {
    const NODES: usize = 10;
    const PLACEMENTS: u32 = 200;
    let mut bad_with_one = 0;
    for (family, routing) in CASES {
        let graph = family.graph(NODES, 11);
        let nodes = graph.nodes();
        let on = paths(&graph, routing, 11);
        for k in [1, 2] {
            let mut dice = Dice::new(17, super::dice::Purpose::Placement(k as u32));
            let bad = |verifiers: &[usize]| {
                sets(nodes, k).any(|set| (0..nodes).any(|to| exact(&on, verifiers, set, to) == (true, false)))
            };
            let mut bad_placements = 0;
            for _ in 0..PLACEMENTS {
                let verifiers: Vec<usize> = (0..bound(k, nodes)).map(|_| dice.below(nodes)).collect();
                bad_placements += usize::from(bad(&verifiers));
                bad_with_one += usize::from(bad(&verifiers[..1]));
            }
            assert!(
                bad_placements * nodes <= PLACEMENTS as usize,
                "{family:?}, {routing:?}, k = {k}: {bad_placements} of {PLACEMENTS} placements"
            );
        }
    }
    let all = CASES.len() * 2 * PLACEMENTS as usize;
    assert!(bad_with_one > all / 2, "one verifier is not enough: {bad_with_one} of {all}");
}

/// The measurement with one node is the best of all nodes. The greedy result is never better than the best of all
/// sets.
#[test]
fn measured_shares_are_those_of_all_choices() {
    const SEED: u64 = 5;
    let setting = setting(12, &[1, 2], 4, SEED);
    for (family, routing) in CASES {
        let outcome = run(&setting, (family, routing));
        let graph = family.graph(setting.nodes, SEED);
        let on = paths(&graph, routing, SEED);
        let nodes = graph.nodes();
        for placement in 0..setting.placements {
            let mut dice = Dice::new(SEED, super::dice::Purpose::Placement(placement));
            let places: Vec<usize> = (0..bound(2, setting.nodes)).map(|_| dice.below(nodes)).collect();
            for part in &outcome.parts {
                for row in &part.rows {
                    let best = |wanted: &dyn Fn((bool, bool)) -> bool| {
                        let count = |set| {
                            let is = |&to: &usize| wanted(exact(&on, &places[..row.verifiers], set, to));
                            (0..nodes).filter(is).count()
                        };
                        sets(nodes, part.eavesdroppers).map(count).max().unwrap() as f64 / nodes as f64
                    };
                    let attackable = best(&|(attackable, _)| attackable);
                    let excess = best(&|(attackable, highly)| attackable && !highly);
                    let shares = row.placements[placement as usize];
                    let what = format!("{family:?}, {routing:?}, k = {}, {shares:?}", part.eavesdroppers);
                    if part.eavesdroppers == 1 {
                        assert_eq!((shares.attackable, shares.excess), (attackable, excess), "{what}");
                    } else {
                        assert!(shares.attackable <= attackable && shares.excess <= excess, "{what}");
                    }
                    assert!(shares.excess_of_any.is_none_or(|any| any >= excess), "{what}");
                }
            }
        }
    }
}

#[test]
fn greedy_is_not_worse_than_random() {
    let setting = setting(300, &[1, 3], 3, 9);
    for case in CASES {
        for part in run(&setting, case).parts {
            for row in &part.rows {
                let worse = row.placements.iter().find(|shares| shares.attackable < shares.random);
                assert!(
                    worse.is_none(),
                    "{case:?}, k = {}, {}: {worse:?}",
                    part.eavesdroppers,
                    row.verifiers
                );
            }
            let first = &part.rows[0];
            assert!(first.mean(|shares| shares.attackable) > first.mean(|shares| shares.random), "{case:?}");
        }
    }
}

/// Uses graphs in which every set of up to three nodes can be tried. Without the steepest credit, random sets would
/// be better here.
#[test]
fn greedy_lies_between_random_and_nearly_the_best() {
    const NODES: usize = 20;
    let all: Vec<u32> = sets(NODES, 3).collect();
    let (mut attackable, mut excess) = ([0.0; 2], [0.0; 2]);
    for (seed, (family, routing)) in (0..).zip(CASES) {
        let mut setting = setting(NODES, &[3], 3, seed);
        setting.random = 20;
        let outcome = run(&setting, (family, routing));
        let graph = family.graph(NODES, seed);
        let (on, nodes) = (paths(&graph, routing, seed), graph.nodes());
        for (placement, row) in (0..3).flat_map(|p| outcome.parts[0].rows.iter().map(move |row| (p, row))) {
            let mut dice = Dice::new(seed, super::dice::Purpose::Placement(placement));
            let places: Vec<usize> = (0..row.verifiers).map(|_| dice.below(nodes)).collect();
            let most = |wanted: &dyn Fn((bool, bool)) -> bool| {
                let is = |set: u32, to: usize| wanted(exact(&on, &places, set, to));
                let count = |&set: &u32| (0..nodes).filter(|&to| is(set, to)).count();
                all.iter().filter(|&&set| set >> nodes == 0).map(count).max().unwrap() as f64 / nodes as f64
            };
            let shares = row.placements[placement as usize];
            assert!(shares.random <= shares.attackable + 1e-9, "{family:?}, {routing:?}, {shares:?}");
            // With as many nodes as verifiers there is no choice to make.
            if row.verifiers > 3 {
                attackable = [attackable[0] + shares.attackable, attackable[1] + most(&|(is, _)| is)];
                excess = [excess[0] + shares.excess, excess[1] + most(&|(is, highly)| is && !highly)];
            }
        }
    }
    let found = [attackable[0] / attackable[1], excess[0] / excess[1]];
    println!("greedy finds {:.3} of what is attackable, {:.3} of the excess", found[0], found[1]);
    assert!(found.iter().all(|share| (0.9..=1.0).contains(share)), "{found:?}");
}

/// A star of two stars: the two centres are better than any other two nodes.
#[test]
fn greedy_takes_the_centres() {
    let links: Vec<(Node, Node)> = (2..12).map(|leaf| (leaf, leaf % 2)).chain([(0, 1)]).collect();
    let graph = Graph::new(12, &links);
    let mut router = Router::new(&graph, Routing::Shortest, 1);
    let all: Vec<Node> = (0..12).collect();
    let mut sources = Sample::new(&all);
    for &source in &all {
        sources.push(router.from(source));
    }
    let none = Sample::new(&all);
    let planner = Planner { verifiers: &none, sources: &sources, nodes: 12 };
    let mut chosen = planner.choose(Goal::TcpPairs, Credit::Linear, 0, 2);
    chosen.sort_unstable();
    assert_eq!(chosen, [0, 1]);
}

/// An attacker with a node for each verifier needs no plan.
#[test]
fn as_many_nodes_as_verifiers_attack_everything() {
    for case in CASES {
        let outcome = run(&setting(200, &[1, 3], 2, 4), case);
        for part in &outcome.parts {
            for row in part.rows.iter().filter(|row| row.verifiers <= part.eavesdroppers) {
                assert!(row.placements.iter().all(|shares| shares.attackable == 1.0), "{case:?}: {row:?}");
            }
        }
    }
}

#[test]
fn more_verifiers_never_help_the_attacker() {
    let outcome = run(&setting(300, &[1, 3], 3, 2), CASES[2]);
    for part in &outcome.parts {
        for rows in part.rows.windows(2) {
            for (fewer, more) in rows[0].placements.iter().zip(&rows[1].placements) {
                assert!(more.attackable <= fewer.attackable && more.random <= fewer.random);
                assert!(more.excess <= fewer.excess);
            }
        }
    }
}

#[test]
fn the_seed_decides_everything() {
    let text = |seed| {
        let setting = setting(200, &[1, 2], 2, seed);
        let outcomes: Vec<Outcome> = CASES.iter().map(|&case| run(&setting, case)).collect();
        (report::json(&setting, &outcomes), report::text(&setting, &outcomes))
    };
    assert_eq!(text(1), text(1));
    let graphs = |json: String| serde_json::from_str::<serde_json::Value>(&json).unwrap()["graphs"].clone();
    assert_ne!(graphs(text(1).0), graphs(text(2).0));
}

#[test]
fn the_plot_is_one_svg_with_all_graphs() {
    let setting = setting(60, &[1, 2], 2, 1);
    let outcomes: Vec<Outcome> = CASES.iter().map(|&case| run(&setting, case)).collect();
    let svg = super::plot::svg(&outcomes).unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    for outcome in &outcomes {
        assert!(svg.contains(&outcome.name()), "{}", outcome.name());
    }
}
