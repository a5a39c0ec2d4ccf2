//! Compares the tables of `docs/guide/outcomes.md` about seals with the enums of the crates.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use firstflight_tls::Rejection;
use firstflight_tls::seal::{Outcome, Reason, Why};
use std::collections::BTreeSet;

/// The words in the first cells of the tables whose first column has this `heading`.
fn words(heading: &str) -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/outcomes.md");
    let page = std::fs::read_to_string(path).expect("docs/guide/outcomes.md is readable");
    let (mut found, mut inside) = (BTreeSet::new(), false);
    for line in page.lines() {
        let Some(row) = line.strip_prefix('|') else {
            inside = false;
            continue;
        };
        let first = row.split('|').next().unwrap_or_default().trim();
        if first == heading {
            inside = true;
        } else if inside && !first.starts_with("---") {
            for word in first.split(", ") {
                assert!(
                    found.insert(word.trim_matches('`').to_owned()),
                    "docs/guide/outcomes.md has {word} twice"
                );
            }
        }
    }
    found
}

#[test]
fn the_page_has_each_outcome_of_a_seal() {
    let outcomes: BTreeSet<_> = Outcome::ALL.iter().map(|outcome| outcome.name().to_owned()).collect();
    assert_eq!(words("seal"), outcomes);
}

#[test]
fn the_page_has_each_reason_at_a_client() {
    let reasons: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name().to_owned()).collect();
    assert_eq!(words("reason at the client"), reasons);
}

#[test]
fn the_page_has_each_reason_at_a_server() {
    let of_table = Why::ALL.iter().map(|why| why.name());
    let of_rejects = Rejection::ALL.iter().map(|rejection| rejection.name());
    let both = of_table.chain(of_rejects).chain([Reason::AfterHandshake.name()]);
    let names: BTreeSet<_> = both.map(str::to_owned).collect();
    assert_eq!(words("reason at the server"), names);
}
