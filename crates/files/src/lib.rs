//! Key files and state files: their modes, their locks, and how they are written.
//!
//! - A key file is read only if no other user can read or change it ([`read_secret`]).
//! - Writes are atomic: a file is written under another name, flushed to the disk, and renamed. After a crash, or on a
//!   full disk, there is the old file or the new one, and no temporary file after an error ([`create`], [`replace`]).
//! - Every file that this crate writes has the mode 0600.
//! - A process that must be the only user of a file locks a second file beside it ([`lock`]).
//! - Secrets are hexadecimal digits in a file, and no copy of them stays in memory ([`to_hex`], [`from_hex`]).
#![forbid(unsafe_code)]

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use std::fmt;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use tempfile::NamedTempFile;
use zeroize::{Zeroize, Zeroizing};

/// Where systemd puts the credentials of a service.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Why a key file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system refuses: the path or its permissions are at fault.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Other users can read or change it. Contains its mode. Its creator is at fault.
    #[error("{}", OpenMode(*.0))]
    Open(u32),
    /// It is longer than a key file can be: its content is at fault.
    #[error("it is too long")]
    TooLong,
    /// It is not UTF-8: its content is at fault.
    #[error("it is not text")]
    NotText,
}

/// The message about a key file with this mode. The file's name comes before it.
#[derive(Debug, Clone, Copy)]
pub struct OpenMode(pub u32);

impl fmt::Display for OpenMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "has the mode {:04o}, so others can use the key: make it 0600 (chmod 600)", self.0)
    }
}

/// Reads a key file of at most `longest` bytes. The returned memory is wiped when it is dropped.
///
/// The mode is checked only for regular files, not for a pipe, for example.
///
/// # Errors
/// See [`ReadError`].
pub fn read_secret(path: &Path, longest: usize) -> Result<Zeroizing<String>, ReadError> {
    let file = File::open(path)?;
    if let Some(mode) = open_to_others(path, &file.metadata()?) {
        return Err(ReadError::Open(mode));
    }
    // Allocate for the whole content, because growing would leave a copy in freed memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(longest.saturating_add(1)));
    file.take(longest as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > longest {
        return Err(ReadError::TooLong);
    }
    let text = String::from_utf8(std::mem::take(&mut *bytes));
    text.map(Zeroizing::new).map_err(|error| {
        error.into_bytes().zeroize();
        ReadError::NotText
    })
}

/// The mode of a regular file, if it gives other users any permission.
fn open_to_others(path: &Path, metadata: &Metadata) -> Option<u32> {
    // systemd gives its credentials to a service by an access control list, whose mask looks like the group's
    // permission to read.
    let credential = std::env::var_os(CREDENTIALS).is_some_and(|directory| path.starts_with(directory));
    let others = if credential { 0o037 } else { 0o077 };
    let mode = metadata.mode() & 0o777;
    (metadata.is_file() && mode & others != 0).then_some(mode)
}

/// A secret as hexadecimal digits. The returned memory is wiped when it is dropped.
#[must_use]
pub fn to_hex(secret: &[u8]) -> Zeroizing<String> {
    // Reserve the whole length, because growing would leave a copy of the secret in memory.
    let mut digits = Zeroizing::new(String::with_capacity(2 * secret.len()));
    HEXLOWER.encode_append(secret, &mut digits);
    digits
}

/// The secret of these digits, in upper or lower case. `None` unless there are exactly `N` bytes.
#[must_use]
pub fn from_hex<const N: usize>(digits: &str) -> Option<Zeroizing<[u8; N]>> {
    if digits.len() != 2 * N {
        return None;
    }
    let mut secret = Zeroizing::new([0; N]);
    HEXLOWER_PERMISSIVE.decode_mut(digits.as_bytes(), &mut *secret).ok()?;
    Some(secret)
}

/// Writes a new file of mode 0600. On an error no file of this name is left, so the next attempt can succeed.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] when there is a file of this name; others when it cannot be written.
pub fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    place(path, |file| file.write_all(content), |file| file.persist_noclobber(path))
}

/// Writes a file of mode 0600, and replaces an existing one. On an error the existing file is unchanged.
///
/// # Errors
/// When it cannot be written.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    place(path, |file| file.write_all(content), |file| file.persist(path))
}

/// Checks whether [`replace`] can create a file in the directory of `path`: it creates one and removes it.
///
/// # Errors
/// When it cannot, or `path` is a directory.
pub fn check_writable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    File::open(directory(path))?;
    scratch(path).map(drop)
}

/// Writes a file under a temporary name, flushes it to the disk, and moves it to `path` by `rename`.
fn place(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
    rename: impl FnOnce(NamedTempFile) -> Result<File, tempfile::PersistError>,
) -> io::Result<()> {
    let directory = File::open(directory(path))?;
    // The temporary file is removed when it is dropped.
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

/// Makes this process the only user of the file `path`, until the returned file is dropped. The lock is on `path.lock`,
/// because [`replace`] puts another file at `path` each time.
///
/// # Errors
/// See [`LockError`].
pub fn lock(path: &Path) -> Result<File, LockError> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path.with_added_extension("lock")).map_err(LockError::Io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LockError::Held),
        Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
    }
}

#[cfg(test)]
mod tests;
