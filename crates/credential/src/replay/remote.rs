//! A guard that a farm shares: every question becomes a job.

use super::time::GuardTime;
use super::{GuardKey, Guarded, ReplayGuard, ReplayId, Window, millis};
use crate::admission::{FirstFlight, JobRequest};
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Clock;

/// Asks a store that all members of a farm share. The store's driver keeps the rule of the floor: after it
/// met a new incarnation of the store, nothing is new for [`Window::past`] and whatever a stamp may be
/// ahead.
///
/// # Clocks
/// A stamp that is signed is compared with each member's own wall clock, so one copy may be too old for one member and
/// good for another. The store's clock decides instead: a member whose clock differs from it by more than S =
/// [`RemoteGuard::CLOCKS_APART`] is refused ([`Reason::ClockSkew`](crate::Reason::ClockSkew)), and an id is kept
/// until the store's clock shows its stamp + [`Window::past`] + S. A member that takes a copy at store time t has a
/// clock of at least t − S and at most stamp + past. So t is at most stamp + past + S: the id is still there.
///
/// A memory that begins at store time b lacks stamps up to b + S + future of a member that is ahead. Another member
/// may be behind by S, and the store before may have been ahead of this one by S: stamps up to b + future + 3 S
/// are refused.
///
/// The member has a floor of its own besides, for what only this member refused: see
/// [`ReplayGuard::raise_floor`]. What lies below it is refused here, and the store is told all the same.
#[derive(Debug)]
pub struct RemoteGuard {
    key: GuardKey,
    window: Window,
    /// This member's time and floor.
    time: GuardTime,
}

impl RemoteGuard {
    /// How far the wall clock of a member may be from the store's. Stores that follow each other must agree as well.
    pub const CLOCKS_APART: Duration = Duration::from_secs(1);

    /// A guard whose ids are hashed with `key`, the same on all members.
    #[must_use]
    pub const fn new(key: GuardKey, window: Window) -> Self {
        Self { key, window, time: GuardTime::new(window, 0, 0) }
    }

    /// Stamps are of a wall clock: those of arrival are of a clock that no other member looks at.
    const fn compares_clocks(&self) -> bool {
        self.window.spread.is_zero()
    }
}

impl ReplayGuard for RemoteGuard {
    fn test_and_set(&self, id: ReplayId, stamp_ms: u64, now_ms: u64) -> Guarded {
        let ends = stamp_ms.saturating_add(millis(self.window.past));
        let left = ends.saturating_sub(now_ms);
        if left == 0 {
            return Guarded::Floor;
        }
        let apart = if self.compares_clocks() { millis(Self::CLOCKS_APART) } else { 0 };
        Guarded::Ask(JobRequest::GuardSet {
            key: id.id.to_be_bytes(),
            keep_ms: left.saturating_add(apart),
            ahead_ms: stamp_ms.saturating_sub(now_ms) as i64 - now_ms.saturating_sub(stamp_ms) as i64,
            reach_ms: millis(self.window.reach()).saturating_add(3 * apart),
            unix_ms: self.compares_clocks().then_some(now_ms),
        })
    }

    /// Without the store: what this member refuses by itself.
    fn look_up(&self, _: ReplayId, stamp_ms: u64, _: u64) -> Guarded {
        let below = self.window.spread.is_zero() && stamp_ms <= self.time.floor();
        if below { Guarded::Floor } else { Guarded::New }
    }

    fn observe(&self, clock: &Clock) -> u64 {
        self.time.observe(clock)
    }

    fn raise_floor(&self, floor_ms: u64) {
        self.time.raise_floor(floor_ms);
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

#[cfg(test)]
mod tests;
