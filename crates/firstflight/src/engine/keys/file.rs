//! Files of keys.

use crate::credential::{
    ClockError, CookieKeys, Current, FarmSecrets, Fixed, KeyParseError, KeySource, Schedule, ScheduleError,
    Scheme, SecretFileError,
};
use firstflight_files::ReadError;
use firstflight_wire::Clock;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// What a key file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// Cookie keys as `net.ipv4.tcp_fastopen_key` prints them ([`CookieKeys`]).
    Keys,
    /// One or two secrets of a farm ([`FarmSecrets`]), and the schedule that keys follow.
    Schedule {
        /// For how long a key grants cookies: see [`Schedule::new`].
        period: Duration,
        /// How long before that period the key is already accepted: see [`Schedule::new`].
        lead: Duration,
    },
}

/// The content of a key file when it was last read.
pub struct KeyFile {
    path: PathBuf,
    form: Form,
    scheme: Scheme,
    text: Zeroizing<String>,
    keys: Keys,
}

enum Keys {
    Fixed(Fixed),
    Schedule(Box<Schedule>),
}

impl KeyFile {
    /// Maximum size of a key file, bytes. A key file has one or two lines; a longer file is something else.
    pub const MAX_BYTES: usize = 4096;

    /// Reads a file.
    ///
    /// # Errors
    /// When the file cannot be read, other users can read or change it, it does not have this form, or the schedule
    /// cannot be created.
    pub async fn open(path: impl Into<PathBuf>, form: Form, scheme: Scheme) -> Result<Self, KeyFileError> {
        let path = path.into();
        let text = read(&path).await?;
        let keys = parse(&text, form, scheme).map_err(KeyFileError::Content)?;
        Ok(Self { path, form, scheme, text, keys })
    }

    /// Reads the file again. Returns whether its content has changed. A file that is not regular, such as a pipe,
    /// delivers its content once and never changes.
    ///
    /// # Errors
    /// As [`KeyFile::open`]. The keys then stay unchanged.
    pub async fn reload(&mut self) -> Result<bool, KeyFileError> {
        let metadata = tokio::fs::metadata(&self.path).await.map_err(ReadError::Io)?;
        if !metadata.is_file() {
            return Ok(false);
        }
        let text = read(&self.path).await?;
        if text == self.text {
            return Ok(false);
        }
        self.keys = parse(&text, self.form, self.scheme).map_err(KeyFileError::Content)?;
        self.text = text;
        Ok(true)
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFile").field("path", &self.path).field("form", &self.form).finish_non_exhaustive()
    }
}

impl KeySource for KeyFile {
    fn keys_at(&self, clock: &Clock) -> Result<Current, ClockError> {
        match &self.keys {
            Keys::Fixed(fixed) => fixed.keys_at(clock),
            Keys::Schedule(schedule) => schedule.keys_at(clock),
        }
    }
}

async fn read(path: &Path) -> Result<Zeroizing<String>, KeyFileError> {
    let path = path.to_owned();
    let reading =
        tokio::task::spawn_blocking(move || firstflight_files::read_secret(&path, KeyFile::MAX_BYTES));
    Ok(reading.await.map_err(|error| ReadError::Io(io::Error::other(error)))??)
}

fn parse(text: &str, form: Form, scheme: Scheme) -> Result<Keys, KeyError> {
    match form {
        Form::Keys => {
            let keys: CookieKeys = text.parse().map_err(KeyError::Key)?;
            Ok(Keys::Fixed(Fixed::new(&keys, scheme)))
        }
        Form::Schedule { period, lead } => {
            let secrets: FarmSecrets = text.parse().map_err(KeyError::Secret)?;
            let schedule = Schedule::new(secrets, scheme, period, lead).map_err(KeyError::Schedule)?;
            Ok(Keys::Schedule(Box::new(schedule)))
        }
    }
}

/// Why a key file gives no keys. The error never quotes the file.
pub type KeyFileError = firstflight_files::KeyFileError<KeyError>;

/// Why the content of a key file gives no keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It holds no cookie keys: the file's content is at fault.
    #[error("is not valid: {0}")]
    Key(#[source] KeyParseError),
    /// It holds no farm secrets: the file's content is at fault.
    #[error("is not valid: {0}")]
    Secret(#[source] SecretFileError),
    /// The schedule cannot be created. The caller is at fault.
    #[error("gives no schedule: {0}")]
    Schedule(#[source] ScheduleError),
}
