//! Finds requests of HTTP/1.1 that have two lengths. Whoever forwards such a request and takes the other length sees another
//! request behind it (RFC 9112 §6.3, §11.2). hyper reads them and closes; here they are refused.
//!
//! hyper does not say that it met one, so this follows the framing of what it reads. It decides nothing else: where it does not
//! understand the bytes, hyper refuses them, and this stops to follow.

use std::collections::VecDeque;

/// Bytes of a line that are looked at. A field's name and a length fit.
const LINE: usize = 128;

/// Follows the framing of one connection.
#[derive(Debug, Default)]
pub(super) struct Framing {
    state: State,
    /// The beginning of the present line.
    line: Vec<u8>,
    head: Head,
    /// For each request whose head was read and that was not asked about: whether it has two lengths.
    ambiguous: VecDeque<bool>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// So many bytes of a body, or of a chunk.
    Body(u64),
    Chunk(u64),
    ChunkSize,
    Trailers,
    /// Another protocol, or nothing that is understood.
    Off,
}

/// What was seen of a head.
#[derive(Debug, Default, Clone, Copy)]
struct Head {
    begun: bool,
    length: Option<u64>,
    chunked: bool,
}

impl Framing {
    /// Whether the next request has two lengths. Asked once for each request, in their order.
    pub(super) fn is_ambiguous(&mut self) -> bool {
        self.ambiguous.pop_front().unwrap_or_default()
    }

    /// What follows is another protocol.
    pub(super) fn stop(&mut self) {
        *self = Self { state: State::Off, ..Self::default() };
    }

    /// Takes what hyper reads.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = match &mut self.state {
                State::Off => return,
                State::Body(left) | State::Chunk(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= count as u64;
                    Some((count, *left == 0))
                }
                State::Head | State::ChunkSize | State::Trailers => None,
            };
            let count = match skipped {
                Some((count, over)) => {
                    if over {
                        let chunk = matches!(self.state, State::Chunk(_));
                        self.state = if chunk { State::ChunkSize } else { State::Head };
                    }
                    count
                }
                None => self.take_line(bytes),
            };
            bytes = bytes.get(count..).unwrap_or_default();
        }
    }

    /// Takes bytes up to the end of a line, and returns how many.
    fn take_line(&mut self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        let part_of_line =
            part.get(..LINE.saturating_sub(self.line.len()).min(part.len())).unwrap_or_default();
        match end {
            // Most lines are whole: they need no copy.
            Some(_) if self.line.is_empty() => self.whole_line(part_of_line),
            Some(_) => {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(part_of_line);
                self.whole_line(&line);
                line.clear();
                self.line = line;
            }
            None => self.line.extend_from_slice(part_of_line),
        }
        part.len() + usize::from(end.is_some())
    }

    fn whole_line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.state = match self.state {
            State::ChunkSize => chunk(line),
            State::Trailers if line.is_empty() => State::Head,
            State::Trailers => State::Trailers,
            _ => self.head_line(line),
        };
    }

    fn head_line(&mut self, line: &[u8]) -> State {
        let head = &mut self.head;
        if line.is_empty() {
            // Empty lines in front of a request are no part of it.
            return if head.begun { self.end_of_head() } else { State::Head };
        }
        if !std::mem::replace(&mut head.begun, true) {
            let other = line.starts_with(b"PRI ") || line.starts_with(b"CONNECT ");
            return if other { State::Off } else { State::Head };
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return State::Head };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            // What is no number, and what contradicts another one, hyper refuses.
            head.length = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok()).or(Some(0));
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            head.chunked = true;
        }
        State::Head
    }

    fn end_of_head(&mut self) -> State {
        let Head { length, chunked, .. } = std::mem::take(&mut self.head);
        let ambiguous = chunked && length.is_some();
        self.ambiguous.push_back(ambiguous);
        match (length, chunked) {
            _ if ambiguous => State::Off,
            (_, true) => State::ChunkSize,
            (Some(length @ 1..), false) => State::Body(length),
            (Some(0) | None, false) => State::Head,
        }
    }
}

fn chunk(line: &[u8]) -> State {
    let digits = line.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next().unwrap_or_default();
    let size = std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match size {
        Some(0) => State::Trailers,
        // And the end of the line behind it.
        Some(size) => State::Chunk(size.saturating_add(2)),
        None => State::Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of the requests in `bytes`, read in pieces of this size.
    fn verdicts(bytes: &str, piece: usize) -> Vec<bool> {
        let mut framing = Framing::default();
        bytes.as_bytes().chunks(piece).for_each(|piece| framing.read(piece));
        framing.ambiguous.into()
    }

    #[test]
    fn a_request_with_two_lengths_is_found_behind_others() {
        let (cl, te) = ("Content-Length: 5\r\n", "Transfer-ENCODING: chunked\r\n");
        let get = "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
        // The body looks like a head.
        let body = "Content-Length: 1\r\nTransfer-Encoding: x\r\n\r\n";
        let post = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let size = body.len();
        let chunked =
            format!("POST / HTTP/1.1\r\n{te}\r\n{size:x};a=b\r\n{body}\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n");
        let good = [get, &post, &chunked, get].concat();
        for piece in [1, 2, 3, 7, 64, 10_000] {
            assert_eq!(verdicts(&good, piece), [false; 4], "{piece}");
            for both in [[cl, te], [te, cl]] {
                let bad = format!("{good}POST / HTTP/1.1\r\n{}\r\n0\r\n\r\n{get}", both.concat());
                assert_eq!(verdicts(&bad, piece), [false, false, false, false, true], "{piece}");
            }
        }
    }

    #[test]
    fn other_protocols_are_not_followed() {
        assert!(verdicts("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 5).is_empty());
        let mut framing = Framing::default();
        framing.read(b"GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n");
        assert!(!framing.is_ambiguous());
        framing.stop();
        framing.read(b"x\r\nContent-Length: 1\r\nTransfer-Encoding: x\r\n\r\n");
        assert!(framing.ambiguous.is_empty());
    }

    #[test]
    fn an_upgrade_that_nobody_takes_hides_nothing() {
        let declined = "GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n";
        let bad = "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(verdicts(&[declined, bad].concat(), 4), [false, true]);
    }

    #[test]
    fn memory_is_bounded_whatever_is_read() {
        let mut framing = Framing::default();
        for _ in 0..1000 {
            framing.read(&[b'x'; 1000]);
            assert!(framing.line.len() <= LINE);
        }
        for byte in 0..=u8::MAX {
            let mut framing = Framing::default();
            framing.read(&[byte; 500]);
            framing.read(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n");
            framing.read(&[byte; 500]);
        }
    }
}
