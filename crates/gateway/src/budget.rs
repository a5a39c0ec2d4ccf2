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
mod tests;
