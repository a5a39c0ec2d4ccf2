use super::*;

const SEED: u64 = 1;

/// In every case: memory is bounded, every honest name is answered, no request is executed twice, and nothing is
/// amplified.
fn run(flood: Flood) -> Outcome {
    let outcome = Flood { seconds: 5, ..flood }.run(SEED).unwrap();
    println!("seed {SEED}, {flood:?}: {outcome:?}");
    assert!(outcome.sets <= 16_384, "{outcome:?}");
    assert!(outcome.table_bytes < 10 << 20, "{outcome:?}");
    assert_eq!(outcome.answered, outcome.fragments, "{outcome:?}");
    assert_eq!(outcome.twice, 0, "{outcome:?}");
    // At most sixteen bytes more for about a hundred.
    assert!(outcome.attack.bytes_out * 100 <= outcome.attack.bytes_in * 118, "{outcome:?}");
    assert!(outcome.honest >= 20);
    outcome
}

#[test]
fn without_an_attack_every_first_flight_is_executed_once() {
    let outcome = run(NOTHING);
    assert_eq!((outcome.served, outcome.handed_again), (outcome.honest, 0));
    assert_eq!(outcome.attack.queries, 0);
}

#[test]
fn strays_of_a_few_networks_cost_nobody_the_shortcut() {
    for (networks, most) in [(1, 8_192 + 1_024), (16, 16_384)] {
        let outcome = run(Flood { forgery: Forgery::Strays, networks, ..NOTHING });
        assert_eq!(outcome.served, outcome.honest);
        assert!(outcome.sets <= most, "{outcome:?}");
    }
}

/// The table is full, but honest sets are complete before they are removed.
#[test]
fn strays_of_many_networks_fill_the_table_and_no_more() {
    for networks in [4000, MANY] {
        let outcome = run(Flood { forgery: Forgery::Strays, networks, ..NOTHING });
        assert_eq!(outcome.sets, 16_384);
        assert!(outcome.served * 10 >= outcome.honest * 9, "{outcome:?}");
    }
}

#[test]
fn whole_sets_under_wrong_ids_open_nothing() {
    let outcome = run(Flood { forgery: Forgery::WrongIds, networks: 4000, ..NOTHING });
    assert_eq!((outcome.served, outcome.opened), (outcome.honest, outcome.honest as u64));
}

/// More sets than can be opened. One network's flood leaves the other networks their share; a flood from many
/// networks does not.
#[test]
fn sets_that_nobody_sealed_open_within_the_budget() {
    let one = run(Flood { forgery: Forgery::Unsealed, ..NOTHING });
    assert_eq!(one.served, one.honest);
    let many = run(Flood { forgery: Forgery::Unsealed, networks: 4000, ..NOTHING });
    for outcome in [one, many] {
        assert!(outcome.opened <= 5 * 1000 + 100, "{outcome:?}");
    }
    assert!(many.served < many.honest, "a budget that nothing uses up: {many:?}");
}

#[test]
fn who_knows_an_id_costs_that_shortcut_and_nothing_else() {
    let outcome = run(Flood { poisons: true, ..NOTHING });
    assert_eq!((outcome.served, outcome.opened), (0, 0));
}

/// The front recognises copies as long as their requests are valid, even if a flood removes entries from its
/// table.
#[test]
fn copies_through_other_resolvers_are_executed_once() {
    let outcome = run(Flood { copies: true, ..NOTHING });
    assert_eq!((outcome.served, outcome.handed_again), (outcome.honest, 0));
    let outcome = run(Flood { copies: true, forgery: Forgery::Strays, networks: MANY, ..NOTHING });
    assert_eq!(outcome.handed_again, 0);
    assert!(outcome.served * 10 >= outcome.honest * 9, "{outcome:?}");
}
