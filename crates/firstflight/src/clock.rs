//! The system's clocks, for what needs no virtual time.

use firstflight_wire::{Clock, Instant};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where monotonic time begins: ten years after zero, so that times before the start can be expressed.
pub(crate) const BEGINNING: Instant = Instant::from_secs(10 * 365 * 24 * 60 * 60);

/// Monotonic time of the system, counted from the moment at which this was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Monotonic(std::time::Instant);

#[allow(dead_code, reason = "of an engine")]
impl Monotonic {
    pub(crate) fn begin() -> Self {
        Self(std::time::Instant::now())
    }

    pub(crate) fn now(self) -> Instant {
        BEGINNING + self.0.elapsed()
    }

    /// The moment at which it began.
    pub(crate) const fn origin(self) -> std::time::Instant {
        self.0
    }

    /// Both clocks now.
    pub(crate) fn clock(self) -> Clock {
        at(unix(), self.now())
    }
}

/// Time since 1970-01-01 00:00 UTC, or zero if the clock shows an earlier time.
pub(crate) fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A reading of the wall clock at `mono`. Its error is unknown; with NTP it is within 1 s.
pub(crate) const fn at(unix: Duration, mono: Instant) -> Clock {
    Clock { mono, unix_ms: unix.as_millis() as u64, uncertainty: Duration::from_secs(1) }
}
