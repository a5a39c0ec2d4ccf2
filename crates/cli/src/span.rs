//! Spans of time on the command line: `30s`, `250ms`, `1h 30m`.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Milliseconds, the unit of a bare number.
pub const MS: Unit = Unit(1);
pub const SECONDS: Unit = Unit(1000);
pub const HOURS: Unit = Unit(3_600_000);
/// 136 years. Clocks can be asked for any time until then.
pub const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

/// What a bare number counts, in options that knew nothing else once. Its value is in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Unit(u64);

/// Reads a span with its unit.
pub fn parse(text: &str) -> Result<Duration, String> {
    read(text, None, &(Duration::ZERO..=LONGEST))
}

/// Reads a span in a file.
pub fn of_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(|error| D::Error::custom(format_args!("{text:?}: {error}")))
}

/// Like [`parse`], with limits. A bare number has this unit.
pub fn or_bare(
    unit: Unit,
    limits: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| read(text, Some(unit), &limits)
}

fn read(text: &str, unit: Option<Unit>, limits: &RangeInclusive<Duration>) -> Result<Duration, String> {
    let bare = unit.and_then(|Unit(ms)| Some(text.parse::<u64>().ok()?.checked_mul(ms)));
    let span = match bare {
        Some(ms) => ms.map(Duration::from_millis),
        None => match humantime::parse_duration(text) {
            Err(humantime::DurationError::NumberOverflow) => None,
            parsed => Some(parsed.map_err(|_| "write a time with its unit, as 250ms, 30s, 10m or 12h")?),
        },
    };
    let within = span.filter(|span| limits.contains(span));
    within.ok_or_else(|| {
        let [least, most] = [limits.start(), limits.end()].map(|limit| humantime::format_duration(*limit));
        match *limits.end() == LONGEST {
            true if limits.start().is_zero() => "that is more than a century".to_owned(),
            true => format!("give a time of at least {least}"),
            false => format!("give a time from {least} to {most}"),
        }
    })
}

#[cfg(test)]
mod tests;
