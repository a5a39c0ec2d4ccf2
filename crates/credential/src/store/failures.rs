//! The failure memory: which server is left alone, how far, and until when.

use core::time::Duration;
use firstflight_wire::Instant;

/// How long a server is left alone after its first failure, and at most.
const BACKOFF_MIN: Duration = Duration::from_secs(60);
const BACKOFF_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Refusals in a row, each of a cookie newer than the last refusal, that are a failure.
const REFUSALS: u8 = 3;

/// What a SYN may carry, by what is known of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Neither option nor data: the path or the server does not bear them.
    Nothing,
    /// A request for a cookie, but no data: the server grants cookies that it refuses afterwards, as a farm
    /// without shared keys does.
    Request,
    /// A cookie and data.
    Everything,
}

/// What failed at one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failures {
    /// Failures in a row.
    pub count: u32,
    /// What may still be sent until `retry_at`.
    pub permits: Permission,
    /// When everything is tried again.
    pub retry_at: Instant,
    /// A first flight was accepted and answered since the last failure.
    proven: bool,
    refusals: u8,
    /// Cookies granted when the last refusal came.
    refused_at: u64,
}

impl Failures {
    /// None.
    pub(super) const NONE: Self = Self {
        count: 0,
        permits: Permission::Everything,
        retry_at: Instant::ZERO,
        proven: false,
        refusals: 0,
        refused_at: 0,
    };

    /// Failures as they were saved.
    #[must_use]
    pub const fn restore(count: u32, permits: Permission, retry_at: Instant) -> Self {
        Self { count, permits, retry_at, ..Self::NONE }
    }

    /// What a SYN may carry now.
    #[must_use]
    pub fn permission(&self, now: Instant) -> Permission {
        if now < self.retry_at { self.permits } else { Permission::Everything }
    }

    /// A first flight was accepted and answered: nothing is wrong here.
    pub(super) fn succeed(&mut self) {
        *self = Self { proven: true, ..Self::NONE };
    }

    /// Whether a first flight was accepted and answered, and none failed since.
    pub(super) const fn proven(&self) -> bool {
        self.proven
    }

    /// Something failed: nothing more than `permits` for a while, twice as long as the last time.
    pub(super) fn fail(&mut self, permits: Permission, now: Instant) {
        // Connections opened together fail together: that is one failure.
        if permits >= self.permission(now) {
            return;
        }
        // Doublings beyond the largest pause change nothing.
        let doubled = BACKOFF_MIN.saturating_mul(1 << self.count.min(16));
        self.count = self.count.saturating_add(1);
        self.proven = false;
        self.permits = permits;
        self.retry_at = now + doubled.min(BACKOFF_MAX);
    }

    /// A cookie was refused although it was granted after the last refusal (`newer`); `granted` counts the
    /// cookies of this server so far.
    pub(super) fn refuse(&mut self, newer: bool, granted: u64, now: Instant) {
        if !newer {
            // One stale cookie shown by several connections is refused several times.
            return;
        }
        self.refused_at = granted;
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals >= REFUSALS {
            self.fail(Permission::Request, now);
        }
    }

    /// The row of refusals ends.
    pub(super) fn no_refusal(&mut self) {
        self.refusals = 0;
    }

    pub(super) const fn refused_at(&self) -> u64 {
        self.refused_at
    }
}
