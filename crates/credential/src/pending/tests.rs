//! Places: counted once, given back once.

use super::*;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use proptest::prelude::*;
use std::thread;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

#[test]
fn limit_zero_gives_no_place() {
    let limit = Arc::new(PendingLimit::new(0));
    assert!(limit.has_room().is_err());
    assert!(limit.reserve(CLIENT).is_err());
    assert_eq!(limit.pending(), 0);
}

//= rfc7413 4.2-c test
#[test]
fn a_place_is_given_back_by_drop_and_by_release() {
    let limit = Arc::new(PendingLimit::new(2));
    let first = limit.reserve(CLIENT).unwrap();
    let second = limit.reserve(CLIENT).unwrap();
    assert!(limit.reserve(CLIENT).is_err());
    first.release();
    assert_eq!(limit.pending(), 1);
    drop(second);
    assert_eq!(limit.pending(), 0);
}

#[test]
fn a_lowered_limit_waits_for_the_places_given_out() {
    let limit = Arc::new(PendingLimit::new(3));
    let mut places: Vec<_> = (0..3).filter_map(|_| limit.reserve(CLIENT).ok()).collect();
    limit.set_limit(2);
    places.pop();
    assert!(limit.has_room().is_err() && limit.reserve(CLIENT).is_err());
    places.pop();
    assert!(limit.reserve(CLIENT).is_ok());
}

#[test]
fn threads_never_pass_the_limit_and_give_all_back() {
    let limit = Arc::new(PendingLimit::with_clients(5, 100));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..20_000 {
                    let places: Vec<_> = (0..3).filter_map(|_| limit.reserve(CLIENT).ok()).collect();
                    assert!(limit.pending() <= 5 && limit.pending() >= places.len() as u32);
                    if round % 2 == 0 {
                        places.into_iter().for_each(Place::release);
                    }
                }
            });
        }
    });
    assert_eq!(limit.pending(), 0);
    assert_eq!((0..9).map_while(|_| limit.reserve(CLIENT).ok()).collect::<Vec<_>>().len(), 5);
}

proptest! {
    #[test]
    fn the_count_is_that_of_the_living_places(steps in proptest::collection::vec((0u8..3, 0u32..6), 1..80)) {
        let limit = Arc::new(PendingLimit::with_clients(3, 100));
        let mut places = Vec::new();
        for (step, argument) in steps {
            match step {
                0 => {
                    let room = (places.len() as u32) < limit.limit();
                    let place = limit.reserve(CLIENT);
                    prop_assert_eq!(place.is_ok(), room);
                    places.extend(place);
                }
                1 => drop(places.pop()),
                _ => limit.set_limit(argument),
            }
            prop_assert_eq!(limit.pending() as usize, places.len());
        }
    }
}

#[test]
fn one_client_leaves_room_for_others() {
    let limit = Arc::new(PendingLimit::new(256));
    let greedy: Vec<_> = (0..256).map_while(|_| limit.reserve(CLIENT).ok()).collect();
    assert_eq!(greedy.len(), 8, "a 32nd");
    assert_eq!(limit.reserve(CLIENT).unwrap_err(), Reason::ClientLimit);
    let other = limit.reserve(OTHER).unwrap();
    drop(greedy);
    assert_eq!(limit.pending(), 1);
    other.release();
    assert_eq!(limit.pending(), 0);
}

#[test]
fn a_servers_bound_holds_for_its_listeners_together() {
    let server = Arc::new(PendingLimit::with_clients(3, u32::MAX));
    let make = || Arc::new(PendingLimit::new(100).within(Arc::clone(&server)));
    let (one, two) = (make(), make());
    let mut held = [one.reserve(CLIENT).unwrap(), two.reserve(CLIENT).unwrap(), two.reserve(OTHER).unwrap()]
        .into_iter()
        .collect::<Vec<_>>();
    assert_eq!(one.has_room(), Err(Reason::ServerLimit));
    assert_eq!(one.reserve(OTHER).unwrap_err(), Reason::ServerLimit);
    assert_eq!((one.pending(), two.pending(), server.pending()), (1, 2, 3));
    held.pop();
    assert_eq!((one.pending(), two.pending(), server.pending()), (1, 1, 2));
    let _again = one.reserve(OTHER).unwrap();
    drop(held);
    assert_eq!(server.pending(), 1);
}

#[test]
fn a_refusal_counts_nowhere() {
    let server = Arc::new(PendingLimit::new(100));
    let limit = Arc::new(PendingLimit::with_clients(1, 2).within(Arc::clone(&server)));
    let held = limit.reserve(CLIENT).unwrap();
    for _ in 0..10 {
        assert_eq!(limit.reserve(CLIENT).unwrap_err(), Reason::PendingLimit);
    }
    assert_eq!((limit.pending(), server.pending()), (1, 1));
    drop(held);
    assert_eq!((limit.pending(), server.pending()), (0, 0));
    assert_eq!((0..9).map_while(|_| server.reserve(CLIENT).ok()).collect::<Vec<_>>().len(), 4);
}
