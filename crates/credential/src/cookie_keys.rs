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
    /// The fingerprint of `secret`.
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
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    const ONE: &str = "00010203-04050607-08090a0b-0c0d0e0f";
    const TWO: &str = "10111213-14151617-18191a1b-1c1d1e1f";

    #[test]
    fn the_kernels_text_has_one_key_or_two() {
        let both = alloc::format!("{ONE},{TWO}\n").parse::<CookieKeys>().unwrap();
        let (one, two): (CookieKey, CookieKey) = (ONE.parse().unwrap(), TWO.parse().unwrap());
        assert_eq!(both, CookieKeys::new(one.clone()).with_backup(two));
        assert_eq!(*both.to_text(), alloc::format!("{ONE},{TWO}"));
        assert_eq!(alloc::format!(" {ONE}\n").parse(), Ok(CookieKeys::new(one)));
    }

    #[test]
    fn a_bad_list_says_what_is_wrong() {
        let three = alloc::format!("{ONE},{TWO},{ONE}").parse::<CookieKeys>().unwrap_err();
        assert_eq!(three, KeyParseError::TooMany { found: 3 });
        assert!(three.to_string().ends_with("found 3 keys, not one, or two with a comma between"));
        assert_eq!(alloc::format!("{ONE},").parse::<CookieKeys>(), Err(KeyParseError::Words { found: 1 }));
        assert_eq!("".parse::<CookieKeys>(), Err(KeyParseError::Words { found: 1 }));
    }

    /// `printf 00010203-04050607-08090a0b-0c0d0e0f | sha256sum | cut -c1-16`
    #[test]
    fn a_fingerprint_is_the_begin_of_the_sha256_of_the_text() {
        let key: CookieKey = ONE.parse().unwrap();
        assert_eq!(key.fingerprint().to_string(), "bd7a26b655f4fb97");
    }

    #[test]
    fn the_ring_grants_with_the_primary_and_accepts_all() {
        let key = |byte| CookieKey::from_bytes([byte; 16]);
        let flow = crate::Flow { client: [192, 0, 2, 1].into(), server: [192, 0, 2, 2].into() };
        let ring = CookieKeys::new(key(1)).with_backup(key(2)).with_backup(key(3)).ring(Scheme::Linux);
        let check = |byte| ring.check(&flow, &KeyRing::new(Scheme::Linux, key(byte)).grant(&flow));
        assert_eq!(
            [1, 2, 3, 4].map(check),
            [crate::Check::Primary, crate::Check::Backup, crate::Check::Backup, crate::Check::No]
        );
    }

    proptest! {
        #[test]
        fn text_round_trips(primary: [u8; 16], backup: Option<[u8; 16]>) {
            let mut keys = CookieKeys::new(CookieKey::from_bytes(primary));
            keys.backups.extend(backup.map(CookieKey::from_bytes));
            prop_assert_eq!(keys.to_text().parse::<CookieKeys>(), Ok(keys));
        }
    }
}
