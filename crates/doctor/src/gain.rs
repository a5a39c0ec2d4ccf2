//! What first flights would gain at a server, in one line, and what to change.

use super::catalogue::Finding;
use super::report::Line;
use serde::Serialize;
use std::time::Duration;

/// Below this a round trip less is hardly worth the trouble.
const NEAR: Duration = Duration::from_millis(2);
/// Where to turn if nothing but the server lacks something.
const AT_SERVER: &str = "switch Fast Open on at the server (nginx: listen … fastopen=256; HAProxy: bind … tfo; sysctl \
                         net.ipv4.tcp_fastopen=3), or put firstflight gateway in front of it";

/// What first flights gain at one address of a server: the answer to "does it help me?".
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Gain {
    /// What first flights save today on each connection after the first, milliseconds. `None` if nothing.
    pub saves_ms: Option<f64>,
    /// The round-trip time to the server, milliseconds, if there was a connection.
    pub rtt_ms: Option<f64>,
    /// In words.
    pub text: String,
}

impl Gain {
    /// From what was found out at an address.
    pub(crate) fn of(lines: &[Line], rtt: Option<Duration>) -> Self {
        let has = |finding: Finding| lines.iter().any(|line| line.finding == finding);
        let trip = rtt.map_or_else(String::new, |rtt| format!(" ({:.1} ms)", millis(rtt)));
        let (works, text) = match () {
            () if has(Finding::DataAccepted) => (true, works(rtt, &trip)),
            () if has(Finding::CookieClientDisabled) => (
                false,
                "unknown: set net.ipv4.tcp_fastopen to 3 on this machine, and run doctor again".to_owned(),
            ),
            () if has(Finding::CookieNotGranted) => {
                let would = match rtt.is_some_and(|rtt| rtt < NEAR) {
                    true => format!("little: the round trip{trip} is short. To have it"),
                    false => format!(
                        "none today; it could be one round trip{trip} on each connection after the first"
                    ),
                };
                (false, format!("{would}: {AT_SERVER}"))
            }
            () if has(Finding::DataNotTried)
                && (has(Finding::CookieGranted) || has(Finding::CookieKnown)) =>
            {
                (
                    false,
                    format!(
                        "probably one round trip{trip}: the server grants cookies; leave --no-data out to be sure"
                    ),
                )
            }
            () => (false, otherwise(lines, &trip)),
        };
        Self { saves_ms: rtt.filter(|_| works).map(millis), rtt_ms: rtt.map(millis), text }
    }
}

fn works(rtt: Option<Duration>, trip: &str) -> String {
    let little = if rtt.is_some_and(|rtt| rtt < NEAR) { ", which is little" } else { "" };
    format!(
        "one round trip{trip} on each connection after the first{little}, for clients that use Fast Open \
         (firstflight proxy, curl --tcp-fastopen, not browsers alone); nothing to change here"
    )
}

/// The first thing to do, if there is one.
fn otherwise(lines: &[Line], trip: &str) -> String {
    use super::catalogue::Verdict;
    let worst = lines
        .iter()
        .map(|line| line.finding.entry())
        .filter(|entry| matches!(entry.check, "address" | "connect" | "cookie" | "option" | "data"))
        .filter(|entry| entry.verdict != Verdict::Ok)
        // The first of the worst.
        .rev()
        .max_by_key(|entry| entry.verdict);
    match worst {
        Some(entry) if matches!(entry.check, "address" | "connect") => {
            "none: there is no connection at all".to_owned()
        }
        Some(entry) => {
            let advice = entry.advice.unwrap_or_default();
            let first = advice.split_inclusive(". ").next().unwrap_or(advice).trim_end_matches([' ', '.']);
            format!("none today; it could be one round trip{trip}: {}: {first}", entry.word)
        }
        None => "unknown".to_owned(),
    }
}

/// A duration in milliseconds, to the microsecond.
fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests;
