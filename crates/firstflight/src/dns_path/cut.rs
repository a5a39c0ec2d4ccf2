//! How much of a request travels inside a lookup.

use crate::first_flight::FirstFlight;
use crate::lazy::method::SAFE;

/// How many bytes of `first` travel where `room` of them fit: all, or the beginning alone. With `first_lines` the beginning of a safe
/// request of HTTP/1.1 is its first line, if the application has not said another one. `None` if neither fits.
pub(super) fn carried(first: FirstFlight<'_>, first_lines: bool, room: usize) -> Option<usize> {
    let data = first.data();
    if data.len() <= room {
        return Some(data.len());
    }
    let beginning = match first.beginning_len() {
        0 if first_lines => first_line(data)?,
        beginning => beginning,
    };
    (1..=room).contains(&beginning).then_some(beginning)
}

/// The length of the first line of a request of HTTP/1.1 with a safe method, with the end of the line.
fn first_line(data: &[u8]) -> Option<usize> {
    let end = data.windows(2).position(|end| end == b"\r\n")?;
    let line = data.get(..end)?;
    let clean = line.ends_with(b" HTTP/1.1") && line.iter().all(|byte| !byte.is_ascii_control());
    let safe = SAFE.iter().any(|method| line.starts_with(method));
    (safe && clean).then_some(end + 2)
}

#[cfg(test)]
mod tests;
