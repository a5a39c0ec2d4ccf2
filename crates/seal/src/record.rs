//! SvcParam 65301: the keys that a server publishes (8.1, 8.2).

mod text;

#[cfg(feature = "files")]
pub use text::RecordFileError;
pub use text::RecordTextError;

use crate::defence::{Defence, on};
use crate::name::HostName;
use crate::reader::Reader;
use core::num::NonZeroU8;

const VERSION: u8 = 1;
const FLAGS: u8 = 0;

/// Numbers of the algorithms of an entry (RFC 9180 section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suite {
    /// Key encapsulation.
    pub kem: u16,
    /// Key derivation.
    pub kdf: u16,
    /// Encryption.
    pub aead: u16,
}

impl Suite {
    /// DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM: the only one that is used (3.1).
    pub const X25519: Self = Self { kem: 0x0020, kdf: 0x0001, aead: 0x0001 };
}

/// A key as it is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    key_id: NonZeroU8,
    suite: Suite,
    not_after: u32,
    key: Vec<u8>,
}

impl Entry {
    /// Longest key, bytes.
    pub const MAX_KEY: usize = 2048;

    /// An entry for an X25519 key that may be used until `not_after`, Unix seconds.
    #[must_use]
    pub fn x25519(key_id: NonZeroU8, key: &[u8; 32], not_after: u32) -> Self {
        Self { key_id, suite: Suite::X25519, not_after, key: key.to_vec() }
    }

    /// Its number.
    #[must_use]
    pub const fn key_id(&self) -> NonZeroU8 {
        self.key_id
    }

    /// Its algorithms.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.suite
    }

    /// Until when clients use it, Unix seconds.
    #[must_use]
    pub const fn not_after(&self) -> u32 {
        self.not_after
    }

    /// The public key, if it is one that is supported here.
    #[must_use]
    pub fn key(&self) -> Option<&[u8; 32]> {
        (self.suite == Suite::X25519).then_some(self.key.as_slice())?.try_into().ok()
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        let malformed = RecordError::Malformed;
        let key_id = reader.u8().and_then(NonZeroU8::new).ok_or(malformed("a key id"))?;
        let [kem, kdf, aead] = [reader.u16(), reader.u16(), reader.u16()];
        let (Some(kem), Some(kdf), Some(aead)) = (kem, kdf, aead) else {
            return Err(malformed("its length"));
        };
        let (suite, not_after) = (Suite { kem, kdf, aead }, reader.u32().ok_or(malformed("its length"))?);
        let key = reader.part16().ok_or(malformed("its length"))?;
        let possible =
            if suite == Suite::X25519 { key.len() == 32 } else { (1..=Self::MAX_KEY).contains(&key.len()) };
        if !possible {
            return Err(malformed("a key's length"));
        }
        Ok(Self { key_id, suite, not_after, key: key.to_vec() })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.key_id.get());
        for number in [self.suite.kem, self.suite.kdf, self.suite.aead] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&self.not_after.to_be_bytes());
        out.extend_from_slice(&(self.key.len() as u16).to_be_bytes());
        out.extend_from_slice(&self.key);
    }

    /// The end of `info` behind the context: what the seal covers of the record, and the port (3.2).
    pub(crate) fn emit_info(&self, name: &HostName, port: u16, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, FLAGS]);
        self.emit(out);
        name.emit(out);
        let port = if on(Defence::Port) { port } else { 0 };
        out.extend_from_slice(&port.to_be_bytes());
    }
}

/// Why a value is not a record. A client then treats it as absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Of another version, or with flags that this version does not know.
    #[error("a record of another version")]
    Version,
    /// A rule of 8.1 is broken.
    #[error("{0} is malformed")]
    Malformed(&'static str),
}

/// The value of SvcParamKey 65301 (8.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    entries: Vec<Entry>,
    name: HostName,
}

impl Record {
    /// Its number among the parameters of an SVCB record, from the range for private use (RFC 9460 section 14.3.1).
    pub const KEY: u16 = 65301;
    /// The most entries.
    pub const MAX_ENTRIES: usize = 4;
    /// Longest value, bytes.
    pub const MAX_LEN: usize = 4096;
    /// How far not_after may be ahead of a client's clock, seconds (8.2).
    pub const LONGEST: u64 = 48 * 3600;

    /// A record with these entries, the preferred one first. `None` if there are none, too many, or two with one number.
    #[must_use]
    pub fn new(entries: Vec<Entry>, name: HostName) -> Option<Self> {
        let count = (1..=Self::MAX_ENTRIES).contains(&entries.len());
        let twice = entries
            .iter()
            .enumerate()
            .any(|(at, entry)| entries.iter().take(at).any(|other| other.key_id == entry.key_id));
        let record = Self { entries, name };
        (count && !twice && record.to_bytes().len() <= Self::MAX_LEN).then_some(record)
    }

    /// Reads a value.
    ///
    /// # Errors
    /// [`RecordError`]: then there is no key.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let malformed = RecordError::Malformed;
        if bytes.len() > Self::MAX_LEN {
            return Err(malformed("its length"));
        }
        let mut reader = Reader::new(bytes);
        let &[version, flags, count] = reader.array().ok_or(malformed("its length"))?;
        if version != VERSION || flags != FLAGS {
            return Err(RecordError::Version);
        }
        if !(1..=Self::MAX_ENTRIES).contains(&usize::from(count)) {
            return Err(malformed("the number of entries"));
        }
        let entries: Result<Vec<_>, _> = (0..count).map(|_| Entry::read(&mut reader)).collect();
        let name = reader.part8().and_then(HostName::new).ok_or(malformed("the public name"))?;
        if !reader.is_empty() {
            return Err(malformed("its end"));
        }
        Self::new(entries?, name).ok_or(malformed("a key id that comes twice"))
    }

    /// The value.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION, FLAGS, self.entries.len() as u8];
        self.entries.iter().for_each(|entry| entry.emit(&mut out));
        self.name.emit(&mut out);
        out
    }

    /// The entries, the preferred one first.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The public name.
    #[must_use]
    pub const fn name(&self) -> &HostName {
        &self.name
    }

    /// The entry that a client uses at `now`, Unix seconds by its clock (8.2).
    #[must_use]
    pub fn usable(&self, now: u64) -> Option<&Entry> {
        let lasts = |entry: &Entry| {
            let end = u64::from(entry.not_after);
            (now <= end && end <= now.saturating_add(Self::LONGEST)) || !on(Defence::NotAfter)
        };
        self.entries.iter().find(|entry| entry.key().is_some() && lasts(entry))
    }
}
