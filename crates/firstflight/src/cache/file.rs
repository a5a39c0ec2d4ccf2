//! Reading and writing the cache file.

use super::CachedServer;
use firstflight_files::{Format, FormatError, ReadError};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The length is more than a full store needs.
const FORMAT: Format = Format { version: 1, longest: 16 << 20, secret: false };

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
    /// It cannot be written, or cannot be renamed.
    #[error("cannot write the cache {0}: {1}")]
    Write(PathBuf, io::Error),
}

#[derive(Serialize, Deserialize)]
struct Content<S> {
    servers: S,
}

pub(super) fn read(path: &Path) -> Result<Vec<CachedServer>, CacheError> {
    let content = FORMAT.read(path).map_err(|error| match error {
        FormatError::Read(ReadError::Io(error)) => CacheError::Read(path.to_owned(), error),
        error => CacheError::Invalid(path.to_owned(), error),
    })?;
    let content: Content<Vec<CachedServer>> = content.ok_or_else(|| CacheError::Missing(path.to_owned()))?;
    Ok(content.servers)
}

pub(super) fn write(path: &Path, servers: &[CachedServer]) -> Result<(), CacheError> {
    FORMAT.write(path, &Content { servers }).map_err(|error| CacheError::Write(path.to_owned(), error))
}

/// Checks that a file can be written there, before anything is sent.
pub(super) fn check_writable(path: &Path) -> Result<(), CacheError> {
    firstflight_files::check_writable(path).map_err(|error| CacheError::Write(path.to_owned(), error))
}

/// Renames an invalid file to a name that is not in use.
pub(super) fn set_aside(path: &Path) -> Result<PathBuf, CacheError> {
    firstflight_files::set_aside(path).map_err(|error| CacheError::Write(path.to_owned(), error))
}
