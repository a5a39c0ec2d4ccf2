//! One cookie key, and its text.

use alloc::string::String;
use core::fmt::{self, Write};
use core::str::FromStr;
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
