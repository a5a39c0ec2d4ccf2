//! Requests that a client has given up after a backend got them. Each costs the backend work, and nothing the client
//! (RFC 9113 §10.5).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::Notify;

/// How many more than those that it let end a connection may give up.
const MOST: u32 = 100;

/// Those of one connection of a client.
#[derive(Clone, Default)]
pub(super) struct Resets(Arc<(AtomicU32, Notify)>);

impl Resets {
    /// A request goes to a backend.
    pub(super) fn dispatched(&self) -> Dispatched {
        Dispatched(Some(self.clone()))
    }

    /// Waits until there are too many.
    pub(super) async fn too_many(&self) {
        loop {
            let more = self.0.1.notified();
            if self.0.0.load(Ordering::Acquire) > MOST {
                return;
            }
            more.await;
        }
    }
}

/// A request at a backend. If it is dropped before its end, the client has given it up.
pub(super) struct Dispatched(Option<Resets>);

impl Dispatched {
    /// It has its response, or failed by itself.
    pub(super) fn done(&mut self) {
        if let Some(Resets(counts)) = self.0.take() {
            let _ = counts.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
        }
    }
}

impl Drop for Dispatched {
    fn drop(&mut self) {
        if let Some(Resets(counts)) = self.0.take() {
            counts.0.fetch_add(1, Ordering::AcqRel);
            counts.1.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_that_end_make_up_for_those_that_are_given_up() {
        let resets = Resets::default();
        for _ in 0..1000 {
            drop(resets.dispatched());
            resets.dispatched().done();
        }
        let wait = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(wait, resets.too_many()).await.is_err());
        for _ in 0..=MOST {
            drop(resets.dispatched());
        }
        resets.too_many().await;
    }
}
