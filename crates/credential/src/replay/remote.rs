//! A guard that a farm shares. It turns every question into a job for the store.

use super::guard::{GuardKey, Guarded, ReplayGuard, ReplayId, Unreported, Window, millis};
use super::reports::Reports;
use super::time::GuardTime;
use crate::flight::{FirstFlight, JobRequest};
use alloc::sync::Arc;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Clock;

/// Asks a store that all members of a farm share. The store's driver applies the floor: after it finds a new
/// incarnation of the store, it refuses all stamps up to `reach_ms` of [`JobRequest::GuardSet`] after the
/// beginning of the new memory.
///
/// # Clocks
/// Each member compares a signed stamp with its own wall clock, so a copy can be too old for one member and
/// in time for another. Therefore the store's clock decides. A member whose clock differs from it by more
/// than S = [`RemoteGuard::CLOCKS_APART`] is refused ([`Reason::ClockSkew`](crate::Reason::ClockSkew)), and
/// an id is kept until the store's clock shows its stamp + [`Window::past`] + S. A member that accepts a copy
/// at store time t has a clock of at least t − S and at most stamp + past. So t is at most stamp + past + S,
/// and the id is still there.
///
/// A memory that begins at store time b may lack stamps up to b + S + future, from a member that is ahead. Another
/// member may be behind by S, and the store before may have been ahead of this one by S. So stamps up to b + future + 3
/// S are refused.
///
/// The member also has a floor of its own, for requests that only this member refused: see
/// [`ReplayGuard::raise_floor`]. A stamp below it is refused here, and its id is still reported to the store.
#[derive(Debug)]
pub struct RemoteGuard {
    key: GuardKey,
    window: Window,
    /// This member's time and floor.
    time: GuardTime,
    /// The bound of reports about credentials that were not verified.
    reports: Arc<Reports>,
}

impl RemoteGuard {
    /// How far the wall clock of a member may be from the store's. When one store replaces another, their clocks must
    /// agree as well.
    pub const CLOCKS_APART: Duration = Duration::from_secs(1);

    /// The most first flights whose credentials were not verified that the guards of a process report while a report
    /// matters, which is for [`Window::REQUESTS`] and three times [`RemoteGuard::CLOCKS_APART`].
    pub const MOST_REPORTS: usize = {
        let window = Window::REQUESTS;
        Reports::most_in(window.past.as_secs() + window.future.as_secs() + 3 * Self::CLOCKS_APART.as_secs())
    };

    /// A guard whose ids are hashed with `key`, the same on all members.
    #[must_use]
    pub fn new(key: GuardKey, window: Window) -> Self {
        Self { key, window, time: GuardTime::new(window, 0, 0), reports: Arc::new(Reports::new()) }
    }

    /// A guard for another listener of the process, or for another window. It has the same key, and a time and a floor
    /// of its own. Both together make no more reports than one ([`ReplayGuard::report`]).
    #[must_use]
    pub fn beside(&self, window: Window) -> Self {
        let (key, reports) = (self.key.clone(), Arc::clone(&self.reports));
        Self { key, window, time: GuardTime::new(window, 0, 0), reports }
    }

    /// Whether stamps are compared with the wall clock. Stamps of arrival come from a clock that only this member
    /// reads.
    const fn compares_clocks(&self) -> bool {
        self.window.spread.is_zero()
    }
}

impl ReplayGuard for RemoteGuard {
    fn test_and_set(&self, id: ReplayId, stamp_ms: u64, now_ms: u64) -> Guarded {
        let ends = stamp_ms.saturating_add(millis(self.window.past));
        let left = ends.saturating_sub(now_ms);
        let apart = if self.compares_clocks() { millis(Self::CLOCKS_APART) } else { 0 };
        // A stamp that is further ahead is not acceptable by any member's clock. The store evicts no entries,
        // so an id with a stamp that an attacker chose must not reach it.
        let farthest = now_ms.saturating_add(millis(self.window.future)).saturating_add(2 * apart);
        if left == 0 || stamp_ms > farthest {
            return Guarded::Floor;
        }
        Guarded::Ask(JobRequest::GuardSet {
            key: id.id.to_be_bytes(),
            keep_ms: left.saturating_add(apart),
            ahead_ms: stamp_ms.saturating_sub(now_ms) as i64 - now_ms.saturating_sub(stamp_ms) as i64,
            reach_ms: millis(self.window.reach()).saturating_add(3 * apart),
            unix_ms: self.compares_clocks().then_some(now_ms),
            checked: true,
        })
    }

    fn report(&self, id: ReplayId, stamp_ms: u64, now_ms: u64) -> Result<Guarded, Unreported> {
        match self.test_and_set(id, stamp_ms, now_ms) {
            Guarded::Ask(JobRequest::GuardSet { key, keep_ms, ahead_ms, reach_ms, unix_ms, .. }) => {
                let job = JobRequest::GuardSet { key, keep_ms, ahead_ms, reach_ms, unix_ms, checked: false };
                self.reports.take(id, now_ms).then_some(Guarded::Ask(job)).ok_or(Unreported)
            }
            other => Ok(other),
        }
    }

    /// Checks only this member's own floor, without the store.
    fn look_up(&self, _: ReplayId, stamp_ms: u64, _: u64) -> Guarded {
        let below = self.compares_clocks() && stamp_ms <= self.time.floor();
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
