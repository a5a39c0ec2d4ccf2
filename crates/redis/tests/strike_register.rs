//! The strike register of sealed first flights, with a real Redis that is killed, emptied and stopped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

use crate::questions::activate;
use crate::server::Redis;
use firstflight::SharedStore;
use firstflight_redis::{Options, RedisStore};
use firstflight_seal::{Question, RegisterAnswer, Rid};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;

/// When the test began, Unix milliseconds: Redis compares it with its own clock.
static NOW_MS: LazyLock<u64> =
    LazyLock::new(|| SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64);
const FLOOR: RegisterAnswer = RegisterAnswer::Floor { set: true };

async fn member(redis: &Redis) -> RedisStore {
    let options = Options { within: Duration::from_secs(10), ..Options::default() };
    RedisStore::connect(&redis.url(), options).await.unwrap()
}

/// Two members that use the same memory.
async fn members(redis: &Redis) -> (RedisStore, RedisStore) {
    let (a, b) = (member(redis).await, member(redis).await);
    noticed(&a).await;
    (a, b)
}

/// Waits until a member has met the memory that another one began.
async fn noticed(store: &RedisStore) {
    while store.ask(activate(1 << 40)).await.is_err() {
        connected(store).await;
    }
}

async fn connected(store: &RedisStore) {
    while !store.is_connected() {
        tokio::task::yield_now().await;
    }
}

/// Asked after Finished.
fn late(rid: u8) -> Question {
    Question {
        rid: Rid::from_bytes([rid; 16]),
        t_ms: *NOW_MS,
        now_ms: *NOW_MS,
        early: false,
        with_block: true,
    }
}

/// Asked before Finished, with t that many seconds ahead of the memory's floor of six minutes.
fn early(rid: u8, above_s: i64) -> Question {
    Question { early: true, t_ms: (*NOW_MS).saturating_add_signed((360 + above_s) * 1000), ..late(rid) }
}

#[tokio::test]
async fn a_request_runs_at_one_member() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    assert_eq!(a.run(&early(1, 60)).await, RegisterAnswer::New);
    assert_eq!(b.run(&early(1, 60)).await, RegisterAnswer::Seen);
    assert_eq!(b.run(&late(1)).await, RegisterAnswer::Seen, "after Finished as well");
    assert_eq!(b.run(&late(2)).await, RegisterAnswer::New);
    assert_eq!(a.run(&early(2, 60)).await, RegisterAnswer::Seen);
    // The store does not learn the rid.
    assert!(!redis.cli(&["KEYS", "*"]).contains("01010101010101010101"));
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:seen:*").query(&mut connection).unwrap();
    assert_eq!(keys.len(), 2);
    for key in keys {
        let left: u64 = redis::cmd("PTTL").arg(key).query(&mut connection).unwrap();
        assert!((800_000..=900_000).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn a_request_comes_to_all_members_at_once_and_runs_at_one() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    let mut asking = JoinSet::new();
    for store in [Arc::new(a), Arc::new(b)] {
        for n in 0..200u8 {
            let store = Arc::clone(&store);
            asking.spawn(async move { store.run(&early(n % 50, 60)).await });
        }
    }
    let answers = asking.join_all().await;
    assert_eq!(answers.iter().filter(|answer| **answer == RegisterAnswer::New).count(), 50);
    assert_eq!(answers.iter().filter(|answer| **answer == RegisterAnswer::Seen).count(), 350);
}

/// The floor of a memory that a member has just met. An entry below it is made all the same, and belongs to who made it.
#[tokio::test]
async fn below_the_floor_an_entry_has_one_owner() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    assert_eq!(a.run(&early(1, -1)).await, FLOOR);
    assert_eq!(
        b.run(&early(1, -1)).await,
        RegisterAnswer::Seen,
        "not FLOOR: it would run after Finished at both"
    );
    assert_eq!(a.run(&early(1, -1)).await, RegisterAnswer::Seen);
    assert_eq!(b.run(&late(1)).await, RegisterAnswer::Seen);
    assert_eq!(b.run(&late(2)).await, RegisterAnswer::New, "the floor is for early ones");
}

/// A member whose clock has gone back sees an old request as a new one, after its entry was forgotten. So nothing runs early
/// at a member whose clock is not Redis'. The entry is made all the same.
#[tokio::test]
async fn a_member_with_another_clock_runs_nothing_early() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    let by = |rid, clock_s: i64| {
        let shift = |ms: u64| ms.saturating_add_signed(clock_s * 1000);
        let Question { t_ms, now_ms, .. } = early(rid, 60);
        Question { t_ms: shift(t_ms), now_ms: shift(now_ms), ..early(rid, 60) }
    };
    assert_eq!(a.run(&by(1, -1200)).await, FLOOR);
    assert_eq!(a.run(&by(2, 1200)).await, FLOOR);
    assert_eq!(b.run(&by(1, 0)).await, RegisterAnswer::Seen);
    assert_eq!(b.run(&by(3, 20)).await, RegisterAnswer::New);
    assert_eq!(b.run(&Question { early: false, ..by(4, -1200) }).await, RegisterAnswer::New);
}

#[tokio::test]
async fn without_the_store_nothing_is_new() {
    let Some(mut redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    assert_eq!(a.run(&early(1, 60)).await, RegisterAnswer::New);
    redis.kill();
    for question in [early(7, 60), early(2, 60), late(3)] {
        assert_eq!(a.run(&question).await, RegisterAnswer::Unavailable);
    }
    assert!(a.owes());
    redis.restart();
    connected(&a).await;
    // What could not be asked was reported, so no copy of it runs.
    for question in [early(7, 60), early(2, 60), late(3)] {
        assert_eq!(a.run(&question).await, RegisterAnswer::Seen);
    }
    // A new memory: its floor is above what the old one may have had.
    assert_eq!(a.run(&early(4, -1)).await, FLOOR);
    noticed(&b).await;
    assert_eq!(b.run(&early(5, -1)).await, FLOOR);
    assert_eq!(b.run(&early(2, 60)).await, RegisterAnswer::Seen, "another member knows it too");
}

#[tokio::test]
async fn emptied_data_is_a_new_memory() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (a, _b) = members(&redis).await;
    assert_eq!(a.run(&early(1, 60)).await, RegisterAnswer::New);
    redis.cli(&["FLUSHALL"]);
    assert_eq!(a.run(&early(2, -1)).await, RegisterAnswer::Unavailable);
    connected(&a).await;
    assert_eq!(a.run(&early(6, -1)).await, FLOOR);
}

/// A store that is too slow may have set the entry. It counts as set.
#[tokio::test]
async fn a_late_answer_is_none() {
    let Some(redis) = Redis::start(&[]) else { return };
    let options = Options { within: Duration::from_millis(50), ..Options::default() };
    let a = RedisStore::connect(&redis.url(), options).await.unwrap();
    let process = Pid::from_raw(redis.pid());
    kill(process, Signal::SIGSTOP).unwrap();
    assert_eq!(a.run(&early(1, 60)).await, RegisterAnswer::Unavailable);
    assert_eq!(a.run(&early(2, 60)).await, RegisterAnswer::Unavailable, "at once");
    kill(process, Signal::SIGCONT).unwrap();
    connected(&a).await;
    while a.owes() {
        tokio::task::yield_now().await;
    }
    assert_eq!(a.run(&late(1)).await, RegisterAnswer::Seen);
    assert_eq!(a.run(&late(2)).await, RegisterAnswer::Seen);
}
