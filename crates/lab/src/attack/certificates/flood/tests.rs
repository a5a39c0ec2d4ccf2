use super::*;

const BASE: Flood =
    Flood { weapon: Weapon::Nothing, resets: true, budget: 200, honest: 5, seconds: 5, seed: 1 };

fn check(flood: Flood) -> CertificateDamage {
    let damage = flood.run();
    println!("{flood:?}\n{damage:?}");
    assert_eq!(damage.executed, 0);
    for service in [damage.returning, damage.new] {
        assert_eq!(service.answered, service.visits, "honest clients unserved");
        assert!(service.slowest_rtts <= 2.01, "more than an ordinary handshake");
    }
    // The budget for up to a tenth of a second may be saved up.
    let (budget, saved) = (u64::from(flood.budget), u64::from(flood.budget) / 10);
    assert!(damage.signatures <= budget * flood.seconds + saved, "{damage:?}");
    assert!(damage.peak <= budget + saved, "{damage:?}");
    damage
}

#[test]
fn without_a_flood_everybody_is_fast() {
    let damage = check(BASE);
    assert_eq!((damage.returning.fast, damage.new.fast), (damage.returning.visits, damage.new.visits));
}

/// After eight wrong requests the key is barred, so the flood ends.
#[test]
fn few_certificates_with_wrong_requests_are_barred() {
    let quiet = check(BASE).signatures;
    let damage = check(Flood { weapon: Weapon::Requests(10), ..BASE });
    assert!(damage.signatures <= quiet + 10 * (1 + 8), "{damage:?}");
    assert_eq!((damage.returning.fast, damage.new.fast), (damage.returning.visits, damage.new.visits));
}

/// With more certificates than can be barred, the budget is used up and clients fall back to the handshake.
#[test]
fn many_certificates_with_wrong_requests_meet_the_budget() {
    let damage = check(Flood { weapon: Weapon::Requests(2000), ..BASE });
    assert!(damage.signatures > 4 * 200, "the budget would not be felt: {damage:?}");
}

/// Certificates without a valid signature use up the budget lane of new certificates. Known certificates have
/// their own lane.
#[test]
fn unsigned_certificates_do_not_touch_clients_that_are_known() {
    let damage = check(Flood { weapon: Weapon::Certificates(2000), ..BASE });
    assert_eq!(damage.returning.fast, damage.returning.visits);
    assert!(damage.new.fast < damage.new.visits, "the lane would not be felt: {damage:?}");
}

/// One address can use a sixteenth of the lane.
#[test]
fn unsigned_certificates_from_few_addresses_touch_nobody() {
    let damage = check(Flood { weapon: Weapon::Certificates(8), ..BASE });
    assert_eq!((damage.returning.fast, damage.new.fast), (damage.returning.visits, damage.new.visits));
}

/// A first flight that is refused because of the budget is treated as a plain SYN, and SYNs fill the queue as
/// usual: the server sends SYN cookies, no visit is fast, and every visit is answered.
#[test]
fn beyond_the_syn_queue_syn_cookies_serve_everybody() {
    for weapon in [Weapon::Requests(2000), Weapon::Certificates(2000)] {
        check(Flood { weapon, resets: false, ..BASE });
    }
}
