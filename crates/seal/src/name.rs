//! Host names (1.1).

use core::fmt;
use std::str::FromStr;

/// A host name as A-labels in lower case without a final dot (1.1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(Box<str>);

impl HostName {
    /// Longest name, bytes.
    pub const MAX: usize = 253;

    /// The name of these bytes. `None` if they are none: no change of case is made.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
        };
        let named = text.rsplit('.').next().is_some_and(|last| !last.bytes().all(|b| b.is_ascii_digit()));
        let good = text.len() <= Self::MAX && named && text.split('.').all(label);
        good.then(|| Self(text.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Length and bytes, as in `info` and in the record.
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.0.len() as u8);
        out.extend_from_slice(self.0.as_bytes());
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostName {
    type Err = &'static str;

    /// Accepts upper case and a final dot, as people write names.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        Self::new(text.as_bytes()).ok_or("write a host name in ASCII, as www.example.com")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_and_bounded() {
        let longest =
            [["a"; 63].concat(), ["b"; 63].concat(), ["c"; 63].concat(), ["d"; 61].concat()].join(".");
        for good in ["a", "www.example.com", "xn--bcher-kva.example", "_x.y", &longest] {
            assert_eq!(HostName::new(good.as_bytes()).unwrap().as_str(), good);
        }
        let long = format!("{longest}d");
        for bad in ["", ".", "a.", ".a", "a..b", "A", "a b", "192.0.2.1", "1", "é", &"a".repeat(64), &long] {
            assert!(HostName::new(bad.as_bytes()).is_none(), "{bad}");
        }
        assert_eq!("WWW.Example.com.".parse::<HostName>().unwrap().as_str(), "www.example.com");
        assert!("a b".parse::<HostName>().is_err());
    }
}
