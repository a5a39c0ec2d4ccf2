//! Times in options.

use std::time::Duration;

/// A time; a number without a unit is milliseconds.
pub fn time(text: &str) -> Result<Duration, humantime::DurationError> {
    match text.parse() {
        Ok(ms) => Ok(Duration::from_millis(ms)),
        Err(_) => humantime::parse_duration(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_milliseconds() {
        for (text, ms) in [("50", 50), ("0", 0), ("50ms", 50), ("2s", 2000)] {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)));
        }
        assert!(time("50 x").is_err() && time("").is_err());
    }
}
