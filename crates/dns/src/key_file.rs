//! Key files of fronts and servers: lines of text that only their owner may read.
//!
//! ```text
//! # What first flights by DNS are sealed to: the current key, and former ones that open until then (Unix seconds).
//! key 3 9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60
//! former 2 4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb 1767315660
//! ```
//! ```text
//! # What a front shares with a server. The first one is used, all of them are taken.
//! relay 1 c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7
//! ```

use crate::keys::DnsPathKeys;
use crate::relay::RelayKey;
use crate::seal::DnsPathKey;
use core::num::NonZeroU8;
use firstflight_files::lines::{KeyFileError, LineError, create, lines, read};
use firstflight_files::{from_hex, to_hex};
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

/// The content of a file of DNS-path keys.
#[derive(Debug, Clone)]
pub struct DnsPathKeyFile {
    /// Number of the current key.
    pub id: NonZeroU8,
    /// The current key.
    pub key: DnsPathKey,
    /// The former keys, the latest first, and until when they open, Unix seconds.
    pub former: Vec<(NonZeroU8, DnsPathKey, u64)>,
}

impl DnsPathKeyFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, users other than its owner can read it, or it is not such a file.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        read(path, Self::parse)
    }

    fn parse(text: &str) -> Result<Self, LineError> {
        let (mut current, mut former) = (None, Vec::new());
        for (number, words) in lines(text) {
            let bad = || LineError::Line(number);
            let key = |id: &str, secret| {
                let id: NonZeroU8 = id.parse().map_err(|_| bad())?;
                let secret = from_hex(secret).ok_or_else(bad)?;
                Ok((id, DnsPathKey::from_bytes(&secret).ok_or_else(bad)?))
            };
            match words[..] {
                ["key", id, secret] if current.is_none() => current = Some(key(id, secret)?),
                ["former", id, secret, ends] if former.len() < DnsPathKeys::MAX_FORMER => {
                    let ((id, key), ends) = (key(id, secret)?, ends.parse().map_err(|_| bad())?);
                    former.push((id, key, ends));
                }
                _ => return Err(bad()),
            }
        }
        let (id, key) = current.ok_or(LineError::NoKey)?;
        let ids = core::iter::once(id).chain(former.iter().map(|(id, ..)| *id));
        let mut seen = [false; 256];
        for id in ids {
            if let Some(place) = seen.get_mut(usize::from(id.get()))
                && core::mem::replace(place, true)
            {
                return Err(LineError::Twice(id.get()));
            }
        }
        Ok(Self { id, key, former })
    }

    /// The keys that open at `now`, Unix seconds.
    #[must_use]
    pub fn keys(&self, now: u64) -> DnsPathKeys {
        // From the oldest to the current key, each one replaces the previous one.
        let alive = self.former.iter().rev().filter(|(_, _, ends)| *ends > now);
        let mut keys: Option<(DnsPathKeys, u64)> = None;
        for (id, key, ends) in alive.cloned().chain([(self.id, self.key.clone(), u64::MAX)]) {
            keys = Some(match keys {
                None => (DnsPathKeys::new(id, key), ends),
                Some((mut keys, until)) => {
                    // Reading has checked that numbers differ and that there are not too many.
                    let _ = keys.rotate(id, key, until, now);
                    (keys, ends)
                }
            });
        }
        match keys {
            Some((keys, _)) => keys,
            None => DnsPathKeys::new(self.id, self.key.clone()),
        }
    }

    /// This file with a new current key. The previous key opens until `ends`, and keys that have ended at
    /// `now` (both Unix seconds) are removed. If there are too many, the oldest is removed.
    #[must_use]
    pub fn rotated(&self, key: DnsPathKey, ends: u64, now: u64) -> Self {
        let mut former = vec![(self.id, self.key.clone(), ends)];
        former.extend(self.former.iter().filter(|(_, _, ends)| *ends > now).cloned());
        former.truncate(DnsPathKeys::MAX_FORMER);
        let mut id = self.id;
        loop {
            id = NonZeroU8::new(id.get().wrapping_add(1)).unwrap_or(NonZeroU8::MIN);
            if former.iter().all(|(other, ..)| *other != id) {
                return Self { id, key, former };
            }
        }
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// When a file with this name exists, or it cannot be written.
    pub fn create(&self, path: &Path) -> io::Result<()> {
        let mut text = Zeroizing::new(String::with_capacity(256 + 128 * (self.former.len() + 1)));
        text.push_str("# What first flights by DNS are sealed to: the current key, and former ones that open until then (Unix seconds).\n");
        text.push_str(&format!("key {} ", self.id));
        text.push_str(&to_hex(&*self.key.to_bytes()));
        text.push('\n');
        for (id, key, ends) in &self.former {
            text.push_str(&format!("former {id} "));
            text.push_str(&to_hex(&*key.to_bytes()));
            text.push_str(&format!(" {ends}\n"));
        }
        create(path, &text)
    }
}

/// Reads the file of the keys that a front and a server share, with their numbers. The first is the one that
/// the front uses.
///
/// # Errors
/// As [`DnsPathKeyFile::read`].
pub fn read_relay_keys(path: &Path) -> Result<Vec<(u8, RelayKey)>, KeyFileError> {
    read(path, parse_relay_keys)
}

fn parse_relay_keys(text: &str) -> Result<Vec<(u8, RelayKey)>, LineError> {
    let mut keys: Vec<(u8, RelayKey)> = Vec::new();
    for (number, words) in lines(text) {
        let ["relay", id, secret] = words[..] else { return Err(LineError::Line(number)) };
        let id: u8 = id.parse().map_err(|_| LineError::Line(number))?;
        let secret = from_hex(secret).ok_or(LineError::Line(number))?;
        if keys.iter().any(|(other, _)| *other == id) {
            return Err(LineError::Twice(id));
        }
        keys.push((id, RelayKey::from_bytes(&secret)));
    }
    if keys.is_empty() { Err(LineError::NoKey) } else { Ok(keys) }
}

/// Writes a new file with one key of a front and a server.
///
/// # Errors
/// As [`DnsPathKeyFile::create`].
pub fn create_relay_key(path: &Path, id: u8, key: &RelayKey) -> io::Result<()> {
    let mut text = Zeroizing::new(String::with_capacity(256));
    text.push_str("# What a front shares with a server. The first one is used, all of them are taken.\n");
    text.push_str(&format!("relay {id} "));
    text.push_str(&to_hex(&*key.to_bytes()));
    text.push('\n');
    create(path, &text)
}

#[cfg(test)]
mod tests;
