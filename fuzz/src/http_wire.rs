//! A peer of hyper's in memory: it sends fixed bytes in pieces, and then ends.

use hyper::rt::{Read, ReadBufCursor, Write};
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Sizes of pieces. From 0 they are all as large as can be.
pub struct Sizes(pub u32);

impl Sizes {
    pub fn next(&mut self) -> usize {
        if self.0 == 0 {
            return 1 << 20;
        }
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match self.0 >> 29 {
            0..3 => 1,
            3..6 => 1 + (self.0 >> 20 & 0x3f) as usize,
            _ => 1 + (self.0 >> 16 & 0xfff) as usize,
        }
    }
}

/// The stream to such a peer.
pub struct Wire<'a> {
    /// What the peer sends.
    pub rest: &'a [u8],
    pub sizes: &'a mut Sizes,
    /// What it is sent.
    pub sent: &'a RefCell<Vec<u8>>,
    /// It sends nothing before it is sent something.
    pub answers: bool,
}

impl Read for Wire<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.answers && self.sent.borrow().is_empty() {
            return Poll::Pending;
        }
        let count = self.rest.len().min(buf.remaining()).min(self.sizes.next());
        let (piece, rest) = self.rest.split_at(count);
        buf.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.sent.borrow_mut().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
