//! A file with the last start of a front, so that no nonce is used twice (`docs/spec/dns-path.md`,
//! section 9).

use crate::relay::Boot;
use firstflight_files::{FixedFile, LockError, ReadError, check_writable};
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

/// The number's digits and a line feed.
const LEN: usize = 11;

/// A file with the last [`Boot`]. One front at a time holds its lock.
///
/// If you remove the file, you must make new relay keys.
#[derive(Debug)]
pub struct BootFile {
    file: FixedFile<LEN>,
    last: Option<Boot>,
}

impl BootFile {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// When it cannot be read or written, another front holds it, or it is not such a file.
    pub fn open(path: &Path) -> Result<Self, BootError> {
        let file = FixedFile::open(path).map_err(|error| match error {
            LockError::Held => BootError::Held,
            LockError::Io(error) => BootError::Io(error),
        })?;
        let last = parse(&file.read().map_err(of_reading)?)?;
        Ok(Self { file, last })
    }

    /// Whether [`BootFile::open`] would do, while another front may hold the file. It is neither created nor locked.
    ///
    /// # Errors
    /// As [`BootFile::open`], but for [`BootError::Held`].
    pub fn check(path: &Path) -> Result<(), BootError> {
        match firstflight_files::read(path, LEN) {
            Ok(text) => {
                parse(&text)?;
                OpenOptions::new().write(true).open(path).map(drop).map_err(BootError::Io)
            }
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                check_writable(path).map_err(BootError::Io)
            }
            Err(error) => Err(of_reading(error)),
        }
    }

    /// The number of a start at `now`, Unix seconds. It is on the disk before it is returned.
    ///
    /// # Errors
    /// When it cannot be written, or there are no larger numbers left.
    pub fn next(&mut self, now: u32) -> Result<Boot, BootError> {
        let next = Boot::after(self.last, now).ok_or(BootError::Exhausted)?;
        // Ten digits hold every number.
        let mut text = [b'\n'; LEN];
        let digits = format!("{:010}", next.0);
        text.iter_mut().zip(digits.bytes()).for_each(|(place, digit)| *place = digit);
        self.file.write(&text).map_err(BootError::Io)?;
        self.last = Some(next);
        Ok(next)
    }
}

fn of_reading(error: ReadError) -> BootError {
    match error {
        ReadError::Io(error) => BootError::Io(error),
        ReadError::Open(_) | ReadError::Foreign(_) | ReadError::TooLong(_) | ReadError::NotText => {
            BootError::NotBoot
        }
    }
}

/// The last start that a file names.
fn parse(text: &str) -> Result<Option<Boot>, BootError> {
    match text {
        // The file is new, or an earlier start failed before it sent a datagram.
        "" => Ok(None),
        text => {
            let number = text.strip_suffix('\n').filter(|_| text.len() == LEN);
            number
                .and_then(|number| number.parse().ok())
                .map(|number| Some(Boot(number)))
                .ok_or(BootError::NotBoot)
        }
    }
}

/// Why the last start of a front is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootError {
    /// The file cannot be read or written.
    #[error("cannot be used: {0}; name a file in a directory of this user's")]
    Io(io::Error),
    /// Another front holds it.
    #[error("is held by another front: give each its own file and its own relay keys")]
    Held,
    /// The file has another content.
    #[error("is not what a front wrote: name another file, and make new relay keys")]
    NotBoot,
    /// There are no larger numbers.
    #[error("has no larger numbers left: make new relay keys, and remove it")]
    Exhausted,
}

#[cfg(test)]
mod tests;
