//! Key files of lines: text that only their owner may read. The callers interpret the lines.

use std::io;
use std::path::Path;

/// Longest key file, bytes.
const LARGEST: usize = 8192;

/// The words of each line that is neither empty nor a comment, with the line's number.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    let all = text.lines().zip(1..).map(|(line, number)| (number, line.trim()));
    all.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| (number, line.split_whitespace().collect()))
}

/// Reads a file, and what `parse` finds in its text.
///
/// # Errors
/// When it cannot be read, users other than its owner can use it, it is not a text of at most the longest length, or
/// `parse` fails.
pub fn read<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, LineError>) -> Result<T, KeyFileError> {
    let text = crate::read_secret(path, LARGEST)?;
    parse(&text).map_err(KeyFileError::Content)
}

/// Writes a new file, for its owner only. On an error no file of this name is left.
///
/// # Errors
/// When a file with this name exists, or it cannot be written.
pub fn create(path: &Path, text: &str) -> io::Result<()> {
    crate::create(path, text.as_bytes())
}

/// Why a file gives no keys. The error never quotes the file.
pub type KeyFileError = crate::KeyFileError<LineError>;

/// What is wrong with the lines of a key file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
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
mod tests;
