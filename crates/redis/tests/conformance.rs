//! What every store must do, for any server that speaks Redis' protocol:
//!
//!     FIRSTFLIGHT_STORE=rediss://HOST FIRSTFLIGHT_STORE_LOGIN=FILE FIRSTFLIGHT_STORE_CA=FILE \
//!         cargo test -p firstflight-redis --test redis conformance::
//!
//! The keys begin with a random prefix, and expire within an hour. Without `FIRSTFLIGHT_STORE` each test starts a Redis.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use crate::questions::{ACCEPTED, REPEATED, activate, redeem, redeem_by, refused};
use crate::server::Redis;
use crate::server::farm::ask;
use firstflight::SharedStore;
use firstflight::credential::{FlightId, JobRequest, JobResult, Reason};
use firstflight_redis::{Access, Options, RedisSessions, RedisStore};
use firstflight_seal::{Question, RegisterAnswer, Rid};
use std::collections::HashMap;
use std::env;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

/// The store that the variables name, or one of this test's own.
struct Store {
    url: String,
    options: Options,
    _own: Option<Redis>,
}

impl Store {
    fn find() -> Option<Self> {
        let (url, own) = match env::var("FIRSTFLIGHT_STORE") {
            Ok(url) => (url, None),
            Err(_) => {
                let redis = Redis::start(&[])?;
                (redis.url(), Some(redis))
            }
        };
        let file = |name| env::var_os(name).map(Into::into);
        let access = Access {
            login: file("FIRSTFLIGHT_STORE_LOGIN"),
            authorities: file("FIRSTFLIGHT_STORE_CA"),
            ..Access::default()
        };
        let prefix = format!("firstflight-conformance-{:016x}", getrandom::u64().unwrap());
        let hour = Duration::from_secs(3600);
        let within = Duration::from_secs(10);
        let options = Options { prefix, cookie_lifetime: hour, within, access, state: None, keys: None };
        Some(Self { url, options, _own: own })
    }

    async fn member(&self) -> RedisStore {
        let store = RedisStore::connect(&self.url, self.options.clone()).await.unwrap();
        while !store.is_connected() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        store
    }

    /// Members that have met the same memory.
    async fn members(&self, count: usize) -> Vec<Arc<RedisStore>> {
        let mut members = Vec::new();
        for _ in 0..count {
            members.push(Arc::new(self.member().await));
        }
        for member in &members {
            ask(member, activate(1 << 30)).await.unwrap();
        }
        members
    }
}

fn guard(id: u8, keep_ms: u64) -> JobRequest {
    JobRequest::GuardSet { key: [id; 16], keep_ms, ahead_ms: 0, reach_ms: 0, unix_ms: None, checked: true }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[tokio::test]
async fn an_id_is_new_to_one_of_many_members() {
    let Some(store) = Store::find() else { return };
    let mut asking = JoinSet::new();
    for member in store.members(6).await {
        for id in 0..100 {
            let member = Arc::clone(&member);
            asking.spawn(async move { (id, ask(&member, guard(id, 120_000)).await) });
        }
    }
    let mut accepted = HashMap::new();
    while let Some(answer) = asking.join_next().await {
        let (id, result) = answer.unwrap();
        *accepted.entry(id).or_insert(0) += u32::from(result.unwrap() == JobResult::Accept);
    }
    assert!(accepted.len() == 100 && accepted.values().all(|&times| times == 1), "{accepted:?}");
}

#[tokio::test]
async fn a_cookie_is_good_once() {
    let Some(store) = Store::find() else { return };
    let members = store.members(2).await;
    for counter in 1..50 {
        assert_eq!(members[0].ask(activate(counter)).await, ACCEPTED);
        assert_eq!(members[1].ask(redeem(counter)).await, ACCEPTED);
        assert_eq!(members[0].ask(redeem(counter)).await, refused(Reason::Replay));
        assert_eq!(members[1].ask(redeem(counter + 1000)).await, refused(Reason::NotActive));
        let [one, two] = [1, 2].map(|flight| redeem_by(counter + 2000, FlightId::new(flight)));
        assert_eq!(members[0].ask(activate(counter + 2000)).await, ACCEPTED);
        assert_eq!(members[1].ask(one).await, ACCEPTED);
        assert_eq!(members[0].ask(one).await, REPEATED);
        assert_eq!(members[0].ask(two).await, refused(Reason::Replay));
    }
}

/// An id is kept for as long as the question says, and not for ever.
#[tokio::test]
async fn an_id_expires() {
    let Some(store) = Store::find() else { return };
    let member = store.member().await;
    assert_eq!(member.ask(guard(1, 1500)).await, ACCEPTED);
    let long = guard(2, 3_600_000);
    assert_eq!(member.ask(long).await, ACCEPTED);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(member.ask(guard(1, 1500)).await, ACCEPTED);
    assert_eq!(member.ask(long).await, REPEATED);
}

#[tokio::test]
async fn a_member_that_starts_begins_a_new_memory_for_all() {
    let Some(store) = Store::find() else { return };
    let first = store.member().await;
    assert_eq!(first.ask(activate(1)).await, ACCEPTED);
    let second = store.member().await;
    assert_eq!(ask(&first, redeem(1)).await, refused(Reason::NotActive));
    let network = JobRequest::GuardSet {
        key: [9; 16],
        keep_ms: 120_000,
        ahead_ms: 0,
        reach_ms: 120_000,
        unix_ms: None,
        checked: true,
    };
    assert_eq!(second.ask(network).await, refused(Reason::GuardFloor));
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_refused() {
    let Some(store) = Store::find() else { return };
    let member = store.member().await;
    for (id, wrong_ms) in [(1, 60_000), (2, -60_000)] {
        let now = now_ms().saturating_add_signed(wrong_ms);
        let question = JobRequest::GuardSet {
            key: [id; 16],
            keep_ms: 61_000,
            ahead_ms: 0,
            reach_ms: 0,
            unix_ms: Some(now),
            checked: true,
        };
        assert_eq!(member.ask(question).await, refused(Reason::ClockSkew));
    }
}

#[tokio::test]
async fn a_sealed_request_is_new_once() {
    let Some(store) = Store::find() else { return };
    let members = store.members(2).await;
    let question = |rid| Question {
        rid: Rid::from_bytes([rid; 16]),
        t_ms: now_ms(),
        now_ms: now_ms(),
        early: false,
        with_block: true,
    };
    for rid in 0..50 {
        assert_eq!(members[0].run(&question(rid)).await, RegisterAnswer::New);
        assert_eq!(members[1].run(&question(rid)).await, RegisterAnswer::Seen);
    }
}

#[tokio::test]
async fn a_tls_session_is_taken_once() {
    let Some(store) = Store::find() else { return };
    let [one, two] = store.members(2).await.try_into().unwrap();
    let [one, two] = [one, two].map(|member| RedisSessions::new(member, &[7; 32], RedisSessions::BYTES));
    for id in 0..20 {
        let text = vec![id; 100];
        one.put([id; 32], Zeroizing::new(text.clone())).await;
        assert_eq!(*two.take([id; 32]).await.unwrap(), text);
        assert!(one.take([id; 32]).await.is_none());
    }
}
