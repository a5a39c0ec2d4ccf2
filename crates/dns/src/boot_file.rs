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
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_start_is_larger_than_the_last_whatever_the_clock_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("boot");
        let mut file = BootFile::open(&path).unwrap();
        assert_eq!(file.next(1000).unwrap(), Boot(1000));
        assert_eq!(file.next(1000).unwrap(), Boot(1001));
        assert!(matches!(BootFile::open(&path), Err(BootError::Held)));
        BootFile::check(&path).unwrap();
        drop(file);
        let mut file = BootFile::open(&path).unwrap();
        assert_eq!(file.next(500).unwrap(), Boot(1002));
        assert_eq!(file.next(5000).unwrap(), Boot(5000));
        assert_eq!(file.next(u32::MAX).unwrap(), Boot(u32::MAX));
        assert!(matches!(file.next(5000), Err(BootError::Exhausted)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "4294967295\n");
    }

    #[test]
    fn a_look_creates_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("boot");
        BootFile::check(&path).unwrap();
        assert!(!path.exists());
        let below = directory.path().join("none/boot");
        assert!(matches!(BootFile::check(&below), Err(BootError::Io(_))));
    }

    #[test]
    fn a_file_of_something_else_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("boot");
        for text in ["1000\n", "key 1 00\n\n\n", "0000001000", "0000001000\nx", "99999999999", "x000001000\n"]
        {
            fs::write(&path, text).unwrap();
            assert!(matches!(BootFile::open(&path), Err(BootError::NotBoot)), "{text}");
            assert!(matches!(BootFile::check(&path), Err(BootError::NotBoot)), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::write(&path, "").unwrap();
        assert_eq!(BootFile::open(&path).unwrap().next(9).unwrap(), Boot(9));
    }
}
