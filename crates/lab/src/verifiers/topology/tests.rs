use super::super::dice::Purpose;
use super::*;

/// A star of 20 around 1, and a link beside it.
fn star() -> String {
    let links: String = (2..=20).map(|leaf| format!("1|{leaf}|-1\n")).collect();
    format!("# relationships\n{links}2|3|0|bgp\n98|99|0\n")
}

#[test]
fn a_file_of_relationships_is_read() {
    let file = MeasuredGraph::parse(&star(), "as-rel".into()).unwrap();
    assert_eq!((file.nodes(), file.graph.links()), (20, 20));
    assert_eq!((file.node("AS1"), file.node(" 20")), (Ok(0), Ok(19)));
    assert!(file.node("98").unwrap_err().contains("\"98\" is not a node"));
    let spaces = MeasuredGraph::parse(&star().replace('|', " "), "as-rel".into()).unwrap();
    assert_eq!(spaces.graph, file.graph);
}

#[test]
fn a_bad_file_is_refused_in_one_line() {
    for (text, expected) in
        [("", "0 connected nodes"), ("1|2|0\n", "2 connected nodes"), ("1|2\n7\n", "line 2: not a link")]
    {
        let error = MeasuredGraph::parse(text, "x".into()).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
    assert!(MeasuredGraph::read(Path::new("/nonexistent")).unwrap_err().starts_with("/nonexistent: "));
    assert!(Source::parse("/nonexistent").is_err());
    assert_eq!(Source::parse("tree"), Ok(Source::Family(Family::Tree)));
}

#[test]
fn verifiers_are_where_they_are_placed() {
    let file = MeasuredGraph::parse(&star(), "as-rel".into()).unwrap();
    let mut dice = Dice::new(1, Purpose::Placement(0));
    let mut place = |text: &str, count| {
        VerifierPlacement::parse(text, Some(&file)).unwrap().verifiers(&file.graph, count, &mut dice)
    };
    // 1 has nineteen links, 2 and 3 two each, all others one.
    assert_eq!(place("hubs", 3), [0, 1, 2]);
    assert!(place("edge", 100).iter().all(|node| *node > 2));
    assert_eq!(place("20,AS5", 5), [19, 4]);
    assert_eq!(place("random", 30).len(), 30);
    assert!(
        VerifierPlacement::parse("AS5", None).is_err()
            && VerifierPlacement::parse("AS500", Some(&file)).is_err()
    );
}
