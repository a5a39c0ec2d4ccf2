//! Files that one process at a time uses.

use crate::read::{self, ReadError};
use crate::write;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds it.
    Held,
    /// The file system refuses.
    Io(io::Error),
}

/// A file that this process alone uses until this is dropped. It need not exist.
///
/// The lock is on a second file, `PATH.lock`, because each write puts another file at `PATH`.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    _lock: File,
}

impl StateFile {
    /// Locks the file at `path`.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn lock(path: &Path) -> Result<Self, LockError> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path.with_added_extension("lock")).map_err(LockError::Io)?;
        try_lock(&file)?;
        Ok(Self { path: path.to_owned(), _lock: file })
    }

    /// Reads the file with [`read`](crate::read()). `None` if it does not exist.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&self, longest: usize) -> Result<Option<Zeroizing<String>>, ReadError> {
        existing(read::read(&self.path, longest))
    }

    /// Reads the file with [`read_secret`](crate::read_secret). `None` if it does not exist.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_secret(&self, longest: usize) -> Result<Option<Zeroizing<String>>, ReadError> {
        existing(read::read_secret(&self.path, longest))
    }

    /// Writes the file with [`replace`](crate::replace).
    ///
    /// # Errors
    /// When it cannot be written. The existing file is then unchanged.
    pub fn replace(&self, content: &[u8]) -> io::Result<()> {
        write::replace(&self.path, content)
    }

    /// Removes the file with [`remove`](crate::remove).
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        write::remove(&self.path)
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Locks a file, or fails at once.
pub(crate) fn try_lock(file: &File) -> Result<(), LockError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => LockError::Held,
        TryLockError::Error(error) => LockError::Io(error),
    })
}

/// What was read, or `None` if there is no such file.
pub(crate) fn existing<T>(read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    match read {
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
