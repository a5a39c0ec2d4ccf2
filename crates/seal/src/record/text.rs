//! A record as zone files have it (RFC 9460 §2.1 and appendix A).

use super::{Record, RecordError};
use std::fmt::Write as _;

/// Why a text has no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordTextError {
    /// It is the server's file.
    #[error("has the server's secret keys: give what `firstflight asap record --seal-key` prints of it")]
    Secret,
    /// There is no parameter in it.
    #[error("has no key65301=\"…\": give what `firstflight asap record --seal-key` prints")]
    None,
    /// The parameter's value is not written as in zone files.
    #[error("has a key65301 that is not valid: write it as zone files do")]
    Presentation,
    /// The value is not a record.
    #[error("has a key65301 that is not valid: {0}")]
    Invalid(RecordError),
}

impl Record {
    /// The parameter for a zone file, `key65301="…"`, with every octet of the value as a number.
    #[must_use]
    pub fn to_zone_text(&self) -> String {
        let value = self.to_bytes().iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "\\{byte:03}");
            text
        });
        format!("key{}=\"{value}\"", Self::KEY)
    }

    /// Reads the first parameter `key65301=…` in a text, as [`Record::to_zone_text`] writes it or in a line of a zone.
    ///
    /// # Errors
    /// When there is none, or it is not valid.
    pub fn in_zone_text(text: &str) -> Result<Self, RecordTextError> {
        if text.starts_with("firstflight seal ") {
            return Err(RecordTextError::Secret);
        }
        let start = format!("key{}=", Self::KEY);
        let (_, value) = text.split_once(&start).ok_or(RecordTextError::None)?;
        let bytes = presented(value).ok_or(RecordTextError::Presentation)?;
        Self::parse(&bytes).map_err(RecordTextError::Invalid)
    }

    /// Reads the record in a text file of at most 64 KiB, as [`Record::in_zone_text`]. Its content is public.
    ///
    /// # Errors
    /// When the file cannot be read, or has no valid record.
    #[cfg(feature = "files")]
    pub fn in_zone_file(path: &std::path::Path) -> Result<Self, RecordFileError> {
        Ok(Self::in_zone_text(&firstflight_files::read(path, LONGEST)?)?)
    }
}

/// Longest file of a record, bytes.
#[cfg(feature = "files")]
const LONGEST: usize = 64 * 1024;

/// Why a file gives no record. The message continues a sentence that begins with the file's name.
#[cfg(feature = "files")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordFileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] firstflight_files::ReadError),
    /// Its content is at fault.
    #[error(transparent)]
    Text(#[from] RecordTextError),
}

/// The octets of a value at the beginning of `text`, quoted or not.
fn presented(text: &str) -> Option<Vec<u8>> {
    let (quoted, text) = match text.strip_prefix('"') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    loop {
        match rest.next() {
            Some(b'"') if quoted => return Some(bytes),
            None if quoted => return None,
            None => return Some(bytes),
            Some(byte) if !quoted && byte.is_ascii_whitespace() => return Some(bytes),
            Some(b'\\') => bytes.push(escaped(&mut rest)?),
            Some(byte) => bytes.push(byte),
        }
    }
}

/// The octet behind a backslash: three digits, or the character itself.
fn escaped(rest: &mut std::str::Bytes<'_>) -> Option<u8> {
    let first = rest.next()?;
    if !first.is_ascii_digit() {
        return Some(first);
    }
    let digits = [first, rest.next()?, rest.next()?];
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
