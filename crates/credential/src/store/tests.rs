//! Tests of the client's store: bounds, the option's forms, the SYN timeout, the failure memory.

use super::*;
use FastOpenForm::{Experimental, Standard};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use proptest::prelude::*;

const HOME: NetworkId = NetworkId([1; 16]);
const CAFE: NetworkId = NetworkId([2; 16]);
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn cookie(byte: u8) -> Cookie {
    Cookie::new(&[byte; 8]).unwrap()
}

fn host(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, last))
}

#[test]
fn what_was_learnt_on_one_network_is_not_used_on_another() {
    let mut store = CredentialStore::new(8);
    store.learn_cookie(HOME, SERVER, Standard, cookie(1), at(5));
    store.learn_mss(HOME, SERVER, 1460);
    store.learn_rtt(HOME, SERVER, ms(20), ms(2), at(6));
    store.note_failure(HOME, SERVER, at(7));
    assert!(store.lookup(CAFE, SERVER).is_none());
    assert_eq!(store.permission(CAFE, SERVER, at(7)), Permission::Everything);
    assert_eq!(store.syn_timeout(CAFE, SERVER, at(7)), ms(1000));

    let entry = store.lookup(HOME, SERVER).unwrap();
    let held = entry.cookie().unwrap();
    assert_eq!((held.cookie, held.granted_at, entry.mss), (cookie(1), at(5), Some(1460)));
    assert_eq!(entry.rtt, Some(PathRtt::new(ms(20), ms(2), at(6))));
    assert_eq!(entry.failures.count, 1);
}

//= rfc7413 4.1.3-a test
#[test]
fn the_newest_cookie_is_shown_and_cookies_are_forgotten_alone() {
    let mut store = CredentialStore::new(8);
    store.learn_cookie(HOME, SERVER, Standard, cookie(1), at(1));
    store.learn_cookie(HOME, SERVER, Experimental, cookie(2), at(2));
    store.learn_mss(HOME, SERVER, 1220);
    store.learn_mss(HOME, SERVER, 0);
    store.note_unanswered(HOME, SERVER, Standard);
    let held = store.take_cookie(HOME, SERVER).unwrap();
    assert_eq!((held.cookie, held.form, held.granted_at), (cookie(2), Experimental, at(2)));

    store.forget_cookies(HOME, SERVER);
    store.forget_cookies(HOME, OTHER);
    let entry = store.lookup(HOME, SERVER).unwrap();
    assert_eq!((entry.cookie(), entry.mss), (None, Some(1220)));
    assert_eq!(store.len(), 1, "forgetting makes no entry");
    // The form that worked is asked for again.
    assert_eq!(store.request_form(HOME, SERVER), Experimental);
}

#[test]
fn the_server_used_least_recently_is_forgotten() {
    let mut store = CredentialStore::new(3);
    for last in 1..=3 {
        store.learn_mss(HOME, host(last), 1000 + u16::from(last));
    }
    assert!(store.lookup(HOME, host(1)).is_some());
    store.learn_cookie(HOME, host(4), Standard, cookie(4), at(0));
    let kept: Vec<_> = store.iter().map(|(network, server, _)| (network, server)).collect();
    assert_eq!(kept, [(HOME, host(1)), (HOME, host(3)), (HOME, host(4))]);
    store.flush();
    assert!(store.is_empty() && store.lookup(HOME, host(1)).is_none());
}

#[test]
fn a_store_of_nothing_answers_with_the_defaults() {
    let mut store = CredentialStore::new(0);
    store.learn_cookie(HOME, SERVER, Experimental, cookie(1), at(0));
    store.note_failure(HOME, SERVER, at(0));
    store.note_unanswered(HOME, SERVER, Standard);
    assert!(store.is_empty() && store.lookup(HOME, SERVER).is_none());
    assert_eq!(store.request_form(HOME, SERVER), Standard);
    assert_eq!(store.permission(HOME, SERVER, at(0)), Permission::Everything);
    assert!(store.take_cookie(HOME, SERVER).is_none());
}

//= rfc7413 9-a 9-b test
#[test]
fn form_fallback_34_then_254_once_then_34() {
    let mut store = CredentialStore::new(8);
    assert_eq!(store.request_form(HOME, SERVER), Standard);
    for expected in [Experimental, Standard, Standard, Standard] {
        let form = store.request_form(HOME, SERVER);
        store.note_unanswered(HOME, SERVER, form);
        assert_eq!(store.request_form(HOME, SERVER), expected);
    }
    assert_eq!(store.request_form(HOME, OTHER), Standard);
}

#[test]
fn a_server_known_to_speak_34_is_not_asked_in_254() {
    let mut store = CredentialStore::new(8);
    store.learn_cookie(HOME, SERVER, Standard, cookie(1), at(0));
    store.forget_cookies(HOME, SERVER);
    store.note_unanswered(HOME, SERVER, Standard);
    assert_eq!(store.request_form(HOME, SERVER), Standard);
}

#[test]
fn a_server_that_stops_speaking_254_is_asked_in_34() {
    let mut store = CredentialStore::new(8);
    store.learn_cookie(HOME, SERVER, Experimental, cookie(1), at(0));
    store.forget_cookies(HOME, SERVER);
    assert_eq!(store.request_form(HOME, SERVER), Experimental);
    store.note_unanswered(HOME, SERVER, Experimental);
    assert_eq!(store.request_form(HOME, SERVER), Standard);
}

#[test]
fn syn_timeout_follows_the_round_trip_time_between_its_bounds() {
    // SRTT, RTTVAR, timeout.
    let cases = [
        (ms(100), ms(0), ms(150)),
        (ms(100), ms(12), ms(150)),
        (ms(100), ms(13), ms(152)),
        (ms(100), ms(50), ms(300)),
        (Duration::from_micros(100), Duration::from_micros(10), ms(50)),
        (Duration::ZERO, Duration::ZERO, ms(50)),
        (ms(700), ms(0), ms(1000)),
        (ms(10), ms(400), ms(1000)),
        (Duration::MAX, Duration::MAX, ms(1000)),
    ];
    for (srtt, rttvar, expected) in cases {
        let mut store = CredentialStore::new(1);
        store.learn_rtt(HOME, SERVER, srtt, rttvar, at(10));
        assert_eq!(store.syn_timeout(HOME, SERVER, at(11)), expected, "{srtt:?} {rttvar:?}");
    }
}

#[test]
fn a_round_trip_time_older_than_an_hour_is_not_used() {
    let mut store = CredentialStore::new(1);
    assert_eq!(store.syn_timeout(HOME, SERVER, at(0)), ms(1000));
    store.learn_mss(HOME, SERVER, 1460);
    assert_eq!(store.syn_timeout(HOME, SERVER, at(0)), ms(1000));
    store.learn_rtt(HOME, SERVER, ms(100), ms(0), at(10));
    assert_eq!(store.syn_timeout(HOME, SERVER, at(3610)), ms(150));
    assert_eq!(store.syn_timeout(HOME, SERVER, at(3610) + Duration::from_nanos(1)), ms(1000));
}

//= rfc7413 4.1.3.1-a 4.1.3.1-b test
#[test]
fn failures_back_off_from_a_minute_to_a_day_for_that_server_only() {
    let mut store = CredentialStore::new(8);
    let mut now = at(1000);
    for pause in [60, 120, 240, 480, 960, 1920, 3840, 7680, 15_360, 30_720, 61_440, 86_400, 86_400] {
        assert_eq!(store.permission(HOME, SERVER, now), Permission::Everything);
        store.note_failure(HOME, SERVER, now);
        assert_eq!(store.permission(HOME, OTHER, now), Permission::Everything);
        assert_eq!(
            store.permission(HOME, SERVER, now + Duration::from_secs(pause) - ms(1)),
            Permission::Nothing,
            "{pause}"
        );
        now += Duration::from_secs(pause);
    }
    assert_eq!(store.permission(HOME, SERVER, now), Permission::Everything);
    store.note_failure(HOME, SERVER, now);
    store.note_success(HOME, SERVER);
    assert_eq!(store.permission(HOME, SERVER, now), Permission::Everything);
    store.note_failure(HOME, SERVER, now);
    assert_eq!(
        store.permission(HOME, SERVER, now + Duration::from_secs(60)),
        Permission::Everything,
        "it starts again"
    );
}

#[test]
fn a_lost_syn_is_no_failure_if_a_later_first_flight_was_accepted() {
    let mut store = CredentialStore::new(8);
    store.note_passed(HOME, SERVER, at(5));
    store.note_lost(HOME, SERVER, Some(at(4)), at(6));
    store.note_lost(HOME, SERVER, Some(at(5)), at(6));
    assert_eq!(store.permission(HOME, SERVER, at(6)), Permission::Everything);
    store.note_success(HOME, SERVER);
    store.note_passed(HOME, SERVER, at(3));
    store.note_lost(HOME, SERVER, Some(at(5)), at(6));
    assert_eq!(store.permission(HOME, SERVER, at(6)), Permission::Everything, "what passed is still known");
    let lost = |store: &mut CredentialStore, network, server| {
        store.lookup(network, server).map_or(0, |entry| entry.failures.lost())
    };
    assert_eq!(lost(&mut store, HOME, SERVER), 0);
    store.note_lost(CAFE, SERVER, Some(at(5)), at(6));
    assert_eq!(lost(&mut store, CAFE, SERVER), 1, "it belongs to the network");
    store.note_lost(HOME, SERVER, Some(at(6)), at(7));
    store.note_lost(HOME, OTHER, None, at(7));
    assert_eq!((lost(&mut store, HOME, SERVER), lost(&mut store, HOME, OTHER)), (1, 1));
}

#[test]
fn four_lost_syns_in_a_row_are_a_failure_and_those_that_left_together_count_once() {
    let mut store = CredentialStore::new(8);
    let mut cookie = None;
    for n in 0..3 {
        for _ in 0..10 {
            store.note_lost(HOME, SERVER, Some(at(10 * n)), at(10 * n + 1));
        }
        assert_eq!(store.permission(HOME, SERVER, at(10 * n + 2)), Permission::Everything);
        assert!(store.prospect(HOME, SERVER, &mut cookie, at(10 * n + 2)).doubtful);
    }
    // One that is accepted ends the row.
    store.note_passed(HOME, SERVER, at(40));
    assert!(!store.prospect(HOME, SERVER, &mut cookie, at(41)).doubtful);
    for n in 5..9 {
        assert_eq!(store.permission(HOME, SERVER, at(10 * n)), Permission::Everything);
        store.note_lost(HOME, SERVER, Some(at(10 * n)), at(10 * n + 1));
    }
    assert_eq!(store.permission(HOME, SERVER, at(82)), Permission::Nothing);
    assert_eq!(store.permission(HOME, SERVER, at(82 + 60)), Permission::Everything);
    // After the pause the first one waits for its answer again.
    assert!(!store.prospect(HOME, SERVER, &mut cookie, at(82 + 60)).doubtful);
}

#[test]
fn a_simple_store_ignores_lost_syns() {
    for simple in [false, true] {
        let mut store = CredentialStore::new(8).simple(simple);
        store.note_lost(HOME, SERVER, Some(at(0)), at(1));
        let known = store.prospect(HOME, SERVER, &mut None, at(2));
        assert_eq!((known.permission, known.doubtful), (Permission::Everything, !simple));
    }
}

/// What costs a round trip each time is given up sooner. The count is one for both.
#[test]
fn two_lost_races_in_a_row_are_a_failure_and_all_losses_count_together() {
    let permission = |store: &CredentialStore, now| store.permission(HOME, SERVER, now);
    let mut store = CredentialStore::new(8);
    for n in [0, 20, 40] {
        // Connections that left together count once, and one that is accepted ends the row.
        store.note_lost_race(HOME, SERVER, Some(at(n + 1)), at(n + 2));
        store.note_lost_race(HOME, SERVER, Some(at(n + 1)), at(n + 2));
        assert_eq!(permission(&store, at(n + 3)), Permission::Everything);
        store.note_passed(HOME, SERVER, at(n + 4));
    }
    store.note_lost(HOME, SERVER, Some(at(50)), at(51));
    store.note_lost_race(HOME, SERVER, Some(at(52)), at(53));
    assert_eq!(permission(&store, at(54)), Permission::Nothing);
    // One of the day before is another row.
    let mut store = CredentialStore::new(8);
    store.note_lost_race(HOME, SERVER, Some(at(1)), at(2));
    store.note_lost_race(HOME, SERVER, Some(at(86_402)), at(86_403));
    assert_eq!(permission(&store, at(86_404)), Permission::Everything);
    store.note_lost_race(HOME, SERVER, Some(at(86_405)), at(86_406));
    assert_eq!(permission(&store, at(86_407)), Permission::Nothing);
}

#[test]
fn connections_that_fail_together_are_one_failure() {
    let mut store = CredentialStore::new(8);
    for _ in 0..10 {
        store.note_failure(HOME, SERVER, at(5));
    }
    assert_eq!(store.lookup(HOME, SERVER).unwrap().failures.count, 1);
    assert_eq!(store.permission(HOME, SERVER, at(64)), Permission::Nothing);
    assert_eq!(store.permission(HOME, SERVER, at(65)), Permission::Everything);
}

#[test]
fn debug_shows_no_cookie() {
    let mut store = CredentialStore::new(1);
    store.learn_cookie(HOME, SERVER, Standard, cookie(0xab), at(0));
    let text = alloc::format!("{store:?}");
    assert!(!text.contains("171, 171") && !text.contains("abab"), "{text}");
}

const NO_COOKIE: Option<(Cookie, FastOpenForm)> = None;

fn granted(byte: u8) -> Option<(Cookie, FastOpenForm)> {
    Some((cookie(byte), Standard))
}

fn held(store: &mut CredentialStore) -> Vec<u8> {
    let entry = store.lookup(HOME, SERVER).unwrap();
    entry.cookies.as_slice().iter().map(|kept| kept.cookie.as_bytes()[0]).collect()
}

fn with_cookies(bytes: &[u8]) -> CredentialStore {
    let mut store = CredentialStore::new(8);
    for &byte in bytes {
        store.learn_cookie(HOME, SERVER, Standard, cookie(byte), at(u64::from(byte)));
    }
    store
}

/// Takes a cookie, and reports the answer to its SYN.
fn visit(store: &mut CredentialStore, answer: CookieAnswer, fresh: Option<(Cookie, FastOpenForm)>) -> u8 {
    let used = store.take_cookie(HOME, SERVER).unwrap();
    store.note_answer(HOME, SERVER, &used, answer, fresh, at(100));
    used.cookie.as_bytes()[0]
}

#[test]
fn a_plain_server_has_one_cookie_however_often_it_is_granted() {
    let mut store = with_cookies(&[1, 1, 1]);
    for _ in 0..5 {
        assert_eq!(visit(&mut store, CookieAnswer::Accepted, NO_COOKIE), 1);
        assert_eq!(visit(&mut store, CookieAnswer::Accepted, granted(1)), 1);
        assert_eq!(held(&mut store), [1]);
        assert!(!store.lookup(HOME, SERVER).unwrap().cookies.is_rotating());
    }
    // The server changes its key: the new cookie replaces the old one.
    assert_eq!(visit(&mut store, CookieAnswer::Accepted, granted(2)), 1);
    assert_eq!(held(&mut store), [2]);
}

#[test]
fn parallel_connections_to_a_server_of_one_time_cookies_use_different_ones() {
    let mut store = with_cookies(&[1, 2, 3]);
    assert_eq!(visit(&mut store, CookieAnswer::Accepted, granted(4)), 3);
    let mut taken: Vec<_> = core::iter::from_fn(|| store.take_cookie(HOME, SERVER)).collect();
    assert_eq!(taken.iter().map(|used| used.cookie.as_bytes()[0]).collect::<Vec<_>>(), [4, 2, 1]);
    // Each acceptance brings a new cookie. A cookie that got no answer goes back to its place.
    let last = taken.pop().unwrap();
    for (used, fresh) in taken.iter().zip(5..) {
        store.note_answer(HOME, SERVER, used, CookieAnswer::Accepted, granted(fresh), at(9));
    }
    store.note_answer(HOME, SERVER, &last, CookieAnswer::Unclear, NO_COOKIE, at(9));
    assert_eq!(held(&mut store), [6, 5, 1]);
}

#[test]
fn an_acceptance_without_a_new_cookie_ends_the_rotation() {
    let mut store = with_cookies(&[1]);
    visit(&mut store, CookieAnswer::Accepted, granted(2));
    assert_eq!(visit(&mut store, CookieAnswer::Accepted, NO_COOKIE), 2);
    assert_eq!(held(&mut store), [2]);
    // Parallel connections share it again.
    assert_eq!(store.take_cookie(HOME, SERVER), store.take_cookie(HOME, SERVER));
}

#[test]
fn a_refusal_drops_that_cookie_and_the_older_ones() {
    let mut store = with_cookies(&[1, 2]);
    let used = store.take_cookie(HOME, SERVER).unwrap();
    store.learn_cookie(HOME, SERVER, Standard, cookie(3), at(3));
    store.note_answer(HOME, SERVER, &used, CookieAnswer::Refused, granted(4), at(4));
    assert_eq!(held(&mut store), [4, 3]);
    // Only a cookie replaces a cookie (RFC 7413 §4.1.3).
    visit(&mut store, CookieAnswer::Refused, NO_COOKIE);
    assert_eq!(held(&mut store), [4, 3]);
}

#[test]
fn sixteen_cookies_at_most() {
    let mut store = with_cookies(&(1..=40).collect::<Vec<_>>());
    assert_eq!(held(&mut store), (25..=40).rev().collect::<Vec<_>>());
    visit(&mut store, CookieAnswer::Accepted, granted(41));
    let used = store.take_cookie(HOME, SERVER).unwrap();
    store.learn_cookie(HOME, SERVER, Standard, cookie(42), at(42));
    store.note_answer(HOME, SERVER, &used, CookieAnswer::Unclear, NO_COOKIE, at(43));
    assert_eq!(held(&mut store).len(), MAX_COOKIES);
}

#[test]
fn a_farm_without_shared_keys_is_asked_but_gets_no_data() {
    let mut store = with_cookies(&[1]);
    for fresh in 2..4 {
        visit(&mut store, CookieAnswer::Refused, granted(fresh));
        assert_eq!(store.permission(HOME, SERVER, at(100)), Permission::Everything, "not yet a failure");
    }
    visit(&mut store, CookieAnswer::Refused, granted(4));
    assert_eq!(store.permission(HOME, SERVER, at(159)), Permission::Request);
    assert_eq!(store.permission(HOME, SERVER, at(160)), Permission::Everything);
    assert_eq!(held(&mut store), [4]);
    // An unanswered SYN with a request is a worse failure, so it counts although the pause has just begun.
    store.note_failure(HOME, SERVER, at(101));
    assert_eq!(store.permission(HOME, SERVER, at(102)), Permission::Nothing);
}

#[test]
fn an_acceptance_ends_the_row_of_refusals() {
    let mut store = with_cookies(&[1]);
    for fresh in [2, 4, 6] {
        visit(&mut store, CookieAnswer::Refused, granted(fresh));
        visit(&mut store, CookieAnswer::Refused, granted(fresh + 1));
        visit(&mut store, CookieAnswer::Accepted, NO_COOKIE);
    }
    assert_eq!(store.permission(HOME, SERVER, at(101)), Permission::Everything);
}

#[test]
fn one_stale_cookie_in_many_connections_is_one_refusal() {
    let mut store = with_cookies(&[1]);
    let used = store.take_cookie(HOME, SERVER).unwrap();
    for _ in 0..10 {
        store.note_answer(HOME, SERVER, &used, CookieAnswer::Refused, granted(2), at(1));
    }
    assert_eq!(store.permission(HOME, SERVER, at(2)), Permission::Everything);
    assert_eq!(held(&mut store), [2]);
}

#[test]
fn on_a_stable_path_the_timeout_settles_at_one_and_a_half_round_trips() {
    let mut store = CredentialStore::new(1);
    let mut timeouts = Vec::new();
    for visit in 0..8 {
        // Each connection has one sample, so its RTTVAR is half of the sample (RFC 6298 §2.2).
        store.learn_rtt(HOME, SERVER, ms(100), ms(50), at(visit));
        timeouts.push(store.syn_timeout(HOME, SERVER, at(visit)).as_millis());
    }
    assert_eq!(timeouts, [300, 250, 212, 184, 163, 150, 150, 150]);
    // A change of the path widens the timeout again. After an hour the measurement starts again.
    store.learn_rtt(HOME, SERVER, ms(300), ms(150), at(9));
    assert!(store.syn_timeout(HOME, SERVER, at(9)) > ms(300));
    store.learn_rtt(HOME, SERVER, ms(20), ms(10), at(4000));
    assert_eq!(store.syn_timeout(HOME, SERVER, at(4000)), ms(60));
}

#[test]
fn a_small_path_mtu_is_believed_for_ten_minutes() {
    let mut store = CredentialStore::new(1);
    store.learn_path_mss(HOME, SERVER, 1240, at(0));
    assert_eq!(store.path_mss(HOME, SERVER, at(600)), Some(1240));
    assert_eq!(store.path_mss(HOME, SERVER, at(601)), None);
    assert_eq!(store.path_mss(CAFE, SERVER, at(1)), None);
}

#[test]
fn what_was_saved_is_restored() {
    let mut entry = Entry::new();
    let cookies = [(cookie(2), Experimental, at(2)), (cookie(1), Standard, at(1))];
    entry.cookies = CookieSet::restore(&cookies, true);
    entry.failures = Failures::restore(2, Permission::Request, at(50), 0, at(0));
    let mut store = CredentialStore::new(8);
    store.restore(HOME, SERVER, entry);
    assert_eq!(held(&mut store), [2, 1]);
    assert_eq!(store.permission(HOME, SERVER, at(49)), Permission::Request);
    assert_eq!(store.request_form(HOME, SERVER), Experimental);
    let used = store.take_cookie(HOME, SERVER).unwrap();
    assert_eq!((used.form, used.granted_at), (Experimental, at(2)));
    assert_eq!(held(&mut store), [1], "still a set of one-time cookies");
    store.note_failure(HOME, SERVER, at(50));
    assert_eq!(store.permission(HOME, SERVER, at(289)), Permission::Nothing, "the third failure");
}

proptest! {
    /// Whatever servers answer, the set is bounded, has no cookie twice, and is ordered newest first.
    #[test]
    fn a_set_of_cookies_keeps_its_order_and_bounds(steps in proptest::collection::vec((0u8..5, 0u8..30), 1..200)) {
        let mut store = with_cookies(&[99]);
        let mut out = Vec::new();
        for (step, byte) in steps {
            match step {
                0 => store.learn_cookie(HOME, SERVER, Standard, cookie(byte), at(1)),
                1 => out.extend(store.take_cookie(HOME, SERVER)),
                _ => {
                    let answer = [CookieAnswer::Accepted, CookieAnswer::Refused, CookieAnswer::Unclear][usize::from(step) - 2];
                    if let Some(used) = out.pop() {
                        let fresh = (byte > 9).then(|| granted(byte)).flatten();
                        store.note_answer(HOME, SERVER, &used, answer, fresh, at(1));
                    }
                }
            }
            let mut kept = held(&mut store);
            prop_assert!(kept.len() <= MAX_COOKIES);
            kept.sort_unstable();
            let before = kept.len();
            kept.dedup();
            prop_assert_eq!(kept.len(), before);
            let entry = store.lookup(HOME, SERVER).unwrap();
            let serials: Vec<_> = entry.cookies.as_slice().iter().map(|c| c.serial()).collect();
            prop_assert!(serials.is_sorted_by(|a, b| a > b));
        }
    }

    #[test]
    fn never_more_servers_than_the_capacity(
        capacity in 0usize..5,
        steps in proptest::collection::vec((0u8..7, 0u8..12), 1..120),
    ) {
        let mut store = CredentialStore::new(capacity);
        for (time, (step, last)) in (0u64..).zip(steps) {
            let server = host(last);
            match step {
                0 => store.learn_cookie(HOME, server, Standard, cookie(last), at(time)),
                1 => store.learn_rtt(HOME, server, ms(time), ms(time), at(time)),
                2 => store.learn_mss(HOME, server, u16::from(last)),
                3 => store.note_failure(HOME, server, at(time)),
                4 => store.note_unanswered(HOME, server, Experimental),
                5 => store.note_success(HOME, server),
                _ => store.forget_cookies(HOME, server),
            }
            prop_assert!(store.len() <= capacity);
            prop_assert_eq!(store.iter().count(), store.len());
            for (_, server, entry) in store.iter() {
                let own = entry.cookies.as_slice().iter().all(|kept| host(kept.cookie.as_bytes()[0]) == server);
                prop_assert!(own, "a cookie went to another server");
            }
        }
    }

    #[test]
    fn the_timeout_is_always_within_its_bounds(srtt: Duration, rttvar: Duration, learnt: u32, now: u32) {
        let mut store = CredentialStore::new(1);
        store.learn_rtt(HOME, SERVER, srtt, rttvar, at(learnt.into()));
        let timeout = store.syn_timeout(HOME, SERVER, at(now.into()));
        prop_assert!((ms(50)..=ms(1000)).contains(&timeout));
    }
}
