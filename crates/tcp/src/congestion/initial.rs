//! The initial window.

use core::fmt;
use core::num::{NonZeroU16, NonZeroU32};
use core::str::FromStr;

/// The initial window of RFC 6928 §2, in bytes: ten segments, a little less if they are large.
#[inline]
#[must_use]
pub(crate) fn initial_window(mss: u32) -> u32 {
    mss.saturating_mul(10).min(mss.saturating_mul(2).max(14_600))
}

/// How much may leave before the first acknowledgement. It is at least one segment, whatever the setting.
///
/// A window that is larger than RFC 6928's is for experiments and private networks: it is a burst that nothing has
/// shown the path to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InitialWindow {
    /// Ten segments (RFC 6928).
    #[default]
    Standard,
    /// This number of full segments. RFC 3390's window is three segments of 1,460 bytes.
    Segments(NonZeroU16),
    /// This number of bytes, at least one full segment.
    Bytes(NonZeroU32),
}

impl InitialWindow {
    /// A number of segments; `None` if it is zero.
    #[must_use]
    pub const fn segments(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(number) => Some(Self::Segments(number)),
            None => None,
        }
    }

    /// A number of bytes; `None` if it is zero.
    #[must_use]
    pub const fn bytes(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self::Bytes(number)),
            None => None,
        }
    }

    /// The window for segments of `mss` bytes, in bytes, from one segment to 2³⁰ bytes.
    #[inline]
    #[must_use]
    pub fn window(self, mss: u32) -> u32 {
        let mss = super::legal_mss(mss);
        let bytes = match self {
            Self::Standard => initial_window(mss),
            Self::Segments(number) => mss.saturating_mul(u32::from(number.get())),
            Self::Bytes(number) => number.get().max(mss),
        };
        bytes.min(super::MAX_WINDOW)
    }
}

impl fmt::Display for InitialWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("standard"),
            Self::Segments(number) => write!(f, "{number}"),
            Self::Bytes(number) => write!(f, "{number}B"),
        }
    }
}

/// The text is no initial window. Its author is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoInitialWindow;

impl fmt::Display for NoInitialWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an initial window is \"standard\", 1 to 65535 segments, or bytes with a B behind them (14600B)",
        )
    }
}

impl core::error::Error for NoInitialWindow {}

impl FromStr for InitialWindow {
    type Err = NoInitialWindow;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let window = match (text, text.strip_suffix('B')) {
            ("standard", _) => Some(Self::Standard),
            (_, Some(bytes)) => bytes.parse().ok().map(Self::Bytes),
            _ => text.parse().ok().map(Self::Segments),
        };
        window.ok_or(NoInitialWindow)
    }
}

#[cfg(test)]
mod tests;
