//! What shards share, in every order of its atomic operations, with what the memory model allows each of them to read.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p firstflight-credential --lib loom_tests`. The tables are small then: two entries in a
//! bucket, two buckets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::one_time::{Redeemed, SerialTable};
use crate::pending::PendingLimit;
use crate::replay::{GuardKey, Guarded, ReplayGuard, ReplayId, ReplayTable, Window};
use crate::serial::Serial;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use loom::model::Builder;
use loom::thread;
use std::println;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tries all orders in which threads are interrupted up to three times.
fn check(name: &str, test: impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 50_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        test();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{name}: {runs} orders");
    assert!(runs > 2, "{runs} orders only");
}

/// Runs both on threads of their own. What they returned.
fn both<T: 'static>(one: impl FnOnce() -> T + 'static, two: impl FnOnce() -> T + 'static) -> [T; 2] {
    let one = thread::spawn(one);
    let two = two();
    [one.join().unwrap(), two]
}

fn serials(mark: u64) -> Arc<SerialTable> {
    let table = SerialTable::own(1, 1, 1);
    table.extend(mark);
    Arc::new(table)
}

#[test]
fn a_serial_is_redeemed_once() {
    check("two shards redeem one serial", || {
        let table = serials(10);
        let serial = table.issue().unwrap();
        table.activate(serial);
        let (one, two) = (Arc::clone(&table), Arc::clone(&table));
        let redeemed = both(move || one.redeem(serial), move || two.redeem(serial));
        let now = redeemed.iter().filter(|redeemed| **redeemed == Redeemed::Now).count();
        assert_eq!(now, 1, "{redeemed:?}");
    });
}

#[test]
fn a_serial_that_was_used_before_its_activation_is_never_redeemed() {
    check("a serial is redeemed while it is activated", || {
        let table = serials(10);
        let serial = table.issue().unwrap();
        let (one, two) = (Arc::clone(&table), Arc::clone(&table));
        let first = both(
            move || two.redeem(serial),
            move || {
                one.activate(serial);
                Redeemed::NotActive
            },
        )[0];
        assert_eq!(table.redeem(serial), Redeemed::Before, "{first:?}");
        assert!(table.is_active(serial));
    });
}

/// The place of a serial goes to a newer one while the older one is redeemed and activated.
#[test]
fn an_old_serial_neither_uses_up_nor_activates_the_one_in_its_place_for_nothing() {
    check("a place changes hands", || {
        let table = serials(100);
        let old = table.issue().unwrap();
        // Capacity: 32, in 64 places. The old one is remembered until 32 more are issued, and its place is taken by the 64th.
        let newer: Vec<Serial> = (0..63).filter_map(|_| table.issue()).collect();
        assert_eq!(newer.len(), 63);
        let (one, two) = (Arc::clone(&table), Arc::clone(&table));
        let shown = both(
            move || {
                two.activate(old);
                (two.redeem(old), None)
            },
            move || (Redeemed::Forgotten, one.issue()),
        );
        assert_eq!(shown[0].0, Redeemed::Forgotten);
        let new = shown[1].1.unwrap();
        // The new one was never activated.
        assert_ne!(table.redeem(new), Redeemed::Now);
    });
}

#[test]
fn a_serial_of_another_issuer_is_redeemed_once_while_the_window_moves() {
    check("another issuer's serials", || {
        let table = SerialTable::foreign(2, 1, 1);
        table.extend(1000);
        let table = Arc::new(table);
        let serial = |n| Serial::new(2, n).unwrap();
        let (one, two) = (Arc::clone(&table), Arc::clone(&table));
        let redeemed = both(
            move || [one.redeem(serial(1)), one.redeem(serial(40))],
            move || [two.redeem(serial(1)), two.redeem(serial(40))],
        );
        for n in 0..2 {
            let now = redeemed.iter().filter(|both| both[n] == Redeemed::Now).count();
            assert!(now <= 1, "{redeemed:?}");
        }
        assert_ne!(table.redeem(serial(40)), Redeemed::Now);
    });
}

fn id(n: u128) -> ReplayId {
    ReplayId { id: n << 64 | n << 40, partition: 0 }
}

fn table() -> Arc<ReplayTable> {
    Arc::new(ReplayTable::new(GuardKey::from_bytes([1; 16]), Window::REQUESTS, 0, 0))
}

#[test]
fn an_id_is_new_once() {
    check("two shards set one id", || {
        let table = table();
        let (one, two) = (Arc::clone(&table), Arc::clone(&table));
        let set = |table: &ReplayTable| table.test_and_set(id(1), 20_000, 20_000);
        let answers = both(move || set(&one), move || set(&two));
        assert_eq!(answers.iter().filter(|answer| **answer == Guarded::New).count(), 1, "{answers:?}");
        assert_eq!(table.test_and_set(id(1), 20_000, 20_000), Guarded::Seen);
    });
}

/// Both buckets are full. What is evicted is below the floor.
#[test]
fn an_id_that_is_evicted_is_not_new_again() {
    check("two shards evict", || {
        let table = table();
        for n in 1..=4 {
            let _ = table.test_and_set(id(n), 20_000 + n as u64 * 100, 20_000);
        }
        let (one, two) = (Arc::clone(&table), Arc::clone(&table));
        let _ = both(
            move || one.test_and_set(id(5), 21_000, 21_000),
            move || two.test_and_set(id(6), 21_100, 21_000),
        );
        for n in 1..=6 {
            let again = table.test_and_set(id(n), 20_000 + n as u64 * 100, 21_000);
            assert!(n > 4 || again != Guarded::New, "{n}");
        }
    });
}

#[test]
fn the_last_place_is_given_once_and_comes_back() {
    check("two shards reserve the last permit", || {
        let limit = Arc::new(PendingLimit::with_clients(1, 2));
        let client = IpAddr::from([192, 0, 2, 1]);
        let (one, two) = (Arc::clone(&limit), Arc::clone(&limit));
        let permits = both(move || one.reserve(client).ok(), move || two.reserve(client).ok());
        assert_eq!(permits.iter().flatten().count(), 1);
        assert_eq!(limit.pending(), 1);
        drop(permits);
        assert_eq!(limit.pending(), 0);
        let again = limit.reserve(client).ok();
        assert!(again.is_some());
    });
}

/// Two shards that see a new client at the same moment may each give it an entry: twice its permits, and not more.
#[test]
fn a_client_has_at_most_twice_its_permits() {
    check("two shards reserve for one client", || {
        let limit = Arc::new(PendingLimit::with_clients(8, 1));
        let client = IpAddr::from([192, 0, 2, 1]);
        let (one, two) = (Arc::clone(&limit), Arc::clone(&limit));
        let permits = both(
            move || [one.reserve(client).ok(), one.reserve(client).ok()],
            move || [two.reserve(client).ok(), two.reserve(client).ok()],
        );
        let held = permits.iter().flatten().flatten().count();
        assert!((1..=2).contains(&held), "{held}");
        drop(permits);
        assert_eq!(limit.pending(), 0);
    });
}
