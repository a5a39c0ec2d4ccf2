//! Questions that are missed while a member connects again. A proxy in front of Redis holds requests up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

use crate::questions::redeem;
use crate::server;
use crate::server::Redis;
use crate::server::proxy::Proxy;
use firstflight::SharedStore;
use firstflight::credential::JobRequest;
use firstflight_redis::{Options, RedisStore};
use std::sync::mpsc;
use std::time::Duration;

/// More questions than a member remembers.
const TOO_MANY: u64 = 16_385;

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

/// Runs `test` on a runtime of one thread, which a task that never yields blocks. Fails if the test takes too long.
fn on_a_thread<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        server::farm::runtime().block_on(test());
        done.send(()).unwrap();
    });
    ended
        .recv_timeout(Duration::from_secs(60))
        .expect("a task never yields, or an expected state is never reached");
}

async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A member that reconnects: the connection is open, but the report of id 2 on it is held up.
async fn reporting(proxy: &Proxy) -> RedisStore {
    loop {
        if let Some(store) = try_reporting(proxy).await {
            return store;
        }
    }
}

/// `None` if an attempt to connect timed out, which can happen on a busy machine.
async fn try_reporting(proxy: &Proxy) -> Option<RedisStore> {
    let options = Options { within: Duration::from_secs(10), ..Options::default() };
    let store = RedisStore::connect(&proxy.url(), options).await.unwrap();
    proxy.hold("seen:0101");
    proxy.cut();
    assert!(store.ask(guard(1)).await.is_err());
    until(|| proxy.holds()).await;
    // This comes too late for the report that is held up.
    store.missed(guard(2));
    proxy.hold("seen:0202");
    until(|| proxy.holds()).await;
    if !store.is_connected() {
        proxy.release();
        return None;
    }
    Some(store)
}

#[test]
fn too_many_debts_while_a_new_connection_reports_are_settled_after_it() {
    let Some(redis) = Redis::start(&[]) else { return };
    let proxy = Proxy::start(&redis);
    on_a_thread(move || async move {
        let store = reporting(&proxy).await;
        (0..TOO_MANY).for_each(|counter| store.missed(redeem(counter + 1)));
        tokio::task::yield_now().await;
        proxy.release();
        until(|| store.is_connected() && !store.owes()).await;
        drop(redis);
    });
}

#[test]
fn what_is_missed_while_a_new_connection_reports_is_reported_after_it() {
    let Some(redis) = Redis::start(&[]) else { return };
    let proxy = Proxy::start(&redis);
    on_a_thread(move || async move {
        let store = reporting(&proxy).await;
        store.missed(guard(3));
        proxy.release();
        until(|| !store.owes()).await;
        assert!(redis.cli(&["KEYS", "*seen:0303*"]).contains("seen:0303"));
    });
}

#[test]
fn a_new_connection_that_breaks_before_its_report_is_not_used() {
    let Some(redis) = Redis::start(&[]) else { return };
    let proxy = Proxy::start(&redis);
    on_a_thread(move || async move {
        let store = reporting(&proxy).await;
        proxy.refuse(true);
        proxy.cut();
        until(|| !store.is_connected()).await;
        assert!(store.owes());
        proxy.release();
        proxy.refuse(false);
        until(|| store.is_connected() && !store.owes()).await;
        drop(redis);
    });
}
