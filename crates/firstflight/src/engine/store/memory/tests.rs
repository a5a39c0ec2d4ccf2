//! The rules of a shared store, in paused time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::credential::{GuardKey, Guarded, ReplayGuard, Window};
use std::net::IpAddr;

const NETWORK_MS: u64 = 120_000;

fn guard(id: u8) -> JobRequest {
    JobRequest::GuardSet {
        key: [id; 16],
        keep_ms: NETWORK_MS,
        ahead_ms: 0,
        reach_ms: NETWORK_MS,
        unix_ms: None,
        checked: true,
    }
}

fn serial(counter: u64) -> Serial {
    Serial::new(3, counter).unwrap()
}

fn redeem(counter: u64, flight: Option<FlightId>) -> JobRequest {
    JobRequest::Redeem { serial: serial(counter), flight }
}

/// A repeat counts as a replay here.
async fn refused(store: &MemoryStore, request: JobRequest) -> Option<Reason> {
    match store.ask(request).await.unwrap() {
        JobResult::Accept => None,
        JobResult::Repeat => Some(Reason::Replay),
        JobResult::Refuse(reason) => Some(reason),
    }
}

async fn pass(ms: u64) {
    tokio::time::advance(Duration::from_millis(ms)).await;
}

#[tokio::test(start_paused = true)]
async fn a_guarded_id_is_new_once_while_it_is_kept() {
    let store = MemoryStore::new(10);
    pass(NETWORK_MS).await;
    assert_eq!(refused(&store, guard(1)).await, Some(Reason::GuardFloor), "exactly at the floor");
    pass(1).await;
    assert_eq!(
        refused(&store, guard(1)).await,
        Some(Reason::Replay),
        "what the floor refused came another way"
    );
    assert_eq!(refused(&store, guard(2)).await, None);
    pass(NETWORK_MS - 1).await;
    assert_eq!(refused(&store, guard(2)).await, Some(Reason::Replay));
    pass(1).await;
    assert_eq!(refused(&store, guard(2)).await, None, "a question does not prolong it");
}

#[tokio::test(start_paused = true)]
async fn a_memory_that_begins_is_closed_as_long_as_copies_can_come() {
    let store = MemoryStore::new(10);
    pass(NETWORK_MS + 1).await;
    assert_eq!(refused(&store, guard(1)).await, None);
    store.restart();
    assert_eq!(refused(&store, guard(1)).await, Some(Reason::GuardFloor));
    assert_eq!(refused(&store, guard(1)).await, Some(Reason::Replay), "it is set all the same");
    pass(NETWORK_MS + 1).await;
    assert_eq!(refused(&store, guard(1)).await, None);
    // A signed stamp that lies ahead of the clock.
    let signed = |id, ahead_ms| JobRequest::GuardSet {
        key: [id; 16],
        keep_ms: 70_000,
        ahead_ms,
        reach_ms: 10_000,
        unix_ms: Some(1_800_000_000_000),
        checked: true,
    };
    store.restart();
    assert_eq!(refused(&store, signed(9, 10_001)).await, None);
    assert_eq!(refused(&store, signed(10, 10_000)).await, Some(Reason::GuardFloor));
}

/// Sends one request with a signed stamp to two members whose clocks differ by `apart_ms`. The second member gets it
/// at the last moment at which its clock accepts the stamp. Returns how often the request is accepted.
async fn accepted_at_two_members(apart_ms: i64) -> usize {
    const BEGAN: u64 = 1_800_000_000_000;
    const STAMP: u64 = BEGAN + 100_000;
    let store = MemoryStore::new(10);
    let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS);
    let id = guard.id_of(IpAddr::from([10, 0, 0, 1]), b"request");
    let began = Instant::now();
    let mut accepted = 0;
    // Each member's clock when it is asked. The store uses the first member's clock from the beginning.
    let clocks = [(0, BEGAN), (0, STAMP), (apart_ms, STAMP + 59_999)];
    for (n, (wrong_ms, shows)) in clocks.into_iter().enumerate() {
        let at = began + Duration::from_millis((shows - BEGAN).saturating_add_signed(-wrong_ms));
        pass((at - Instant::now()).as_millis() as u64).await;
        let (id, stamp) = if n == 0 { (guard.id_of([10, 0, 0, 9].into(), b"x"), shows) } else { (id, STAMP) };
        let Guarded::Ask(job) = guard.test_and_set(id, stamp, shows) else { panic!("not asked") };
        accepted += usize::from(refused(&store, job).await.is_none());
    }
    accepted
}

#[tokio::test(start_paused = true)]
async fn members_whose_clocks_differ_take_one_request_once() {
    for apart_ms in [-5000, -1001, -1000, -500, -1, 0, 1, 500, 1000, 1001, 5000] {
        assert_eq!(accepted_at_two_members(apart_ms).await, 1, "clocks {apart_ms} ms apart");
    }
}

/// Requests accepted before the restart stay below the floor, even long after it.
#[tokio::test(start_paused = true)]
async fn a_new_memory_takes_no_older_stamp() {
    let store = MemoryStore::new(10);
    let signed = |ahead_ms, unix_ms| JobRequest::GuardSet {
        key: [7; 16],
        keep_ms: 61_000,
        ahead_ms,
        reach_ms: 13_000,
        unix_ms: Some(unix_ms),
        checked: true,
    };
    pass(20_000).await;
    assert_eq!(refused(&store, signed(0, 1_800_000_000_000)).await, None);
    store.restart();
    pass(20_000).await;
    assert_eq!(refused(&store, signed(-20_000, 1_800_000_020_000)).await, Some(Reason::GuardFloor));
}

#[tokio::test(start_paused = true)]
async fn a_cookie_is_good_once_after_its_activation() {
    let store = MemoryStore::new(10);
    let (activate, redeem) = (JobRequest::Activate { serial: serial(1) }, redeem(1, None));
    assert_eq!(refused(&store, activate).await, None);
    assert_eq!(refused(&store, redeem).await, None);
    assert_eq!(refused(&store, redeem).await, Some(Reason::Replay));
    // A repeated activation does not make the cookie valid again.
    assert_eq!(refused(&store, activate).await, None);
    assert_eq!(refused(&store, redeem).await, Some(Reason::Replay));
}

/// A copy of a SYN reaches one member first, and the SYN itself another one. A client may also show one cookie in two SYNs:
/// each has data of its own.
#[tokio::test(start_paused = true)]
async fn only_the_first_flight_that_was_accepted_is_a_repeat() {
    let store = MemoryStore::new(10);
    pass(NETWORK_MS + 1).await;
    assert_eq!(store.ask(guard(1)).await, Ok(JobResult::Accept));
    assert_eq!(store.ask(guard(1)).await, Ok(JobResult::Repeat));
    let [one, two] = [1, 2].map(|flight| Some(FlightId::new(flight)));
    assert_eq!(refused(&store, JobRequest::Activate { serial: serial(1) }).await, None);
    assert_eq!(store.ask(redeem(1, one)).await, Ok(JobResult::Accept));
    for _ in 0..2 {
        assert_eq!(store.ask(redeem(1, two)).await, Ok(JobResult::Refuse(Reason::Replay)));
        assert_eq!(store.ask(redeem(1, None)).await, Ok(JobResult::Refuse(Reason::Replay)));
        assert_eq!(store.ask(redeem(1, one)).await, Ok(JobResult::Repeat));
    }
    // What was refused came by the handshake.
    assert_eq!(store.ask(redeem(2, one)).await, Ok(JobResult::Refuse(Reason::NotActive)));
    assert_eq!(store.ask(redeem(2, one)).await, Ok(JobResult::Refuse(Reason::Replay)));
}

/// The data was sent by the ordinary handshake, so a copy of the SYN must not be executed when the activation finally
/// arrives.
#[tokio::test(start_paused = true)]
async fn a_cookie_that_was_shown_too_early_is_used_up() {
    let store = MemoryStore::new(10);
    assert_eq!(refused(&store, redeem(1, None)).await, Some(Reason::NotActive));
    assert_eq!(refused(&store, JobRequest::Activate { serial: serial(1) }).await, None);
    assert_eq!(refused(&store, redeem(1, None)).await, Some(Reason::Replay));
}

#[tokio::test(start_paused = true)]
async fn cookies_end() {
    let store = MemoryStore::new(10);
    refused(&store, JobRequest::Activate { serial: serial(1) }).await;
    pass(COOKIE_LIVES.as_millis() as u64).await;
    assert_eq!(refused(&store, redeem(1, None)).await, Some(Reason::NotActive));
    store.restart();
    refused(&store, JobRequest::Activate { serial: serial(2) }).await;
    store.restart();
    assert_eq!(refused(&store, redeem(2, None)).await, Some(Reason::NotActive));
}

#[tokio::test(start_paused = true)]
async fn a_full_store_refuses_and_recovers() {
    let store = MemoryStore::new(2);
    pass(NETWORK_MS + 1).await;
    assert_eq!(refused(&store, guard(1)).await, None);
    assert_eq!(refused(&store, guard(2)).await, None);
    assert_eq!(refused(&store, guard(3)).await, Some(Reason::Overloaded));
    assert_eq!(refused(&store, guard(1)).await, Some(Reason::Replay), "nothing was forgotten");
    pass(NETWORK_MS).await;
    assert_eq!(refused(&store, guard(3)).await, None);
}

#[tokio::test]
async fn what_it_does_not_know_it_says() {
    let answer = MemoryStore::new(1).ask(JobRequest::Verify { key: 1 }).await;
    assert_eq!(answer, Err(StoreError::Unsupported));
}
