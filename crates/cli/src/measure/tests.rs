//! Quantiles, caches, the report, and what is said of failures.

use super::error::told;
use super::report::{self, Sample};
use super::site::MeasuredSite;
use firstflight_doctor::measure::{Parts, Visit, VisitError, VisitStage};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn parts(lookup: Option<u64>, handshake: u64, tls: Option<u64>) -> Parts {
    Parts {
        lookup: lookup.map(ms),
        handshake: ms(handshake),
        tls: tls.map(ms),
        request: ms(90),
        transfer: ms(10),
    }
}

fn visit(parts: Parts) -> Visit {
    let remote = SocketAddr::from(([192, 0, 2, 1], 80));
    Visit { parts, round_trip: parts.handshake, remote, status: 200, bytes: 1000, location: None }
}

#[test]
fn medians_are_exact() {
    let of = |values: &[u64]| Sample::new(values.iter().copied().map(ms));
    assert_eq!(of(&[3, 1, 2]).median(), Some(ms(2)));
    assert_eq!(of(&[4, 1, 2, 3]).median(), Some(Duration::from_micros(2500)));
    assert_eq!((of(&[]).median(), of(&[]).quantile(0.5)), (None, None));
    assert_eq!(
        [0.0, 0.1, 0.9, 1.0].map(|share| of(&[5, 1, 9]).quantile(share)),
        [1, 1, 9, 9].map(|v| Some(ms(v)))
    );
}

#[test]
fn a_cache_is_seen_in_the_lookups() {
    let site = |lookups: &[u64]| {
        let mut site = MeasuredSite::new("http://a.example/".parse().unwrap(), None);
        site.visits = lookups.iter().map(|lookup| visit(parts(Some(*lookup), 50, None))).collect();
        site
    };
    assert_eq!(site(&[100, 1, 2, 1]).cached(), Some((ms(100), ms(1))));
    assert_eq!(site(&[100, 90, 95]).cached(), None);
    assert_eq!(site(&[100]).cached(), None);
}

#[test]
fn the_report_has_the_numbers_of_the_thesis_beside_ours() {
    let mut site = MeasuredSite::new("https://a.example/".parse().unwrap(), None);
    site.visits = vec![visit(parts(Some(100), 50, Some(55))); 3];
    let text = report::text(&[site], false);
    for (name, numbers) in [
        ("lookup", ["100.0 ms", "32.8 %", "41.5 %, median 101 ms"]),
        ("handshake", ["50.0 ms", "16.4 %", "20.5 %, median 72 ms"]),
        ("  ASAP inside the lookup", ["100.0 ms", "32.8 %", ""]),
        ("  a sealed flight, also", ["100.0 ms", "32.8 %", ""]),
    ] {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(numbers.iter().all(|number| line.contains(number)), "{line}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 112), "{text}");
}

#[test]
fn a_failure_names_the_option_that_helps() {
    let slow = VisitError::Timeout(VisitStage::Request, ms(100));
    assert_eq!(told(&slow), "no response within 100ms (--timeout)");
    let lines = VisitError::Lookup("a.example".into(), io::Error::other("no\nanswer"));
    assert_eq!(told(&lines), "cannot look up a.example: no answer");
}
