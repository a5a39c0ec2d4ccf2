//! Lines for people and programs. `println!` panics when the reader has gone; these do not.

use serde::Serialize;
use std::fmt::Display;
use std::io::Write;

/// One line on stdout.
pub fn line(text: &dyn Display) {
    // The reader went away: nobody is left to tell.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// One line of JSON on stdout.
pub fn json<T: Serialize>(value: &T) {
    match serde_json::to_string(value) {
        Ok(text) => line(&text),
        Err(error) => complain(&error),
    }
}

/// One line on stderr.
pub fn complain(problem: &dyn Display) {
    let _ = writeln!(std::io::stderr().lock(), "firstflight: {problem}");
}

/// A duration in milliseconds, to the microsecond.
pub fn millis(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
