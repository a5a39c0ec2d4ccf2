//! A token bucket: the limit of a rate, with a burst.

use core::time::Duration;
use firstflight_wire::Instant;

/// Tokens arrive at a rate that the user chooses, up to a limit. Amounts of tokens are given as the time in which they
/// arrive, so a bucket needs no more than one instant.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    /// When the bucket is full, if nothing is taken until then.
    full_at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub const FULL: Self = Self { full_at: Instant::ZERO };

    /// Takes the tokens that arrive in `time`. The bucket holds at most those that arrive in `depth`.
    ///
    /// # Errors
    /// How long to wait until the tokens are there. Nothing is taken then.
    pub fn take(&mut self, time: Duration, depth: Duration, now: Instant) -> Result<(), Duration> {
        let missing = self.missing(now).saturating_add(time);
        let lacking = missing.saturating_sub(depth);
        if !lacking.is_zero() {
            return Err(lacking);
        }
        self.full_at = now + missing;
        Ok(())
    }

    /// How long until the bucket is full, if nothing is taken until then.
    #[must_use]
    pub fn missing(&self, now: Instant) -> Duration {
        self.full_at - now
    }
}

#[cfg(test)]
mod tests;
