//! Header blocks as they come, in front of h2, which does not tell everything: what it hands out has no pseudo-header fields of
//! trailers and no fragment of a `:path`, and its values may have spaces at their ends.
//!
//! A message that is malformed (RFC 9113 §8.1.1) is noted by its stream. h2 gets all bytes, so that its table stays that of the
//! peer. Who takes the message from h2 asks [`WatchedStream::is_malformed`], and ends the stream with `PROTOCOL_ERROR`.

use super::hpack::{Decoder, Field};
use std::collections::{HashMap, HashSet};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// The head of a frame, and the longest frame while no setting says otherwise, bytes (RFC 9113 §4.1, §4.2).
const HEAD: usize = 9;
const FRAME: usize = 16 * 1024;
/// Malformed messages that nobody has asked for. A peer with more of them gets no further answers.
const MOST: usize = 1024;

/// A connection whose header blocks are read before h2 gets them.
#[derive(Debug)]
pub struct Strict<IO> {
    inner: IO,
    frames: Frames,
}

/// What is known of the messages of a connection.
#[derive(Debug, Clone)]
pub struct Messages(Arc<Mutex<Known>>);

#[derive(Debug)]
struct Known {
    /// A block could not be read, so nothing is known of those behind it.
    lost: bool,
    peer: Peer,
    malformed: HashSet<u32>,
}

#[derive(Debug)]
enum Peer {
    /// The newest stream. A block of an older one has trailers.
    Client(u32),
    /// Streams whose response is waited for, and whether it has begun.
    Server(HashMap<u32, bool>),
}

/// One stream, as long as it is dealt with.
#[derive(Debug)]
pub struct WatchedStream {
    messages: Messages,
    stream: u32,
}

impl Messages {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream on which a request has come.
    #[must_use]
    pub fn of_request(&self, stream: u32) -> WatchedStream {
        WatchedStream { messages: self.clone(), stream }
    }

    /// Begins a request. The function sends its head, and returns its stream. No response is read meanwhile.
    ///
    /// # Errors
    /// Those of the function.
    pub fn begin<T, E>(
        &self,
        send: impl FnOnce() -> Result<T, E>,
        stream: impl FnOnce(&T) -> u32,
    ) -> Result<(T, WatchedStream), E> {
        let mut known = self.lock();
        let sent = send()?;
        let stream = stream(&sent);
        if let Peer::Server(waited) = &mut known.peer {
            waited.insert(stream, false);
        }
        drop(known);
        Ok((sent, WatchedStream { messages: self.clone(), stream }))
    }
}

impl WatchedStream {
    /// Whether a message of the peer on this stream is malformed, as far as it has come.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        let known = self.messages.lock();
        known.lost || known.malformed.contains(&self.stream)
    }
}

impl Drop for WatchedStream {
    fn drop(&mut self) {
        let mut known = self.messages.lock();
        known.malformed.remove(&self.stream);
        if let Peer::Server(waited) = &mut known.peer {
            waited.remove(&self.stream);
        }
    }
}

impl<IO> Strict<IO> {
    /// A server's end. `longest` is the length of a field that its client may send, bytes.
    pub fn of_server(inner: IO, longest: u32) -> (Self, Messages) {
        Self::new(inner, longest, Peer::Client(0), PREFACE)
    }

    /// A client's end.
    pub fn of_client(inner: IO, longest: u32) -> (Self, Messages) {
        Self::new(inner, longest, Peer::Server(HashMap::new()), 0)
    }

    fn new(inner: IO, longest: u32, peer: Peer, skip: usize) -> (Self, Messages) {
        let messages = Messages(Arc::new(Mutex::new(Known { lost: false, peer, malformed: HashSet::new() })));
        // A longer one than this has passed all limits of h2.
        let decoder = Decoder::new((longest as usize).saturating_mul(4).saturating_add(8 * FRAME));
        let frames =
            Frames { messages: messages.clone(), decoder, buffer: Vec::new(), skip, open: None, lost: false };
        (Self { inner, frames }, messages)
    }
}

/// A block that has begun.
#[derive(Debug)]
struct Block {
    stream: u32,
    malformed: bool,
    has_pseudo: bool,
    has_fields: bool,
    begins_response: bool,
}

impl Block {
    fn add(&mut self, field: Field) {
        // Pseudo-header fields come first (RFC 9113 §8.3).
        self.malformed |= field.malformed || field.is_pseudo() && self.has_fields;
        self.has_pseudo |= field.is_pseudo();
        self.has_fields |= !field.is_pseudo();
        self.begins_response |= field.is_final_status();
    }
}

#[derive(Debug)]
struct Frames {
    messages: Messages,
    decoder: Decoder,
    /// The beginning of a frame.
    buffer: Vec<u8>,
    /// Bytes to come that do not matter.
    skip: usize,
    open: Option<Block>,
    lost: bool,
}

/// What the frame at the beginning of the buffer is.
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    fn of(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, s, t, u, v] = bytes.first_chunk::<HEAD>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        Some(Self { length, kind, flags, stream: u32::from_be_bytes([s & 0x7f, t, u, v]) })
    }

    const fn has_block(&self) -> bool {
        matches!(self.kind, HEADERS | PUSH_PROMISE | CONTINUATION)
    }
}

const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

impl Frames {
    fn feed(&mut self, mut bytes: &[u8]) {
        while !self.lost && !bytes.is_empty() {
            if self.skip > 0 {
                let (_, rest) = bytes.split_at(self.skip.min(bytes.len()));
                self.skip -= bytes.len() - rest.len();
                bytes = rest;
                continue;
            }
            let wanted = Head::of(&self.buffer).map_or(HEAD, |head| HEAD + head.length);
            let (part, rest) = bytes.split_at((wanted - self.buffer.len()).min(bytes.len()));
            self.buffer.extend_from_slice(part);
            bytes = rest;
            let Some(head) = Head::of(&self.buffer) else { return };
            if !head.has_block() {
                self.skip = head.length;
                self.buffer.clear();
            } else if head.length > FRAME {
                self.lose();
            } else if self.buffer.len() == HEAD + head.length {
                let frame = std::mem::take(&mut self.buffer);
                if self.block(&head, frame.get(HEAD..).unwrap_or_default()).is_none() {
                    self.lose();
                }
                self.buffer = frame;
                self.buffer.clear();
            }
        }
    }

    /// Whatever h2 makes of this and what follows, no message of it counts as well formed.
    fn lose(&mut self) {
        tracing::debug!("a header block that cannot be read");
        self.lost = true;
        self.messages.lock().lost = true;
        (self.buffer, self.open) = (Vec::new(), None);
    }

    /// Reads a frame with a part of a block. `None` if it cannot be read.
    fn block(&mut self, head: &Head, payload: &[u8]) -> Option<()> {
        let (mut block, fragment) = match (head.kind, self.open.take()) {
            (CONTINUATION, Some(block)) if block.stream == head.stream => (block, payload),
            (HEADERS, None) => {
                let (malformed, has_pseudo, has_fields, begins_response) = (false, false, false, false);
                let stream = head.stream;
                (
                    Block { stream, malformed, has_pseudo, has_fields, begins_response },
                    fragment(head, payload)?,
                )
            }
            // Nobody has allowed a push.
            _ => return None,
        };
        let ends = head.flags & END_HEADERS != 0;
        self.decoder.read(fragment, ends, |field| block.add(field))?;
        match ends {
            true => self.note(&block),
            false => {
                self.open = Some(block);
                Some(())
            }
        }
    }

    fn note(&self, block: &Block) -> Option<()> {
        let mut known = self.messages.lock();
        let is_trailers = match &mut known.peer {
            Peer::Client(newest) => {
                let is_old = block.stream <= *newest;
                *newest = block.stream.max(*newest);
                is_old
            }
            Peer::Server(waited) => {
                // Nobody waits for it any more.
                let Some(has_begun) = waited.get_mut(&block.stream) else { return Some(()) };
                std::mem::replace(has_begun, *has_begun || block.begins_response)
            }
        };
        // RFC 9113 §8.1: trailers have none.
        if block.malformed || is_trailers && block.has_pseudo {
            known.malformed.insert(block.stream);
        }
        (known.malformed.len() <= MOST).then_some(())
    }
}

/// The fragment of a block in a frame HEADERS.
fn fragment<'a>(head: &Head, mut payload: &'a [u8]) -> Option<&'a [u8]> {
    let mut padding = 0;
    if head.flags & PADDED != 0 {
        let (first, rest) = payload.split_first()?;
        (padding, payload) = (usize::from(*first), rest);
    }
    if head.flags & PRIORITY != 0 {
        let (priority, rest) = payload.split_first_chunk::<5>()?;
        let [a, b, c, d, _] = *priority;
        // h2 resets the stream and does not read the block, so its table is no longer that of the peer.
        if u32::from_be_bytes([a & 0x7f, b, c, d]) == head.stream {
            return None;
        }
        payload = rest;
    }
    payload.get(..payload.len().checked_sub(padding)?)
}

impl<IO: AsyncRead + Unpin> AsyncRead for Strict<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let result = Pin::new(&mut this.inner).poll_read(cx, buf);
        this.frames.feed(buf.filled().get(before..).unwrap_or_default());
        result
    }
}

firstflight::forward_write!([IO: AsyncWrite + Unpin] Strict<IO>, Self { inner, .. } => *inner);

#[cfg(test)]
#[path = "strict/tests.rs"]
mod tests;
