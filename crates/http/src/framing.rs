//! A reader of HTTP/1.1 requests that leads: it reads heads and lengths itself, and passes on to hyper only what it has
//! understood, one request at a time (RFC 9112 §2 to §7).
//!
//! Whoever stands between two peers must not read another request than they do (request smuggling, RFC 9112 §11.2). A second
//! reader that follows hyper would have to stay in step with it. This one goes ahead:
//!
//! - A head that can be read in two ways is not passed on. hyper gets a request in its place that says how to refuse it
//!   ([`refusal`]), and nothing behind it is read.
//! - Lengths are passed on in one form: one `Content-Length` in digits, or `Transfer-Encoding: chunked`, chunks without
//!   extensions.
//! - Bytes of a target that a URI cannot hold, such as `<` or Latin-1, are percent-encoded.
//!
//! Memory is bounded by the limits of a head.

mod chunks;
mod head;

use chunks::Line;
use head::Body;
use hyper::header::HeaderName;
use hyper::http::request::Parts;
use hyper::{StatusCode, Version};
use tokio::io::ReadBuf;

/// With this HTTP/2 begins (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A head that is passed on may be longer than it came by this, bytes: a length in another form, for example.
pub const MORE: usize = 1024;
/// The field that tells a refusal. Clients' own fields of this name are not passed on.
const REFUSED: &str = "x-firstflight-refused";
/// The field that tells a target without a path. The type of a URI cannot.
const WHOLE: &str = "x-firstflight-whole";
/// The fields by which [`Framing`] speaks to those behind hyper. They go no further.
pub(crate) const INTERNAL: [HeaderName; 2] =
    [HeaderName::from_static(REFUSED), HeaderName::from_static(WHOLE)];

/// Limits of a request's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head (431, or 414 if its first line alone is longer).
    pub bytes: usize,
    /// Fields of a head, and of trailers (431).
    pub fields: usize,
}

/// The framing of a body cannot be read. The client is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the chunks of the request are malformed")]
pub struct Malformed;

/// What [`Framing::pass`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassedBytes {
    /// It passed bytes on.
    Bytes,
    /// It needs more of the client's bytes first: [`Framing::input`].
    NeedsMore,
    /// At most so many bytes of the client's go on as they are. Tell their number to [`Framing::passed_directly`].
    Directly(u64),
    /// Nothing more goes on.
    Over,
}

/// Reads the requests of one connection.
#[derive(Debug)]
pub struct Framing {
    limits: Limits,
    state: State,
    /// The client's bytes that have not gone on.
    input: Vec<u8>,
    scan: head::Scan,
    /// What waits for hyper.
    output: Vec<u8>,
    taken: usize,
    /// Bytes of the client's that went on, or were replaced.
    consumed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// So many bytes of a body.
    Body(u64),
    /// The line with the size of a chunk.
    Size,
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The end of a chunk's line.
    ChunkEnd,
    Trailers,
    /// Another protocol.
    Raw,
    Over,
}

/// How a request is to be refused, if [`Framing`] has put it in the place of one that it did not pass on.
#[must_use]
pub fn refusal(parts: &Parts) -> Option<StatusCode> {
    let told = parts.headers.get(REFUSED).filter(|_| parts.version < Version::HTTP_2)?;
    StatusCode::from_bytes(told.as_bytes()).ok()
}

/// Whether a request is about a server as a whole, in the absolute form: its target has neither path nor query (RFC 9112
/// §3.2.4).
#[must_use]
pub fn is_about_server(parts: &Parts) -> bool {
    parts.version < Version::HTTP_2 && parts.headers.contains_key(WHOLE)
}

impl Framing {
    /// For a connection that begins.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let (input, output) = (Vec::new(), Vec::new());
        Self { limits, state: State::Head, input, scan: head::Scan::default(), output, taken: 0, consumed: 0 }
    }

    /// What follows is another protocol: it goes on as it is.
    pub fn switch(&mut self) {
        self.state = State::Raw;
    }

    /// Nothing more goes on.
    pub fn stop(&mut self) {
        (self.state, self.input) = (State::Over, Vec::new());
    }

    /// What the client has sent and has not gone on. Add to it what is read.
    pub const fn input(&mut self) -> &mut Vec<u8> {
        &mut self.input
    }

    /// Bytes that wait in [`Framing::input`].
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.input.len()
    }

    /// Bytes of the client's that went on, or were replaced.
    #[must_use]
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Whether the next byte begins a request, or belongs to its head.
    #[must_use]
    pub fn is_at_head(&self) -> bool {
        self.state == State::Head && self.taken == self.output.len()
    }

    /// Whether no part of a head has come.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.is_at_head() && self.input.is_empty()
    }

    /// Whether the connection speaks HTTP/2 with prior knowledge, once that is clear.
    #[must_use]
    pub fn speaks_http2(&self) -> Option<bool> {
        let begins = self.input.iter().zip(PREFACE).all(|(ours, theirs)| ours == theirs);
        match (begins, self.input.len() >= PREFACE.len()) {
            (false, _) => Some(false),
            (true, true) => Some(true),
            (true, false) => None,
        }
    }

    /// Method and target of the request of HTTP/1.1 of which the first line has come, and not the whole head. The target is a
    /// path.
    #[must_use]
    pub fn begun(&self) -> Option<(&str, &str)> {
        if !self.is_at_head() || self.input.windows(4).any(|end| end == b"\r\n\r\n") {
            return None;
        }
        let line =
            self.input.split(|byte| *byte == b'\n').next().filter(|line| line.len() < self.input.len())?;
        let (method, rest) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        let (target, version) = rest.split_once(' ')?;
        (version == "HTTP/1.1\r" && target.starts_with('/')).then_some((method, target))
    }

    /// Puts a refusal in the place of the request whose head has not come whole.
    pub fn refuse(&mut self, status: StatusCode) {
        self.put_refusal(status, head::line_for_refusal(&self.input));
    }

    fn put_refusal(&mut self, status: StatusCode, line: String) {
        let head =
            format!("{line}\r\nhost: refused\r\nconnection: close\r\n{REFUSED}: {}\r\n\r\n", status.as_u16());
        self.consumed += self.input.len() as u64;
        self.stop();
        (self.output, self.taken) = (head.into_bytes(), 0);
    }

    /// So many bytes were read past this.
    pub const fn passed_directly(&mut self, count: usize) {
        self.advance(count as u64);
    }

    const fn advance(&mut self, count: u64) {
        self.consumed += count;
        self.state = match self.state {
            State::Body(left) if left > count => State::Body(left - count),
            State::Body(_) => State::Head,
            State::Chunk(left) if left > count => State::Chunk(left - count),
            State::Chunk(_) => State::ChunkEnd,
            other => other,
        };
    }

    /// Passes on what may go. What belongs to two requests never goes together.
    ///
    /// # Errors
    /// When the framing of a body is malformed.
    pub fn pass(&mut self, out: &mut ReadBuf<'_>) -> Result<PassedBytes, Malformed> {
        loop {
            if self.taken < self.output.len() {
                self.take_output(out);
                return Ok(PassedBytes::Bytes);
            }
            let more = match self.state {
                State::Over => return Ok(PassedBytes::Over),
                State::Raw => return Ok(self.pass_input(out, u64::MAX)),
                State::Body(left) | State::Chunk(left) => return Ok(self.pass_input(out, left)),
                State::Head => !self.read_head(),
                State::Size => !self.read_size()?,
                State::ChunkEnd => !self.read_chunk_end()?,
                State::Trailers => !self.read_trailers()?,
            };
            if more {
                return Ok(PassedBytes::NeedsMore);
            }
        }
    }

    fn take_output(&mut self, out: &mut ReadBuf<'_>) {
        let rest = self.output.get(self.taken..).unwrap_or_default();
        let part = rest.get(..rest.len().min(out.remaining())).unwrap_or_default();
        out.put_slice(part);
        self.taken += part.len();
        if self.taken == self.output.len() {
            self.output.clear();
            self.taken = 0;
        }
    }

    fn pass_input(&mut self, out: &mut ReadBuf<'_>, most: u64) -> PassedBytes {
        if self.input.is_empty() {
            return PassedBytes::Directly(most);
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let count = self.input.len().min(most).min(out.remaining());
        out.put_slice(self.input.get(..count).unwrap_or_default());
        self.drop_input(count);
        self.advance(count as u64);
        PassedBytes::Bytes
    }

    /// Removes bytes from the input. An empty one gives its memory back, so that idle connections own none.
    fn drop_input(&mut self, count: usize) {
        if count >= self.input.len() {
            self.input = Vec::new();
        } else {
            self.input.drain(..count);
        }
    }

    /// Reads a head, if it is whole.
    fn read_head(&mut self) -> bool {
        match self.scan.find_end(&mut self.input, self.limits) {
            Ok(None) => return false,
            Ok(Some(end)) => {
                let bytes = self.input.get(..end).unwrap_or_default();
                match head::read(bytes, self.scan.lines(), self.limits.bytes + MORE, &mut self.output) {
                    Ok(body) => {
                        self.state = match body {
                            Body::None => State::Head,
                            Body::Length(length) => State::Body(length),
                            Body::Chunks => State::Size,
                        };
                        self.consumed += end as u64;
                        self.drop_input(end);
                    }
                    Err(refused) => self.put_refusal(refused.status, refused.line),
                }
            }
            // What came behind it makes no difference.
            Err(status) => self.put_refusal(status, head::line_for_refusal(self.scan.seen(&self.input))),
        }
        self.scan = head::Scan::default();
        true
    }

    fn read_size(&mut self) -> Result<bool, Malformed> {
        let Some(Line { value: size, length }) = chunks::size(&self.input)? else { return Ok(false) };
        self.consumed += length as u64;
        self.drop_input(length);
        self.output.extend_from_slice(format!("{size:x}\r\n").as_bytes());
        self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
        Ok(true)
    }

    fn read_chunk_end(&mut self) -> Result<bool, Malformed> {
        match self.input.as_slice() {
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] => return Ok(false),
            _ => return Err(Malformed),
        }
        self.consumed += 2;
        self.drop_input(2);
        self.output.extend_from_slice(b"\r\n");
        self.state = State::Size;
        Ok(true)
    }

    fn read_trailers(&mut self) -> Result<bool, Malformed> {
        let Some(length) = chunks::trailers(&self.input, self.limits.fields)? else { return Ok(false) };
        self.output.extend_from_slice(self.input.get(..length).unwrap_or_default());
        self.consumed += length as u64;
        self.drop_input(length);
        self.state = State::Head;
        Ok(true)
    }
}

#[cfg(test)]
#[path = "framing/tests.rs"]
mod tests;
