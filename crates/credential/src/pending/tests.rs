//! Each permit is counted once and given back once.

use super::*;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use proptest::prelude::*;
use std::thread;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

#[test]
fn limit_zero_gives_no_permit() {
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
    let mut permits: Vec<_> = (0..3).filter_map(|_| limit.reserve(CLIENT).ok()).collect();
    limit.set_limit(2);
    permits.pop();
    assert!(limit.has_room().is_err() && limit.reserve(CLIENT).is_err());
    permits.pop();
    assert!(limit.reserve(CLIENT).is_ok());
}

#[test]
fn threads_never_pass_the_limit_and_give_all_back() {
    let limit = Arc::new(PendingLimit::with_clients(5, 100));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..20_000 {
                    let permits: Vec<_> = (0..3).filter_map(|_| limit.reserve(CLIENT).ok()).collect();
                    assert!(limit.pending() <= 5 && limit.pending() >= permits.len() as u32);
                    if round % 2 == 0 {
                        permits.into_iter().for_each(PendingPermit::release);
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
    fn the_count_is_that_of_the_living_permits(steps in proptest::collection::vec((0u8..3, 0u32..6), 1..80)) {
        let limit = Arc::new(PendingLimit::with_clients(3, 100));
        let mut permits = Vec::new();
        for (step, argument) in steps {
            match step {
                0 => {
                    let room = (permits.len() as u32) < limit.limit();
                    let permit = limit.reserve(CLIENT);
                    prop_assert_eq!(permit.is_ok(), room);
                    permits.extend(permit);
                }
                1 => drop(permits.pop()),
                _ => limit.set_limit(argument),
            }
            prop_assert_eq!(limit.pending() as usize, permits.len());
        }
    }
}

/// All permits that `client` can get.
fn all_of(limit: &Arc<PendingLimit>, client: IpAddr) -> Vec<PendingPermit> {
    core::iter::from_fn(|| limit.reserve(client).ok()).collect()
}

#[test]
fn one_client_leaves_room_for_others() {
    let limit = Arc::new(PendingLimit::with_clients(256, 8));
    let greedy = all_of(&limit, CLIENT);
    assert_eq!(greedy.len(), 8);
    assert_eq!(limit.reserve(CLIENT).unwrap_err(), Reason::ClientLimit);
    assert!(greedy.iter().all(|permit| !permit.is_borrowed()), "the bound is fixed");
    let other = limit.reserve(OTHER).unwrap();
    drop(greedy);
    assert_eq!(limit.pending(), 1);
    other.release();
    assert_eq!(limit.pending(), 0);
}

/// Many clients share one address. While no other client needs permits, they get a third of them.
#[test]
fn an_office_borrows_what_is_free() {
    for (all, own, office) in [(256, 8, 85), (1024, 8, 341), (100, 4, 33), (16, 4, 5)] {
        let limit = Arc::new(PendingLimit::new(all));
        let held = all_of(&limit, CLIENT);
        assert_eq!(held.len(), office, "of {all}");
        let borrowed: Vec<bool> = held.iter().map(PendingPermit::is_borrowed).collect();
        assert!(borrowed.iter().enumerate().all(|(n, borrowed)| *borrowed == (n >= own)));
        assert_eq!(limit.reserve(CLIENT).unwrap_err(), Reason::ClientLimit);
        assert!(!limit.reserve(OTHER).unwrap().is_borrowed(), "others have their own");
        drop(held);
        assert_eq!(limit.pending(), 0);
    }
}

/// Attackers at `n` addresses hold `n / (n + 2)` of all permits. A client that comes after them gets its own
/// permits, if that many are left.
#[test]
fn attackers_at_several_addresses_leave_others_their_own_permits() {
    let address = |n: u32| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + n));
    for attackers in 1..=40 {
        let limit = Arc::new(PendingLimit::new(256));
        // They take permits in turn, until none of them gets another one.
        let mut permits = Vec::new();
        loop {
            let round: Vec<_> = (0..attackers).filter_map(|n| limit.reserve(address(n)).ok()).collect();
            if round.is_empty() {
                break;
            }
            permits.extend(round);
        }
        // Each attacker's share is rounded up, and each has at least its own permits.
        let most = (256 * attackers / (attackers + 2) + attackers).max(8 * attackers).min(256);
        assert!(permits.len() as u32 <= most, "{} of {attackers} attackers", permits.len());
        let left = 256 - permits.len();
        assert!(all_of(&limit, CLIENT).len() >= left.min(8), "{attackers} attackers");
        assert!(left >= 8 || attackers > 30, "{attackers} attackers leave {left}");
    }
}

#[test]
fn a_fixed_bound_lends_nothing() {
    let limit = Arc::new(PendingLimit::new(256));
    limit.set_client_limit(20);
    let held = all_of(&limit, CLIENT);
    assert!(held.len() == 20 && held.iter().all(|permit| !permit.is_borrowed()));
}

/// A permit that the server's bound lends is borrowed, whatever the listener's bound is.
#[test]
fn a_place_that_the_server_lends_is_borrowed() {
    let server = Arc::new(PendingLimit::new(256));
    let limit = Arc::new(PendingLimit::with_clients(64, 64).within(server));
    let held = all_of(&limit, CLIENT);
    assert_eq!(held.iter().filter(|permit| permit.is_borrowed()).count(), held.len() - 8);
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
    let server = Arc::new(PendingLimit::with_clients(100, 4));
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
