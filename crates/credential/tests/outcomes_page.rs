//! Compares the tables of `docs/guide/outcomes.md` with the enums of the crate.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use firstflight_credential::{Outcome, Reason};
use std::collections::BTreeSet;

/// The first cells of the rows of every table whose first column has this `heading`. Fails on a second row of a word.
fn words(heading: &str) -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/outcomes.md");
    let page = std::fs::read_to_string(path).expect("docs/guide/outcomes.md is readable");
    let mut found = BTreeSet::new();
    let mut inside = false;
    for line in page.lines() {
        let Some(row) = line.strip_prefix('|') else {
            inside = false;
            continue;
        };
        let first = row.split('|').next().unwrap_or_default().trim();
        if first == heading {
            inside = true;
        } else if inside && !first.starts_with("---") {
            let word = first.strip_prefix('`').and_then(|word| word.strip_suffix('`'));
            let word = word.expect("the first cell of a row is a word in backquotes");
            assert!(found.insert(word.to_owned()), "docs/guide/outcomes.md has two rows for {word}");
        }
    }
    found
}

#[test]
fn the_page_has_a_row_for_each_reason_and_no_other() {
    let reasons: BTreeSet<String> = Reason::ALL.iter().map(|reason| reason.as_str().to_owned()).collect();
    let rows = words("reason");
    assert_eq!(reasons.difference(&rows).collect::<Vec<_>>(), Vec::<&String>::new(), "reasons without a row");
    assert_eq!(rows.difference(&reasons).collect::<Vec<_>>(), Vec::<&String>::new(), "rows without a reason");
}

#[test]
fn the_page_has_a_row_for_each_outcome_and_no_other() {
    let mut outcomes =
        vec![Outcome::Undecided, Outcome::Accepted, Outcome::AcceptedReplyStripped, Outcome::AcceptedPart];
    outcomes.extend(Reason::ALL.iter().map(|reason| Outcome::Handshake(*reason)));
    let labels: BTreeSet<String> = outcomes.iter().map(|outcome| outcome.as_str().to_owned()).collect();
    assert_eq!(words("outcome"), labels);
}
