//! Files that one process at a time uses.

use crate::read::{self, ReadError};
use crate::write;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// How often a lock is taken that others remove meanwhile.
const ATTEMPTS: usize = 10;

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
/// The lock is on a second file, `PATH.lock`, because each write puts another file at `PATH`. It is removed with this value, if
/// the process may then still write into the directory; one that a killed process has left holds nobody up.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    lock: File,
}

impl Drop for StateFile {
    /// The lock is held until the file is gone. Who has opened it by then sees that it is not at its path any more.
    fn drop(&mut self) {
        let path = lock_path(&self.path);
        if is_at(&self.lock, &path) {
            let _ = fs::remove_file(path);
        }
    }
}

fn lock_path(path: &Path) -> PathBuf {
    path.with_added_extension("lock")
}

fn is_at(file: &File, path: &Path) -> bool {
    let of = |about: fs::Metadata| (about.dev(), about.ino());
    let (Ok(ours), Ok(there)) = (file.metadata(), path.symlink_metadata()) else { return false };
    of(ours) == of(there)
}

impl StateFile {
    /// Locks the file at `path`.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn lock(path: &Path) -> Result<Self, LockError> {
        let lock = locked(&lock_path(path))?;
        Ok(Self { path: path.to_owned(), lock })
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

/// Opens and locks the file at `path`, or creates it with the mode 0600. It fails at once if another process has the lock.
///
/// A link is not followed: who can write into the directory could make this process create a file, or write into one, at a
/// place to which only this process has access.
pub(crate) fn locked(path: &Path) -> Result<File, LockError> {
    for _ in 0..ATTEMPTS {
        let file = lock_once(path)?;
        // A process that ended in between has removed it, and the next one would lock another file.
        if is_at(&file, path) {
            return Ok(file);
        }
    }
    Err(LockError::Held)
}

fn lock_once(path: &Path) -> Result<File, LockError> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    // A pipe without a reader must not block.
    let opened = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|error| {
        LockError::Io(match path.is_symlink() {
            true => not_ours(path, "is a link"),
            false => error,
        })
    })?;
    let about = file.metadata().map_err(LockError::Io)?;
    if !about.is_file() {
        return Err(LockError::Io(not_ours(path, "is not a regular file")));
    }
    // A new lock is empty. A file with content, or with another name, may be of another user, and keeps its owner.
    if about.len() == 0 && about.nlink() == 1 {
        write::give(&file).map_err(LockError::Io)?;
    }
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => LockError::Held,
        TryLockError::Error(error) => LockError::Io(error),
    })?;
    Ok(file)
}

fn not_ours(path: &Path, what: &str) -> io::Error {
    let message =
        format!("{} {what}, so it is not used as a lock: remove it, or name another file", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// What was read, or `None` if there is no such file.
pub(crate) fn existing<T>(read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    match read {
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
