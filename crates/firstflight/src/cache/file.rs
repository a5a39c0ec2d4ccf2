//! Reading and writing the cache file.

use super::CachedServer;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// The format's version.
const VERSION: u32 = 1;
/// Largest file that is read, bytes. It is more than a full store needs.
const LARGEST: u64 = 16 << 20;

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
    /// It is not a cache of this version. The text says why.
    #[error("{0} is not a cache of this version: {1}")]
    Invalid(PathBuf, String),
    /// It cannot be written, or cannot be renamed.
    #[error("cannot write the cache {0}: {1}")]
    Write(PathBuf, io::Error),
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Content<S> {
    version: u32,
    servers: S,
}

pub(super) fn read(path: &Path) -> Result<Vec<CachedServer>, CacheError> {
    let fail = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => CacheError::Missing(path.to_owned()),
        _ => CacheError::Read(path.to_owned(), error),
    };
    let invalid = |why: String| CacheError::Invalid(path.to_owned(), why);
    let file = File::open(path).map_err(fail)?;
    let mut text = Zeroizing::new(Vec::new());
    file.take(LARGEST + 1).read_to_end(&mut text).map_err(fail)?;
    if text.len() as u64 > LARGEST {
        return Err(invalid("it is too large".into()));
    }
    let found: Version = serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
    if found.version != VERSION {
        return Err(invalid(format!("its version is {}, not {VERSION}", found.version)));
    }
    let content: Content<Vec<CachedServer>> =
        serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
    Ok(content.servers)
}

/// Replaces the file atomically: after a crash there is either the old or the new file.
pub(super) fn write(path: &Path, servers: &[CachedServer]) -> Result<(), CacheError> {
    let fail = |error| CacheError::Write(path.to_owned(), error);
    let mut text = Zeroizing::new(Vec::new());
    let content = Content { version: VERSION, servers };
    serde_json::to_writer_pretty(&mut *text, &content).map_err(|error| fail(error.into()))?;
    text.push(b'\n');
    firstflight_files::replace(path, &text).map_err(fail)
}

/// Checks that a file can be written there, before anything is sent.
pub(super) fn check_writable(path: &Path) -> Result<(), CacheError> {
    firstflight_files::check_writable(path).map_err(|error| CacheError::Write(path.to_owned(), error))
}

/// Renames an invalid file to a name that is not in use.
pub(super) fn set_aside(path: &Path) -> Result<PathBuf, CacheError> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut number = seconds;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".corrupt-{number}"));
        let aside = PathBuf::from(name);
        if aside.symlink_metadata().is_ok() {
            number += 1;
            continue;
        }
        let renamed = std::fs::rename(path, &aside);
        return renamed.map(|()| aside).map_err(|error| CacheError::Write(path.to_owned(), error));
    }
}
