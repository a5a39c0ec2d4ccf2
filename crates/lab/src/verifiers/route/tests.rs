use super::*;
use crate::verifiers::graph::Family;

const ROUTINGS: [Routing; 2] = [Routing::Shortest, Routing::Arbitrary];

#[test]
fn paths_lead_over_links_to_every_node() {
    let graph = Family::ErdosRenyi.graph(300, 3);
    for routing in ROUTINGS {
        let mut router = Router::new(&graph, routing, 3);
        for source in 0..20 {
            let paths = router.from(source);
            for destination in 0..graph.nodes() as Node {
                let path: Vec<Node> = paths.to(destination).collect();
                assert_eq!((path[0], path[path.len() - 1]), (destination, source));
                assert!(path.windows(2).all(|pair| graph.neighbours(pair[0]).contains(&pair[1])));
            }
        }
    }
}

#[test]
fn a_node_is_passed_if_and_only_if_it_is_on_the_path() {
    let graph = Family::Preferential.graph(120, 5);
    for routing in ROUTINGS {
        let mut router = Router::new(&graph, routing, 5);
        for source in 0..10 {
            let paths = router.from(source);
            for destination in 0..graph.nodes() as Node {
                let path: Vec<Node> = paths.to(destination).collect();
                for node in 0..graph.nodes() as Node {
                    assert_eq!(paths.passes(node, destination), path.contains(&node));
                }
            }
        }
    }
}

#[test]
fn shortest_paths_are_and_arbitrary_ones_are_not() {
    // In a ring, the shortest path to the farther half goes the other way round.
    let ring: Vec<(Node, Node)> = (0..20).map(|node| (node, (node + 1) % 20)).collect();
    let graph = Graph::new(20, &ring);
    let lengths = |routing, seed| -> Vec<usize> {
        let mut router = Router::new(&graph, routing, seed);
        let paths = router.from(0);
        (0..20).map(|destination| paths.to(destination).count() - 1).collect()
    };
    let shortest: Vec<usize> = (0..20).map(|node: usize| node.min(20 - node)).collect();
    for seed in 0..10 {
        assert_eq!(lengths(Routing::Shortest, seed), shortest);
    }
    assert!((0..10).any(|seed| lengths(Routing::Arbitrary, seed) != shortest));
}

#[test]
fn ties_are_broken_at_random_and_stay_so() {
    let square = Graph::new(4, &[(0, 1), (1, 3), (0, 2), (2, 3)]);
    let middle = |seed| Router::new(&square, Routing::Shortest, seed).from(0).to(3).nth(1);
    let middles: Vec<_> = (0..40).map(middle).collect();
    assert!(middles.contains(&Some(1)) && middles.contains(&Some(2)), "{middles:?}");
    assert_eq!(middles, (0..40).map(middle).collect::<Vec<_>>());
}
