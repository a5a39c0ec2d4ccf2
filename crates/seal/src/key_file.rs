//! Key files of servers: lines of text that only their owner may read.
//!
//! ```text
//! firstflight seal keys, version 1
//! # What clients seal first flights to, the newest first: number, secret, not_after (Unix seconds).
//! name www.example.com
//! key 2 9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60 1767402060
//! key 1 4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb 1767315660
//! ```
//! ```text
//! firstflight seal farm, version 1
//! # The secret of a farm: period and TTL in seconds, and the secret of a period.
//! name www.example.com
//! period 86400
//! ttl 3600
//! chain 20454 c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7
//! ```

use crate::farm::{ChainFault, Farm, FarmError};
use crate::keys::{KeySet, SealKey};
use crate::name::HostName;
use core::num::NonZeroU8;
use firstflight_files::{create, from_hex, read_secret, replace_secret, to_hex};
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

const KEYS: &str = "firstflight seal keys, version ";
const FARM: &str = "firstflight seal farm, version ";
const VERSION: u32 = 1;
/// Longest key file, bytes.
const LONGEST: usize = 8192;

/// Why a file gives no keys. The error never quotes the file.
pub type KeyFileError = firstflight_files::KeyFileError<ContentFault>;

/// What is wrong with the content of a key file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContentFault {
    /// It is something else.
    #[error("is no file of seal keys: its first line is another one")]
    Title,
    /// A newer program wrote it.
    #[error(
        "has version {0}, and this program reads version {VERSION}: use the program that wrote it, or a newer one"
    )]
    Newer(u32),
    /// This line is not valid, or one line too many.
    #[error("line {0} is none of a file of seal keys")]
    Line(usize),
    /// Two keys have this number.
    #[error("has two keys with the number {0}")]
    Twice(u8),
    /// A part is missing.
    #[error("has no {0}")]
    Lacks(&'static str),
    /// The farm is impossible.
    #[error("{0}")]
    Farm(#[from] FarmError),
}

/// The content of a key file.
#[derive(Debug, Clone)]
pub enum KeyFile {
    /// Keys of one server.
    Keys {
        /// The public name.
        name: HostName,
        /// Number, key and not_after (Unix seconds), the newest first.
        keys: Vec<(NonZeroU8, SealKey, u32)>,
    },
    /// The secret of a farm.
    Farm(Farm),
}

impl KeyFile {
    /// A file with one key that clients use until `not_after`, Unix seconds.
    #[must_use]
    pub fn new(name: HostName, key: SealKey, not_after: u32) -> Self {
        Self::Keys { name, keys: vec![(NonZeroU8::MIN, key, not_after)] }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, users other than its owner can read it, it is of a newer version, or it is no such file.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let text = read_secret(path, LONGEST)?;
        Self::parse(&text).map_err(KeyFileError::Content)
    }

    fn parse(text: &str) -> Result<Self, ContentFault> {
        let title = text.lines().next().unwrap_or_default();
        let version =
            |prefix| title.strip_prefix(prefix).map(|v| v.parse::<u32>().map_err(|_| ContentFault::Title));
        let (version, is_farm) = match (version(KEYS), version(FARM)) {
            (Some(version), _) => (version?, false),
            (None, Some(version)) => (version?, true),
            (None, None) => return Err(ContentFault::Title),
        };
        if version != VERSION {
            return Err(ContentFault::Newer(version));
        }
        let mut lines = Lines::default();
        for (line, number) in text.lines().zip(1..).skip(1) {
            let words: Vec<_> = line.split_whitespace().collect();
            if words.first().is_some_and(|word| !word.starts_with('#')) {
                lines.take(&words, is_farm).map_err(|fault| fault.unwrap_or(ContentFault::Line(number)))?;
            }
        }
        let Lines { name, keys, period, ttl, chain } = lines;
        let name = name.ok_or(ContentFault::Lacks("name"))?;
        if is_farm {
            let (index, chain) = chain.ok_or(ContentFault::Lacks("chain"))?;
            let (period, ttl) =
                (period.ok_or(ContentFault::Lacks("period"))?, ttl.ok_or(ContentFault::Lacks("ttl"))?);
            return Ok(Self::Farm(Farm::new(name, period, ttl, index, chain)?));
        }
        if keys.is_empty() {
            return Err(ContentFault::Lacks("key"));
        }
        Ok(Self::Keys { name, keys })
    }

    /// The public name.
    #[must_use]
    pub const fn name(&self) -> &HostName {
        match self {
            Self::Keys { name, .. } => name,
            Self::Farm(farm) => farm.name(),
        }
    }

    /// The keys that open at `now`, Unix seconds.
    ///
    /// # Errors
    /// Only for farms: [`ChainFault`].
    pub fn keys(&self, now: u64) -> Result<KeySet, ChainFault> {
        match self {
            Self::Farm(farm) => farm.keys(now),
            Self::Keys { name, keys } => {
                let mut set = KeySet::new(name.clone());
                for (id, key, not_after) in keys.iter().rev() {
                    // Keys that have ended are left out by the next call, and reading has checked numbers and count.
                    let _ = set.add(*id, key.clone(), *not_after, now);
                }
                set.handle_time(now);
                Ok(set)
            }
        }
    }

    /// This file with a new key in front. Keys that have ended at `now` are removed, and the oldest if there are too
    /// many. `None` for a farm, whose keys follow the clock.
    #[must_use]
    pub fn rotated(&self, key: SealKey, not_after: u32, now: u64) -> Option<Self> {
        let Self::Keys { name, keys } = self else { return None };
        let opens = |not_after: u32| now < u64::from(not_after) + KeySet::GRACE;
        let newest = keys.first().map_or(0, |(id, ..)| id.get());
        let mut kept: Vec<_> = keys.iter().filter(|(.., not_after)| opens(*not_after)).cloned().collect();
        kept.truncate(KeySet::MAX - 1);
        let ids = (1..=u8::MAX).map(|step| newest.wrapping_add(step)).filter_map(NonZeroU8::new);
        let id = ids.into_iter().find(|id| kept.iter().all(|(other, ..)| other != id))?;
        kept.insert(0, (id, key, not_after));
        Some(Self::Keys { name: name.clone(), keys: kept })
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// When a file with this name exists, or it cannot be written.
    pub fn create(&self, path: &Path) -> io::Result<()> {
        create(path, self.text().as_bytes())
    }

    /// Writes the file in place of the one that is there, for a farm's secret that went forward ([`Farm::advance`]). The former
    /// secret is overwritten on the disk, as far as that can be ([`firstflight_files::replace_secret`]).
    ///
    /// # Errors
    /// When it cannot be written. The file is then unchanged.
    pub fn replace(&self, path: &Path) -> io::Result<()> {
        replace_secret(path, self.text().as_bytes())
    }

    fn text(&self) -> Zeroizing<String> {
        // Reserve the whole length, because growing would leave a copy of the secrets in memory.
        let mut text = Zeroizing::new(String::with_capacity(LONGEST));
        match self {
            Self::Keys { name, keys } => {
                text.push_str(&format!("{KEYS}{VERSION}\n# What clients seal first flights to, the newest first: number, secret, not_after (Unix seconds).\nname {name}\n"));
                for (id, key, not_after) in keys {
                    text.push_str(&format!("key {id} "));
                    text.push_str(&to_hex(&*key.to_bytes()));
                    text.push_str(&format!(" {not_after}\n"));
                }
            }
            Self::Farm(farm) => {
                text.push_str(&format!("{FARM}{VERSION}\n# The secret of a farm: period and TTL in seconds, and the secret of a period.\nname {}\nperiod {}\nttl {}\nchain {} ", farm.name(), farm.period(), farm.ttl(), farm.index()));
                text.push_str(&to_hex(&**farm.chain()));
                text.push('\n');
            }
        }
        text
    }
}

#[derive(Default)]
struct Lines {
    name: Option<HostName>,
    keys: Vec<(NonZeroU8, SealKey, u32)>,
    period: Option<u32>,
    ttl: Option<u32>,
    chain: Option<(u64, Zeroizing<[u8; 32]>)>,
}

impl Lines {
    /// Takes a line. The error is `None` if the line is not valid.
    fn take(&mut self, words: &[&str], is_farm: bool) -> Result<(), Option<ContentFault>> {
        match (words, is_farm) {
            (["name", name], _) if self.name.is_none() => {
                self.name = Some(HostName::new(name.as_bytes()).ok_or(None)?);
            }
            (["key", id, secret, not_after], false) if self.keys.len() < KeySet::MAX => {
                let id: NonZeroU8 = id.parse().map_err(|_| None)?;
                let key = from_hex(secret).and_then(|bytes| SealKey::from_bytes(&bytes)).ok_or(None)?;
                if self.keys.iter().any(|(other, ..)| *other == id) {
                    return Err(Some(ContentFault::Twice(id.get())));
                }
                self.keys.push((id, key, not_after.parse().map_err(|_| None)?));
            }
            (["period", period], true) if self.period.is_none() => {
                self.period = Some(period.parse().map_err(|_| None)?);
            }
            (["ttl", ttl], true) if self.ttl.is_none() => self.ttl = Some(ttl.parse().map_err(|_| None)?),
            (["chain", index, secret], true) if self.chain.is_none() => {
                self.chain = Some((index.parse().map_err(|_| None)?, from_hex(secret).ok_or(None)?));
            }
            _ => return Err(None),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
