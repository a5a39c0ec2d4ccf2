//! A guard's time: it does not go back when the wall clock does.

use super::{Window, millis};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firstflight_wire::Clock;

/// A clock that goes back by more was set.
const CLOCK_STEP_MS: u64 = 1000;

/// What a guard knows of its clock, and the floor that follows from it. Shared by shards. All times are in
/// milliseconds.
///
/// Two moments are kept apart. By the first one the guard has remembered and forgotten: what it forgot must stay
/// refused. By the second one requests were judged without asking the guard: what was too late must stay too late.
#[derive(Debug)]
pub(super) struct GuardTime {
    window: Window,
    /// The latest time by which something was remembered or forgotten.
    used: AtomicU64,
    /// The latest time by which a request was judged, since the clock was last set back.
    judged: AtomicU64,
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
            used: AtomicU64::new(now_ms),
            judged: AtomicU64::new(now_ms),
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

    /// The time by which to remember and to forget. After it is used under a lock, no thread that holds the lock
    /// later gets an earlier one.
    pub fn advance(&self, now_ms: u64) -> u64 {
        self.used.fetch_max(now_ms, Ordering::Relaxed);
        self.look(now_ms)
    }

    /// The same time, if nothing is to be remembered or forgotten by it.
    pub fn look(&self, now_ms: u64) -> u64 {
        let used = self.used.load(Ordering::Relaxed);
        if now_ms.saturating_add(CLOCK_STEP_MS) < used {
            // Stamps up to its old value and what lies ahead of it may have been accepted.
            self.raise_floor(self.above(used));
        }
        now_ms.max(used)
    }

    /// The clock by which a request is judged; gives the time by which to judge whether it is too late.
    pub fn observe(&self, clock: &Clock) -> u64 {
        let now = clock.unix_ms;
        if clock.uncertainty > self.window.future {
            // By such a clock everything is refused, and nobody knows how late it is.
            self.unsure.store(true, Ordering::Relaxed);
            return now;
        }
        let judged = self.judged.fetch_max(now, Ordering::Relaxed);
        let back = now.saturating_add(CLOCK_STEP_MS) < judged;
        if back {
            self.judged.store(now, Ordering::Relaxed);
        }
        if back || (self.unsure.load(Ordering::Relaxed) && self.unsure.swap(false, Ordering::Relaxed)) {
            // What was too late by the clock of before may be in time again.
            self.raise_floor(self.above(now));
        }
        if back { now } else { now.max(judged) }
    }

    /// How far a stamp may be ahead of `now_ms`.
    fn above(&self, now_ms: u64) -> u64 {
        now_ms.saturating_add(millis(self.window.reach()))
    }
}
