//! Compares the table and the lists of `docs/guide/outcomes.md` about seals with the enums of the crates.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use firstflight_tls::Rejection;
use firstflight_tls::seal::{Outcome, Reason, Why};
use std::collections::BTreeSet;

/// The words of a part of the page: those before the first `end` of each line that begins with `begin`.
fn words(part: &str, begin: &str, end: &str) -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/outcomes.md");
    let page = std::fs::read_to_string(path).expect("docs/guide/outcomes.md is readable");
    let (_, part) = page.split_once(&format!("\n{part}\n")).expect("the page has this part");
    let lines = part.lines().take_while(|line| !line.starts_with('#'));
    let entries = lines.filter_map(|line| line.strip_prefix(begin)?.split_once(end));
    let mut found = BTreeSet::new();
    for word in entries.flat_map(|(words, _)| words.split(", ")) {
        assert!(found.insert(word.trim_matches('`').to_owned()), "docs/guide/outcomes.md has {word} twice");
    }
    found
}

#[test]
fn the_page_has_each_outcome_of_a_seal() {
    let outcomes: BTreeSet<_> = Outcome::ALL.iter().map(|outcome| outcome.name().to_owned()).collect();
    assert_eq!(words("## Sealed first flights", "| `", " |"), outcomes);
}

#[test]
fn the_page_has_each_reason_at_a_client() {
    let reasons: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name().to_owned()).collect();
    assert_eq!(words("### Reasons at the client", "  - ", ": "), reasons);
}

#[test]
fn the_page_has_each_reason_at_a_server() {
    let of_table = Why::ALL.iter().map(|why| why.name());
    let of_rejects = Rejection::ALL.iter().map(|rejection| rejection.name());
    let both = of_table.chain(of_rejects).chain([Reason::AfterHandshake.name()]);
    let names: BTreeSet<_> = both.map(str::to_owned).collect();
    assert_eq!(words("### Reasons at the server", "  - ", ": "), names);
}
