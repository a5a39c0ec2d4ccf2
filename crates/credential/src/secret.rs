//! The secret that a farm of servers shares. Each server derives the same cookie keys from it.

use crate::cookie_key::CookieKey;
use crate::cookie_keys::Fingerprint;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use hkdf::Hkdf;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Separates these keys from any other use of the same secret.
const LABEL: &[u8] = b"firstflight tfo key";

/// A secret that a farm shares, with an id that names it. Zeroised when dropped, compared in constant time,
/// never printed.
///
/// Its text is one line, `id:hex`: the id of 1 to 32 letters, digits, `.`, `_` and `-`; 32 to 128 bytes
/// as hexadecimal digits, from a random source.
#[derive(Clone)]
pub struct FarmSecret {
    id: String,
    bytes: Zeroizing<Vec<u8>>,
}

impl FarmSecret {
    /// The shortest secret, bytes: the size of the hash, so that the secret is no easier to guess than its
    /// keys.
    pub const MIN_BYTES: usize = 32;
    /// The longest secret, bytes.
    pub const MAX_BYTES: usize = 128;
    /// The longest id, characters.
    pub const MAX_ID: usize = 32;

    /// A secret of these bytes.
    ///
    /// # Errors
    /// If the id or the length is not as the type's documentation demands. The caller is at fault.
    pub fn new(id: &str, bytes: &[u8]) -> Result<Self, SecretError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if id.is_empty() || id.len() > Self::MAX_ID || !id.chars().all(legal) {
            return Err(SecretError::Id);
        }
        if !(Self::MIN_BYTES..=Self::MAX_BYTES).contains(&bytes.len()) {
            return Err(SecretError::Length { bytes: bytes.len() });
        }
        Ok(Self { id: id.into(), bytes: Zeroizing::new(bytes.to_vec()) })
    }

    /// Its id, which is not secret.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The fingerprint of its hexadecimal digits in lower case, so that `sha256sum` computes the same value.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.hex().as_bytes())
    }

    /// The line that parses to it. The line is the secret: use it only for secret files.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(self.id.len() + 1 + 2 * self.bytes.len()));
        text.push_str(&self.id);
        text.push(':');
        text.push_str(&self.hex());
        text
    }

    /// Cookie key number `index`: HKDF-SHA-256 (RFC 5869) without salt. Its `info` is `firstflight tfo key`
    /// and the number as 8 bytes, big-endian.
    #[must_use]
    pub fn cookie_key(&self, index: u64) -> CookieKey {
        let mut key = Zeroizing::new([0; 16]);
        let info = [LABEL, &index.to_be_bytes()];
        match Hkdf::<Sha256>::new(None, &self.bytes).expand_multi_info(&info, &mut *key) {
            Ok(()) => CookieKey::from_bytes(*key),
            Err(_) => unreachable!("16 bytes are fewer than 255 hashes (RFC 5869 §2.3)"),
        }
    }

    fn hex(&self) -> Zeroizing<String> {
        // Reserve the whole length, because growing would leave a copy of the secret in memory.
        let mut text = Zeroizing::new(String::with_capacity(2 * self.bytes.len()));
        HEXLOWER.encode_append(&self.bytes, &mut text);
        text
    }
}

impl fmt::Debug for FarmSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarmSecret").field("id", &self.id).finish_non_exhaustive()
    }
}

impl PartialEq for FarmSecret {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && bool::from(self.bytes.ct_eq(&other.bytes))
    }
}

impl Eq for FarmSecret {}

impl FromStr for FarmSecret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let (id, digits) = text.trim().split_once(':').ok_or(SecretError::NoColon)?;
        if digits.len() > 2 * Self::MAX_BYTES {
            return Err(SecretError::Length { bytes: digits.len() / 2 });
        }
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(SecretError::NotHexadecimal);
        }
        // Of digits alone, only an odd number of them cannot be decoded.
        let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).map_err(|_| SecretError::HalfByte)?;
        Self::new(id, &Zeroizing::new(bytes))
    }
}

/// Why a farm secret is invalid: the text or the caller is at fault. The error never quotes the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretError {
    /// No colon after the id.
    NoColon,
    /// The id is empty, too long, or contains other characters.
    Id,
    /// A character of the secret is not a hexadecimal digit.
    NotHexadecimal,
    /// An odd number of digits.
    HalfByte,
    /// Too short or too long.
    Length {
        /// Bytes found.
        bytes: usize,
    },
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a farm secret is id:hex: ")?;
        match self {
            Self::NoColon => f.write_str("found no colon"),
            Self::Id => f.write_str("the id has 1 to 32 letters, digits, '.', '_' and '-'"),
            Self::NotHexadecimal => f.write_str("found a character that is not hexadecimal"),
            Self::HalfByte => f.write_str("found an odd number of digits"),
            Self::Length { bytes } => write!(f, "found {bytes} bytes, not 32 to 128"),
        }
    }
}

impl core::error::Error for SecretError {}

/// The secrets of a farm at one time: the current one, and during a replacement also the next or the old one.
///
/// The text file has a line for each secret, the granting one first. White space around it, empty lines and
/// lines that begin with `#` are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarmSecrets {
    /// The secret whose keys grant cookies.
    pub current: FarmSecret,
    /// A secret whose keys' cookies are accepted too.
    pub other: Option<FarmSecret>,
}

impl FarmSecrets {
    /// One secret.
    #[must_use]
    pub const fn new(current: FarmSecret) -> Self {
        Self { current, other: None }
    }
}

impl FromStr for FarmSecrets {
    type Err = SecretFileError;

    fn from_str(text: &str) -> Result<Self, SecretFileError> {
        let lines = || {
            let numbered = text.lines().zip(1..).map(|(line, number)| (line.trim(), number));
            numbered.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'))
        };
        let found = lines().count();
        if found > 2 {
            return Err(SecretFileError::TooMany { found });
        }
        let mut secrets = lines().map(|(text, line)| {
            text.parse::<FarmSecret>().map_err(|error| SecretFileError::Line { line, error })
        });
        let current = secrets.next().ok_or(SecretFileError::Empty)??;
        let other = secrets.next().transpose()?;
        if other.as_ref().is_some_and(|other| other.id == current.id) {
            return Err(SecretFileError::SameId);
        }
        Ok(Self { current, other })
    }
}

/// Why a file of farm secrets is invalid: the text is at fault. The error never quotes the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretFileError {
    /// No secret.
    Empty,
    /// More than two secrets.
    TooMany {
        /// Secrets found.
        found: usize,
    },
    /// Two secrets with the same id.
    SameId,
    /// A line is not a farm secret.
    Line {
        /// The line's number, from 1.
        line: usize,
        /// Why.
        error: SecretError,
    },
}

impl fmt::Display for SecretFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("found no farm secret: write one as id:hex"),
            Self::TooMany { found } => {
                write!(f, "found {found} farm secrets: keep the current one and the coming or the old one")
            }
            Self::SameId => f.write_str("both farm secrets have the same id: give the newer one another"),
            Self::Line { line, error } => write!(f, "line {line}: {error}"),
        }
    }
}

impl core::error::Error for SecretFileError {}

#[cfg(test)]
mod tests;
