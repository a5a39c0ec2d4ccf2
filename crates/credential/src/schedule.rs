//! Keys that follow the clock. Every member of a farm derives the same keys, without communication (the Fast
//! Open paper §4.2).

use crate::cookie::Scheme;
use crate::cookie_keys::CookieKeys;
use crate::secret::{FarmSecret, FarmSecrets};
use crate::source::{ClockError, Current, KeySource};
use core::fmt;
use core::time::Duration;
use firstflight_wire::Clock;

/// A new key for every period, derived from a secret and UTC. Key i is [`FarmSecret::cookie_key`] of i =
/// ⌊Unix time in seconds / period⌋. It becomes the granting key at time i · period, its turn.
///
/// A Linux kernel holds two keys. So that a farm can contain kernels, every member has two:
///
/// | own clock | grants with | accepts too |
/// |---|---|---|
/// | from a turn to key i, until `lead` before the next | K<sub>i</sub> | K<sub>i−1</sub> |
/// | the last `lead` of the period | K<sub>i</sub> | K<sub>i+1</sub> |
///
/// **Skew.** A member may already grant with the next key while another still grants with the present one.
/// This works as long as their clocks differ by at most `lead`. So no clock may be further from UTC than
/// [`Schedule::max_skew`], half of `lead`. Then, at any time, every member accepts the cookies that another
/// member grants at that time.
///
/// **Life of a cookie.** A cookie is valid for one to two periods less `lead`: it is accepted while its key
/// grants or is the backup, and a backup's cookie is replaced when it is used. Across members with skew it is
/// valid for at least period − 2 · `lead`, and at most 2 · period.
///
/// **Clocks.** If the clock was never set (before 2020), or its uncertainty is above [`Schedule::max_skew`],
/// [`KeySource::keys_at`] fails. The caller then keeps the ring that it has.
///
/// With a second secret ([`FarmSecrets::other`]) the cookies of its keys are accepted too. Its present key is
/// the first of the backups, so that a kernel holds one key of each secret.
#[derive(Debug, Clone)]
pub struct Schedule {
    secrets: FarmSecrets,
    scheme: Scheme,
    period_ms: u64,
    lead_ms: u64,
}

impl Schedule {
    /// The shortest period. With a shorter one, most cookies would be invalid when their client returns.
    pub const MIN_PERIOD: Duration = Duration::from_secs(12 * 60 * 60);
    /// The default period.
    pub const DEFAULT_PERIOD: Duration = Duration::from_secs(24 * 60 * 60);
    /// The default time that a key is accepted before its turn.
    pub const DEFAULT_LEAD: Duration = Duration::from_secs(5 * 60);

    /// A schedule. Period and secrets must be the same on all members. `lead` (whole milliseconds) may
    /// differ, and the shortest one determines the tolerated skew.
    ///
    /// # Errors
    /// If the period is below [`Schedule::MIN_PERIOD`] or not a whole number of seconds, or `lead` is above
    /// half a period. The caller is at fault.
    pub fn new(
        secrets: FarmSecrets,
        scheme: Scheme,
        period: Duration,
        lead: Duration,
    ) -> Result<Self, ScheduleError> {
        if period < Self::MIN_PERIOD {
            return Err(ScheduleError::PeriodTooShort { period });
        }
        if period.subsec_nanos() > 0 {
            return Err(ScheduleError::PeriodNotSeconds { period });
        }
        if lead > period / 2 {
            return Err(ScheduleError::LeadTooLong { lead, period });
        }
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Ok(Self { secrets, scheme, period_ms: millis(period), lead_ms: millis(lead) })
    }

    /// The secrets.
    #[must_use]
    pub const fn secrets(&self) -> &FarmSecrets {
        &self.secrets
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms)
    }

    /// How long before its turn a key is accepted.
    #[must_use]
    pub const fn lead(&self) -> Duration {
        Duration::from_millis(self.lead_ms)
    }

    /// How far from UTC the clock of a member may be: half of [`Schedule::lead`].
    #[must_use]
    pub const fn max_skew(&self) -> Duration {
        Duration::from_millis(self.lead_ms / 2)
    }

    /// The number of the key that grants at this Unix time in milliseconds.
    #[must_use]
    pub const fn index_at(&self, unix_ms: u64) -> u64 {
        // The constructor refuses periods below 12 h, so this never divides by zero.
        unix_ms / self.period_ms
    }

    /// When the next key takes its turn, Unix time in milliseconds. `None` if that exceeds 64 bits.
    #[must_use]
    pub fn next_turn(&self, unix_ms: u64) -> Option<u64> {
        self.index_at(unix_ms).checked_add(1)?.checked_mul(self.period_ms)
    }

    /// When the key with this number is accepted, and when it grants.
    #[must_use]
    pub const fn times_of(&self, index: u64) -> KeyTimes {
        let turn = index.saturating_mul(self.period_ms);
        let until = turn.saturating_add(self.period_ms.saturating_mul(2)).saturating_sub(self.lead_ms);
        KeyTimes {
            accepted_from: turn.saturating_sub(self.lead_ms),
            grants_from: turn,
            grants_until: turn.saturating_add(self.period_ms),
            accepted_until: until,
        }
    }

    /// When the granting key or the backup changes next: at the next turn, or `lead` before it.
    #[must_use]
    pub fn next_change(&self, unix_ms: u64) -> Option<u64> {
        let turn = self.next_turn(unix_ms)?;
        let before = turn.saturating_sub(self.lead_ms);
        Some(if unix_ms < before { before } else { turn })
    }

    /// The keys at this Unix time in milliseconds. Does not check the quality of the clock.
    #[must_use]
    pub fn cookie_keys_at(&self, unix_ms: u64) -> CookieKeys {
        let index = self.index_at(unix_ms);
        let coming = self.next_turn(unix_ms).is_some_and(|turn| turn - unix_ms <= self.lead_ms);
        let backup = if coming { index.checked_add(1) } else { index.checked_sub(1) };
        let keys_of = |secret: &FarmSecret| {
            let mut keys = CookieKeys::new(secret.cookie_key(index));
            keys.backups.extend(backup.map(|index| secret.cookie_key(index)));
            keys
        };
        let mut keys = keys_of(&self.secrets.current);
        if let Some(other) = self.secrets.other.as_ref().map(keys_of) {
            let own = core::mem::take(&mut keys.backups);
            keys.backups.push(other.primary);
            keys.backups.extend(own.into_iter().chain(other.backups));
        }
        keys
    }
}

impl KeySource for Schedule {
    fn keys_at(&self, clock: &Clock) -> Result<Current, ClockError> {
        ClockError::check(clock, self.max_skew())?;
        let keys = self.cookie_keys_at(clock.unix_ms);
        Ok(Current::new(&keys, self.scheme, self.next_change(clock.unix_ms)))
    }
}

/// When a key of a [`Schedule`] is in use: Unix times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyTimes {
    /// The first time at which its cookies are accepted.
    pub accepted_from: u64,
    /// The first time at which it grants.
    pub grants_from: u64,
    /// The first time at which it grants no more.
    pub grants_until: u64,
    /// The first time at which its cookies are accepted no more.
    pub accepted_until: u64,
}

/// Why a schedule cannot be made: the caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// Below 12 hours.
    PeriodTooShort {
        /// The period.
        period: Duration,
    },
    /// Has a fraction of a second.
    PeriodNotSeconds {
        /// The period.
        period: Duration,
    },
    /// More than half a period.
    LeadTooLong {
        /// The lead.
        lead: Duration,
        /// The period.
        period: Duration,
    },
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeriodTooShort { period } => {
                write!(f, "a key period of {} s is too short: take 12 hours or more", period.as_secs())
            }
            Self::PeriodNotSeconds { period } => {
                write!(f, "a key period of {period:?} is not one of whole seconds: round it")
            }
            Self::LeadTooLong { lead, period } => write!(
                f,
                "keys cannot be accepted {lead:?} before their turn: take at most half of the period of {} s",
                period.as_secs()
            ),
        }
    }
}

impl core::error::Error for ScheduleError {}

#[cfg(test)]
mod tests;
