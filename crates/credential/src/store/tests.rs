//! The client's store: bounds, the option's forms, the SYN timeout, the failure memory.

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
    assert!(store.may_try(CAFE, SERVER, at(7)));
    assert_eq!(store.syn_timeout(CAFE, SERVER, at(7)), ms(1000));

    let entry = store.lookup(HOME, SERVER).unwrap();
    assert_eq!((entry.cookie, entry.cookie_at, entry.mss), (Some(cookie(1)), at(5), Some(1460)));
    assert_eq!((entry.srtt, entry.rttvar, entry.rtt_at), (Some(ms(20)), Some(ms(2)), at(6)));
    assert_eq!(entry.failures(), 1);
}

#[test]
fn a_cookie_is_replaced_by_another_and_forgotten_alone() {
    let mut store = CredentialStore::new(8);
    store.learn_cookie(HOME, SERVER, Standard, cookie(1), at(1));
    store.learn_cookie(HOME, SERVER, Experimental, cookie(2), at(2));
    store.learn_mss(HOME, SERVER, 1220);
    store.learn_mss(HOME, SERVER, 0);
    store.note_unanswered(HOME, SERVER, Standard);
    let entry = store.lookup(HOME, SERVER).unwrap();
    assert_eq!((entry.cookie, entry.form, entry.cookie_at), (Some(cookie(2)), Experimental, at(2)));

    store.forget_cookie(HOME, SERVER);
    store.forget_cookie(HOME, OTHER);
    let entry = store.lookup(HOME, SERVER).unwrap();
    assert_eq!((entry.cookie, entry.mss), (None, Some(1220)));
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
    assert!(store.may_try(HOME, SERVER, at(0)));
}

#[test]
fn form_ladder_34_then_254_once_then_34() {
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
    store.forget_cookie(HOME, SERVER);
    store.note_unanswered(HOME, SERVER, Standard);
    assert_eq!(store.request_form(HOME, SERVER), Standard);
}

#[test]
fn a_server_that_stops_speaking_254_is_asked_in_34() {
    let mut store = CredentialStore::new(8);
    store.learn_cookie(HOME, SERVER, Experimental, cookie(1), at(0));
    store.forget_cookie(HOME, SERVER);
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

#[test]
fn failures_back_off_from_a_minute_to_a_day_for_that_server_only() {
    let mut store = CredentialStore::new(8);
    let mut now = at(1000);
    for pause in [60, 120, 240, 480, 960, 1920, 3840, 7680, 15_360, 30_720, 61_440, 86_400, 86_400] {
        assert!(store.may_try(HOME, SERVER, now));
        store.note_failure(HOME, SERVER, now);
        assert!(store.may_try(HOME, OTHER, now));
        assert!(!store.may_try(HOME, SERVER, now + Duration::from_secs(pause) - ms(1)), "{pause}");
        now += Duration::from_secs(pause);
    }
    assert!(store.may_try(HOME, SERVER, now));
    store.note_failure(HOME, SERVER, now);
    store.note_success(HOME, SERVER);
    assert!(store.may_try(HOME, SERVER, now));
    store.note_failure(HOME, SERVER, now);
    assert!(store.may_try(HOME, SERVER, now + Duration::from_secs(60)), "it starts again");
}

#[test]
fn connections_that_fail_together_are_one_failure() {
    let mut store = CredentialStore::new(8);
    for _ in 0..10 {
        store.note_failure(HOME, SERVER, at(5));
    }
    assert_eq!(store.lookup(HOME, SERVER).unwrap().failures(), 1);
    assert!(!store.may_try(HOME, SERVER, at(64)));
    assert!(store.may_try(HOME, SERVER, at(65)));
}

#[test]
fn debug_shows_no_cookie() {
    let mut store = CredentialStore::new(1);
    store.learn_cookie(HOME, SERVER, Standard, cookie(0xab), at(0));
    let text = alloc::format!("{store:?}");
    assert!(!text.contains("171, 171") && !text.contains("abab"), "{text}");
}

proptest! {
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
                _ => store.forget_cookie(HOME, server),
            }
            prop_assert!(store.len() <= capacity);
            prop_assert_eq!(store.iter().count(), store.len());
            for (_, server, entry) in store.iter() {
                let own = entry.cookie.is_none_or(|kept| host(kept.as_bytes()[0]) == server);
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
