//! The keys that the members of a farm share, in a file.

use firstflight::credential::{GuardKey, RemoteGuard, ReplayGuard, Window};
use firstflight_files::{ReadError, from_hex, read_secret};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use zeroize::Zeroizing;

/// Longest file, bytes. The keys take 96 bytes and a line break.
const LONGEST: usize = 4096;

/// Why a file has no farm keys. The message continues a sentence that begins with the file's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FarmKeysError {
    /// It cannot be read, or other users can read it.
    #[error(transparent)]
    Unreadable(ReadError),
    /// It has something else.
    #[error("has not 96 hexadecimal digits; make them with openssl rand -hex 48, once for the farm")]
    Malformed,
}

impl FarmKeysError {
    /// Whether it may be otherwise in a minute although nobody changes the file.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreadable(error) if error.may_pass())
    }
}

/// What the members of a farm share with each other: the keys of one-time cookies, and of the guard that asks the store.
///
/// A process reads them once. Then its guards together report no more than one of them may
/// ([`RemoteGuard::beside`](firstflight::credential::RemoteGuard::beside)).
pub struct FarmKeys {
    one_time: Zeroizing<[u8; 32]>,
    guard: RemoteGuard,
}

/// Names the guard's key of a farm, and says nothing about it. Members with other keys share nothing, so a store refuses
/// them: [`Options::keys`](crate::Options::keys).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeysFingerprint(u64);

impl fmt::Display for KeysFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FarmKeys {
    /// Reads a file with 96 hexadecimal digits, mode 0600 or root's with 0640.
    ///
    /// # Errors
    /// When it cannot be read, or has something else.
    pub fn read(path: &Path) -> Result<Self, FarmKeysError> {
        let text = read_secret(path, LONGEST).map_err(|error| match error {
            ReadError::TooLong(_) | ReadError::NotText => FarmKeysError::Malformed,
            error => FarmKeysError::Unreadable(error),
        })?;
        let keys = || {
            let (one_time, guard) = text.trim().split_at_checked(64)?;
            let guard: Zeroizing<[u8; 16]> = from_hex(guard)?;
            let guard = RemoteGuard::new(GuardKey::from_bytes(*guard), Window::NETWORK);
            Some(Self { one_time: from_hex(one_time)?, guard })
        };
        keys().ok_or(FarmKeysError::Malformed)
    }

    /// The keys of one-time cookies, for [`SerialFile::open`](firstflight::serial_file::SerialFile::open).
    #[must_use]
    pub fn one_time(&self) -> &[u8; 32] {
        &self.one_time
    }

    /// The guard that refuses a first flight which any member has taken within two minutes.
    #[must_use]
    pub fn guard(&self) -> RemoteGuard {
        self.guard.beside(Window::NETWORK)
    }

    /// The guard that refuses a request with a certificate which any member has taken. Each listener has one of its own,
    /// because each has a floor of its own.
    #[must_use]
    pub fn request_guard(&self) -> RemoteGuard {
        self.guard.beside(Window::REQUESTS)
    }

    /// What members of one farm have in common.
    #[must_use]
    pub fn fingerprint(&self) -> KeysFingerprint {
        // A hash of 64 of the 128 bits that ids have. Ids are hashes of longer texts.
        let id = self.guard.id_of(IpAddr::V4(Ipv4Addr::UNSPECIFIED), b"fingerprint");
        KeysFingerprint(id.id as u64)
    }
}

impl fmt::Debug for FarmKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarmKeys").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
