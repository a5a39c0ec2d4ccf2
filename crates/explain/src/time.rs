//! Times as people and programs read them.

use std::time::{Duration, UNIX_EPOCH};

/// Unix time in RFC 3339 format, to the second.
pub(crate) fn rfc3339(seconds: u64) -> String {
    /// 9999-12-31T23:59:59Z. The format has no later time.
    const LATEST: u64 = 253_402_300_799;
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds.min(LATEST))).to_string()
}

/// A duration in milliseconds, to the microsecond.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
