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
mod tests {
    use super::*;
    use firstflight_files::ReadError;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn id(id: u8) -> NonZeroU8 {
        id.try_into().unwrap()
    }

    fn key(byte: u8) -> DnsPathKey {
        DnsPathKey::from_bytes(&[byte; 32]).unwrap()
    }

    #[test]
    fn keys_come_back_from_a_file_of_their_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let first = DnsPathKeyFile { id: id(255), key: key(1), former: Vec::new() };
        let second = first.rotated(key(2), 1000, 500).rotated(key(3), 2000, 999);
        assert_eq!((second.id, second.former.len()), (id(2), 2));
        second.create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(second.create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let read = DnsPathKeyFile::read(&path).unwrap();
        let keys = read.keys(999);
        assert_eq!((keys.current(), keys.former()), ((id(2), key(3).public()), 2));
        assert_eq!(keys.next_end(), Some(1000));
        // A key that has ended does not become valid again.
        let keys = read.keys(1000);
        assert_eq!((keys.current().0, keys.former(), keys.next_end()), (id(2), 1, Some(2000)));
        assert_eq!(read.keys(2000).former(), 0);
        assert_eq!(read.rotated(key(4), 3000, 1500).former.len(), 2);

        let path = directory.path().join("relay");
        create_relay_key(&path, 7, &RelayKey::from_bytes(&[3; 32])).unwrap();
        let read = read_relay_keys(&path).unwrap();
        assert_eq!((read.len(), read[0].0, *read[0].1.to_bytes()), (1, 7, [3; 32]));
    }

    #[test]
    fn numbers_that_still_open_are_not_used_again() {
        let mut file = DnsPathKeyFile { id: id(1), key: key(1), former: Vec::new() };
        for n in 0..600 {
            file = file.rotated(key(2), u64::MAX, n);
            assert!(file.former.iter().all(|(former, ..)| *former != file.id));
            assert!(file.former.len() <= DnsPathKeys::MAX_FORMER);
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        create_relay_key(&path, 1, &RelayKey::from_bytes(&[3; 32])).unwrap();
        for mode in [0o604, 0o620, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = read_relay_keys(&path).unwrap_err();
            assert!(matches!(error, KeyFileError::Read(ReadError::Open(found)) if found == mode), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert!(read_relay_keys(&path).is_ok());
    }

    #[test]
    fn what_is_no_key_file_says_where() {
        let directory = tempfile::tempdir().unwrap();
        let secret = "01".repeat(32);
        let verdict = |text: &str| {
            let path = directory.path().join("file");
            let _ = fs::remove_file(&path);
            create(&path, text).unwrap();
            let (dns_path, relay) = (DnsPathKeyFile::read(&path), read_relay_keys(&path));
            (dns_path.err().map(|e| e.to_string()), relay.err().map(|e| e.to_string()))
        };
        let line = |number| Some(format!("line {number} is none of a key file of this kind"));
        let none = Some("has no key".to_owned());
        assert_eq!(verdict("# x\n"), (none.clone(), none.clone()));
        assert_eq!(verdict(&format!("key 1 {secret}\nformer 2 {secret} 9")), (None, line(1)));
        assert_eq!(verdict(&format!("former 2 {secret} 9")).0, none);
        assert_eq!(verdict(&format!("key 1 {secret}\nkey 2 {secret}")).0, line(2));
        assert_eq!(verdict(&format!("key 0 {secret}")).0, line(1));
        assert_eq!(verdict(&format!("key 1 {secret}0")).0, line(1));
        assert_eq!(verdict(&format!("relay 1 {secret}\nrelay 0 {secret}")), (line(1), None));
        let twice = Some("has two keys with the number 1".to_owned());
        assert_eq!(verdict(&format!("key 1 {secret}\nformer 1 {secret} 9")).0, twice);
        assert_eq!(verdict(&format!("relay 1 {secret}\nrelay 1 {secret}")).1, twice);
        let told = verdict(&format!("relay 1 {secret}zz")).1.unwrap();
        assert!(!told.contains("0101"));
    }
}
