//! A file of a fixed length.

use crate::read::{self, ReadError};
use crate::state::{self, LockError};
use crate::write;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;
use zeroize::Zeroizing;

/// An open file of `N` bytes that is written in place. This process alone uses it until this is dropped.
///
/// It can be written after the process has given up the right to write into the directory. A write in place is not
/// atomic: `N` must be within one sector of a disk.
#[derive(Debug)]
pub struct FixedFile<const N: usize> {
    file: File,
}

impl<const N: usize> FixedFile<N> {
    /// Opens the file and locks it, or creates it with the mode 0600. When this returns, a new file is on the disk.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn open(path: &Path) -> Result<Self, LockError> {
        let file = state::locked(path)?;
        write::sync(path).map_err(LockError::Io)?;
        Ok(Self { file })
    }

    /// The whole content. It is empty if nothing has been written yet.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&self) -> Result<Zeroizing<String>, ReadError> {
        let mut file = self.file.try_clone()?;
        file.rewind()?;
        read::text(file, N)
    }

    /// Replaces the content. It is on the disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, content: &[u8; N]) -> io::Result<()> {
        self.file.rewind()?;
        self.file.write_all(content)?;
        self.file.sync_all()
    }
}
