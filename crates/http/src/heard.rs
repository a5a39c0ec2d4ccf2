//! Counts what passes a stream, so that it is certain after a failure whether a byte of an answer came.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What passed a stream so far.
#[derive(Debug, Clone, Default)]
pub struct Heard(Arc<(AtomicU64, AtomicU64)>);

impl Heard {
    /// Bytes that were read.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.0.0.load(Ordering::Acquire)
    }

    /// Bytes that the stream took, sent or not.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.0.1.load(Ordering::Acquire)
    }
}

/// A stream whose bytes are counted.
#[derive(Debug)]
pub struct Counted<T> {
    inner: T,
    heard: Heard,
}

impl<T> Counted<T> {
    /// The stream, and its count.
    pub fn new(inner: T) -> (Self, Heard) {
        let heard = Heard::default();
        (Self { inner, heard: heard.clone() }, heard)
    }

    /// The stream inside.
    pub const fn get_ref(&self) -> &T {
        &self.inner
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        let count = buf.filled().len().saturating_sub(before);
        self.heard.0.0.fetch_add(count as u64, Ordering::Release);
        result
    }
}

impl<T: AsyncWrite + Unpin> Counted<T> {
    fn wrote(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &result {
            self.heard.0.1.fetch_add(*count as u64, Ordering::Release);
        }
        result
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn what_passes_is_counted() {
        let (near, mut far) = tokio::io::duplex(64);
        let (mut near, heard) = Counted::new(near);
        near.write_all(b"abc").await.unwrap();
        far.write_all(b"12345").await.unwrap();
        assert_eq!((heard.read(), heard.written()), (0, 3));
        near.read_exact(&mut [0; 4]).await.unwrap();
        assert_eq!(heard.read(), 4);
    }
}
