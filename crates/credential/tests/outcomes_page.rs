//! Compares the lists and the table of `docs/guide/outcomes.md` with the enums of the crate.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use firstflight_credential::{Outcome, Reason};
use std::collections::BTreeSet;

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/outcomes.md");
    std::fs::read_to_string(path).expect("docs/guide/outcomes.md is readable")
}

/// Fails on a second entry of a word.
fn insert(found: &mut BTreeSet<String>, word: &str) {
    assert!(found.insert(word.to_owned()), "docs/guide/outcomes.md has two entries for {word}");
}

/// The words of the table of outcomes: the first cells of its rows.
fn listed_outcomes() -> BTreeSet<String> {
    let (page, mut found) = (page(), BTreeSet::new());
    let table = page.lines().skip_while(|line| !line.starts_with("| outcome |")).skip(2);
    for row in table.map_while(|line| line.strip_prefix("| `")) {
        insert(&mut found, row.split_once('`').expect("the first cell of a row is a word in backquotes").0);
    }
    found
}

/// The words of the lists of reasons, each of which names the end that sees it.
fn listed_reasons() -> BTreeSet<String> {
    let (page, mut found) = (page(), BTreeSet::new());
    let entries = page.lines().filter_map(|line| line.strip_prefix("- `")?.split_once("` ("));
    for (word, rest) in entries {
        let end = rest.split_once("): ").expect("a reason says who sees it").0;
        assert!(["both", "client", "server", "neither"].contains(&end), "{word} is seen at {end}");
        insert(&mut found, word);
    }
    found
}

#[test]
fn the_page_has_each_reason_and_no_other() {
    let reasons: BTreeSet<String> = Reason::ALL.iter().map(|reason| reason.as_str().to_owned()).collect();
    let rows = listed_reasons();
    assert_eq!(
        reasons.difference(&rows).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "reasons without an entry"
    );
    assert_eq!(
        rows.difference(&reasons).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "entries without a reason"
    );
}

#[test]
fn the_page_has_each_outcome_and_no_other() {
    let mut outcomes =
        vec![Outcome::Undecided, Outcome::Accepted, Outcome::AcceptedReplyStripped, Outcome::AcceptedPart];
    outcomes.extend(Reason::ALL.iter().map(|reason| Outcome::Handshake(*reason)));
    let labels: BTreeSet<String> = outcomes.iter().map(|outcome| outcome.as_str().to_owned()).collect();
    assert_eq!(listed_outcomes(), labels);
}
