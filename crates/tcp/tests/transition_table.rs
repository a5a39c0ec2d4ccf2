//! Checks that the transition table in the code and its snapshot, which ARCHITECTURE.md links, agree.
//!
//! `FIRSTFLIGHT_BLESS=1` writes the snapshot again; then review the diff.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use firstflight_tcp::transition::{StateName as S, TABLE, Trigger as T, next};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const STATES: [S; 11] = [
    S::Closed,
    S::Listen,
    S::SynSent,
    S::SynRcvd,
    S::Established,
    S::FinWait1,
    S::FinWait2,
    S::CloseWait,
    S::Closing,
    S::LastAck,
    S::TimeWait,
];

const TRIGGERS: [T; 13] = [
    T::PassiveOpen,
    T::ActiveOpen,
    T::ActiveOpenFirstFlight,
    T::Syn,
    T::SynFirstFlight,
    T::SynAck,
    T::SynAckFirstFlight,
    T::HandshakeAck,
    T::Close,
    T::Fin,
    T::FinAck,
    T::TimeWaitOver,
    T::Abort,
];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn bless() -> bool {
    std::env::var_os("FIRSTFLIGHT_BLESS").is_some()
}

/// One line for each transition, including those for `Abort`.
fn text() -> String {
    let mut out = String::new();
    for from in STATES {
        for trigger in TRIGGERS {
            if let Some(to) = next(from, trigger) {
                writeln!(out, "{:<12}  {:<45}  {to}", from.to_string(), trigger.to_string()).unwrap();
            }
        }
    }
    out
}

#[test]
fn the_snapshot_is_what_runs() {
    let path = here("tests/transitions.txt");
    if bless() {
        std::fs::write(&path, text()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text(), "FIRSTFLIGHT_BLESS=1 writes it anew");
}

/// `next` answers every pair as the table does, and no pair is listed twice.
#[test]
fn next_is_total_and_is_the_table() {
    let mut keys = BTreeSet::new();
    for (from, trigger, _) in TABLE {
        assert!(keys.insert((*from, *trigger)), "{from} on {trigger} is there twice");
        assert_ne!(*trigger, T::Abort, "abort is the rule for all states");
    }
    for from in STATES {
        for trigger in TRIGGERS {
            let listed = TABLE.iter().find(|t| (t.0, t.1) == (from, trigger)).map(|t| t.2);
            let abort = (trigger == T::Abort && from != S::Closed).then_some(S::Closed);
            assert_eq!(next(from, trigger), listed.or(abort), "{from} on {trigger}");
        }
    }
    assert!(TRIGGERS.iter().all(|t| *t == T::Abort || TABLE.iter().any(|row| row.1 == *t)));
}

/// All states that `allowed` transitions lead to from `from`.
fn reachable(from: S, allowed: impl Fn(T) -> bool) -> BTreeSet<S> {
    let mut seen = BTreeSet::from([from]);
    loop {
        let more: Vec<S> = (TABLE.iter())
            .filter(|(a, t, b)| seen.contains(a) && !seen.contains(b) && allowed(*t))
            .map(|t| t.2)
            .collect();
        if more.is_empty() {
            return seen;
        }
        seen.extend(more);
    }
}

#[test]
fn every_state_is_reachable_and_none_is_a_trap() {
    assert_eq!(reachable(S::Closed, |_| true).len(), STATES.len());
    // LISTEN ends only with its listener.
    for from in STATES {
        assert!(reachable(from, |_| true).contains(&S::Closed), "{from}");
    }
}

/// First flights add edges but no states: every state that they reach can be reached without them.
#[test]
fn first_flights_reach_no_new_state() {
    let plain = |t| !matches!(t, T::ActiveOpenFirstFlight | T::SynFirstFlight | T::SynAckFirstFlight);
    assert_eq!(reachable(S::Closed, plain), reachable(S::Closed, |_| true));
}
