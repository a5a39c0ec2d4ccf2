//! A server's seal keys (8.4).

use crate::flight::Flight;
use crate::name::HostName;
use crate::record::{Entry, Record};
use crate::seal::{OpenError, OpenedFlight, Target, open};
use core::fmt;
use core::num::NonZeroU8;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, Serializable};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

type Private = <X25519HkdfSha256 as Kem>::PrivateKey;

/// A private X25519 key. Zeroised when dropped, never printed.
#[derive(Clone)]
pub struct SealKey(Private);

impl SealKey {
    /// A new key.
    #[must_use]
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        Self(X25519HkdfSha256::gen_keypair_with_rng(rng).0)
    }

    /// The key of these bytes (RFC 7748 section 5: clamped). `None` if the library does not accept them.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Option<Self> {
        Deserializable::from_bytes(bytes).ok().map(Self)
    }

    /// DeriveKeyPair (RFC 9180 section 7.1.3) of this keying material.
    pub(crate) fn derive(ikm: &[u8; 32]) -> Self {
        Self(X25519HkdfSha256::derive_keypair(ikm).0)
    }

    /// The bytes. They are the secret: use them only for key files.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        let mut bytes = Zeroizing::new([0; 32]);
        self.0.write_exact(&mut *bytes);
        bytes
    }

    /// The public half, to publish.
    #[must_use]
    pub fn public(&self) -> [u8; 32] {
        X25519HkdfSha256::sk_to_pk(&self.0).to_bytes().into()
    }

    pub(crate) const fn private(&self) -> &Private {
        &self.0
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

#[derive(Debug, Clone)]
struct NumberedSealKey {
    entry: Entry,
    key: SealKey,
}

/// The seal keys of one public name, the newest first. A key is destroyed an hour after clients stop to use it, so an
/// attacker that takes over the server later cannot open what it recorded.
#[derive(Debug, Clone)]
pub struct KeySet {
    name: HostName,
    held: Vec<NumberedSealKey>,
}

/// Why a key is not added: the caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RotateError {
    /// A key that still opens has this number.
    #[error("a seal key that still opens has this number: take another")]
    IdInUse,
    /// Too many keys still open.
    #[error("{} seal keys still open: change keys less often, or end them earlier", KeySet::MAX)]
    TooMany,
}

impl KeySet {
    /// How long after not_after a key opens, seconds: for clocks.
    pub const GRACE: u64 = 3600;
    /// The most keys.
    pub const MAX: usize = 4;

    /// No key yet.
    #[must_use]
    pub const fn new(name: HostName) -> Self {
        Self { name, held: Vec::new() }
    }

    /// The public name.
    #[must_use]
    pub const fn name(&self) -> &HostName {
        &self.name
    }

    /// Adds a key as the newest. Clients use it until `not_after`; it opens an hour longer. `now` and `not_after` are
    /// Unix seconds.
    ///
    /// # Errors
    /// [`RotateError`]. Then nothing changes.
    pub fn add(&mut self, id: NonZeroU8, key: SealKey, not_after: u32, now: u64) -> Result<(), RotateError> {
        self.handle_time(now);
        if self.held.iter().any(|held| held.entry.key_id() == id) {
            return Err(RotateError::IdInUse);
        }
        if self.held.len() >= Self::MAX {
            return Err(RotateError::TooMany);
        }
        let entry = Entry::x25519(id, &key.public(), not_after);
        self.held.insert(0, NumberedSealKey { entry, key });
        Ok(())
    }

    /// Adds a key that is not to be published yet.
    pub(crate) fn add_unpublished(&mut self, id: NonZeroU8, key: SealKey, not_after: u32, now: u64) {
        if self.add(id, key, not_after, now).is_ok() {
            self.held.rotate_left(1);
        }
    }

    /// Destroys the keys that have ended at `now`, Unix seconds.
    pub fn handle_time(&mut self, now: u64) {
        self.held.retain(|held| opens(held, now));
    }

    /// When to call [`KeySet::handle_time`] next, Unix seconds.
    #[must_use]
    pub fn next_end(&self) -> Option<u64> {
        self.held.iter().map(|held| end(&held.entry)).min()
    }

    /// Number of keys that are held.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether a flight to this key can be opened at `now`, Unix seconds (3.5).
    #[must_use]
    pub fn knows(&self, id: NonZeroU8, now: u64) -> bool {
        self.find(id, now).is_some()
    }

    /// What to publish at `now`, Unix seconds: the newest key that clients may use. `None` if there is none.
    #[must_use]
    pub fn record(&self, now: u64) -> Option<Record> {
        let newest = self.held.iter().find(|held| u64::from(held.entry.not_after()) > now)?;
        Record::new(vec![newest.entry.clone()], self.name.clone())
    }

    /// Opens a flight that came to the listener at `port`, the port that clients see. It costs an X25519 operation, so
    /// for a flight without an accepted block ask an [`OpeningBudget`](crate::OpeningBudget) before. `now` is Unix
    /// seconds.
    ///
    /// # Errors
    /// [`OpenError`]: reject.
    pub fn open(&self, flight: &Flight, port: u16, now: u64) -> Result<OpenedFlight, OpenError> {
        let held = self.find(flight.head().key_id, now).ok_or(OpenError::UnknownKey)?;
        open(&held.key, &Target { entry: &held.entry, public_name: &self.name, port }, flight)
    }

    fn find(&self, id: NonZeroU8, now: u64) -> Option<&NumberedSealKey> {
        self.held.iter().find(|held| held.entry.key_id() == id && opens(held, now))
    }
}

fn end(entry: &Entry) -> u64 {
    u64::from(entry.not_after()) + KeySet::GRACE
}

fn opens(held: &NumberedSealKey, now: u64) -> bool {
    now < end(&held.entry)
}

#[cfg(test)]
mod tests;
