//! What the table says of each way is what the way is known to do.

use super::engine::{self, Kind};
use super::{Base, Numbers, quic, tcpct, tls};

use std::time::Duration;

const BASE: Base = Base { seed: 1, rtt: Duration::from_millis(100) };

fn near(numbers: &Numbers, first: f64, later: f64) {
    let close =
        |value: Option<f64>, expected: f64| value.is_some_and(|value| (value - expected).abs() < 0.05);
    assert!(close(numbers.first, first) && close(numbers.later, later), "not {first}, {later}: {numbers:?}");
}

#[test]
fn handshakes_take_two_round_trips_and_reflect_their_syn_acks() {
    let numbers = engine::numbers(Kind::Handshake, BASE).unwrap();
    near(&numbers, 2.0, 2.0);
    assert_eq!(numbers.replayed, Some(0));
    assert!(numbers.blind.unwrap() < 10.0, "{numbers:?}");
    near(&engine::numbers(Kind::Persistent, BASE).unwrap(), 2.0, 1.0);
}

#[test]
fn a_guessed_count_of_ttcp_draws_a_whole_window() {
    let numbers = engine::numbers(Kind::Ttcp, BASE).unwrap();
    near(&numbers, 2.0, 1.0);
    assert!(numbers.blind.unwrap() > 50.0, "{numbers:?}");
    assert_eq!(numbers.replayed, Some(0), "an old count fails the test");
    assert!((numbers.moved.unwrap() - 2.0).abs() < 0.05, "{numbers:?}");
}

#[test]
fn fast_open_needs_the_victims_cookie_and_runs_copies() {
    let numbers = engine::numbers(Kind::FastOpen, BASE).unwrap();
    near(&numbers, 2.0, 1.0);
    assert!(numbers.blind.unwrap() < 10.0 && numbers.stolen.unwrap() > 50.0, "{numbers:?}");
    assert!(numbers.replayed.unwrap() >= 1, "{numbers:?}");
    assert!((numbers.moved.unwrap() - 2.0).abs() < 0.05, "{numbers:?}");
}

#[test]
fn asap_takes_one_round_trip_at_first_contact_and_runs_no_copy() {
    let numbers = engine::numbers(Kind::Asap, BASE).unwrap();
    near(&numbers, 1.0, 1.0);
    assert!(numbers.blind.unwrap() < 10.0 && numbers.stolen.unwrap() < 10.0, "{numbers:?}");
    assert_eq!(numbers.replayed, Some(0));
    assert!((numbers.moved.unwrap() - 2.0).abs() < 0.05, "{numbers:?}");
}

#[test]
fn tcpct_keeps_nothing_and_runs_every_copy() {
    let numbers = tcpct::numbers(BASE);
    near(&numbers, 1.0, 1.0);
    assert_eq!((numbers.memory, numbers.replayed, tcpct::rest(BASE)), (Some(0.0), Some(2), Some(2.0)));
    assert!((5.0..15.0).contains(&numbers.blind.unwrap()), "{numbers:?}");
}

#[test]
fn tls_takes_three_round_trips_or_one() {
    near(&tls::numbers(false, BASE).unwrap(), 3.0, 2.0);
    let numbers = tls::numbers(true, BASE).unwrap();
    near(&numbers, 3.0, 1.0);
    assert!(numbers.stolen.unwrap() > numbers.blind.unwrap(), "{numbers:?}");
    assert_eq!(numbers.replayed, Some(0), "tickets of one server are good once");
    assert!((numbers.moved.unwrap() - 2.0).abs() < 0.05, "the cookie is for the old address: {numbers:?}");
}

#[test]
fn quic_takes_two_round_trips_or_one_and_one_more_without_a_token() {
    let row = |early, proved| quic::numbers(quic::Kind { early, proved }, BASE).unwrap();
    near(&row(false, false), 2.0, 2.0);
    let early = row(true, false);
    near(&early, 2.0, 1.0);
    // RFC 9000, 8.1 limits payloads; here the headers of IP and UDP count, too.
    assert!((1.0..=3.2).contains(&early.blind.unwrap()), "{early:?}");
    assert_eq!(early.replayed, Some(0), "tickets of one server are good once");
    near(&row(false, true), 3.0, 2.0);
    let token = row(true, true);
    near(&token, 3.0, 1.0);
    assert!(token.blind.unwrap() < 1.0, "Retry is shorter than an Initial: {token:?}");
    assert!(token.stolen.unwrap() > 1.0, "{token:?}");
}

/// Counts of round trips do not depend on the round-trip time.
#[test]
fn another_round_trip_time_gives_the_same_counts() {
    let base = Base { seed: 1, rtt: Duration::from_millis(20) };
    near(&engine::numbers(Kind::Handshake, base).unwrap(), 2.0, 2.0);
    near(&engine::numbers(Kind::FastOpen, base).unwrap(), 2.0, 1.0);
    near(&tcpct::numbers(base), 1.0, 1.0);
}
