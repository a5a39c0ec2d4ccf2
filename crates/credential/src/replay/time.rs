//! A guard's time, which does not go back when the wall clock does.

use super::guard::{Window, millis};
// Not those of `sync`: they are made in constants. Each is read and written by itself.
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firstflight_wire::Clock;

/// If the clock goes back by more than this, it was set.
const CLOCK_STEP_MS: u64 = 1000;

/// A guard's time, and the floor that follows from it. Shards share it. All times are Unix milliseconds.
#[derive(Debug)]
pub(super) struct GuardTime {
    window: Window,
    /// The latest time that was used to judge, remember or forget an id.
    latest: AtomicU64,
    /// Stamps up to this one are refused.
    floor: AtomicU64,
    /// Whether the clock was uncertain when it was last observed.
    unsure: AtomicBool,
}

impl GuardTime {
    /// At `now_ms`, with this floor.
    pub(super) const fn new(window: Window, now_ms: u64, floor_ms: u64) -> Self {
        Self {
            window,
            latest: AtomicU64::new(now_ms),
            floor: AtomicU64::new(floor_ms),
            unsure: AtomicBool::new(false),
        }
    }

    /// Stamps up to this one are refused.
    pub(super) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Relaxed)
    }

    /// Refuses stamps up to `floor_ms` from now on.
    pub(super) fn raise_floor(&self, floor_ms: u64) {
        self.floor.fetch_max(floor_ms, Ordering::Relaxed);
    }

    /// The guard's time when the clock shows `now_ms`. If all threads call this under one lock, the times that they get
    /// never decrease.
    pub(super) fn advance(&self, now_ms: u64) -> u64 {
        let latest = self.latest.fetch_max(now_ms, Ordering::Relaxed);
        if now_ms.saturating_add(CLOCK_STEP_MS) < latest {
            // Stamps up to the latest time, and within the window ahead of it, may have been accepted or
            // refused.
            self.raise_floor(self.above(latest));
        }
        now_ms.max(latest)
    }

    /// Like [`GuardTime::advance`]. While the clock is uncertain, the guard's time does not follow it.
    pub(super) fn observe(&self, clock: &Clock) -> u64 {
        if clock.uncertainty > self.window.future {
            // Every request is refused while the clock is uncertain.
            self.unsure.store(true, Ordering::Relaxed);
            return clock.unix_ms;
        }
        let time = self.advance(clock.unix_ms);
        if self.unsure.load(Ordering::Relaxed) && self.unsure.swap(false, Ordering::Relaxed) {
            // Requests that were refused because of the uncertainty must not be accepted now.
            self.raise_floor(self.above(time));
        }
        time
    }

    /// The latest stamp that may have been seen at `time`.
    fn above(&self, time: u64) -> u64 {
        time.saturating_add(millis(self.window.reach()))
    }
}
