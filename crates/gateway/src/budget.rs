//! Descriptors: how many the connections of clients and those to backends may take, so that neither takes the last ones.

use firstflight_daemon::open_files;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// A process has one limit.
static BACKENDS: OnceLock<Arc<Semaphore>> = OnceLock::new();

/// Divides the descriptors of this process. Returns how many connections of clients there may be: `most`, or fewer.
pub(crate) fn divide(most: usize) -> usize {
    let Some(limit) = open_files::limit() else { return most };
    let (clients, backends) = shares(limit, most);
    let backends = Arc::new(Semaphore::new(backends.min(Semaphore::MAX_PERMITS)));
    // It stays for the life of the process, as the limit does.
    let _ = BACKENDS.set(backends);
    clients
}

/// What clients and backends get of a limit of open files.
fn shares(limit: usize, most: usize) -> (usize, usize) {
    let spare = limit.saturating_sub(open_files::OTHERS.min(limit / 4));
    let clients = most.min((spare / 2).max(1));
    (clients, spare.saturating_sub(clients).max(1))
}

/// A descriptor for a connection to a backend. While there is none, `close_one` may close a connection that nobody uses.
/// `None` if there is none within this time.
pub(crate) async fn take(within: Duration, close_one: impl FnOnce()) -> Option<OwnedSemaphorePermit> {
    let all = BACKENDS.get_or_init(|| Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)));
    take_of(all, within, close_one).await
}

async fn take_of(
    all: &Arc<Semaphore>,
    within: Duration,
    close_one: impl FnOnce(),
) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = Arc::clone(all).try_acquire_owned() {
        return Some(permit);
    }
    close_one();
    timeout(within, Arc::clone(all).acquire_owned()).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_side_gets_the_last_descriptors() {
        assert_eq!(shares(1_000_000, 10_000), (10_000, 989_744));
        assert_eq!(shares(20_256, 10_000), (10_000, 10_000));
        assert_eq!(shares(2_048, 10_000), (896, 896));
        assert_eq!(shares(64, 10_000), (24, 24));
        assert_eq!(shares(1, 10_000), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_descriptor_waits_for_one() {
        let all = Arc::new(Semaphore::new(1));
        let second = Duration::from_secs(1);
        let held = take_of(&all, second, || {}).await;
        assert!(held.is_some());
        assert!(take_of(&all, second, || {}).await.is_none());
        // One that nobody uses is closed instead.
        assert!(take_of(&all, second, || drop(held)).await.is_some());
    }
}
