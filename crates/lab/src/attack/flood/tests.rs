use super::*;

const BASE: Flood = Flood {
    rate: RATE,
    stolen: 1,
    resets: false,
    clients: Clients::Unlimited,
    response: 300,
    quarantine: Quarantine::Accepted,
    accepts_after: Duration::ZERO,
    honest: 20,
    seconds: 10,
};

fn check(flood: Flood) -> FloodDamage {
    let damage = flood.run();
    println!("{flood:?}\n{damage:?}");
    assert!(damage.pending <= LIMIT, "pending above its limit");
    assert_eq!(damage.answered, damage.visits, "honest clients unserved");
    damage
}

/// Without the limit per client, one stolen cookie disables Fast Open for all clients. They are served by the
/// ordinary handshake.
#[test]
fn one_stolen_cookie_costs_honest_clients_a_round_trip() {
    let damage = check(BASE);
    assert_eq!(damage.pending, LIMIT);
    assert!(damage.fast * 5 < damage.visits, "{damage:?}");
    assert!(damage.slowest_rtts <= 2.01);
}

#[test]
fn with_a_limit_per_client_honest_clients_stay_fast() {
    let damage = check(Flood { clients: Clients::Fixed, ..BASE });
    assert!(damage.pending < LIMIT / 4);
    assert_eq!(damage.fast, damage.visits);
    assert!(damage.slowest_rtts <= 1.01);
}

/// By default one stolen cookie uses a third of the permits. It draws only the responses of its own permits, and
/// some bytes more.
#[test]
fn what_a_client_may_borrow_costs_honest_clients_nothing() {
    let fixed = check(Flood { clients: Clients::Fixed, response: 100_000, ..BASE });
    let damage = check(Flood { clients: Clients::Borrowing, response: 100_000, ..BASE });
    assert!(damage.pending < LIMIT / 2 && damage.executed <= LIMIT as usize / 3, "{damage:?}");
    assert_eq!(damage.fast, damage.visits);
    assert!(damage.reflected < 2 * fixed.reflected, "{} B", damage.reflected);
    let many = check(Flood { clients: Clients::Borrowing, stolen: 16, ..BASE });
    assert!(many.pending < LIMIT && many.fast == many.visits, "{many:?}");
}

/// With many stolen cookies, only the listener's limit remains.
#[test]
fn many_stolen_cookies_meet_the_listeners_limit() {
    let damage = check(Flood { stolen: 300, clients: Clients::Fixed, ..BASE });
    assert_eq!(damage.pending, LIMIT);
    assert!(damage.slowest_rtts <= 2.01);
}

/// More SYNs than the SYN queue holds: the server sends SYN cookies, no visit is fast, and every visit is
/// answered.
#[test]
fn beyond_the_syn_queue_syn_cookies_serve_everybody() {
    let damage = check(Flood { rate: 2000, clients: Clients::Fixed, ..BASE });
    assert!(damage.slowest_rtts <= 2.01, "{damage:?}");
}

/// §3.4.1: RSTs of the addresses' owners do not help the flood.
#[test]
fn resets_do_not_let_the_next_one_in() {
    let damage = check(Flood { resets: true, ..BASE });
    assert!(damage.executed <= LIMIT as usize, "{damage:?}");
    let limited = check(Flood { resets: true, clients: Clients::Fixed, ..BASE });
    assert!(limited.executed <= LIMIT as usize / 32, "{limited:?}");
    assert_eq!(limited.fast, limited.visits);
}

/// Linux' rule counts only connections that the application accepted, so RSTs help a flood against an application
/// that accepts slowly.
#[test]
fn the_strict_rule_also_protects_a_slow_application() {
    let slow = Flood { resets: true, accepts_after: Duration::from_millis(250), ..BASE };
    let linux = check(slow);
    let strict = check(Flood { quarantine: Quarantine::Every, ..slow });
    assert!(strict.executed <= LIMIT as usize, "{strict:?}");
    assert!(linux.executed > 4 * strict.executed, "{linux:?} {strict:?}");
}
