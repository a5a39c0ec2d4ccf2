//! A guard that a farm shares: every question becomes a job.

use super::{GuardKey, Guarded, ReplayGuard, ReplayId, Window};
use crate::admission::{FirstFlight, JobRequest};
use core::net::IpAddr;

/// Asks a store that all members of a farm share. The store's driver keeps the rule of the floor: after it
/// met a new incarnation of the store, nothing is new for [`Window::past`] and whatever a stamp may be
/// ahead.
#[derive(Debug)]
pub struct RemoteGuard {
    key: GuardKey,
    window: Window,
}

impl RemoteGuard {
    /// A guard whose ids are hashed with `key`, the same on all members.
    #[must_use]
    pub const fn new(key: GuardKey, window: Window) -> Self {
        Self { key, window }
    }
}

impl ReplayGuard for RemoteGuard {
    fn test_and_set(&self, id: ReplayId, stamp_ms: u64, now_ms: u64) -> Guarded {
        // Until no copy can be taken any more, by the clock of whoever asks.
        let ends = stamp_ms.saturating_add(self.window.past.as_millis() as u64);
        let keep_ms = ends.saturating_sub(now_ms);
        if keep_ms == 0 {
            return Guarded::Floor;
        }
        Guarded::Ask(JobRequest::GuardSet {
            key: id.id.to_be_bytes(),
            keep_ms,
            ahead_ms: stamp_ms.saturating_sub(now_ms),
            reach_ms: self.window.reach().as_millis() as u64,
        })
    }

    fn id(&self, first: &FirstFlight<'_>) -> ReplayId {
        self.key.id(first)
    }

    fn id_of(&self, client: IpAddr, key: &[u8]) -> ReplayId {
        self.key.id_of(client, key)
    }

    fn needs_store(&self) -> bool {
        true
    }
}
