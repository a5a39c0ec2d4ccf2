//! Output for people and programs. `println!` panics when the reader is gone; these functions do not. [`failed`]
//! says whether some of it is lost.

use serde::Serialize;
use std::borrow::Cow;
use std::fmt::{self, Display, Formatter, Write as _};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The first error of stdout, if a person has to know it.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);
/// Whether the command serves, so that stdout is its log.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Keeps an error of stdout for [`failed`]. A closed pipe is none: the reader, such as `head`, has seen enough.
pub fn note(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// From now on the output is the log of a service, which does not end, or end otherwise, because its log is lost.
pub fn is_a_log() {
    SERVES.store(true, Ordering::Relaxed);
}

/// Why the output is not complete, as on a full disk.
pub fn failed() -> Option<io::Error> {
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner).take();
    failed.filter(|_| !SERVES.load(Ordering::Relaxed))
}

/// Writes one or more lines to stdout.
pub fn line(text: &dyn Display) {
    note(writeln!(io::stdout().lock(), "{}", Visible(text)));
}

/// Writes these bytes to stdout.
pub fn bytes(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    note(stdout.write_all(bytes).and_then(|()| stdout.flush()));
}

/// Writes one line of JSON to stdout.
pub fn json<T: Serialize>(value: &T) {
    match json_text(value) {
        Ok(text) => line(&text),
        Err(error) => complain(&error),
    }
}

/// An event, and when it was.
#[derive(Serialize)]
struct Timed<'a, T> {
    /// RFC 3339, UTC, milliseconds: as in the gateway's log.
    time: String,
    #[serde(flatten)]
    event: &'a T,
}

impl<'a, T> Timed<'a, T> {
    fn new(at: SystemTime, event: &'a T) -> Self {
        Self { time: humantime::format_rfc3339_millis(at).to_string(), event }
    }
}

/// Writes one line of JSON about an event to stdout, with the field `time`.
pub fn event<T: Serialize>(at: SystemTime, event: &T) {
    json(&Timed::new(at, event));
}

/// A line of JSON with terminal control characters escaped. A parser gets the original text.
pub fn json_text<T: Serialize>(value: &T) -> serde_json::Result<String> {
    let text = serde_json::to_string(value)?;
    if !text.contains(is_obeyed) {
        return Ok(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        // Such characters occur in strings only, and each is one UTF-16 unit.
        match is_obeyed(c) {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    Ok(escaped)
}

/// Writes one line to stderr.
pub fn complain(problem: &dyn Display) {
    let _ = writeln!(io::stderr().lock(), "firstflight: {}", Visible(problem));
}

/// Writes one line to stderr instead of stdout, when the body is on stdout.
pub fn aside(text: &dyn Display) {
    let _ = writeln!(io::stderr().lock(), "{}", Visible(text));
}

/// Whether a terminal interprets this character instead of showing it: control characters except line feed and tab,
/// and Unicode's line separators and marks of text direction. Much of the printed text comes from the network.
pub const fn is_obeyed(c: char) -> bool {
    matches!(
        c,
        '\0'..='\x08' | '\x0b'..='\x1f' | '\x7f'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// `text` with every terminal control character as `\u{…}`, except ESC, which begins a colour.
pub fn visible_but_colours(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| c != '\x1b' && is_obeyed(c);
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hidden(c) { visible.extend(c.escape_unicode()) } else { visible.push(c) }
    }
    Cow::Owned(visible)
}

/// Displays a text with every terminal control character as `\u{…}`.
struct Visible<'a>(&'a dyn Display);

impl Display for Visible<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut Formatter<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_obeyed) {
            let shown = part.trim_end_matches(is_obeyed);
            self.0.write_str(shown)?;
            for c in part.chars().skip(shown.chars().count()) {
                write!(self.0, "{}", c.escape_unicode())?;
            }
        }
        Ok(())
    }
}

/// A duration in milliseconds, to the microsecond.
pub fn millis(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// A duration in seconds, rounded to the microsecond. It prints with at most six decimals.
pub fn seconds(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests;
