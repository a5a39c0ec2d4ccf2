//! Files that are followed: whether one may have changed since it was read.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A file that changed less than this before it was read is read again, because a later change may not change its
/// time stamp.
const SETTLED: Duration = Duration::from_secs(2);

/// Identifies the version of a file that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    size: u64,
    /// Seconds and nanoseconds of the last change of the content, and of the last change of anything.
    times: [(i64, i64); 2],
}

impl From<&Metadata> for Stamp {
    fn from(of: &Metadata) -> Self {
        let times = [(of.mtime(), of.mtime_nsec()), (of.ctime(), of.ctime_nsec())];
        Self { file: (of.dev(), of.ino()), size: of.size(), times }
    }
}

/// A file's stamp when it was read.
#[derive(Debug, Clone, Copy)]
pub struct FileStamp {
    /// `None` for a file that did not exist.
    stamp: Option<Stamp>,
    settled: bool,
}

impl FileStamp {
    /// A file that does not exist.
    pub const MISSING: Self = Self { stamp: None, settled: true };

    /// A file with this metadata, taken before its content is read.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let changed = metadata.modified().ok();
        let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
        Self { stamp: Some(Stamp::from(metadata)), settled: age.is_some_and(|age| age >= SETTLED) }
    }

    /// The file at `path`, before its content is read.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        std::fs::metadata(path).map_or(Self::MISSING, |metadata| Self::of(&metadata))
    }

    /// Whether this is the version that `other` saw, as far as that can be known without its content.
    #[must_use]
    pub fn is_same_version(&self, other: &Self) -> bool {
        self.stamp == other.stamp
    }

    /// Whether the file at `path` may have changed since. It is not opened.
    #[must_use]
    pub fn may_have_changed(&self, path: &Path) -> bool {
        let now = std::fs::metadata(path).ok();
        !self.settled || now.as_ref().map(Stamp::from) != self.stamp
    }
}

/// Opens a file and returns its metadata. A pipe or a device may have no end, or no writer, so only a regular file is opened.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if metadata.is_file() { Ok((file, metadata)) } else { Err(io::Error::other("it is not a regular file")) }
}
