//! What is remembered, in a file for later runs. Cookies outlive the process, so that the first visit of the next process
//! carries data.
//!
//! Only entries of a known local network are written: a cookie that is used on another network tells the server that
//! both networks have the same user (RFC 7413 §4.1.3.2).

mod changes;
mod content;
mod disk;
mod hex;
mod keeper;
#[allow(dead_code, reason = "of requests inside lookups")]
pub(crate) mod lookup_file;
pub(crate) mod row;
mod server;

pub use content::{
    CacheContent, CachedClosedPort, CachedLostRace, CachedRecord, CachedResolver, CachedUdpPause,
    CachedUnreachable,
};
pub use disk::CacheError;
pub(crate) use keeper::{Keeper, Snapshot};
pub use server::{Avoided, CachedCookie, CachedPathMss, CachedRtt, CachedServer};

use std::path::{Path, PathBuf};

/// The content of a cache file, for [`crate::ClientBuilder::cache`] and `Endpoint::use_cache`.
///
/// The format is JSON with a version. The file's mode is 0600. It is replaced atomically, so that it is never half
/// written. Several processes may use one file at the same time: each writes what it learnt into what the others wrote, and
/// about one entry the last one counts. `PATH.lock` beside it is empty.
///
/// A file of version 1, which had servers only, is read, and becomes one of version 2. One of a newer version is refused,
/// and stays as it is. One with fields that this version does not have is no cache: it is renamed as any other that is not
/// valid.
#[derive(Debug)]
pub struct CredentialCache {
    path: PathBuf,
    content: CacheContent,
}

impl CredentialCache {
    /// Opens the cache at `path`. A missing file counts as an empty cache. A file that is not valid is renamed to
    /// `PATH.corrupt-…`, a warning is logged, and the cache starts empty.
    ///
    /// # Errors
    /// When the file cannot be read, a newer program wrote it, or its directory cannot be written to.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, CacheError> {
        let path = path.into();
        disk::check_writable(&path)?;
        let content = match disk::read(&path) {
            Ok(content) => content,
            Err(CacheError::Missing(_)) => CacheContent::default(),
            Err(problem @ CacheError::Invalid(..)) => {
                let aside = disk::set_aside(&path)?;
                tracing::warn!("{problem}; it is kept as {} and an empty one begins", aside.display());
                CacheContent::default()
            }
            Err(error) => return Err(error),
        };
        Ok(Self { path, content })
    }

    /// The servers in the file at `path`, least recently used one first.
    ///
    /// # Errors
    /// When the file is missing, cannot be read, or is not a cache.
    pub fn read(path: &Path) -> Result<Vec<CachedServer>, CacheError> {
        Ok(disk::read(path)?.servers)
    }

    /// All that is in the file at `path`.
    ///
    /// # Errors
    /// As [`CredentialCache::read`].
    pub fn read_all(path: &Path) -> Result<CacheContent, CacheError> {
        disk::read(path)
    }

    /// Changes the servers in the file at `path` while no other process does. A missing file counts as an empty one.
    /// Blocks for at most two seconds.
    ///
    /// # Errors
    /// When it cannot be read or written, or another process uses it all the time.
    pub fn update(path: &Path, change: impl FnOnce(&mut Vec<CachedServer>)) -> Result<(), CacheError> {
        Self::update_all(path, |content| change(&mut content.servers))
    }

    /// Changes all that is in the file at `path`, as [`CredentialCache::update`].
    ///
    /// # Errors
    /// As [`CredentialCache::update`].
    pub fn update_all(path: &Path, change: impl FnOnce(&mut CacheContent)) -> Result<(), CacheError> {
        disk::update(path, |mut content| {
            change(&mut content);
            content
        })
    }

    /// Replaces the content of the file at `path` with `servers`, whatever other processes wrote.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(path: &Path, servers: &[CachedServer]) -> Result<(), CacheError> {
        disk::write(path, &CacheContent { servers: servers.to_vec(), ..CacheContent::default() })
    }

    /// Forgets everything, in the file too.
    pub(crate) fn clear(&mut self) {
        self.content = CacheContent::default();
        if let Err(error) = Self::update_all(&self.path, |content| *content = CacheContent::default()) {
            tracing::warn!("{error}");
        }
    }

    /// The servers that were read.
    #[must_use]
    pub fn servers(&self) -> &[CachedServer] {
        &self.content.servers
    }
}

#[cfg(test)]
mod subject_tests;
#[cfg(test)]
mod tests;
