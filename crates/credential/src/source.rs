//! The source of a server's keys, and how long they are valid.

use crate::cookie::Scheme;
use crate::cookie_keys::{CookieKeys, Fingerprint};
use crate::key::KeyRing;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;
use firstflight_wire::Clock;

/// 2020-01-01 00:00 UTC, Unix time in milliseconds. A clock with an earlier time was never set.
const EARLIEST_UNIX_MS: u64 = 1_577_836_800_000;

/// Says which keys are valid now. Sans-IO: the caller reads the clock, and asks again when the keys change
/// and when the clock was stepped.
pub trait KeySource {
    /// The keys at the wall clock's time.
    ///
    /// # Errors
    /// When the clock is not good enough. The caller keeps the last ring and asks again later: old keys cost
    /// a round trip to clients of other members, wrong keys would cost it to all clients.
    fn keys_at(&self, clock: &Clock) -> Result<Current, ClockError>;
}

/// The keys that are valid now.
#[derive(Debug, Clone)]
pub struct Current {
    /// The ring for listeners.
    pub ring: Arc<KeyRing>,
    /// Fingerprint of the key that grants, for logs.
    pub primary: Fingerprint,
    /// When they change next, Unix time in milliseconds. `None`: never.
    pub next_change: Option<u64>,
}

impl Current {
    pub(crate) fn new(keys: &CookieKeys, scheme: Scheme, next_change: Option<u64>) -> Self {
        Self { ring: Arc::new(keys.ring(scheme)), primary: keys.primary.fingerprint(), next_change }
    }
}

/// Why a clock is not good enough for keys that depend on time: the host is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockError {
    /// It shows a time before 2020.
    Unset,
    /// It may be wrong by more than the schedule tolerates.
    Uncertain {
        /// By how much it may be wrong.
        uncertainty: Duration,
        /// The limit that the schedule tolerates.
        max_skew: Duration,
    },
}

impl ClockError {
    /// Checks that `clock` is set, and that its uncertainty is at most `max_skew`.
    pub(crate) fn check(clock: &Clock, max_skew: Duration) -> Result<(), Self> {
        if clock.unix_ms < EARLIEST_UNIX_MS {
            return Err(Self::Unset);
        }
        if clock.uncertainty > max_skew {
            return Err(Self::Uncertain { uncertainty: clock.uncertainty, max_skew });
        }
        Ok(())
    }
}

impl fmt::Display for ClockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => f.write_str("the clock shows a time before 2020: set it"),
            Self::Uncertain { uncertainty, max_skew } => {
                write!(
                    f,
                    "the clock may be wrong by {uncertainty:?}, the key schedule tolerates {max_skew:?}: synchronise it"
                )
            }
        }
    }
}

impl core::error::Error for ClockError {}

/// The same keys for ever. Needs no clock.
#[derive(Debug, Clone)]
pub struct Fixed(Current);

impl Fixed {
    /// Always these keys.
    #[must_use]
    pub fn new(keys: &CookieKeys, scheme: Scheme) -> Self {
        Self(Current::new(keys, scheme, None))
    }
}

impl KeySource for Fixed {
    fn keys_at(&self, _clock: &Clock) -> Result<Current, ClockError> {
        Ok(self.0.clone())
    }
}
