use super::*;

#[test]
fn links_are_symmetric_and_single() {
    let graph = Graph::new(4, &[(0, 1), (1, 0), (2, 2), (3, 1)]);
    assert_eq!(graph.links(), 2);
    assert_eq!(graph.neighbours(1), [0, 3]);
    assert_eq!(graph.neighbours(2), [] as [Node; 0]);
}

#[test]
fn the_largest_part_is_kept() {
    let (graph, kept) = Graph::new(7, &[(0, 1), (2, 4), (4, 6), (6, 2)]).largest_component();
    assert_eq!(kept, [2, 4, 6]);
    assert_eq!((graph.nodes(), graph.links()), (3, 3));
}

#[test]
fn families_have_the_promised_degrees_and_are_connected() {
    let nodes = 3000;
    let expected = [
        (Family::ErdosRenyi, MEAN_DEGREE),
        (Family::Preferential, 3.6),
        (Family::Geometric, GEOMETRIC_DEGREE),
        (Family::Tree, 2.0),
    ];
    for (family, degree) in expected {
        let graph = family.graph(nodes, 7);
        let kept = graph.nodes() as f64;
        assert!(kept > 0.99 * nodes as f64, "{family:?}: {kept} of {nodes} nodes");
        let mean = 2.0 * graph.links() as f64 / kept;
        assert!((mean / degree - 1.0).abs() < 0.07, "{family:?}: {mean} neighbours");
        assert_eq!(graph.clone().largest_component().0, graph, "{family:?} is not connected");
    }
}

#[test]
fn preferential_graphs_have_hubs() {
    let largest = |family: Family| {
        let graph = family.graph(3000, 7);
        (0..graph.nodes() as Node).map(|node| graph.neighbours(node).len()).max().unwrap()
    };
    assert!(largest(Family::Preferential) > 3 * largest(Family::ErdosRenyi));
}
