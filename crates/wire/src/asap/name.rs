//! Names of hosts and zones, in parameters of records.

use crate::ParseError;
use core::fmt;

/// A domain name in uncompressed wire form (RFC 1035 §3.1), in lower case, with at least one label.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Longest wire form, bytes (RFC 1035 §2.3.4).
    pub const MAX: usize = 255;

    /// The name whose wire form is exactly `bytes`; `None` if they are not such a name.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        match Self::take(bytes) {
            Ok((name, [])) => Some(name),
            _ => None,
        }
    }

    /// The name at the beginning of `bytes`, and what is behind it.
    pub(super) fn take(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        const WRONG: ParseError = ParseError::Malformed("name of a host");
        let mut rest = bytes;
        loop {
            let (&len, behind) = rest.split_first().ok_or(ParseError::Truncated)?;
            if len == 0 {
                let (name, _) = bytes.split_at(bytes.len() - behind.len());
                let is_right = (3..=Self::MAX).contains(&name.len());
                return if is_right { Ok((Self(name), behind)) } else { Err(WRONG) };
            }
            // Values of 64 and above are compression pointers, or reserved.
            if len >= 64 || bytes.len() - behind.len() + usize::from(len) >= Self::MAX {
                return Err(WRONG);
            }
            let (label, behind) = behind.split_at_checked(usize::from(len)).ok_or(ParseError::Truncated)?;
            if label.iter().any(u8::is_ascii_uppercase) {
                return Err(WRONG);
            }
            rest = behind;
        }
    }

    /// The wire form.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// The labels, without the empty label of the root.
    pub fn labels(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (&len, behind) = rest.split_first()?;
            let (label, behind) = behind.split_at_checked(usize::from(len)).filter(|_| len > 0)?;
            rest = behind;
            Some(label)
        })
    }
}

impl fmt::Display for Name<'_> {
    /// Shows the name with dots, and characters other than letters, digits, hyphens and underscores as in RFC 1035 §5.1.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for label in self.labels() {
            for &byte in label {
                if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
                    write!(f, "{}", char::from(byte))?;
                } else {
                    write!(f, "\\{byte:03}")?;
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
