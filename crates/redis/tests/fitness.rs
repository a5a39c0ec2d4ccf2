//! The requirements on Redis: its clock agrees with the members', and it keeps all keys.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use crate::questions::{ACCEPTED, activate, redeem, refused};
use crate::server::Redis;
use firstflight::credential::{GuardKey, Guarded, JobRequest, Reason, RemoteGuard, ReplayGuard, Window};
use firstflight::{SharedStore, StoreError};
use firstflight_redis::{Options, RedisStore};
use std::time::Duration;

async fn member(redis: &Redis) -> RedisStore {
    let options = Options { within: Duration::from_secs(10), ..Options::default() };
    RedisStore::connect(&redis.url(), options).await.unwrap()
}

async fn connected(store: &RedisStore) {
    while !store.is_connected() {
        tokio::task::yield_now().await;
    }
}

/// Redis' own Unix time, milliseconds.
fn clock(redis: &Redis) -> u64 {
    let line = redis.info("server", "server_time_usec");
    line.split(':').nth(1).unwrap().trim().parse::<u64>().unwrap() / 1000
}

/// The question of a guard of requests with signed stamps.
fn request(id: u8, stamp_ms: u64, now_ms: u64, floor: bool) -> JobRequest {
    let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS);
    let id = guard.id_of([10, 0, 0, 1].into(), &[id]);
    match guard.test_and_set(id, stamp_ms, now_ms) {
        Guarded::Ask(JobRequest::GuardSet { key, keep_ms, ahead_ms, reach_ms, unix_ms, checked }) => {
            let reach_ms = if floor { reach_ms } else { 0 };
            JobRequest::GuardSet { key, keep_ms, ahead_ms, reach_ms, unix_ms, checked }
        }
        other => unreachable!("{other:?}"),
    }
}

/// Members whose clocks are wrong by seconds or more ask the store.
#[tokio::test]
async fn a_member_whose_clock_is_not_the_stores_is_refused() {
    let Some(redis) = Redis::start(&[]) else { return };
    let store = member(&redis).await;
    // The errors are larger than any delay that a busy machine adds.
    for (id, wrong_ms, expected) in [
        (1, -3_600_000_i64, refused(Reason::ClockSkew)),
        (2, 3_600_000, refused(Reason::ClockSkew)),
        (3, -30_000, refused(Reason::ClockSkew)),
        (4, 30_000, refused(Reason::ClockSkew)),
    ] {
        let now = clock(&redis).saturating_add_signed(wrong_ms);
        assert_eq!(store.ask(request(id, now, now, false)).await, expected, "{wrong_ms} ms");
    }
    // On a busy machine the question may come late and be refused as skewed, but never for another reason.
    let now = clock(&redis);
    let right = store.ask(request(5, now, now, false)).await;
    assert!([ACCEPTED, refused(Reason::ClockSkew)].contains(&right), "{right:?}");
}

/// An id is kept as long as a member whose clock is behind may accept its stamp. That does not depend on the clock of
/// the member that set it, and holds also if that member was refused.
#[tokio::test]
async fn an_id_is_kept_by_the_stores_clock() {
    let Some(redis) = Redis::start(&[]) else { return };
    let store = member(&redis).await;
    for (id, wrong_ms) in [(1, 0_i64), (2, 500), (3, -500), (4, 40_000), (5, -9_000)] {
        let stamp = clock(&redis);
        store.ask(request(id, stamp, stamp.saturating_add_signed(wrong_ms), false)).await.unwrap();
        let keys = redis.cli(&["EVAL", "return redis.call('KEYS', '*:seen:*')", "0"]);
        let end = redis.cli(&[
            "EVAL",
            "local m = 0; for _, k in ipairs(redis.call('KEYS', '*:seen:*')) do \
             m = math.max(m, redis.call('PEXPIRETIME', k)) end; return m",
            "0",
        ]);
        assert_eq!(end, format!("int({})", stamp + 61_000), "{wrong_ms} ms, {keys}");
    }
}

/// A new memory accepts no stamp from before its beginning, also long after it began.
#[tokio::test]
async fn a_new_memory_takes_no_older_stamp() {
    let Some(redis) = Redis::start(&[]) else { return };
    let store = member(&redis).await;
    let now = clock(&redis);
    // The reach is set to zero, so the floor is the memory's beginning.
    let signed = |id, ahead_ms| JobRequest::GuardSet {
        key: [id; 16],
        keep_ms: 61_000,
        ahead_ms,
        reach_ms: 1,
        unix_ms: Some(now),
        checked: true,
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    let old = store.ask(signed(1, -600_000)).await;
    assert!([refused(Reason::GuardFloor), refused(Reason::ClockSkew)].contains(&old), "{old:?}");
}

/// After an eviction a first flight could be accepted twice, so the rest of the memory is invalid, even if the policy
/// is right again.
#[tokio::test]
async fn a_redis_that_threw_keys_away_is_a_new_memory() {
    let Some(redis) = Redis::start(&[]) else { return };
    let store = member(&redis).await;
    let seen = |id, reach_ms| JobRequest::GuardSet {
        key: [id; 16],
        keep_ms: 120_000,
        ahead_ms: 0,
        reach_ms,
        unix_ms: None,
        checked: true,
    };
    for n in 1..=100 {
        assert_eq!(store.ask(activate(u64::from(n))).await, ACCEPTED);
        assert_eq!(store.ask(seen(n, 0)).await, ACCEPTED);
    }
    redis.evict();
    assert!(redis.evicted() > 0, "the test tests nothing");
    // All of them were accepted before, and the keys of some are gone.
    assert_eq!(store.ask(seen(101, 120_000)).await, Err(StoreError::Unreachable));
    connected(&store).await;
    for n in 1..=100 {
        assert_ne!(store.ask(seen(n, 120_000)).await, ACCEPTED, "id {n} is accepted twice");
        assert_eq!(store.ask(redeem(u64::from(n))).await, refused(Reason::NotActive), "cookie {n}");
    }
    assert_eq!(store.ask(seen(200, 120_000)).await, refused(Reason::GuardFloor));
}

/// A change of the policy while Redis runs is noticed within a second, before keys are evicted.
#[tokio::test]
async fn a_policy_that_is_changed_is_noticed() {
    let Some(redis) = Redis::start(&[]) else { return };
    let store = member(&redis).await;
    assert_eq!(store.ask(activate(1)).await, ACCEPTED);
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    tokio::time::sleep(Duration::from_millis(1010)).await;
    assert_eq!(store.ask(activate(2)).await, Err(StoreError::Unfit));
    assert!(!store.is_connected());
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    connected(&store).await;
    assert_eq!(store.ask(redeem(1)).await, ACCEPTED, "nothing was thrown away");
}
