//! In the place of `file.rs` where files are not built in: there is no cache.

use super::{Fact, HolderMemory};
use firstflight_wire::{Clock, Instant};
use std::fmt;
use std::path::PathBuf;

/// Why a cache cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum CacheError {
    /// The program was built without the feature `cache`.
    NotBuilt(PathBuf),
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::NotBuilt(path) = self;
        write!(
            f,
            "cannot use the cache {}: this program is built without the feature `cache`",
            path.display()
        )
    }
}

impl std::error::Error for CacheError {}

/// There is none.
#[derive(Debug)]
pub(crate) enum CredentialCache {}

impl CredentialCache {
    pub(crate) fn open(path: impl Into<PathBuf>) -> Result<Self, CacheError> {
        Err(CacheError::NotBuilt(path.into()))
    }

    pub(crate) fn clear(&mut self) {
        match *self {}
    }
}

/// There is none.
#[derive(Debug)]
pub(crate) struct Keeper(CredentialCache);

impl Keeper {
    pub(crate) fn load(cache: CredentialCache, _: &Clock, _: impl FnMut(Fact)) -> Self {
        match cache {}
    }

    pub(crate) fn start(self, _: &HolderMemory<'_>, _: &Clock) -> Self {
        match self.0 {}
    }

    pub(crate) fn without_cookies(self) -> Self {
        match self.0 {}
    }

    pub(crate) fn forget(&mut self) {
        match self.0 {}
    }

    pub(crate) fn due(&self, _: &HolderMemory<'_>) -> Option<Instant> {
        match self.0 {}
    }

    pub(crate) fn last(&mut self, _: &HolderMemory<'_>, _: &Clock) -> Option<Snapshot> {
        match self.0 {}
    }
}

/// There is none.
#[derive(Debug)]
pub(crate) struct Snapshot(CredentialCache);

impl Snapshot {
    pub(crate) fn write(self) {
        match self.0 {}
    }
}
