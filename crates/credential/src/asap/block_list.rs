//! The block list: client keys and addresses that may not use the first flight for a while (`docs/spec/asap.md`, 7.7
//! and 7.8).
//!
//! A RST from the address of an accepted first flight may mean that the sender is not at this address, and
//! that the server sends its response to a victim. One RST puts the key on it. An attacker that had the address
//! before may hold many certificates for it, each with a key of its own, so RSTs for several keys put the
//! address on it as well. The first RST lists the address for zero seconds, because many clients can share one
//! address, and one of them may have reset its own connection.

use crate::lru::Lru;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Instant;

/// A key is barred after this number of wrong requests.
const FAILURES: u8 = 8;
/// How long a key is listed after wrong requests. Also the longest time of an address.
const LONGEST: Duration = Duration::from_secs(60);
/// How long an address is listed after the second key that was reset there. It doubles with each further key.
const SHORTEST: Duration = Duration::from_secs(1);
/// Keys that were reset at an address are counted up to this number. Then the time is [`LONGEST`].
const COUNTED: u8 = 8;
/// Each time this passes without another reset at an address, one reset is forgiven. It is not shorter than
/// [`LONGEST`], or the times would become shorter while the resets continue.
const FORGIVEN: Duration = LONGEST;
/// An ACK for a first flight proves that a client at this address uses first flights, so it also forgives one
/// reset. This happens at most once in this time, so that the ACKs of a busy address do not help a reflection
/// attack to continue.
const FORGIVEN_BY_ACK: Duration = Duration::from_secs(20);

/// The record of a client key.
#[derive(Debug, Clone, Copy)]
struct Key {
    failures: u8,
    until: Instant,
    /// The key is barred for a reset until then.
    reset_until: Instant,
}

/// The record of an address.
#[derive(Debug, Clone, Copy)]
struct Address {
    /// Resets of different keys at this address that are not forgiven.
    resets: u8,
    until: Instant,
    /// When the last reset came.
    last: Instant,
    /// When the last ACK came that forgave a reset.
    acked: Instant,
}

impl Address {
    /// A first flight under another key was reset at this address.
    fn reset(&mut self, now: Instant) {
        let forgiven = (now - self.last).as_secs() / FORGIVEN.as_secs();
        let left = u64::from(self.resets).saturating_sub(forgiven) as u8;
        (self.resets, self.last) = (left.saturating_add(1).min(COUNTED), now);
        let Some(doublings) = self.resets.checked_sub(2) else { return };
        let lasts = SHORTEST.saturating_mul(1 << doublings).min(LONGEST);
        self.until = self.until.max(now + lasts);
    }

    /// The client at this address acknowledged the answer to a first flight.
    fn acknowledged(&mut self, now: Instant) {
        if now - self.acked >= FORGIVEN_BY_ACK {
            self.resets = self.resets.saturating_sub(1);
            self.acked = now;
        }
    }
}

/// The keys and addresses that are remembered, and until when they are listed.
#[derive(Debug)]
pub(super) struct BlockList {
    keys: Lru<[u8; 32], Key>,
    addresses: Lru<IpAddr, Address>,
}

impl BlockList {
    /// No key and no address is barred yet. At most `remembered` keys and as many addresses are remembered.
    pub(super) const fn new(remembered: usize) -> Self {
        Self { keys: Lru::new(remembered), addresses: Lru::new(remembered) }
    }

    /// Whether this key or this address may not use the first flight now.
    pub(super) fn holds(&self, key: &[u8; 32], address: IpAddr, now: Instant) -> bool {
        self.keys.peek(key).is_some_and(|key| key.until.max(key.reset_until) > now)
            || self.addresses.peek(&address).is_some_and(|address| address.until > now)
    }

    /// A first flight under `key` was reset before the ACK of its client. Its certificate is valid for
    /// another `lasts`.
    pub(super) fn reset(&mut self, key: [u8; 32], lasts: Duration, address: IpAddr, now: Instant) {
        if let Some(key) = self.key(key) {
            let again = key.reset_until > now;
            key.reset_until = key.reset_until.max(now + lasts);
            if again {
                // The connections of one key often end together, so they count as one reset.
                return;
            }
        }
        let clean = || Address { resets: 0, until: now, last: now, acked: now };
        if let Some(address) = self.addresses.get_or_insert(address, clean) {
            address.reset(now);
        }
    }

    /// The client at `address` acknowledged the answer to a first flight.
    pub(super) fn acknowledged(&mut self, address: IpAddr, now: Instant) {
        if let Some(address) = self.addresses.peek_mut(&address) {
            address.acknowledged(now);
        }
    }

    /// A signature of a request under `key` was wrong.
    pub(super) fn failed(&mut self, key: [u8; 32], now: Instant) {
        if let Some(key) = self.key(key) {
            key.failures = key.failures.saturating_add(1);
            if key.failures >= FAILURES {
                (key.failures, key.until) = (0, key.until.max(now + LONGEST));
            }
        }
    }

    fn key(&mut self, key: [u8; 32]) -> Option<&mut Key> {
        self.keys.get_or_insert(key, || Key { failures: 0, until: Instant::ZERO, reset_until: Instant::ZERO })
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "tests")]
mod tests;
