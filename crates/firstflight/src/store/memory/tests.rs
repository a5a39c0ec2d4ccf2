//! The rules of a shared store, in paused time.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

const NETWORK_MS: u64 = 120_000;

fn guard(id: u8) -> JobRequest {
    JobRequest::GuardSet { key: [id; 16], keep_ms: NETWORK_MS, ahead_ms: 0, reach_ms: NETWORK_MS }
}

fn serial(counter: u64) -> Serial {
    Serial::new(3, counter).unwrap()
}

async fn refused(store: &MemoryStore, request: JobRequest) -> Option<Reason> {
    match store.ask(request).await.unwrap() {
        JobResult::Accept => None,
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
    let ahead = JobRequest::GuardSet { key: [9; 16], keep_ms: 70_000, ahead_ms: 10_001, reach_ms: 10_000 };
    store.restart();
    assert_eq!(refused(&store, ahead).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_cookie_is_good_once_after_its_activation() {
    let store = MemoryStore::new(10);
    let (activate, redeem) =
        (JobRequest::Activate { serial: serial(1) }, JobRequest::Redeem { serial: serial(1) });
    assert_eq!(refused(&store, activate).await, None);
    assert_eq!(refused(&store, redeem).await, None);
    assert_eq!(refused(&store, redeem).await, Some(Reason::Replay));
    // An activation that is repeated gives nothing back.
    assert_eq!(refused(&store, activate).await, None);
    assert_eq!(refused(&store, redeem).await, Some(Reason::Replay));
}

/// Its data went by the ordinary handshake: a copy of its SYN must not be executed when the activation
/// comes at last.
#[tokio::test(start_paused = true)]
async fn a_cookie_that_was_shown_too_early_is_used_up() {
    let store = MemoryStore::new(10);
    assert_eq!(refused(&store, JobRequest::Redeem { serial: serial(1) }).await, Some(Reason::NotActive));
    assert_eq!(refused(&store, JobRequest::Activate { serial: serial(1) }).await, None);
    assert_eq!(refused(&store, JobRequest::Redeem { serial: serial(1) }).await, Some(Reason::Replay));
}

#[tokio::test(start_paused = true)]
async fn cookies_end() {
    let store = MemoryStore::new(10);
    refused(&store, JobRequest::Activate { serial: serial(1) }).await;
    pass(COOKIE_LIVES.as_millis() as u64).await;
    assert_eq!(refused(&store, JobRequest::Redeem { serial: serial(1) }).await, Some(Reason::NotActive));
    store.restart();
    refused(&store, JobRequest::Activate { serial: serial(2) }).await;
    store.restart();
    assert_eq!(refused(&store, JobRequest::Redeem { serial: serial(2) }).await, Some(Reason::NotActive));
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
