//! Key files: lines of text, for their owner only.
//!
//! ```text
//! # A verifier's key, and the public keys that signed before it.
//! key 9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60
//! retired d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a
//! ```
//! ```text
//! # What a vantage point shares with its issuer. The first one is used, all of them are taken.
//! token 1 4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb
//! ```

use crate::token::TokenKey;
use firstflight_credential::asap::{PrivateKey, PublicKey};
use firstflight_files::lines::{KeyFileError, LineError, create, lines, read};
use firstflight_files::{from_hex, to_hex};
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

/// The content of a verifier's key file.
#[derive(Debug, Clone)]
pub struct VerifierKeys {
    /// The key that signs.
    pub key: PrivateKey,
    /// The keys that signed before, the latest first.
    pub retired: Vec<PublicKey>,
}

impl VerifierKeys {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, users other than its owner can read it, or it is not such a file.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        read(path, Self::parse)
    }

    fn parse(text: &str) -> Result<Self, LineError> {
        let (mut key, mut retired) = (None, Vec::new());
        for (number, words) in lines(text) {
            match words[..] {
                ["key", seed] if key.is_none() => {
                    let seed = from_hex(seed).ok_or(LineError::Line(number))?;
                    key = Some(PrivateKey::from_seed(&seed));
                }
                ["retired", public] => {
                    retired.push(public.parse().map_err(|_| LineError::Line(number))?);
                }
                _ => return Err(LineError::Line(number)),
            }
        }
        Ok(Self { key: key.ok_or(LineError::NoKey)?, retired })
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// When a file with this name exists, or it cannot be written.
    pub fn create(&self, path: &Path) -> io::Result<()> {
        let seed = to_hex(&*self.key.to_seed());
        let mut text = Zeroizing::new(String::with_capacity(80 + 80 * (self.retired.len() + 1)));
        text.push_str("# A verifier's key, and the public keys that signed before it.\nkey ");
        text.push_str(&seed);
        text.push('\n');
        for retired in &self.retired {
            text.push_str(&format!("retired {retired}\n"));
        }
        create(path, &text)
    }
}

/// Reads the file of a vantage point's keys. The first key is the one to use.
///
/// # Errors
/// As [`VerifierKeys::read`].
pub fn read_token_keys(path: &Path) -> Result<Vec<TokenKey>, KeyFileError> {
    read(path, parse_token_keys)
}

fn parse_token_keys(text: &str) -> Result<Vec<TokenKey>, LineError> {
    let mut keys: Vec<TokenKey> = Vec::new();
    for (number, words) in lines(text) {
        let ["token", which, secret] = words[..] else { return Err(LineError::Line(number)) };
        let which: u8 = which.parse().map_err(|_| LineError::Line(number))?;
        let secret = from_hex(secret).ok_or(LineError::Line(number))?;
        if keys.iter().any(|key| key.number() == which) {
            return Err(LineError::Line(number));
        }
        keys.push(TokenKey::new(which, *secret));
    }
    if keys.is_empty() { Err(LineError::NoKey) } else { Ok(keys) }
}

/// Writes a new file with one key of a vantage point.
///
/// # Errors
/// As [`VerifierKeys::create`].
pub fn create_token_key(path: &Path, key: &TokenKey) -> io::Result<()> {
    let mut text = Zeroizing::new(String::with_capacity(256));
    text.push_str("# What a vantage point shares with its issuer.\n");
    text.push_str(&format!("token {} ", key.number()));
    text.push_str(&to_hex(key.bytes()));
    text.push('\n');
    create(path, &text)
}

#[cfg(test)]
mod tests;
