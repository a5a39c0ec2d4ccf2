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
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_safe_request() {
        assert_eq!(first_line(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"), Some(17));
        for other in [
            "",
            "GET /a HTTP/1.1",
            "POST / HTTP/1.1\r\n",
            "GET /\r\n",
            "GET / HTTP/1.0\r\n",
            "GET /\n HTTP/1.1\r\n",
            "\x16\x03\x01\r\n",
        ] {
            assert_eq!(first_line(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn all_of_it_or_the_beginning_or_nothing() {
        let data = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        let first = FirstFlight::safely_replayable(data);
        assert_eq!(carried(first, false, data.len()), Some(data.len()));
        assert_eq!(carried(first, false, data.len() - 1), None);
        assert_eq!(carried(first, true, data.len() - 1), Some(17));
        assert_eq!(carried(first, true, 16), None);
        assert_eq!(carried(first.beginning(5), true, 16), Some(5));
        // More than there is.
        assert_eq!(carried(first.beginning(100), false, data.len() - 1), None);
    }
}
