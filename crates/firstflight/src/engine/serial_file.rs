//! The state of one-time cookies that must outlive the process: their keys, and a mark that no serial has reached.
//!
//! The bits that say which cookies were used are lost when the process ends. So no serial may be issued twice, and
//! the mark in the file is always ahead of the serials: it is written and synced before they are issued. In addition,
//! no process starts below a count derived from the clock. So a file that was lost or restored from a backup repeats
//! serials only if the clock was set back as well.

use crate::credential::{Farm, OneTimeCookies, OneTimeKeys, SerialTable};
use firstflight_files::{LockError, OpenMode, OtherOwner, ReadError, StateFile, from_hex, to_hex};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// First line of the file.
const TITLE: &str = "firstflight one-time cookies, version 1";
/// Longest file, bytes. A longer file is something else.
const LONGEST: usize = 4096;
/// Serials that one write reserves. The next write happens when at most half of them are left, so about two thirds of
/// a million serials per second can be issued.
const RESERVE: u64 = 1 << 17;
/// Serials whose cookies are remembered as used or unused. They take 256 KiB, and the latest million are valid.
const REMEMBERED: usize = 1 << 20;
/// How often the reserve is checked.
const EVERY: Duration = Duration::from_millis(100);
/// Serials per millisecond for the count derived from the clock. 48 bits of them last until the year 2109.
const PER_MS: u64 = 64;

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SerialFileError {
    /// It cannot be read, written or created.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Other users can read the keys.
    #[error("it {}", OpenMode(*.0))]
    Readable(u32),
    /// It belongs to this other user.
    #[error("it {}", OtherOwner(*.0))]
    Foreign(u32),
    /// It is not such a file, or a part of it is missing.
    #[error(
        "it is damaged or something else: name another file, or delete it, and cookies of before fall back"
    )]
    Damaged,
    /// It belongs to another issuer.
    #[error("it belongs to issuer {0}: every member has a file of its own")]
    Issuer(u16),
    /// Another process uses it.
    #[error("another process uses it: every server has a file of its own")]
    Locked,
}

impl SerialFileError {
    /// Whether it may be otherwise in a minute although nobody changes a file or a setting: another process uses the file, or
    /// the disk is full.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Io(error) => firstflight_files::may_pass(error),
            Self::Locked => true,
            Self::Readable(_) | Self::Foreign(_) | Self::Damaged | Self::Issuer(_) => false,
        }
    }
}

impl From<ReadError> for SerialFileError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => Self::Io(error),
            ReadError::Open(mode) => Self::Readable(mode),
            ReadError::Foreign(owner) => Self::Foreign(owner),
            ReadError::TooLong(_) | ReadError::NotText => Self::Damaged,
        }
    }
}

/// An open state file that this process owns.
pub struct SerialFile {
    file: StateFile,
    keys: Zeroizing<[u8; 32]>,
    issuer: u16,
    mark: u64,
    /// The keys are a farm's.
    is_shared: bool,
}

impl SerialFile {
    /// Opens the file of `issuer`, or creates it. A farm gives its `shared` keys; otherwise the file's own keys are
    /// used, which are fresh if the file is new. This blocks on file I/O, so do not call it from a task.
    ///
    /// # Errors
    /// When the file is not usable; see [`SerialFileError`].
    pub fn open(path: &Path, issuer: u16, shared: Option<&[u8; 32]>) -> Result<Self, SerialFileError> {
        let file = StateFile::lock(path).map_err(|error| match error {
            LockError::Held => SerialFileError::Locked,
            LockError::Io(error) => SerialFileError::Io(error),
        })?;
        let (keys, mark) = match read(&file)? {
            Some(state) if state.issuer != issuer => return Err(SerialFileError::Issuer(state.issuer)),
            Some(state) => (state.keys, state.mark),
            None => {
                let mut keys = Zeroizing::new([0; 32]);
                getrandom::fill(&mut *keys).map_err(io::Error::other)?;
                (keys, 1)
            }
        };
        let is_shared = shared.is_some();
        let keys = shared.map_or(keys, |shared| Zeroizing::new(*shared));
        let mut file = Self { file, keys, issuer, mark, is_shared };
        // Write now, to find out whether the file can be written.
        file.write(file.mark.max(from_clock()))?;
        Ok(file)
    }

    /// Whether [`SerialFile::open`] would do, while another process may use the file. It changes nothing.
    ///
    /// # Errors
    /// As [`SerialFile::open`], but for [`SerialFileError::Locked`].
    pub fn check(path: &Path, issuer: u16) -> Result<(), SerialFileError> {
        match firstflight_files::read_secret(path, LONGEST) {
            Ok(text) => match parse(&text).ok_or(SerialFileError::Damaged)? {
                state if state.issuer != issuer => return Err(SerialFileError::Issuer(state.issuer)),
                _ => {}
            },
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        Ok(firstflight_files::check_writable(path)?)
    }

    /// Waits until nobody uses the file at `path` any more, for a second at most. The task that follows the cookies of
    /// [`SerialFile::start`] gives it up a moment after the last of them.
    ///
    /// # Panics
    /// Outside a tokio runtime with time.
    pub async fn released(path: &Path) {
        for _ in 0..10 {
            match StateFile::lock(path) {
                Err(LockError::Held) => tokio::time::sleep(EVERY).await,
                Ok(_) | Err(LockError::Io(_)) => return,
            }
        }
    }

    /// The keys of its cookies.
    #[must_use]
    pub fn keys(&self) -> OneTimeKeys {
        OneTimeKeys::from_bytes(*self.keys)
    }

    /// The serials, with a window of `capacity`. A task of the current runtime keeps the file ahead of them as long
    /// as they are in use.
    ///
    /// # Errors
    /// When the file cannot be written.
    ///
    /// # Panics
    /// Outside a tokio runtime, as [`tokio::spawn`] does.
    pub fn start(mut self, capacity: usize) -> Result<Arc<SerialTable>, SerialFileError> {
        let table = SerialTable::own(self.issuer, self.mark, capacity);
        if let Some(mark) = table.wants(RESERVE) {
            self.write(mark)?;
            table.extend(mark);
        }
        let table = Arc::new(table);
        tokio::spawn(keep_ahead(self, Arc::downgrade(&table)));
        Ok(table)
    }

    /// The cookies, with a window of a million. The members of a farm, which gave their shared keys, ask its store. As
    /// [`SerialFile::start`] otherwise.
    ///
    /// # Errors
    /// When the file cannot be written.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn cookies(self) -> Result<OneTimeCookies, SerialFileError> {
        let (keys, is_shared) = (self.keys(), self.is_shared);
        let cookies = OneTimeCookies::new(keys, self.start(REMEMBERED)?);
        Ok(if is_shared { cookies.with_farm(Farm::Shared) } else { cookies })
    }

    /// Replaces the whole file, and returns when it is on the disk.
    fn write(&mut self, mark: u64) -> io::Result<()> {
        let keys = to_hex(&*self.keys);
        let text = Zeroizing::new(format!("{TITLE}\nkeys {}\nissuer {}\nmark {mark}\n", *keys, self.issuer));
        self.file.replace(text.as_bytes())?;
        self.mark = mark;
        Ok(())
    }
}

/// Extends the mark until the table is no longer in use.
async fn keep_ahead(mut file: SerialFile, table: Weak<SerialTable>) {
    let mut failing = false;
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(wanted) = table.upgrade().map(|table| table.wants(RESERVE)) else { return };
        let Some(mark) = wanted else { continue };
        let written = tokio::task::spawn_blocking(move || {
            let result = file.write(mark);
            (file, result)
        });
        let Ok((back, result)) = written.await else { return };
        file = back;
        match result {
            Ok(()) => {
                failing = false;
                if let Some(table) = table.upgrade() {
                    table.extend(mark);
                }
            }
            Err(error) if !failing => {
                failing = true;
                let file = file.file.path().display();
                tracing::error!(%file, %error, "cannot write the mark: soon no one-time cookie is granted any more");
            }
            Err(_) => {}
        }
    }
}

/// The content of a file.
struct State {
    keys: Zeroizing<[u8; 32]>,
    issuer: u16,
    mark: u64,
}

fn read(file: &StateFile) -> Result<Option<State>, SerialFileError> {
    let text = file.read_secret(LONGEST)?;
    text.map(|text| parse(&text).ok_or(SerialFileError::Damaged)).transpose()
}

fn parse(text: &str) -> Option<State> {
    // Without its last line break the file is incomplete, and its mark may lack digits.
    let mut lines = text.strip_suffix('\n')?.lines();
    if lines.next()? != TITLE {
        return None;
    }
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let keys = from_hex(value("keys")?)?;
    let issuer = value("issuer")?.parse().ok()?;
    let mark = value("mark")?.parse().ok().filter(|&mark| mark > 0 && mark < 1 << 48)?;
    lines.next().is_none().then_some(State { keys, issuer, mark })
}

/// A serial above all that were issued before, unless the clock was set back.
fn from_clock() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (unix.as_millis() as u64).saturating_mul(PER_MS).min((1 << 48) - 1)
}

impl fmt::Debug for SerialFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SerialFile")
            .field("path", &self.file.path())
            .field("issuer", &self.issuer)
            .field("mark", &self.mark)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
