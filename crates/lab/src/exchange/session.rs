//! Applications at the ends of a connection.

use firstflight_stack::{ConnId, Stack};
use firstflight_wire::Instant;
use std::cell::Cell;
use std::rc::Rc;

/// The application of one connection.
pub trait Session {
    /// Reads and writes what is possible now. True once it is over.
    fn run(&mut self, stack: &mut Stack, id: ConnId, now: Instant) -> bool;
}

/// A client that waits for a response of `size` bytes.
#[derive(Debug)]
pub struct Client {
    left: usize,
    /// What is still to be written.
    request: Vec<u8>,
    pub first_byte: Option<Instant>,
    pub whole: Option<Instant>,
}

impl Client {
    /// The request is in the connect.
    pub const fn new(size: usize) -> Self {
        Self { left: size, request: Vec::new(), first_byte: None, whole: None }
    }

    /// Writes `request` on an open connection first.
    pub const fn asking(request: Vec<u8>, size: usize) -> Self {
        Self { left: size, request, first_byte: None, whole: None }
    }
}

impl Session for Client {
    fn run(&mut self, stack: &mut Stack, id: ConnId, now: Instant) -> bool {
        if !self.request.is_empty()
            && let Ok(written) = stack.write(id, &self.request, now)
        {
            self.request.drain(..written);
        }
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = stack.read(id, &mut buffer, now) {
            self.first_byte = self.first_byte.or(Some(now));
            self.left = self.left.saturating_sub(len);
        }
        if self.left == 0 {
            self.whole = self.whole.or(Some(now));
        }
        self.whole.is_some()
    }
}

/// A server that answers each request of `request` bytes with `response` bytes.
#[derive(Debug)]
pub struct Server {
    request: usize,
    response: usize,
    received: usize,
    left: usize,
    executed: Rc<Cell<u32>>,
}

impl Server {
    /// Counts requests in `executed`.
    pub const fn new(request: usize, response: usize, executed: Rc<Cell<u32>>) -> Self {
        Self { request, response, received: 0, left: 0, executed }
    }
}

impl Session for Server {
    fn run(&mut self, stack: &mut Stack, id: ConnId, now: Instant) -> bool {
        let mut buffer = [0; 4096];
        let ended = loop {
            match stack.read(id, &mut buffer, now) {
                Ok(0) => break true,
                Ok(len) => self.received += len,
                Err(_) => break false,
            }
        };
        while self.received >= self.request {
            self.received -= self.request;
            self.left += self.response;
            self.executed.set(self.executed.get() + 1);
        }
        let filler = [b'r'; 8192];
        while self.left > 0 {
            match stack.write(id, filler.get(..self.left.min(filler.len())).unwrap_or_default(), now) {
                Ok(len @ 1..) => self.left -= len,
                _ => break,
            }
        }
        ended && self.left == 0
    }
}
