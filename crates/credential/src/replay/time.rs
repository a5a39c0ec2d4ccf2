//! A guard's time: it does not go back when the wall clock does.

use super::{Window, millis};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firstflight_wire::Clock;

/// A clock that goes back by more was set.
const CLOCK_STEP_MS: u64 = 1000;

/// What a guard knows of its clock, and the floor that follows from it. Shared by shards. All times are in
/// milliseconds.
#[derive(Debug)]
pub(super) struct GuardTime {
    window: Window,
    /// The latest time by which something was judged, remembered or forgotten.
    latest: AtomicU64,
    /// Stamps up to this one are refused.
    floor: AtomicU64,
    /// The clock was uncertain when it was last shown.
    unsure: AtomicBool,
}

impl GuardTime {
    /// At `now_ms`, with this floor.
    pub const fn new(window: Window, now_ms: u64, floor_ms: u64) -> Self {
        Self {
            window,
            latest: AtomicU64::new(now_ms),
            floor: AtomicU64::new(floor_ms),
            unsure: AtomicBool::new(false),
        }
    }

    /// Stamps up to this one are refused.
    pub fn floor(&self) -> u64 {
        self.floor.load(Ordering::Relaxed)
    }

    /// Refuses stamps up to `floor_ms` from now on.
    pub fn raise_floor(&self, floor_ms: u64) {
        self.floor.fetch_max(floor_ms, Ordering::Relaxed);
    }

    /// The guard's time when the clock says `now_ms`. After it is used under a lock, no thread that holds the lock
    /// later gets an earlier one.
    pub fn advance(&self, now_ms: u64) -> u64 {
        let latest = self.latest.fetch_max(now_ms, Ordering::Relaxed);
        if now_ms.saturating_add(CLOCK_STEP_MS) < latest {
            // Stamps up to its old value and what lies ahead of it may have been accepted, or refused.
            self.raise_floor(self.above(latest));
        }
        now_ms.max(latest)
    }

    /// The same for a clock that may be uncertain: the guard's time does not follow that.
    pub fn observe(&self, clock: &Clock) -> u64 {
        if clock.uncertainty > self.window.future {
            // By such a clock everything is refused, and nobody knows how late it is.
            self.unsure.store(true, Ordering::Relaxed);
            return clock.unix_ms;
        }
        let time = self.advance(clock.unix_ms);
        if self.unsure.load(Ordering::Relaxed) && self.unsure.swap(false, Ordering::Relaxed) {
            // What was refused for the uncertainty must not be good without it.
            self.raise_floor(self.above(time));
        }
        time
    }

    /// How far a stamp may be ahead of `time`.
    fn above(&self, time: u64) -> u64 {
        time.saturating_add(millis(self.window.reach()))
    }
}
