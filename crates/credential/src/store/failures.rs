//! The failure memory: which SYNs a server does not get, and until when.

use core::time::Duration;
use firstflight_wire::Instant;

/// The first and the longest pause after failures.
const BACKOFF_MIN: Duration = Duration::from_secs(60);
const BACKOFF_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// This number of consecutive refusals is a failure. A refusal counts if its cookie is newer than the last
/// refusal.
const REFUSALS: u8 = 3;
/// How many first flights that get no answer one after the other are a failure. Links lose a packet in a hundred, and
/// some in thirty; then four in a row are chance once in 80,000 visits, and two once in 900. The count is one for the
/// engine and the kernel's TCP. What it may reach differs, because what a lost one costs differs:
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LostFlight {
    /// From the second one on a plain SYN of the same ports follows each at once, so that further ones cost no time. The
    /// engine does this.
    Hedged = 4,
    /// The visit waits for a second attempt from another port, at least two round-trip times. The kernel sends no second
    /// SYN of the same ports before its own timeout, and two connections at once to find out would be worse than the
    /// rare mistake, which costs a round trip for a minute.
    Raced = 2,
}

/// How long a lost first flight counts.
const LOST_LASTS: Duration = Duration::from_secs(24 * 60 * 60);

/// What a SYN may carry, according to the failure memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Neither option nor data: the path or the server does not tolerate them.
    Nothing,
    /// A request for a cookie, but no data: the server grants cookies and refuses them later, as a farm
    /// without shared keys does.
    Request,
    /// A cookie and data.
    Everything,
}

/// The failures at one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failures {
    /// Consecutive failures.
    pub count: u32,
    /// What may still be sent until `retry_at`.
    pub permits: Permission,
    /// From this time on, everything is allowed again.
    pub retry_at: Instant,
    /// Whether a first flight was accepted and answered since the last failure.
    proven: bool,
    refusals: u8,
    /// Number of cookies granted before the last refusal.
    refused_at: u64,
    /// When the latest SYN left whose first flight was accepted.
    passed: Option<Instant>,
    /// First flights that got no answer since one was accepted.
    lost: u8,
    /// When the latest of these was noted.
    lost_at: Instant,
}

impl Failures {
    /// No failures.
    pub(super) const NONE: Self = Self {
        count: 0,
        permits: Permission::Everything,
        retry_at: Instant::ZERO,
        proven: false,
        refusals: 0,
        refused_at: 0,
        passed: None,
        lost: 0,
        lost_at: Instant::ZERO,
    };

    /// Restores saved failures. `lost` is [`Failures::lost`], and `lost_at` is [`Failures::lost_at`].
    #[must_use]
    pub const fn restore(
        count: u32,
        permits: Permission,
        retry_at: Instant,
        lost: u8,
        lost_at: Instant,
    ) -> Self {
        Self { count, permits, retry_at, lost, lost_at, ..Self::NONE }
    }

    /// The number of first flights that got no answer since one was accepted. A single one was probably lost by chance.
    /// If there is any, a plain SYN follows the next first flight at once.
    #[must_use]
    pub const fn lost(&self) -> u8 {
        self.lost
    }

    /// When the latest of these was noted.
    #[must_use]
    pub const fn lost_at(&self) -> Instant {
        self.lost_at
    }

    /// What a SYN may carry now.
    #[must_use]
    pub fn permission(&self, now: Instant) -> Permission {
        if now < self.retry_at { self.permits } else { Permission::Everything }
    }

    /// A first flight was accepted and answered, so earlier failures are forgotten. True if that changes what is
    /// known.
    pub(super) fn succeed(&mut self) -> bool {
        let changed = !self.proven || self.count > 0;
        *self = Self { proven: true, passed: self.passed, ..Self::NONE };
        changed
    }

    /// Whether a first flight was accepted and answered, and none failed since.
    pub(super) const fn proven(&self) -> bool {
        self.proven
    }

    /// The first flight of a SYN that left at `sent` was accepted.
    #[inline]
    pub(super) fn pass(&mut self, sent: Instant) {
        self.passed = self.passed.max(Some(sent));
        self.lost = 0;
    }

    /// A first flight that left at `sent` got no answer, and a plain SYN behind it did. Several in a row are a failure.
    pub(super) fn lose(&mut self, sent: Option<Instant>, most: LostFlight, now: Instant) {
        // Connections that were opened together fail together, which counts once.
        if self.lost > 0 && sent.is_some_and(|sent| sent < self.lost_at) {
            return;
        }
        if now.saturating_since(self.lost_at) >= LOST_LASTS {
            self.lost = 0;
        }
        self.lost = self.lost.saturating_add(1);
        self.lost_at = now;
        if self.lost >= most as u8 {
            self.lost = 0;
            self.fail(Permission::Nothing, now);
        }
    }

    /// Whether a first flight was accepted whose SYN left when `sent` did, or later.
    pub(super) fn passed_since(&self, sent: Instant) -> bool {
        self.passed >= Some(sent)
    }

    /// A first flight failed. For a pause, twice as long as the last one, a SYN may carry only what `permits`
    /// allows.
    pub(super) fn fail(&mut self, permits: Permission, now: Instant) {
        // Connections that were opened together fail together, which counts as one failure.
        if permits >= self.permission(now) {
            return;
        }
        // Further doublings would exceed the longest pause anyway.
        let doubled = BACKOFF_MIN.saturating_mul(1 << self.count.min(16));
        self.count = self.count.saturating_add(1);
        self.proven = false;
        self.permits = permits;
        self.retry_at = now + doubled.min(BACKOFF_MAX);
    }

    /// A cookie was refused. `newer`: it was granted after the last refusal. `granted`: the number of cookies
    /// of this server so far.
    pub(super) fn refuse(&mut self, newer: bool, granted: u64, now: Instant) {
        if !newer {
            // If several connections show one stale cookie, it is refused several times, which counts as one
            // refusal.
            return;
        }
        self.refused_at = granted;
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals >= REFUSALS {
            self.fail(Permission::Request, now);
        }
    }

    /// Ends the sequence of refusals.
    pub(super) fn no_refusal(&mut self) {
        self.refusals = 0;
    }

    pub(super) const fn refused_at(&self) -> u64 {
        self.refused_at
    }
}
