//! Files with settings in TOML. Every mistake names its line and its key.

use crate::exit::ExitKind;
use firstflight_files::ReadError;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// The longest file, bytes.
const LONGEST: usize = 4 << 20;

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    line: usize,
    key: Option<String>,
    problem: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(key) = &self.key {
            write!(f, ", {key}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for Mistake {}

/// A type of Rust, as the parser names what it wanted, in words.
fn number(wanted: &str) -> &str {
    match wanted {
        "u8" => "a number from 0 to 255",
        "u16" => "a number from 0 to 65535",
        "u32" => "a number from 0 to 4294967295",
        "u64" | "usize" => "a number from 0",
        "a nonzero u16" => "a number from 1 to 65535",
        "a nonzero u32" => "a number from 1 to 4294967295",
        "a nonzero u64" | "a nonzero usize" => "a number from 1",
        other => other,
    }
}

/// The keys of a file outside its tables.
#[derive(Deserialize)]
struct Keys(BTreeMap<Spanned<String>, IgnoredAny>);

impl Mistake {
    /// The line, from 1.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }

    /// What the parser says of `text`.
    #[must_use]
    pub fn toml(text: &str, error: &toml::de::Error) -> Self {
        let message = error.message().replace('\n', ", ");
        let problem = match message.rsplit_once("expected ") {
            Some((before, wanted)) => format!("{before}expected {}", number(wanted)),
            None => message,
        };
        Self::at(text, &error.span().unwrap_or_default(), problem)
    }

    /// A mistake at this place of `text`, bytes.
    pub fn at(text: &str, span: &Range<usize>, problem: impl Into<String>) -> Self {
        let before = text.get(..span.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let begin = before.rfind('\n').map_or(0, |at| at + 1);
        let whole = text.get(begin..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let key = match whole.split_once('=') {
            Some((key, _)) if !key.trim().is_empty() => Some(key.trim().to_owned()),
            _ => Some(whole.trim().to_owned()).filter(|whole| whole.starts_with('[')),
        };
        Self { line, key, problem: problem.into() }
    }

    /// A mistake of the key `key`, which is outside all tables. Of the whole of `text`, if it does not have the key.
    pub fn of_key(text: &str, key: &str, problem: impl Into<String>) -> Self {
        let keys = toml::from_str::<Keys>(text).ok();
        let span = keys.and_then(|keys| keys.0.keys().find(|one| one.get_ref() == key).map(Spanned::span));
        match span {
            Some(span) => Self::at(text, &span, problem),
            None => Self::of_whole(format!("{key}: {}", problem.into())),
        }
    }

    /// A mistake of the whole text.
    pub fn of_whole(problem: impl Into<String>) -> Self {
        Self { line: 1, key: None, problem: problem.into() }
    }
}

/// Why a file gives no settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}", not_read(path, error))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: ReadError,
    },
    /// It has a mistake.
    #[error("{}, {mistake}", path.display())]
    Mistake {
        /// The file.
        path: PathBuf,
        /// Which.
        mistake: Mistake,
    },
}

fn not_read(path: &Path, error: &ReadError) -> String {
    match error {
        ReadError::Io(error) => format!("cannot read {}: {error}", path.display()),
        error => format!("{} {error}", path.display()),
    }
}

impl ConfigError {
    /// Whether it is a mistake.
    #[must_use]
    pub fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Read { error, .. } => ExitKind::of_reading(error),
            Self::Mistake { .. } => ExitKind::Mistake,
        }
    }
}

/// Reads a file, and gives its text to `parse`.
///
/// # Errors
/// When it cannot be read, or has a mistake.
pub fn read<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, Mistake>) -> Result<T, ConfigError> {
    let text = firstflight_files::read(path, LONGEST)
        .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
    parse(&text).map_err(|mistake| ConfigError::Mistake { path: path.to_owned(), mistake })
}

/// Reads a text as `T`.
///
/// # Errors
/// The first mistake.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Mistake> {
    toml::from_str(text).map_err(|error| Mistake::toml(text, &error))
}

#[cfg(test)]
mod tests;
