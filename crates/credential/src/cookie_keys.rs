//! The keys of a ring as operators handle them: as text and by fingerprint.

use crate::cookie::Scheme;
use crate::cookie_key::{CookieKey, KeyParseError};
use crate::key::KeyRing;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The key that grants cookies, and further keys whose cookies are accepted too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CookieKeys {
    /// The key that grants.
    pub primary: CookieKey,
    /// Keys whose cookies are accepted too. A Linux kernel gets only the first of them.
    pub backups: Vec<CookieKey>,
}

impl CookieKeys {
    /// One key.
    #[must_use]
    pub const fn new(primary: CookieKey) -> Self {
        Self { primary, backups: Vec::new() }
    }

    /// Accepts cookies of `key` too.
    #[must_use]
    pub fn with_backup(mut self, key: CookieKey) -> Self {
        self.backups.push(key);
        self
    }

    /// The ring of these keys.
    #[must_use]
    pub fn ring(&self, scheme: Scheme) -> KeyRing {
        let ring = KeyRing::new(scheme, self.primary.clone());
        self.backups.iter().cloned().fold(ring, KeyRing::with_backup)
    }

    /// The text that `/proc/sys/net/ipv4/tcp_fastopen_key` accepts: the primary key and the first backup,
    /// with a comma between. The text is the secret: use it only for key files.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        // Reserve room for both keys, because growing would leave a copy of a secret in memory.
        let mut text = Zeroizing::new(String::with_capacity(71));
        text.push_str(&self.primary.to_text());
        if let Some(backup) = self.backups.first() {
            text.push(',');
            text.push_str(&backup.to_text());
        }
        text
    }
}

/// Parses what the kernel's sysctl prints: one key, or primary and backup with a comma between.
impl FromStr for CookieKeys {
    type Err = KeyParseError;

    fn from_str(text: &str) -> Result<Self, KeyParseError> {
        let found = text.split(',').count();
        if found > 2 {
            return Err(KeyParseError::TooMany { found });
        }
        match text.split_once(',') {
            None => Ok(Self::new(text.parse()?)),
            Some((primary, backup)) => Ok(Self::new(primary.parse()?).with_backup(backup.parse()?)),
        }
    }
}

/// A short name of a secret, which may be shown: the first 64 bits of a SHA-256. Equal secrets have equal
/// fingerprints, so operators can compare the members of a farm. Nobody can find a random secret from its
/// fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 8]);

impl Fingerprint {
    pub(crate) fn of(secret: &[u8]) -> Self {
        let mut short = [0; 8];
        short.iter_mut().zip(Sha256::digest(secret)).for_each(|(to, from)| *to = from);
        Self(short)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_display(&self.0).fmt(f)
    }
}

impl CookieKey {
    /// The fingerprint of its text in the kernel's form, so that `sha256sum` computes the same value.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.to_text().as_bytes())
    }
}

#[cfg(test)]
mod tests;
