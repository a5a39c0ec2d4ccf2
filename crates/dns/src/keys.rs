//! The keys that first flights are sealed to, which change daily (`docs/spec/dns-path.md`, section 4.3).

use crate::ReplyKey;
use crate::ci::ConnectionInfo;
use crate::seal::{DnsPathKey, OpenBuffer, OpenError, Sealed};
use core::num::NonZeroU8;
use firstflight_wire::asap::Zone;

/// The current private key and former ones that clients may still know, by their numbers.
///
/// A former key is destroyed at its end, so an attacker who takes over the server later cannot open names
/// that resolvers have logged. `Debug` shows only numbers and times.
#[derive(Debug)]
pub struct DnsPathKeys {
    current: HeldKey,
    former: Vec<Former>,
}

#[derive(Debug)]
struct HeldKey {
    id: NonZeroU8,
    key: DnsPathKey,
}

#[derive(Debug)]
struct Former {
    held: HeldKey,
    /// Unix seconds.
    ends: u64,
}

impl DnsPathKeys {
    /// The most former keys.
    pub const MAX_FORMER: usize = 8;

    /// One key, with this number.
    #[must_use]
    pub const fn new(id: NonZeroU8, key: DnsPathKey) -> Self {
        Self { current: HeldKey { id, key }, former: Vec::new() }
    }

    /// Number and public half of the current key, to be published.
    #[must_use]
    pub fn current(&self) -> (NonZeroU8, [u8; 32]) {
        (self.current.id, self.current.key.public())
    }

    /// Number of former keys that are held.
    #[must_use]
    pub const fn former(&self) -> usize {
        self.former.len()
    }

    /// Makes `key` the current one. The previous key opens until `ends`, Unix seconds: an hour after the
    /// records that name it have expired everywhere.
    ///
    /// # Errors
    /// [`RotateError`]. Then nothing changes. The caller is at fault.
    pub fn rotate(&mut self, id: NonZeroU8, key: DnsPathKey, ends: u64, now: u64) -> Result<(), RotateError> {
        self.handle_time(now);
        if id == self.current.id || self.former.iter().any(|former| former.held.id == id) {
            return Err(RotateError::IdInUse);
        }
        if ends > now && self.former.len() == Self::MAX_FORMER {
            return Err(RotateError::TooMany);
        }
        let before = core::mem::replace(&mut self.current, HeldKey { id, key });
        if ends > now {
            self.former.push(Former { held: before, ends });
        }
        Ok(())
    }

    /// Destroys the former keys that have ended at `now`, Unix seconds.
    pub fn handle_time(&mut self, now: u64) {
        self.former.retain(|former| former.ends > now);
    }

    /// When to call [`DnsPathKeys::handle_time`] next, Unix seconds.
    #[must_use]
    pub fn next_end(&self) -> Option<u64> {
        self.former.iter().map(|former| former.ends).min()
    }

    /// Opens a first flight that a client sealed for `zone`. It costs one X25519 operation, so ask a
    /// [`Budget`](crate::Budget) before. `now` is Unix seconds.
    ///
    /// # Errors
    /// [`OpenError`]: the sender is at fault.
    pub fn open<'b>(
        &self,
        zone: Zone<'_>,
        sealed: &Sealed,
        now: u64,
        buffer: &'b mut OpenBuffer,
    ) -> Result<(ConnectionInfo<'b>, ReplyKey), OpenError> {
        let alive = self.former.iter().filter(|former| former.ends > now).map(|former| &former.held);
        let mut held = core::iter::once(&self.current).chain(alive);
        let found = held.find(|held| held.id.get() == sealed.key_id()).ok_or(OpenError::UnknownKey)?;
        found.key.open(zone, sealed, buffer)
    }
}

/// Why a key cannot become the current one: the caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RotateError {
    /// A key that still opens has this number.
    #[error("a DNS-path key that still opens has this number: take another")]
    IdInUse,
    /// Too many former keys still open: end them earlier, or change keys less often.
    #[error(
        "{} former DNS-path keys still open: end them earlier, or change keys less often",
        DnsPathKeys::MAX_FORMER
    )]
    TooMany,
}

#[cfg(test)]
mod tests;
