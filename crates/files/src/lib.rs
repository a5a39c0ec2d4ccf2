//! Files that hold keys or state. One place decides about their modes, their locks, and how they are written.
//!
//! - A file of keys is read only if nobody but its owner can read or change it ([`read_secret`]).
//! - A file appears whole or not at all: it is written under another name, flushed to the disk, and renamed. After a
//!   crash, or on a full disk, there is the old file or the new one, and nothing is left over ([`create`],
//!   [`replace`]).
//! - Every file that this crate writes has the mode 0600.
//! - A process that must be the only one with a file holds a lock on another file beside it ([`lock`]).
#![forbid(unsafe_code)]

use std::fmt;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

/// Where systemd puts the credentials of a service.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Why a file of keys is not read.
#[derive(Debug)]
pub enum ReadError {
    /// The file system refuses: the path or its permissions are at fault.
    Io(io::Error),
    /// Others than its owner can read or change it; its mode. Who made the file is at fault.
    Open(u32),
    /// It is longer than such a file can be: its content is at fault.
    TooLong,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Open(mode) => write!(f, "{}", OpenMode(*mode)),
            Self::TooLong => f.write_str("it is too long"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What to say of a file of keys with this mode, behind the file's name.
#[derive(Debug, Clone, Copy)]
pub struct OpenMode(pub u32);

impl fmt::Display for OpenMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "has the mode {:04o}, so others can use the key: make it 0600 (chmod 600)", self.0)
    }
}

/// Reads a file of keys, of `longest` bytes at most. The memory is wiped when the answer is dropped.
///
/// What is no regular file, such as a pipe, has no mode that says anything; it is read whatever its mode.
///
/// # Errors
/// See [`ReadError`].
pub fn read_secret(path: &Path, longest: usize) -> Result<Zeroizing<Vec<u8>>, ReadError> {
    let file = File::open(path)?;
    if let Some(mode) = open_to_others(path, &file.metadata()?) {
        return Err(ReadError::Open(mode));
    }
    // Room for all of it, so that growing leaves no copy behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(longest.saturating_add(1)));
    file.take(longest as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > longest { Err(ReadError::TooLong) } else { Ok(bytes) }
}

/// The permissions of a file, if they let others than its owner use it.
fn open_to_others(path: &Path, metadata: &Metadata) -> Option<u32> {
    // systemd gives its credentials to a service by an access control list, whose mask looks like the group's
    // permission to read.
    let credential = std::env::var_os(CREDENTIALS).is_some_and(|directory| path.starts_with(directory));
    let others = if credential { 0o037 } else { 0o077 };
    let mode = metadata.mode() & 0o777;
    (metadata.is_file() && mode & others != 0).then_some(mode)
}

/// Writes a new file of mode 0600. If it fails, there is no file of this name, and the next attempt can succeed.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] when there is a file of this name; others when it cannot be written.
pub fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    place(path, |file| file.write_all(content), |file| file.persist_noclobber(path))
}

/// Writes a file of mode 0600 in the place of the one before, if there is one. If it fails, that one stays as it is.
///
/// # Errors
/// When it cannot be written.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    place(path, |file| file.write_all(content), |file| file.persist(path))
}

/// Whether [`replace`] could write there, as far as that is known before: it makes a file in the directory and
/// removes it.
///
/// # Errors
/// When it could not.
pub fn check_writable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    File::open(directory(path))?;
    scratch(path).map(drop)
}

/// Writes a file under another name, and gives it its own by `rename` when it is on the disk.
fn place(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
    rename: impl FnOnce(NamedTempFile) -> Result<File, tempfile::PersistError>,
) -> io::Result<()> {
    let directory = File::open(directory(path))?;
    // Dropped on the way, it is removed.
    let mut file = scratch(path)?;
    write(file.as_file_mut())?;
    file.as_file().sync_all()?;
    rename(file).map_err(|error| error.error)?;
    directory.sync_all()
}

/// An empty file of mode 0600 in the directory of `path`.
fn scratch(path: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(".firstflight-").tempfile_in(directory(path))
}

/// The directory that `path` lies in.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds it.
    Held,
    /// The file system refuses.
    Io(io::Error),
}

/// Makes this process the only one with the file `path`, until the answer is dropped. The lock is on `path.lock`:
/// [`replace`] gives the name `path` to another file each time.
///
/// # Errors
/// See [`LockError`].
pub fn lock(path: &Path) -> Result<File, LockError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(PathBuf::from(name)).map_err(LockError::Io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LockError::Held),
        Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
    }
}

#[cfg(test)]
mod tests;
