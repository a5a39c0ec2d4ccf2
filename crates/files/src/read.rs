//! Reading.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::{Zeroize, Zeroizing};

/// Where systemd puts the credentials of a service.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Why a file was not read. The message continues a sentence that begins with the file's name, and never quotes the
/// file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system refuses: the path or its permissions are at fault.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Other users can read or change it. Contains its mode. Its creator is at fault.
    #[error("{}", OpenMode(*.0))]
    Open(u32),
    /// It is longer than a file of its kind can be. Contains the longest length, bytes. Its content is at fault.
    #[error("has more than {0} bytes")]
    TooLong(usize),
    /// It is not UTF-8: its content is at fault.
    #[error("is not text")]
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

/// Reads a file of at most `longest` bytes. The returned memory is wiped when it is dropped.
///
/// # Errors
/// See [`ReadError`]. Never [`ReadError::Open`].
pub fn read(path: &Path, longest: usize) -> Result<Zeroizing<String>, ReadError> {
    text(File::open(path)?, longest)
}

/// Like [`read`], for a file with secrets: other users must not be able to read or change it.
///
/// The mode is checked only for regular files, not for a pipe, for example.
///
/// # Errors
/// See [`ReadError`].
pub fn read_secret(path: &Path, longest: usize) -> Result<Zeroizing<String>, ReadError> {
    let file = File::open(path)?;
    match open_to_others(path, &file.metadata()?) {
        Some(mode) => Err(ReadError::Open(mode)),
        None => text(file, longest),
    }
}

/// The text of a file.
pub(crate) fn text(file: File, longest: usize) -> Result<Zeroizing<String>, ReadError> {
    // Allocate for the whole content, because growing would leave a copy in freed memory. Only a regular file has a
    // known length.
    let metadata = file.metadata()?;
    let known = usize::try_from(metadata.len()).ok().filter(|_| metadata.is_file());
    let length = known.map_or(longest, |length| length.min(longest));
    let mut bytes = Zeroizing::new(Vec::with_capacity(length.saturating_add(1)));
    file.take(longest as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > longest {
        return Err(ReadError::TooLong(longest));
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
