//! Reading and writing the cache file.

use super::{CacheContent, CachedServer};
use firstflight_files::{Format, FormatError, LockError, ReadError, StateFile};
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The format. A program that adds a field raises the version: older ones then refuse the file, and it stays as it is.
/// The length is more than full subjects need.
const FORMAT: Format = Format { version: 2, longest: LONGEST, secret: false };
/// Until version 1 there were servers only.
const SERVERS_ONLY: Format = Format { version: 1, ..FORMAT };
/// Longest file that is read or written, bytes.
pub(super) const LONGEST: usize = 16 << 20;

/// Why a cache cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// There is no such file.
    #[error("there is no cache {0}")]
    Missing(PathBuf),
    /// It cannot be read.
    #[error("cannot read the cache {0}: {1}")]
    Read(PathBuf, io::Error),
    /// It is not a cache of this version.
    #[error("{0} is not a cache of this version: {1}")]
    Invalid(PathBuf, FormatError),
    /// A newer program wrote it. It stays as it is.
    #[error("a newer program wrote the cache {0}: its version is {1}")]
    Newer(PathBuf, u32),
    /// It cannot be written, or cannot be renamed.
    #[error("cannot write the cache {0}: {1}")]
    Write(PathBuf, io::Error),
}

/// The content in version 1.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServersOnly {
    #[serde(rename = "version")]
    _version: u32,
    servers: Vec<CachedServer>,
}

pub(super) fn read(path: &Path) -> Result<CacheContent, CacheError> {
    let content = match FORMAT.read(path) {
        Err(FormatError::Version { found, .. }) if found == SERVERS_ONLY.version => {
            let content: Result<Option<ServersOnly>, _> = SERVERS_ONLY.read(path);
            content.map(|content| {
                content.map(|old| CacheContent { servers: old.servers, ..CacheContent::default() })
            })
        }
        content => content,
    };
    let content = content.map_err(|error| match error {
        FormatError::Read(ReadError::Io(error)) => CacheError::Read(path.to_owned(), error),
        FormatError::Version { found, expected } if found > expected => {
            CacheError::Newer(path.to_owned(), found)
        }
        error => CacheError::Invalid(path.to_owned(), error),
    })?;
    let mut content = content.ok_or_else(|| CacheError::Missing(path.to_owned()))?;
    content.version = 0;
    Ok(content)
}

pub(super) fn write(path: &Path, content: &CacheContent) -> Result<(), CacheError> {
    FORMAT.write(path, content).map_err(|error| CacheError::Write(path.to_owned(), error))
}

/// How long [`update`] waits for another process to be done with the file.
const LOCK_WITHIN: Duration = Duration::from_secs(2);
const LOCK_EVERY: Duration = Duration::from_millis(10);

/// Changes the content by `change`, while no other process does. A file that is not a cache is set aside. Blocks.
pub(super) fn update(
    path: &Path,
    change: impl FnOnce(CacheContent) -> CacheContent,
) -> Result<(), CacheError> {
    let since = Instant::now();
    let _lock = loop {
        match StateFile::lock(path) {
            Ok(lock) => break lock,
            Err(LockError::Held) if since.elapsed() < LOCK_WITHIN => std::thread::sleep(LOCK_EVERY),
            Err(LockError::Held) => {
                let error = io::Error::other("another process uses it all the time");
                return Err(CacheError::Write(path.to_owned(), error));
            }
            Err(LockError::Io(error)) => return Err(CacheError::Write(path.to_owned(), error)),
        }
    };
    let content = match read(path) {
        Ok(content) => content,
        Err(CacheError::Missing(_)) => CacheContent::default(),
        Err(problem @ CacheError::Invalid(..)) => {
            let aside = set_aside(path)?;
            tracing::warn!("{problem}; it is kept as {} and a new one begins", aside.display());
            CacheContent::default()
        }
        Err(error) => return Err(error),
    };
    write(path, &change(content))
}

/// Checks that a file can be written there, before anything is sent.
pub(super) fn check_writable(path: &Path) -> Result<(), CacheError> {
    firstflight_files::check_writable(path).map_err(|error| CacheError::Write(path.to_owned(), error))
}

/// Renames an invalid file to a name that is not in use.
pub(super) fn set_aside(path: &Path) -> Result<PathBuf, CacheError> {
    firstflight_files::set_aside(path).map_err(|error| CacheError::Write(path.to_owned(), error))
}
