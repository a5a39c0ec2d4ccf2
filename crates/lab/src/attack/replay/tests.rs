use super::*;

const ONCE: Executed =
    Executed { living: 1, closed: 1, changed: 1, restarted: 1, stepped: 1, member: 1, overtaken: 1 };

#[test]
fn at_most_once_is_exactly_once_whatever_happens() {
    assert_eq!(Promise::AtMostOnceShared.run(), ONCE);
    // The members do not know of each other, and a cookie of another one costs a round trip.
    assert_eq!(Promise::AtMostOnce.run(), ONCE);
}

/// Copies made by the network are unchanged; an attacker changes them.
#[test]
fn no_duplicates_stops_copies_and_says_so_of_changed_ones() {
    let shared = Promise::NoDuplicatesShared.run();
    assert_eq!(shared, Executed { changed: 4, ..ONCE });
    // After a restart the guard is closed for 2 MSL. Another member has not seen the request.
    assert_eq!(Promise::NoDuplicates.run(), Executed { changed: 4, member: 2, overtaken: 2, ..ONCE });
}

/// Who changes the copy, as he must be there first, has sent a request of his own with the client's cookie.
#[test]
fn a_changed_copy_that_comes_first_is_another_first_flight() {
    let other_port = |syn: &[u8]| changed(syn, |p| p[20] ^= 1);
    for promise in [Promise::NoDuplicatesShared, Promise::AtMostOnceShared] {
        assert_eq!(promise.overtaken(other_port), 2, "{promise:?}");
    }
}

#[test]
fn plain_cookies_run_what_comes() {
    let plain = Promise::Nothing.run();
    assert_eq!(plain.living, 1, "the connection answers for itself");
    assert!(plain.closed > 1 && plain.changed == 4 && plain.restarted > 1 && plain.member > 1, "{plain:?}");
}

#[test]
fn a_held_last_ack_stops_late_copies_only() {
    let held = Promise::HeldLastAck.run();
    assert_eq!((held.living, held.closed), (1, 1));
    assert!(held.changed > 1 && held.restarted > 1, "{held:?}");
}
