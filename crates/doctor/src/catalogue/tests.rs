use super::*;
use std::collections::HashSet;

/// The checks of the page's lists, each with a line of its own, and below it the findings with their verdicts: what
/// stands before the colon.
fn on_the_page() -> Vec<(String, String)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/doctor.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (mut check, mut found) = ("", Vec::new());
    for line in page.lines() {
        if let Some(name) = line.strip_prefix("- `").and_then(|rest| rest.strip_suffix('`')) {
            check = name;
        } else if let Some((finding, _)) = line.strip_prefix("  - ").and_then(|rest| rest.split_once("): ")) {
            found.push((check.to_owned(), format!("{finding})")));
        }
    }
    found
}

#[test]
fn the_page_has_every_finding_and_no_other() {
    let entries = Finding::ALL.iter().map(|one| one.entry());
    let all: Vec<_> = entries
        .map(|Entry { check, word, verdict, .. }| (check.to_owned(), format!("`{word}` ({verdict})")))
        .collect();
    let page = on_the_page();
    let missing: Vec<_> = all.iter().filter(|one| !page.contains(one)).collect();
    assert!(missing.is_empty(), "docs/guide/doctor.md lacks {missing:?}, or says something else about them");
    assert_eq!(page.len(), all.len(), "a finding twice, or one that there is not");
}

#[test]
fn check_and_word_name_one_finding() {
    let names: HashSet<_> = Finding::ALL.iter().map(|one| (one.entry().check, one.entry().word)).collect();
    assert_eq!(names.len(), Finding::ALL.len());
}

#[test]
fn what_is_not_ok_comes_with_advice() {
    for finding in Finding::ALL {
        let Entry { verdict, advice, .. } = finding.entry();
        assert_eq!(advice.is_some(), verdict != Verdict::Ok, "{finding:?}");
    }
}
