//! A listener that asks a shared store, through the public interface only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use firstflight::credential::{
    Farm, FastOpenPolicy, GuardKey, JobRequest, JobResult, KeyRing, OneTimeCookies, OneTimeKeys, Outcome,
    PendingLimit, PolicyError, Reason, RemoteGuard, Replays, Scheme, SerialTable, Window,
};
use firstflight::{
    ConnectConfig, Endpoint, FirstFlight, ListenConfig, ListenError, Listener, MemoryStore, SharedStore,
    StoreAnswer, StoreError, link,
};
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 80);

fn plain() -> FastOpenPolicy {
    let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
    FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16)))
}

fn guarded() -> FastOpenPolicy {
    let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::NETWORK);
    let mut policy = plain();
    policy.replays = Replays::NoDuplicates(Arc::new(guard));
    policy
}

fn one_time() -> FastOpenPolicy {
    let serials = SerialTable::own(1, 1, 1000);
    serials.extend(1000);
    let cookies =
        OneTimeCookies::new(OneTimeKeys::from_bytes([7; 32]), Arc::new(serials)).with_farm(Farm::Shared);
    let mut policy = plain();
    policy.verifier = Some(Arc::new(cookies));
    policy.replays = Replays::AtMostOnce;
    policy
}

/// A store that fails in one way.
struct Failing(fn() -> StoreAnswer<'static>);

impl SharedStore for Failing {
    fn ask(&self, _: JobRequest) -> StoreAnswer<'_> {
        (self.0)()
    }

    fn missed(&self, _: JobRequest) {}
}

fn world(store: Arc<dyn SharedStore>, policy: FastOpenPolicy) -> (Endpoint, Endpoint, Listener) {
    let path = link::PathConfig::with_delay(Duration::ZERO);
    let (a, b) = link::real_time_pair(path.clone(), path, 1).unwrap();
    let client = Endpoint::new(firstflight::config(vec!["10.0.0.1".parse().unwrap()]).unwrap(), a);
    let config = firstflight::config(vec![SERVER.0.into()]).unwrap();
    let server = Endpoint::with_store(config, b, store);
    let mut listen = ListenConfig::new(SocketAddr::from(SERVER));
    listen.fast_open = Some(policy);
    let listener = server.listen(listen).unwrap();
    (client, server, listener)
}

/// Sends a request and gets the answer, whatever the outcome of the first flight. Returns the outcome that the server
/// reports.
async fn visit(client: &Endpoint, listener: &Listener) -> Outcome {
    let fast = ConnectConfig::default().fast_open(true);
    let serve = async {
        let mut stream = listener.accept().await.unwrap();
        let mut request = [0; 4];
        stream.read_exact(&mut request).await.unwrap();
        assert_eq!(&request, b"ping");
        stream.handshake_confirmed().await.unwrap();
        stream.write_all(b"pong").await.unwrap();
        stream.shutdown().await.unwrap();
        stream.outcome()
    };
    let ask = async {
        let mut stream = client
            .connect(SocketAddr::from(SERVER), FirstFlight::safely_replayable(b"ping"), &fast)
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "pong");
    };
    tokio::join!(serve, ask).0
}

fn because(reason: Reason) -> Outcome {
    Outcome::Handshake(reason)
}

/// A store that started longer ago than a copy of a SYN can be under way.
async fn store_with_a_past() -> Arc<MemoryStore> {
    tokio::time::pause();
    let store = Arc::new(MemoryStore::new(100));
    tokio::time::advance(Duration::from_secs(121)).await;
    tokio::time::resume();
    store
}

#[tokio::test]
async fn every_guarded_first_flight_is_asked_about() {
    let store = store_with_a_past().await;
    let (client, server, listener) = world(Arc::clone(&store) as _, guarded());
    assert_eq!(visit(&client, &listener).await, because(Reason::NoCredential));
    assert_eq!(visit(&client, &listener).await, Outcome::Accepted);
    assert_eq!(visit(&client, &listener).await, Outcome::Accepted);
    store.restart();
    assert_eq!(visit(&client, &listener).await, because(Reason::GuardFloor));
    let counters = server.store_counters();
    assert_eq!((counters.asked, counters.accepted, counters.refused), (3, 2, 1));
}

#[tokio::test]
async fn a_shared_one_time_cookie_is_good_at_the_next_visit() {
    let (client, server, listener) = world(Arc::new(MemoryStore::new(100)), one_time());
    assert_eq!(visit(&client, &listener).await, because(Reason::NoCredential));
    for accepted in 1..=3 {
        assert_eq!(visit(&client, &listener).await, Outcome::Accepted);
        assert_eq!(server.store_counters().accepted, accepted);
    }
    assert!(server.store_counters().activated >= 3);
}

#[tokio::test]
async fn a_store_that_says_nothing_costs_a_handshake_and_no_request() {
    let (client, server, listener) = world(Arc::new(Failing(|| Box::pin(pending()))), guarded());
    assert_eq!(visit(&client, &listener).await, because(Reason::NoCredential));
    for timed_out in 1..=2 {
        let outcome = visit(&client, &listener).await;
        // The stack's own deadline is a little later. On a busy machine it may come first.
        let late = [because(Reason::StoreUnavailable), because(Reason::DeferredTooLong)];
        assert!(late.contains(&outcome), "{outcome:?}");
        assert_eq!(server.store_counters().asked, timed_out);
    }
}

/// Never answers, and records the questions that were missed.
#[derive(Default)]
struct Silent {
    missed: Mutex<Vec<JobRequest>>,
    told: Notify,
}

impl SharedStore for Silent {
    fn ask(&self, _: JobRequest) -> StoreAnswer<'_> {
        Box::pin(pending())
    }

    fn missed(&self, request: JobRequest) {
        self.missed.lock().unwrap().push(request);
        self.told.notify_one();
    }
}

/// The data is sent by the ordinary handshake. The store may not have received the question, and a copy of the SYN
/// must not be accepted when the store answers again.
#[tokio::test]
async fn a_question_whose_answer_is_not_waited_for_is_owed() {
    let store = Arc::new(Silent::default());
    let (client, _server, listener) = world(Arc::clone(&store) as _, guarded());
    assert_eq!(visit(&client, &listener).await, because(Reason::NoCredential));
    assert!(store.missed.lock().unwrap().is_empty());
    assert_ne!(visit(&client, &listener).await, Outcome::Accepted);
    tokio::time::timeout(Duration::from_secs(60), store.told.notified()).await.expect("nothing is owed");
    let missed = store.missed.lock().unwrap();
    assert!(matches!(missed[..], [JobRequest::GuardSet { .. }]), "{missed:?}");
}

#[tokio::test]
async fn a_store_that_fails_costs_a_handshake_and_no_request() {
    let unreachable = || -> StoreAnswer<'static> { Box::pin(async { Err(StoreError::Unreachable) }) };
    // `resume_unwind` prints nothing: on a busy machine, printing a backtrace takes longer than the SYN's timeout.
    let panicking =
        || -> StoreAnswer<'static> { std::panic::resume_unwind(Box::new("a fault of the store")) };
    for failing in [unreachable, panicking] {
        let (client, server, listener) = world(Arc::new(Failing(failing)), guarded());
        assert_eq!(visit(&client, &listener).await, because(Reason::NoCredential));
        let outcome = visit(&client, &listener).await;
        // Only the next question notices a panic.
        let known = [because(Reason::StoreUnavailable), because(Reason::DeferredTooLong)];
        assert!(known.contains(&outcome), "{outcome:?}");
        assert_eq!(visit(&client, &listener).await, because(Reason::StoreUnavailable));
        assert!(server.store_counters().failed >= 1);
        assert_eq!(server.counters().first_flights_accepted, 0);
    }
}

#[tokio::test]
async fn a_refusal_of_the_store_is_told() {
    let replay = || -> StoreAnswer<'static> { Box::pin(async { Ok(JobResult::Refuse(Reason::Replay)) }) };
    let (client, _server, listener) = world(Arc::new(Failing(replay)), guarded());
    visit(&client, &listener).await;
    assert_eq!(visit(&client, &listener).await, because(Reason::Replay));
}

#[tokio::test]
async fn without_a_store_such_a_policy_is_refused() {
    let path = link::PathConfig::with_delay(Duration::ZERO);
    let (_, b) = link::real_time_pair(path.clone(), path, 1).unwrap();
    let server = Endpoint::new(firstflight::config(vec![SERVER.0.into()]).unwrap(), b);
    for policy in [guarded(), one_time()] {
        let mut listen = ListenConfig::new(SocketAddr::from(SERVER));
        listen.fast_open = Some(policy);
        let error = server.listen(listen).unwrap_err();
        assert_eq!(error, ListenError::Policy(PolicyError::NeedsStore));
        assert!(error.to_string().contains("store"), "{error}");
    }
}
