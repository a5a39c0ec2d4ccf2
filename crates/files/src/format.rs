//! Files in JSON.

use crate::read::{self, ReadError};
use crate::{state, write};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use zeroize::Zeroizing;

/// A kind of file in JSON: an object with the field `version`, and the fields of a type beside it.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// The version that is read and written.
    pub version: u32,
    /// Longest file that is read, bytes.
    pub longest: usize,
    /// Whether other users must not be able to read or change it.
    pub secret: bool,
}

/// Why a file in JSON was not read.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It cannot be read, or other users can.
    #[error("it {0}")]
    Read(#[from] ReadError),
    /// It is of another version: a newer or an older program wrote it.
    #[error("its version is {found}, not {expected}")]
    Version {
        /// The version of the file.
        found: u32,
        /// The version that was expected.
        expected: u32,
    },
    /// It is damaged, or something else: its content is at fault.
    #[error("{0}")]
    Damaged(Mistake),
}

/// The mistake in a text that is not valid. Its message does not quote the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// It is not JSON.
    NotJson,
    /// It is JSON with other fields or values.
    OtherFields,
    /// It ends too early.
    CutOff,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotJson => "it is not JSON",
            Self::OtherFields => "it has other fields",
            Self::CutOff => "it is cut off",
        })
    }
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    content: &'a T,
}

impl Format {
    /// Reads the file at `path`. `None` if it does not exist.
    ///
    /// # Errors
    /// See [`FormatError`].
    pub fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>, FormatError> {
        let read = if self.secret { read::read_secret } else { read::read };
        let text = state::existing(read(path, self.longest))?;
        let Some(text) = text else { return Ok(None) };
        // Before the other fields: another version may lack them.
        let Version { version: found } = parse(&text)?;
        if found != self.version {
            return Err(FormatError::Version { found, expected: self.version });
        }
        parse(&text).map(Some)
    }

    /// Writes the file at `path` with [`replace`](crate::replace).
    ///
    /// # Errors
    /// When it cannot be written. An existing file is then unchanged.
    pub fn write<T: Serialize>(&self, path: &Path, content: &T) -> io::Result<()> {
        let content = Versioned { version: self.version, content };
        // Count first, because growing would leave a copy of the secrets in memory.
        let mut length = Length(1);
        serde_json::to_writer_pretty(&mut length, &content)?;
        let mut text = Zeroizing::new(Vec::with_capacity(length.0));
        serde_json::to_writer_pretty(&mut *text, &content)?;
        text.push(b'\n');
        write::replace(path, &text)
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, FormatError> {
    serde_json::from_str(text).map_err(|error| {
        FormatError::Damaged(match error.classify() {
            Category::Io | Category::Syntax => Mistake::NotJson,
            Category::Data => Mistake::OtherFields,
            Category::Eof => Mistake::CutOff,
        })
    })
}

/// Counts what is written.
struct Length(usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
