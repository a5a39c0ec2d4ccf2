//! Key files: lines of text that only their owner may read. The callers interpret the lines.

use firstflight_files::{OpenMode, ReadError};
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

pub use firstflight_files::{from_hex, to_hex};

/// Longest key file, bytes.
const LARGEST: usize = 8192;

/// The words of each line that is neither empty nor a comment, with the line's number.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    let all = text.lines().zip(1..).map(|(line, number)| (number, line.trim()));
    all.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| (number, line.split_whitespace().collect()))
}

/// Reads a file.
///
/// # Errors
/// When it cannot be read, users other than its owner can use it, or it is not a text of at most the longest
/// length.
pub fn read(path: &Path) -> Result<Zeroizing<String>, KeyFileError> {
    firstflight_files::read_secret(path, LARGEST).map_err(|error| match error {
        ReadError::Io(error) => KeyFileError::Read(error),
        ReadError::Open(mode) => KeyFileError::Open(mode),
        ReadError::TooLong => KeyFileError::TooLong,
        ReadError::NotText => KeyFileError::NotText,
    })
}

/// Writes a new file, for its owner only. On an error no file of this name is left.
///
/// # Errors
/// When a file with this name exists, or it cannot be written.
pub fn create(path: &Path, text: &str) -> io::Result<()> {
    firstflight_files::create(path, text.as_bytes())
}

/// Why a file gives no keys. The error never quotes the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// Users other than its owner may read or change it. Holds its mode.
    #[error("{}", OpenMode(*.0))]
    Open(u32),
    /// It is longer than a key file can be.
    #[error("is longer than a key file can be ({LARGEST} bytes)")]
    TooLong,
    /// It is not UTF-8.
    #[error("is not text: it is no key file")]
    NotText,
    /// This line is not valid in a key file of this kind, or is one line too many.
    #[error("line {0} is none of a key file of this kind")]
    Line(usize),
    /// Two keys have this number.
    #[error("has two keys with the number {0}")]
    Twice(u8),
    /// It has no key.
    #[error("has no key")]
    NoKey,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_its_owners_and_of_a_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        create(&path, "# x\n\n key 1 \n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = read(&path).unwrap();
        assert_eq!(lines(&text).collect::<Vec<_>>(), [(3, vec!["key", "1"])]);
        assert_eq!(create(&path, "").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read(&path), Err(KeyFileError::Open(0o640))));
        let long = directory.path().join("long");
        create(&long, &"x".repeat(LARGEST + 1)).unwrap();
        assert!(matches!(read(&long), Err(KeyFileError::TooLong)));
    }
}
