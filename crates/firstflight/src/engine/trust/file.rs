//! The file of the verifiers that a server trusts.

use super::TrustHandle;
use crate::credential::asap::{NotAKey, PublicKey, TrustError, TrustStore, Trusted};
use crate::keys::{EVERY, Warning};
use crate::shared::Shared;
use firstflight_files::ReadError;
use ipnet::IpNet;
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of a trust file, bytes.
const MAX_BYTES: usize = 1 << 20;
/// The first line of a file whose last line is [`END`].
const BEGIN: &str = "# begin";
/// Last line of such a file.
const END: &str = "# end";

impl TrustHandle {
    fn is_alive(&self) -> bool {
        self.listeners.iter().any(|(shared, id)| Shared::has_listener(shared, *id))
    }
}

/// The content of a trust file when it was last read.
#[derive(Debug, Clone)]
pub struct TrustFile {
    path: PathBuf,
    text: String,
    store: Arc<TrustStore>,
    /// The content of a file without marks that was read once and is not accepted yet.
    unsettled: Option<String>,
}

impl TrustFile {
    /// Reads a file. A file without marks is accepted with a warning.
    ///
    /// # Errors
    /// When it cannot be read, is truncated, or is invalid.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, TrustFileError> {
        let path = path.into();
        let text = read(&path).await?;
        if !is_marked(&text)? {
            tracing::warn!(
                "{} has no marks that show that it is complete: begin it with the line {BEGIN:?} and end it with {END:?}",
                path.display()
            );
        }
        let store = Arc::new(parse(&text)?);
        Ok(Self { path, text, store, unsettled: None })
    }

    /// Reads the file again. Returns whether the store has changed. A changed file without marks is accepted at the
    /// second reading, and only if it admits no more than before.
    ///
    /// # Errors
    /// As [`TrustFile::open`], and [`TrustFileError::Unmarked`]. Then the store stays unchanged.
    pub async fn reload(&mut self) -> Result<bool, TrustFileError> {
        let text = read(&self.path).await?;
        let last = self.unsettled.take();
        if text == self.text {
            return Ok(false);
        }
        let marked = is_marked(&text)?;
        if !marked && is_marked(&self.text)? {
            return Err(TrustFileError::Unmarked);
        }
        let store = parse(&text)?;
        if !marked && last.as_ref() != Some(&text) {
            self.unsettled = Some(text);
            return Ok(false);
        }
        if !marked && store.grants_more_than(&self.store) {
            // Keep it, so that the next reading reports it again at once.
            self.unsettled = Some(text);
            return Err(TrustFileError::Unmarked);
        }
        self.store = Arc::new(store);
        self.text = text;
        Ok(true)
    }

    /// The verifiers that the file lists.
    #[must_use]
    pub fn store(&self) -> Arc<TrustStore> {
        Arc::clone(&self.store)
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Updates the listeners whenever the file changes, until all listeners are gone. While the file cannot be read or is
/// invalid, the trusted verifiers stay unchanged and one warning is logged.
pub async fn follow(mut listeners: Vec<TrustHandle>, mut file: TrustFile) {
    let mut warning = Warning::new("the trusted verifiers stay as they are");
    while !listeners.is_empty() {
        tokio::time::sleep(EVERY).await;
        listeners.retain(TrustHandle::is_alive);
        match file.reload().await {
            Ok(changed) => {
                warning.over();
                let set = |any, listener: &TrustHandle| listener.set(file.store()) | any;
                if changed && listeners.iter().fold(false, set) {
                    tracing::info!(verifiers = file.store.iter().count(), "trusted verifiers");
                }
            }
            Err(error) => warning.say(&error),
        }
    }
}

async fn read(path: &Path) -> Result<String, TrustFileError> {
    let path = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || firstflight_files::read(&path, MAX_BYTES));
    match reading.await.map_err(io::Error::other).map_err(TrustFileError::Read)? {
        Ok(mut text) => Ok(std::mem::take(&mut *text)),
        Err(ReadError::TooLong(_)) => Err(TrustFileError::TooLong),
        Err(ReadError::Io(error)) => Err(TrustFileError::Read(error)),
        Err(error) => {
            let why = format!("it {error}");
            Err(TrustFileError::Read(io::Error::new(io::ErrorKind::InvalidData, why)))
        }
    }
}

/// Whether a file has both marks.
fn is_marked(text: &str) -> Result<bool, TrustFileError> {
    if text.lines().next().map(str::trim) != Some(BEGIN) {
        return Ok(false);
    }
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    // If a mark were allowed in the middle, a truncated file could end with one.
    match (lines.next_back(), lines.any(|line| line == END)) {
        (Some(END), false) => Ok(true),
        _ => Err(TrustFileError::Cut),
    }
}

/// The file's content.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    verifier: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: String,
    #[serde(default)]
    prefixes: Vec<String>,
    longest: Option<String>,
    oldest: Option<String>,
    min_vantage: Option<u8>,
    own: Option<bool>,
    times: Option<u32>,
    per_second: Option<u32>,
}

impl Entry {
    fn trusted(self) -> Result<Trusted, TrustFileError> {
        let key: PublicKey =
            self.key.parse().map_err(|error| TrustFileError::Key(self.key.clone(), error))?;
        let default = Trusted::new(key);
        let prefix = |text: &String| {
            text.parse::<IpNet>().map_err(|_| TrustFileError::Value("prefixes", text.clone()))
        };
        let duration = |name, text: Option<String>, default: Duration| match text {
            None => Ok(default),
            Some(text) => humantime::parse_duration(&text).map_err(|_| TrustFileError::Value(name, text)),
        };
        let min_vantage = self.min_vantage.unwrap_or(default.min_vantage);
        if !(1..=8).contains(&min_vantage) {
            return Err(TrustFileError::Value("min_vantage", min_vantage.to_string()));
        }
        Ok(Trusted {
            key,
            prefixes: self.prefixes.iter().map(prefix).collect::<Result<_, _>>()?,
            longest: duration("longest", self.longest, default.longest)?,
            oldest: duration("oldest", self.oldest, default.oldest)?,
            min_vantage,
            own: self.own.unwrap_or(default.own),
            times: self.times.unwrap_or(default.times),
            per_second: self.per_second,
        })
    }
}

fn parse(text: &str) -> Result<TrustStore, TrustFileError> {
    let content: Content = toml::from_str(text).map_err(|error| TrustFileError::Syntax(error.to_string()))?;
    let entries: Vec<Trusted> = content.verifier.into_iter().map(Entry::trusted).collect::<Result<_, _>>()?;
    TrustStore::new(entries).map_err(TrustFileError::Store)
}

/// Why a trust file is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustFileError {
    /// It cannot be read. The file system, or the person who set its permissions, is at fault.
    #[error("cannot read the trust file: {0}")]
    Read(#[source] io::Error),
    /// It is longer than a trust file may be. For this and all following errors the file's content is at fault.
    #[error("a trust file has at most {MAX_BYTES} bytes: this one has more")]
    TooLong,
    /// It begins with `# begin` and does not end with `# end`, or has `# end` in its middle.
    #[error("the trust file begins with {BEGIN:?}, so its last line must be {END:?}: it is truncated")]
    Cut,
    /// A changed file without marks was refused, because the previous file had marks or admitted less.
    #[error(
        "the changed trust file has no marks that show that it is complete: begin it with the line {BEGIN:?} \
         and end it with {END:?}"
    )]
    Unmarked,
    /// It is not TOML, or has an unknown field.
    #[error("{}", .0.trim_end())]
    Syntax(String),
    /// A key is not valid.
    #[error("{0}: {1}")]
    Key(String, #[source] NotAKey),
    /// A field cannot have this value.
    #[error("{0} cannot be {1:?}")]
    Value(&'static str, String),
    /// The verifiers contradict each other.
    #[error("{0}")]
    Store(#[source] TrustError),
}

#[cfg(test)]
mod tests;
