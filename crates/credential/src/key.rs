//! Cookie keys: one key grants cookies, and cookies of older or coming keys are accepted too.

use crate::admission::{FirstFlight, Grant, Presented, Verdict, Verifier};
use crate::cookie::{CookieScheme, Flow, Loaded, Scheme};
use crate::outcome::Reason;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::hint::black_box;
use core::net::{IpAddr, Ipv4Addr};
use core::str::FromStr;
use firstflight_wire::Clock;
use firstflight_wire::tcp::{Cookie, FastOpen};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// A cookie key, 128 bits. Zeroised when dropped, compared in constant time, never printed.
#[derive(Clone)]
pub struct CookieKey([u8; 16]);

impl CookieKey {
    /// A key of these bytes, in the order of the kernel's `TCP_FASTOPEN_KEY`.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The text that `/proc/sys/net/ipv4/tcp_fastopen_key` accepts. The text is the secret: use it only for
    /// key files.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        // Reserve the whole length, because growing would leave a copy of the secret in memory.
        let mut text = Zeroizing::new(String::with_capacity(35));
        for (index, word) in self.0.chunks_exact(4).enumerate() {
            if index > 0 {
                text.push('-');
            }
            for byte in word.iter().rev() {
                // Writing to a string cannot fail.
                let _ = write!(text, "{byte:02x}");
            }
        }
        text
    }
}

impl Drop for CookieKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for CookieKey {}

impl fmt::Debug for CookieKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieKey(..)")
    }
}

impl PartialEq for CookieKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for CookieKey {}

/// Parses the kernel's form: four words of eight hexadecimal digits, each stored little-endian.
/// White space around it is ignored.
impl FromStr for CookieKey {
    type Err = KeyParseError;

    fn from_str(text: &str) -> Result<Self, KeyParseError> {
        let text = text.trim();
        let found = text.split('-').count();
        if found != 4 {
            return Err(KeyParseError::Words { found });
        }
        let mut key = Self([0; 16]);
        for (index, (word, slot)) in text.split('-').zip(key.0.chunks_exact_mut(4)).enumerate() {
            let number = index + 1;
            // `from_str_radix` alone would accept a sign.
            if !word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(KeyParseError::NotHexadecimal { word: number });
            }
            if word.len() != 8 {
                return Err(KeyParseError::Length { word: number, found: word.len() });
            }
            let value =
                u32::from_str_radix(word, 16).map_err(|_| KeyParseError::NotHexadecimal { word: number })?;
            slot.copy_from_slice(&value.to_le_bytes());
        }
        Ok(key)
    }
}

/// Why a text is not a cookie key: the text is at fault. The error never quotes the text, which may contain
/// most of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyParseError {
    /// Not four words.
    Words {
        /// Words found.
        found: usize,
    },
    /// A word (counted from 1) does not have eight digits.
    Length {
        /// Which word.
        word: usize,
        /// Its digits.
        found: usize,
    },
    /// A word (counted from 1) has a character that is no hexadecimal digit.
    NotHexadecimal {
        /// Which word.
        word: usize,
    },
    /// More than a primary and a backup key.
    TooMany {
        /// Keys found.
        found: usize,
    },
}

impl fmt::Display for KeyParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a cookie key is xxxxxxxx-xxxxxxxx-xxxxxxxx-xxxxxxxx in hexadecimal: ")?;
        match self {
            Self::Words { found } => write!(f, "found {found} words, not 4"),
            Self::Length { word, found } => write!(f, "word {word} has {found} digits, not 8"),
            Self::NotHexadecimal { word } => write!(f, "word {word} is not hexadecimal"),
            Self::TooMany { found } => write!(f, "found {found} keys, not one, or two with a comma between"),
        }
    }
}

impl core::error::Error for KeyParseError {}

/// Which key a cookie was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The key that grants.
    Primary,
    /// An older or a coming key: the cookie is valid, but the client should get a fresh one.
    Backup,
    /// None of the ring's keys.
    No,
}

/// The keys of a server or a farm. A ring does not change: to rotate the keys, build another ring and replace
/// this one.
pub struct KeyRing {
    scheme: Scheme,
    primary: Loaded,
    backups: Vec<Loaded>,
}

impl KeyRing {
    /// A ring of one key.
    #[must_use]
    pub fn new(scheme: Scheme, primary: CookieKey) -> Self {
        Self { scheme, primary: scheme.load(primary), backups: Vec::new() }
    }

    /// Accepts cookies of `key` too. A Linux kernel holds at most one backup.
    #[must_use]
    pub fn with_backup(mut self, key: CookieKey) -> Self {
        self.backups.push(self.scheme.load(key));
        self
    }

    /// The cookie function.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// A secret number that tables may use as the key of their hashes.
    pub(crate) fn hash_key(&self) -> u64 {
        // Use the cookie of an address that no client can have (RFC 1122 §3.2.1.3).
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        u64::from_be_bytes(self.primary.make(&Flow { client: nobody, server: nobody }))
    }

    /// A fresh cookie for `flow`, of the primary key.
    #[must_use]
    pub fn grant(&self, flow: &Flow) -> Cookie {
        match Cookie::new(&self.primary.make(flow)) {
            Some(cookie) => cookie,
            None => unreachable!("eight bytes are a legal cookie (RFC 7413 §4.1.1)"),
        }
    }

    /// Which key made `cookie` for `flow`. All keys are always tried, so the time reveals only how many keys
    /// there are.
    // Inlined with `verify`: a verdict returned from a call is written in parts and read as a whole, which
    // stalls.
    #[inline(always)]
    #[must_use]
    pub fn check(&self, flow: &Flow, cookie: &Cookie) -> Check {
        // Compare as one number: a comparison byte by byte takes longer than the hash. `black_box` hides the
        // difference from the optimiser, as in the comparison of cookies.
        let Ok(shown) = cookie.as_bytes().try_into().map(u64::from_ne_bytes) else { return Check::No };
        let matches = |key: &Loaded| black_box(shown ^ u64::from_ne_bytes(key.make(flow))) == 0;
        let primary = matches(&self.primary);
        let mut backup = false;
        for key in &self.backups {
            backup |= matches(key);
        }
        match (primary, backup) {
            (true, _) => Check::Primary,
            (false, true) => Check::Backup,
            (false, false) => Check::No,
        }
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing")
            .field("scheme", &self.scheme)
            .field("backups", &self.backups.len())
            .finish_non_exhaustive()
    }
}

/// Plain cookies: the credential of RFC 7413.
impl Verifier for KeyRing {
    #[inline(always)]
    fn verify(&self, first: &FirstFlight<'_>, _clock: &Clock) -> Verdict {
        let fresh = || Some(Grant { cookie: self.grant(&first.flow), serial: None });
        match first.presented {
            Presented::None => Verdict::Invalid { reason: Reason::NoCredential, grant: None },
            Presented::FastOpen(FastOpen::Request(_)) => {
                Verdict::Invalid { reason: Reason::NoCredential, grant: fresh() }
            }
            Presented::FastOpen(FastOpen::Cookie(_, cookie)) => match self.check(&first.flow, cookie) {
                Check::Primary => Verdict::Valid { grant: None, once: None },
                Check::Backup => Verdict::Valid { grant: fresh(), once: None },
                Check::No => Verdict::Invalid { reason: Reason::StaleOrWrongCredential, grant: fresh() },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use proptest::prelude::*;

    const FLOW: Flow = Flow {
        client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        server: IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)),
    };

    fn key(byte: u8) -> CookieKey {
        CookieKey::from_bytes([byte; 16])
    }

    #[test]
    fn words_are_little_endian() {
        let key: CookieKey = "00010203-04050607-08090A0b-0c0d0e0f\n".parse().unwrap();
        assert_eq!(*key.as_bytes(), [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12]);
        assert_eq!(*key.to_text(), "00010203-04050607-08090a0b-0c0d0e0f");
    }

    #[test]
    fn a_bad_text_says_what_is_wrong_and_quotes_nothing() {
        let cases = [
            ("", KeyParseError::Words { found: 1 }),
            ("a1a1a1a1-b2b2b2b2-c3c3c3c3", KeyParseError::Words { found: 3 }),
            ("a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4-", KeyParseError::Words { found: 5 }),
            ("a1a1a1a1-b2b2b2b2-c3c3c3-d4d4d4d4", KeyParseError::Length { word: 3, found: 6 }),
            ("a1a1a1a1-b2b2b2b2--d4d4d4d4", KeyParseError::Length { word: 3, found: 0 }),
            ("+1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4", KeyParseError::NotHexadecimal { word: 1 }),
            ("a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4g4", KeyParseError::NotHexadecimal { word: 4 }),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<CookieKey>(), Err(error), "{text}");
            assert!(!error.to_string().contains("b2b2b2b2"), "{error}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let ring = KeyRing::new(Scheme::Linux, key(0xab)).with_backup(key(0xcd));
        let text = format!("{:?} {ring:?}", key(0xab));
        assert_eq!(text, "CookieKey(..) KeyRing { scheme: Linux, backups: 1, .. }");
    }

    #[test]
    fn every_key_of_the_ring_is_accepted_and_no_other() {
        for scheme in [Scheme::Linux, Scheme::Paper] {
            let ring = KeyRing::new(scheme, key(1)).with_backup(key(2)).with_backup(key(3));
            let check = |byte| ring.check(&FLOW, &KeyRing::new(scheme, key(byte)).grant(&FLOW));
            assert_eq!(
                [check(1), check(2), check(3), check(4)],
                [Check::Primary, Check::Backup, Check::Backup, Check::No]
            );
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(bytes: [u8; 16]) {
            let key = CookieKey::from_bytes(bytes);
            prop_assert_eq!(key.to_text().parse::<CookieKey>(), Ok(key));
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,48}") {
            let _ = text.parse::<CookieKey>();
        }

        #[test]
        fn a_cookie_of_another_length_is_never_ours(bytes in proptest::collection::vec(any::<u8>(), 4..=16)) {
            let ring = KeyRing::new(Scheme::Linux, key(1));
            let granted = ring.grant(&FLOW);
            if let Some(cookie) = Cookie::new(&bytes) {
                let expected = if bytes == granted.as_bytes() { Check::Primary } else { Check::No };
                prop_assert_eq!(ring.check(&FLOW, &cookie), expected);
            }
            for len in [4, 6] {
                let cut = Cookie::new(&granted.as_bytes()[..len]).unwrap();
                prop_assert_eq!(ring.check(&FLOW, &cut), Check::No);
            }
        }
    }
}
