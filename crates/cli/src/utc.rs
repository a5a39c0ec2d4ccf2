//! Points in time on the command line: UTC, as RFC 3339 writes it, or Unix seconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// 3000-01-01. A later time is probably a mistake, for example milliseconds.
const LATEST: u64 = 32_503_680_000;

/// Unix time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub u64);

impl Time {
    /// The system's clock; 1970 if the clock shows an earlier time.
    pub fn now() -> Self {
        Self::of(SystemTime::now())
    }

    fn of(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// In RFC 3339 format, to the second.
    pub fn rfc3339(self) -> String {
        // The format cannot represent years after 9999.
        let time = Duration::from_millis(self.0.min(LATEST * 2000));
        humantime::format_rfc3339_seconds(UNIX_EPOCH + time).to_string()
    }
}

/// For clap.
impl std::str::FromStr for Time {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let seconds = match text.parse::<u64>() {
            Ok(seconds) => seconds,
            Err(_) => {
                let time = humantime::parse_rfc3339_weak(text);
                Self::of(time.map_err(|_| "write UTC as 2027-01-15T00:00:00Z, or Unix seconds")?).0 / 1000
            }
        };
        if seconds > LATEST {
            return Err("that is after the year 3000: write Unix time in seconds");
        }
        Ok(Self(seconds * 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn both_forms_are_read_and_one_is_written() {
        for text in ["1800000000", "2027-01-15T08:00:00Z", "2027-01-15 08:00:00"] {
            assert_eq!(text.parse(), Ok(Time(1_800_000_000_000)), "{text}");
        }
        assert_eq!(Time(1_800_000_000_999).rfc3339(), "2027-01-15T08:00:00Z");
        for text in
            ["", "tomorrow", "-1", "1800000000000", "2027-01-15T08:00:00+01:00", "9999-01-01T00:00:00Z"]
        {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        assert!(!Time(u64::MAX).rfc3339().is_empty());
    }
}
