//! The rules of a shared store, with a real Redis that is killed, emptied, stopped and replaced.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

use crate::questions::{activate, redeem, redeem_by};
use crate::server::Redis;
use firstflight::credential::{FlightId, JobRequest, JobResult, Reason};
use firstflight::{SharedStore, StoreError};
use firstflight_redis::{ConnectError, Options, RedisStore};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A long time limit, because the tests check the answers and not their time.
fn options() -> Options {
    Options { within: Duration::from_secs(10), ..Options::default() }
}

/// A member of the farm. Without a state file it begins a new memory for all.
async fn member(redis: &Redis) -> RedisStore {
    RedisStore::connect(&redis.url(), options()).await.unwrap()
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

fn guard(id: u8) -> JobRequest {
    JobRequest::GuardSet {
        key: [id; 16],
        keep_ms: 120_000,
        ahead_ms: 0,
        reach_ms: 0,
        unix_ms: None,
        checked: true,
    }
}

/// A question whose stamp is the time of arrival, so that a new memory is closed for 2 MSL.
fn network(id: u8) -> JobRequest {
    JobRequest::GuardSet {
        key: [id; 16],
        keep_ms: 120_000,
        ahead_ms: 0,
        reach_ms: 120_000,
        unix_ms: None,
        checked: true,
    }
}

async fn ask(store: &RedisStore, request: JobRequest) -> JobResult {
    store.ask(request).await.unwrap()
}

const fn refused(reason: Reason) -> JobResult {
    JobResult::Refuse(reason)
}

/// Waits for background tasks, whose duration is not fixed.
async fn connected(store: &RedisStore) {
    while !store.is_connected() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_id_is_new_to_one_member_of_the_farm() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    assert_eq!(ask(&a, guard(1)).await, JobResult::Accept);
    assert_eq!(ask(&b, guard(1)).await, JobResult::Repeat);
    assert_eq!(ask(&a, guard(1)).await, JobResult::Repeat);
    assert_eq!(ask(&b, guard(2)).await, JobResult::Accept);
    assert_eq!(a.ask(JobRequest::Verify { key: 1 }).await, Err(StoreError::Unsupported));
}

/// A recorded SYN that is sent again and again costs the store one question for each member.
#[tokio::test]
async fn a_repeat_at_the_same_member_is_refused_without_a_question() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    ask(&b, activate(1)).await;
    assert_eq!((ask(&a, guard(1)).await, ask(&a, redeem(1)).await), (JobResult::Accept, JobResult::Accept));
    let asked = |redis: &Redis| {
        redis.info("commandstats", "cmdstat_exec:").split([':', '=', ',']).nth(2).unwrap().to_owned()
    };
    let before = asked(&redis);
    for _ in 0..100 {
        assert_eq!(ask(&a, guard(1)).await, JobResult::Repeat);
        assert_eq!(ask(&a, redeem(1)).await, refused(Reason::Replay));
    }
    assert_eq!(asked(&redis), before, "it knows");
    assert_eq!(ask(&b, guard(1)).await, JobResult::Repeat);
    assert_ne!(asked(&redis), before, "the other one asks");
    // Whatever the member knows, another memory is another matter.
    redis.cli(&["FLUSHALL"]);
    assert_eq!(ask(&a, guard(1)).await, JobResult::Repeat);
    noticed(&a).await;
    assert_eq!(ask(&a, guard(1)).await, JobResult::Accept);
}

#[tokio::test]
async fn an_id_is_asked_for_by_many_at_once_and_new_to_one() {
    let Some(redis) = Redis::start(&[]) else { return };
    let mut asking = tokio::task::JoinSet::new();
    let mut farm = Vec::new();
    for _ in 0..8 {
        farm.push(Arc::new(member(&redis).await));
    }
    for store in &farm {
        noticed(store).await;
    }
    for store in farm {
        for id in 0..50 {
            let store = Arc::clone(&store);
            asking.spawn(async move { (id, ask(&store, guard(id)).await) });
        }
    }
    let mut accepted = HashMap::new();
    while let Some(answer) = asking.join_next().await {
        let (id, result) = answer.unwrap();
        *accepted.entry(id).or_insert(0) += u32::from(result == JobResult::Accept);
    }
    assert!(accepted.len() == 50 && accepted.values().all(|&n| n == 1), "{accepted:?}");
}

#[tokio::test]
async fn a_cookie_of_one_member_is_good_at_another_one_once() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    ask(&a, activate(1)).await;
    assert_eq!(ask(&b, redeem(1)).await, JobResult::Accept);
    assert_eq!(ask(&a, redeem(1)).await, refused(Reason::Replay));
    ask(&a, activate(1)).await;
    assert_eq!(ask(&a, redeem(1)).await, refused(Reason::Replay), "an activation that comes again");
    assert_eq!(ask(&a, redeem(2)).await, refused(Reason::NotActive));
    ask(&a, activate(2)).await;
    assert_eq!(ask(&b, redeem(2)).await, refused(Reason::Replay), "it was shown before it was good");
}

/// Waits until the cookie with the number 1 has this value, in one of the memories.
async fn cookie_is(redis: &Redis, value: &str) {
    let is = |key: &String| redis.text(&["GET", key]) == value;
    while !redis.list(&["KEYS", "*:cookie:0003000000000001"]).iter().any(is) {
        tokio::task::yield_now().await;
    }
}

/// A copy of a SYN reaches one member first. The SYN itself is a repeat at the other one; another SYN with the cookie is not.
#[tokio::test]
async fn only_the_first_flight_that_used_a_cookie_is_a_repeat() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    let c = member(&redis).await;
    noticed(&a).await;
    noticed(&b).await;
    let [one, two] = [1, 2].map(|flight| redeem_by(1, FlightId::new(flight)));
    ask(&a, activate(1)).await;
    assert_eq!(ask(&a, one).await, JobResult::Accept);
    assert_eq!(ask(&b, one).await, JobResult::Repeat);
    assert_eq!(ask(&b, two).await, refused(Reason::Replay));
    for request in [two, redeem(1)] {
        assert_eq!(ask(&c, request).await, refused(Reason::Replay));
    }
    // That the others asked changes nothing, once it is corrected in the store.
    cookie_is(&redis, "used:0000000000000001").await;
    for store in [&a, &b, &c] {
        assert_eq!(ask(store, one).await, JobResult::Repeat);
        assert_eq!(ask(store, two).await, refused(Reason::Replay), "as the member knows");
    }
    let fourth = member(&redis).await;
    assert_eq!(ask(&fourth, one).await, refused(Reason::NotActive), "in a new memory");
    cookie_is(&redis, "used").await;
    assert_eq!(
        ask(&fourth, one).await,
        refused(Reason::Replay),
        "it was refused, so its data came by the handshake"
    );
}

/// A member that connects for the first time does not know what the memory has forgotten.
#[tokio::test]
async fn a_memory_that_a_member_meets_is_closed_for_2_msl() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    assert_eq!(ask(&a, network(1)).await, refused(Reason::GuardFloor));
    // The refused id was still set, so a copy that comes after the floor is seen.
    let ahead = |id, keep_ms| JobRequest::GuardSet {
        key: [id; 16],
        keep_ms,
        ahead_ms: 600_000,
        reach_ms: 120_000,
        unix_ms: None,
        checked: true,
    };
    assert_eq!(
        ask(&b, network(1)).await,
        JobResult::Repeat,
        "also below the floor: another member may have run it"
    );
    let later = ahead(1, 1);
    assert_eq!(ask(&b, later).await, JobResult::Repeat);
    assert_eq!(ask(&a, ahead(2, 120_000)).await, JobResult::Accept);
}

#[tokio::test]
async fn after_a_kill_nothing_older_is_good() {
    let Some(mut redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    ask(&a, activate(1)).await;
    ask(&a, activate(9)).await;
    assert_eq!(ask(&a, guard(1)).await, JobResult::Accept);
    redis.kill();
    assert_eq!(a.ask(redeem(1)).await, Err(StoreError::Unreachable));
    // From now on no question waits.
    assert!(!a.is_connected());
    assert_eq!(a.ask(guard(1)).await, Err(StoreError::Unreachable));
    redis.restart();
    connected(&a).await;
    assert_eq!(ask(&a, network(3)).await, refused(Reason::GuardFloor));
    assert_eq!(ask(&a, redeem(9)).await, refused(Reason::NotActive));
    assert_eq!(ask(&a, network(1)).await, JobResult::Repeat, "what could not be asked");
    assert_eq!(ask(&a, redeem(1)).await, refused(Reason::Replay), "what could not be asked");
    // The other member notices only when it asks.
    assert!(b.ask(redeem(1)).await.is_err());
    connected(&b).await;
    assert_eq!(ask(&b, network(2)).await, refused(Reason::GuardFloor));
    ask(&b, activate(2)).await;
    assert_eq!(ask(&a, redeem(2)).await, JobResult::Accept);
}

/// A Redis that writes to disk restarts with cookies that were used after it wrote them.
#[tokio::test]
async fn what_a_disk_brings_back_is_worthless() {
    let Some(mut redis) = Redis::start(&["--dbfilename", "dump"]) else { return };
    let a = member(&redis).await;
    ask(&a, activate(1)).await;
    ask(&a, activate(9)).await;
    redis.cli(&["SAVE"]);
    assert_eq!(ask(&a, redeem(9)).await, JobResult::Accept);
    redis.restart();
    let brought_back = redis.cli(&["KEYS", "*:cookie:*"]);
    assert!(brought_back.contains("cookie"), "the test tests nothing: {brought_back}");
    assert!(a.ask(redeem(1)).await.is_err());
    connected(&a).await;
    assert_eq!(ask(&a, redeem(9)).await, refused(Reason::NotActive));
}

#[tokio::test]
async fn emptied_data_is_a_new_memory_for_every_member() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    assert_eq!(ask(&a, guard(1)).await, JobResult::Accept);
    redis.cli(&["FLUSHALL"]);
    for (store, id) in [(&a, 3), (&b, 4)] {
        assert_eq!(store.ask(guard(2)).await, Err(StoreError::Unreachable));
        connected(store).await;
        assert_eq!(ask(store, network(id)).await, refused(Reason::GuardFloor));
    }
}

/// A master that follows another one and is promoted again may lack what the other one accepted.
#[tokio::test]
async fn a_replica_is_not_asked_and_a_promoted_one_is_a_new_memory() {
    let Some(redis) = Redis::start(&[]) else { return };
    let a = member(&redis).await;
    ask(&a, activate(1)).await;
    ask(&a, activate(9)).await;
    // The new master does not answer, but only the role of this process matters.
    redis.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(a.ask(redeem(1)).await, Err(StoreError::Unreachable));
    assert!(!a.is_connected());
    redis.cli(&["REPLICAOF", "NO", "ONE"]);
    connected(&a).await;
    assert_eq!(ask(&a, network(1)).await, refused(Reason::GuardFloor));
    assert_eq!(
        ask(&a, redeem(9)).await,
        refused(Reason::NotActive),
        "same process, other line of replication"
    );
}

#[tokio::test]
async fn a_redis_that_hangs_costs_the_time_limit_and_then_nothing() {
    let Some(redis) = Redis::start(&[]) else { return };
    let quick = Options { within: Duration::from_millis(18), ..Options::default() };
    let store = RedisStore::connect(&redis.url(), quick).await.unwrap();
    kill(Pid::from_raw(redis.pid()), Signal::SIGSTOP).unwrap();
    assert_eq!(store.ask(guard(1)).await, Err(StoreError::TimedOut));
    assert_eq!(store.ask(guard(1)).await, Err(StoreError::Unreachable));
    kill(Pid::from_raw(redis.pid()), Signal::SIGCONT).unwrap();
    connected(&store).await;
    let patient = member(&redis).await;
    // It is the same memory, which has received the question in the end.
    assert_eq!(ask(&patient, guard(1)).await, JobResult::Repeat);
}

/// The data was sent by the ordinary handshake in the meantime. So neither a recorded copy of the SYN with
/// its cookie nor a copy made by the network may be accepted.
#[tokio::test]
async fn what_could_not_be_asked_is_used_up_when_the_store_is_back() {
    let Some(redis) = Redis::start(&[]) else { return };
    let quick = Options { within: Duration::from_millis(18), ..Options::default() };
    let store = RedisStore::connect(&redis.url(), quick).await.unwrap();
    let patient = member(&redis).await;
    noticed(&store).await;
    for counter in 1..=100 {
        ask(&patient, activate(counter)).await;
    }
    kill(Pid::from_raw(redis.pid()), Signal::SIGSTOP).unwrap();
    for counter in 1..=99 {
        assert!(store.ask(redeem(counter)).await.is_err());
    }
    assert_eq!(store.ask(guard(1)).await, Err(StoreError::Unreachable));
    kill(Pid::from_raw(redis.pid()), Signal::SIGCONT).unwrap();
    connected(&store).await;
    for counter in 1..=99 {
        assert_eq!(ask(&patient, redeem(counter)).await, refused(Reason::Replay), "{counter}");
    }
    assert_eq!(ask(&patient, guard(1)).await, JobResult::Repeat);
    assert_eq!(ask(&patient, redeem(100)).await, JobResult::Accept, "it is still the same memory");
}

/// With too many questions at one time, the missed ones are reported while others are asked.
#[tokio::test]
async fn what_was_not_asked_for_want_of_room_is_used_up_beside() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (one, two) = members(&redis).await;
    for counter in 1..=100 {
        assert_eq!(ask(&one, activate(counter)).await, JobResult::Accept);
    }
    for counter in 1..=99 {
        one.missed(redeem(counter));
    }
    // Wait only until the last of them is reported.
    while ask(&two, activate(1000)).await != JobResult::Accept || one.owes() {
        tokio::task::yield_now().await;
    }
    for counter in 1..=99 {
        assert_eq!(ask(&two, redeem(counter)).await, refused(Reason::Replay), "{counter}");
    }
    assert_eq!(ask(&two, redeem(100)).await, JobResult::Accept);
}

/// With more missed questions than a member remembers, nothing from before is valid at any member.
#[tokio::test]
async fn what_could_not_be_asked_too_often_begins_a_new_memory() {
    let Some(redis) = Redis::start(&[]) else { return };
    let quick = Options { within: Duration::from_millis(18), ..Options::default() };
    let store = RedisStore::connect(&redis.url(), quick).await.unwrap();
    let patient = member(&redis).await;
    noticed(&store).await;
    ask(&patient, activate(20_000)).await;
    ask(&patient, activate(20_001)).await;
    kill(Pid::from_raw(redis.pid()), Signal::SIGSTOP).unwrap();
    for counter in 1..20_000 {
        assert!(store.ask(redeem(counter)).await.is_err());
    }
    kill(Pid::from_raw(redis.pid()), Signal::SIGCONT).unwrap();
    connected(&store).await;
    assert!(patient.ask(redeem(20_000)).await.is_err(), "another memory");
    connected(&patient).await;
    assert_eq!(ask(&patient, redeem(20_001)).await, refused(Reason::NotActive));
    assert_eq!(ask(&patient, network(1)).await, refused(Reason::GuardFloor));
}

#[tokio::test]
async fn a_redis_that_throws_keys_away_is_refused() {
    let Some(redis) = Redis::start(&["--maxmemory", "10mb", "--maxmemory-policy", "allkeys-lru"]) else {
        return;
    };
    let error = RedisStore::connect(&redis.url(), options()).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Evicts(policy) if policy == "allkeys-lru"), "{error}");
    assert!(error.to_string().contains("noeviction"));
}

#[tokio::test]
async fn mistakes_of_the_address_and_the_password() {
    for url in ["", "redis", "http://host", "redis://host:port"] {
        let error = RedisStore::connect(url, options()).await.unwrap_err();
        assert!(matches!(error, ConnectError::Url(_)), "{url}: {error}");
    }
    let Some(redis) = Redis::start(&["--requirepass", "secret"]) else { return };
    let without = RedisStore::connect(&redis.url(), options()).await.unwrap_err();
    assert!(matches!(without, ConnectError::Refused(_)), "{without}");
    let wrong = RedisStore::connect(&format!("{}?pass=wr0ng", redis.url()), options()).await.unwrap_err();
    assert!(matches!(wrong, ConnectError::Refused(_)), "{wrong}");
    assert!(!wrong.to_string().contains("wr0ng"));
    let right = RedisStore::connect(&format!("{}?pass=secret", redis.url()), options()).await.unwrap();
    assert!(!format!("{right:?}").contains("secret"));
    assert_eq!(ask(&right, guard(1)).await, JobResult::Accept);
}

/// A member may start before its store.
#[tokio::test]
async fn who_finds_nobody_tries_on() {
    let Some(mut redis) = Redis::start(&[]) else { return };
    redis.kill();
    let store = member(&redis).await;
    assert_eq!(store.ask(guard(1)).await, Err(StoreError::Unreachable));
    redis.restart();
    connected(&store).await;
    assert_eq!(ask(&store, guard(1)).await, JobResult::Repeat, "what could not be asked");
    assert_eq!(ask(&store, guard(2)).await, JobResult::Accept);
}

/// 900 cookies, each shown to both members at the same time and once more at the end. Redis is killed after a
/// third of them and restarted after two thirds.
#[tokio::test]
async fn killed_under_load_nothing_is_taken_twice_and_everything_answered() {
    const COUNT: u64 = 900;
    let Some(mut redis) = Redis::start(&[]) else { return };
    let (a, b) = members(&redis).await;
    let mut taken = HashMap::<u64, u32>::new();
    let mut phases = [(0, 0); 3];
    for n in 1..=COUNT {
        if n == COUNT / 3 {
            redis.kill();
        }
        if n == COUNT * 2 / 3 {
            redis.restart();
            connected(&a).await;
            // This member did not ask in the meantime, so it notices the new memory now.
            let _ = b.ask(redeem(COUNT + 1)).await;
            connected(&b).await;
        }
        let _ = a.ask(activate(n)).await;
        let (one, two) = tokio::join!(a.ask(redeem(n)), b.ask(redeem(n)));
        let accepted =
            [one, two].into_iter().filter(|answer| *answer == Ok(JobResult::Accept)).count() as u32;
        *taken.entry(n).or_default() += accepted;
        let phase = &mut phases[((n * 3 / COUNT) as usize).min(2)];
        if accepted > 0 { phase.0 += 1 } else { phase.1 += 1 }
    }
    for n in 1..=COUNT {
        for store in [&a, &b] {
            *taken.entry(n).or_default() += u32::from(store.ask(redeem(n)).await == Ok(JobResult::Accept));
        }
    }
    // Print what the questions cost the server. INFO is the cost of identifying the memory.
    println!("{}", redis.info("commandstats", "calls"));
    let [before, down, after] = phases;
    println!("accepted/ordinary before {before:?}, while down {down:?}, after {after:?}");
    assert!(taken.values().all(|&times| times <= 1), "twice: {taken:?}");
    assert_eq!((before.1, down.0, after.1), (0, 0, 0));
}
