use super::*;

const NOW: Instant = Instant::from_secs(10);
const DAY: Instant = Instant::from_secs(10 + 24 * 3600);
const HOUR: Instant = Instant::from_secs(10 + 3600);

type Memory = Failures<i32, &'static str>;

/// Two flights fail, while ordinary connections work.
fn stop(failures: &mut Memory, network: i32, server: &'static str, now: Instant) {
    for _ in 0..2 {
        failures.failed(&network, &server, now);
        failures.ordinary_worked(&network, &server, now);
    }
}

#[test]
fn two_in_a_row_stop_a_server_for_a_day() {
    let mut failures = Memory::new();
    failures.failed(&1, &"a", NOW);
    failures.worked(&1, &"a", NOW);
    failures.failed(&1, &"a", NOW);
    assert!(failures.allows(&1, &"a", NOW));
    failures.failed(&1, &"a", NOW);
    assert!(
        !failures.allows(&1, &"a", NOW) && failures.allows(&1, &"b", NOW) && failures.allows(&2, &"a", NOW)
    );
    assert!(failures.allows(&1, &"a", DAY));
    failures.ordinary_worked(&1, &"a", NOW);
    failures.failed(&1, &"a", DAY);
    assert!(!failures.allows(&1, &"a", DAY), "one failure stops it again");
    failures.misbehaved(&1, &"b", NOW);
    assert!(!failures.allows(&1, &"b", NOW));
}

#[test]
fn only_a_wrong_selection_stops_a_hidden_name() {
    let mut failures = Memory::new();
    for server in ["a", "b", "c"] {
        stop(&mut failures, 1, server, NOW);
        assert!(!failures.allows(&1, &server, NOW) && failures.allows_hidden(&1, &server, NOW));
    }
    failures.misbehaved(&1, &"a", NOW);
    assert!(!failures.allows_hidden(&1, &"a", NOW) && failures.allows_hidden(&1, &"a", DAY));
    assert!(failures.allows_hidden(&2, &"a", NOW) && failures.allows_hidden(&1, &"b", NOW));
}

/// A network that has carried nothing yet is stopped for an hour.
#[test]
fn three_servers_stop_a_network_for_an_hour() {
    let mut failures = Memory::new();
    for server in ["a", "b", "c"] {
        assert!(failures.allows(&1, &"d", NOW), "{server}");
        stop(&mut failures, 1, server, NOW);
    }
    assert!(!failures.allows(&1, &"d", NOW) && failures.allows(&2, &"d", NOW));
    assert!(failures.allows(&1, &"d", HOUR) && !failures.allows(&1, &"a", HOUR));
    // One more is enough then, unless a flight works first.
    stop(&mut failures, 1, "d", HOUR);
    assert!(!failures.allows(&1, &"e", HOUR));
    failures.worked(&1, &"e", HOUR);
    stop(&mut failures, 1, "f", HOUR);
    assert!(failures.allows(&1, &"e", HOUR) && !failures.allows(&1, &"f", HOUR));
    // Wrong selections are about keys, not about the network.
    for server in ["g", "h", "i"] {
        failures.misbehaved(&2, &server, NOW);
    }
    stop(&mut failures, 2, "j", NOW);
    assert!(failures.allows(&2, &"d", NOW));
}

#[test]
fn an_outage_is_taken_back_and_only_that() {
    let mut failures = Memory::new();
    for _ in 0..9 {
        failures.failed(&1, &"a", NOW);
        failures.ordinary_failed(&1, &"a", NOW);
        assert!(failures.allows(&1, &"a", NOW));
    }
    // Without an ordinary connection it counts until one tells.
    failures.failed(&1, &"a", NOW);
    failures.failed(&1, &"a", NOW);
    assert!(!failures.allows(&1, &"a", NOW));
    failures.ordinary_failed(&1, &"a", NOW + Memory::SAME_TIME);
    assert!(failures.allows(&1, &"a", NOW));
    // What was confirmed stays, and what is long ago.
    stop(&mut failures, 1, "a", NOW);
    failures.ordinary_failed(&1, &"a", NOW);
    assert!(!failures.allows(&1, &"a", NOW));
    failures.failed(&1, &"b", NOW);
    failures.failed(&1, &"b", NOW);
    failures.ordinary_failed(&1, &"b", HOUR);
    assert!(!failures.allows(&1, &"b", HOUR));
    // One confirmed failure and one of an outage.
    failures.failed(&1, &"c", NOW);
    failures.ordinary_worked(&1, &"c", NOW);
    failures.failed(&1, &"c", NOW);
    failures.ordinary_failed(&1, &"c", NOW);
    assert!(failures.allows(&1, &"c", NOW));
    failures.failed(&1, &"c", NOW);
    assert!(!failures.allows(&1, &"c", NOW));
}

#[test]
fn the_memory_is_bounded() {
    let mut failures = Failures::new();
    for server in 0..5000 {
        failures.misbehaved(&server, &server, NOW);
        failures.worked(&server, &(server + 1), NOW);
    }
    assert!(failures.servers.len() <= 1024 && failures.networks.len() <= 1024);
}
