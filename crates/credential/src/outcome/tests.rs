use super::*;
use alloc::collections::BTreeSet;
use alloc::string::ToString;

#[test]
fn labels_and_sentences_are_distinct() {
    let labels: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    let sentences: BTreeSet<_> = Reason::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(labels.len(), Reason::ALL.len());
    assert_eq!(sentences.len(), Reason::ALL.len());
    assert_eq!(Reason::ALL.len(), 45);
}

#[test]
fn an_index_is_the_place_in_the_list() {
    for (place, reason) in Reason::ALL.iter().enumerate() {
        assert_eq!(reason.index(), place);
    }
}

#[test]
fn labels_are_kebab_case() {
    for reason in Reason::ALL {
        let label = reason.as_str();
        assert!(label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{label}");
        assert!(!label.starts_with('-') && !label.ends_with('-'), "{label}");
    }
}

#[test]
fn outcome_labels() {
    assert_eq!(Outcome::default().as_str(), "unknown");
    assert_eq!(Outcome::Accepted.as_str(), "accepted");
    assert_eq!(Outcome::Handshake(Reason::Unknown).as_str(), "unknown");
    for reason in Reason::ALL.iter().filter(|&&reason| reason != Reason::Unknown) {
        assert_eq!(Outcome::Handshake(*reason).as_str(), "handshake");
        assert_eq!(Outcome::Handshake(*reason).reason(), Some(*reason));
    }
}
