//! Members that are killed, or stop and start again, and refusals that they did not report.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use crate::questions::{ACCEPTED, activate, redeem, refused};
use crate::server::Redis;
use crate::server::farm::{Farm, ask, member, options, runtime};
use firstflight::SharedStore;
use firstflight::credential::{JobRequest, Reason};
use firstflight_redis::{ConnectError, FarmKeys, Options, RedisStore, StateError};
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt;

/// The data of the refused first flight came by the ordinary handshake. A copy of its SYN is not accepted afterwards,
/// although the member that refused it has forgotten that.
#[test]
fn a_member_that_was_killed_begins_a_new_memory() {
    for with_state in [true, false] {
        let Some(farm) = Farm::start() else { return };
        let state = with_state.then_some(&*farm.path);
        let first = runtime();
        let closed = farm.close(&first, farm.member(&first, state));
        assert_eq!(closed, with_state);
        let killed = runtime();
        let store = farm.member(&killed, state);
        farm.refuse(&killed, &store);
        drop((store, killed));
        farm.signal(Signal::SIGCONT);
        let again = runtime();
        let store = again.block_on(RedisStore::connect(&farm.redis.url(), options(state))).unwrap();
        assert_eq!(farm.other(redeem(1)), refused(Reason::NotActive), "a copy of what was refused");
        assert_eq!(farm.other(redeem(2)), refused(Reason::NotActive), "nothing of before is good");
        assert_eq!(farm.other(activate(20)), ACCEPTED);
        assert_eq!(again.block_on(ask(&store, redeem(20))), ACCEPTED);
    }
}

/// A member that cannot report its refusals to Redis leaves no proof that it owes nothing.
#[test]
fn a_member_that_stops_in_an_outage_begins_a_new_memory() {
    let Some(farm) = Farm::start() else { return };
    let stopped = runtime();
    let store = farm.member(&stopped, Some(&farm.path));
    farm.refuse(&stopped, &store);
    assert!(!farm.close(&stopped, store));
    drop(stopped);
    farm.signal(Signal::SIGCONT);
    let again = runtime();
    let _store = again.block_on(member(&farm.redis, Some(&farm.path)));
    assert_eq!(farm.other(redeem(1)), refused(Reason::NotActive));
}

/// The member's refusals were reported, so the other members' cookies stay valid.
#[test]
fn a_member_that_stops_in_order_costs_nobody_a_cookie() {
    let Some(farm) = Farm::start() else { return };
    let stopped = runtime();
    let store = farm.member(&stopped, Some(&farm.path));
    farm.refuse(&stopped, &store);
    farm.end_of_outage(&stopped, &store);
    assert!(farm.close(&stopped, store));
    let again = runtime();
    let store = again.block_on(member(&farm.redis, Some(&farm.path)));
    assert_eq!(farm.other(redeem(1)), refused(Reason::Replay));
    assert_eq!(farm.other(redeem(2)), ACCEPTED);
    assert_eq!(again.block_on(store.ask(redeem(3))), ACCEPTED);
}

/// The proof is valid for one start. A state file from a backup does not show what happened after the backup.
#[test]
fn a_state_file_from_a_backup_proves_nothing() {
    let Some(farm) = Farm::start() else { return };
    let first = runtime();
    assert!(farm.close(&first, farm.member(&first, Some(&farm.path))));
    let backup = std::fs::read(&farm.path).unwrap();
    let killed = runtime();
    let store = farm.member(&killed, Some(&farm.path));
    assert!(!farm.path.exists(), "it is taken at the start");
    farm.refuse(&killed, &store);
    drop((store, killed));
    farm.signal(Signal::SIGCONT);
    std::fs::write(&farm.path, backup).unwrap();
    let again = runtime();
    let _store = again.block_on(member(&farm.redis, Some(&farm.path)));
    assert_eq!(farm.other(redeem(1)), refused(Reason::NotActive));
}

/// A member that cannot reach Redis when it starts begins the new memory as soon as it can.
#[test]
fn a_member_that_starts_in_an_outage_settles_its_past_later() {
    let Some(farm) = Farm::start() else { return };
    let killed = runtime();
    let store = farm.member(&killed, Some(&farm.path));
    farm.refuse(&killed, &store);
    drop((store, killed));
    let again = runtime();
    let store = again.block_on(member(&farm.redis, Some(&farm.path)));
    assert!(!store.is_connected());
    farm.signal(Signal::SIGCONT);
    assert_eq!(again.block_on(ask(&store, activate(20))), ACCEPTED);
    assert_eq!(farm.other(redeem(1)), refused(Reason::NotActive));
}

/// Nothing was asked, so nothing is owed.
#[test]
fn a_start_that_redis_refuses_costs_nobody_a_cookie() {
    let Some(farm) = Farm::start() else { return };
    let first = runtime();
    assert!(farm.close(&first, farm.member(&first, Some(&farm.path))));
    farm.redis.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let state = options(Some(&farm.path));
    let refused = first.block_on(RedisStore::connect(&farm.redis.url(), state)).unwrap_err();
    assert!(matches!(refused, ConnectError::Evicts(_)), "{refused}");
    farm.redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let _store = first.block_on(member(&farm.redis, Some(&farm.path)));
    assert_eq!(farm.other(redeem(2)), ACCEPTED);
}

/// Members with other keys would share nothing. They are refused before they change anything for the others.
#[test]
fn a_member_with_other_keys_is_refused_and_costs_nobody_a_cookie() {
    let Some(farm) = Farm::start() else { return };
    let keys = |digit: &str| {
        let path = farm.redis.file(&format!("keys{digit}"));
        std::fs::write(&path, digit.repeat(96)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        Some(FarmKeys::read(&path).unwrap().fingerprint())
    };
    let runtime = runtime();
    let connect = |name: &str, digit: &str| {
        let with = Options { keys: keys(digit), ..options(Some(&farm.redis.file(name))) };
        runtime.block_on(RedisStore::connect(&farm.redis.url(), with))
    };
    let first = connect("first", "a").unwrap();
    assert!(first.is_connected());
    // A first start begins a new memory, so the others get new cookies.
    assert_eq!(farm.other(activate(2)), ACCEPTED);
    let refused = connect("second", "b").unwrap_err();
    assert!(matches!(refused, ConnectError::Keys(_)) && !refused.may_pass(), "{refused}");
    let names = [keys("a"), keys("b")].map(|keys| keys.unwrap().to_string());
    assert!(names.iter().all(|name| refused.to_string().contains(name)), "{refused}");
    assert_eq!(farm.other(redeem(2)), ACCEPTED, "no new memory has begun");
    // Those with the same keys join, also after Redis has lost everything.
    connect("third", "a").unwrap();
    farm.redis.cli(&["FLUSHALL"]);
    connect("fourth", "b").unwrap();
}

#[tokio::test]
async fn a_state_file_is_one_members_own() {
    let Some(redis) = Redis::start(&[]) else { return };
    let path = redis.file("state");
    let _first = member(&redis, Some(&path)).await;
    let second = RedisStore::connect(&redis.url(), options(Some(&path))).await.unwrap_err();
    assert!(matches!(second, ConnectError::State(_, StateError::Locked)), "{second}");
    // Other files are not deleted.
    let note = redis.file("note");
    for text in ["a note\n", "firstflight shared store, version 1\n", "\u{fffd}"] {
        std::fs::write(&note, text).unwrap();
        let damaged = RedisStore::connect(&redis.url(), options(Some(&note))).await.unwrap_err();
        assert!(matches!(damaged, ConnectError::State(_, StateError::Damaged)), "{damaged}");
        assert_eq!(std::fs::read_to_string(&note).unwrap(), text);
    }
    let nowhere =
        RedisStore::connect(&redis.url(), options(Some(&redis.file("no/state")))).await.unwrap_err();
    assert!(matches!(nowhere, ConnectError::State(_, StateError::Io(_))), "{nowhere}");
}

/// A copy is not accepted before the missed question was reported.
#[tokio::test]
async fn what_is_owed_is_refused_before_redis_knows_of_it() {
    let Some(redis) = Redis::start(&[]) else { return };
    let store = member(&redis, None).await;
    let guard = JobRequest::GuardSet {
        key: [1; 16],
        keep_ms: 120_000,
        ahead_ms: 0,
        reach_ms: 0,
        unix_ms: None,
        checked: true,
    };
    assert_eq!(store.ask(activate(1)).await, ACCEPTED);
    for owed in [redeem(1), guard] {
        // The task that reports it has not run yet.
        store.missed(owed);
        assert_eq!(store.ask(owed).await, refused(Reason::Replay));
    }
}
