//! A stream to a server that tells what passed it, so that it is certain after a failure whether a byte of an answer came.
//!
//! A server may answer and close before it has read a request: 413, or GOAWAY. Then a write fails while the answer waits to be
//! read. Such a stream takes further bytes and throws them away, until the reader has come to the end.

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

    /// Bytes that the system took.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.0.1.load(Ordering::Acquire)
    }
}

/// A stream whose bytes are counted.
#[derive(Debug)]
pub struct CountedStream<T> {
    inner: T,
    heard: Heard,
    /// A write failed.
    broken: bool,
}

impl<T> CountedStream<T> {
    /// The stream, and its count.
    pub fn new(inner: T) -> (Self, Heard) {
        let heard = Heard::default();
        (Self { inner, heard: heard.clone(), broken: false }, heard)
    }

    /// The stream inside.
    pub const fn get_ref(&self) -> &T {
        &self.inner
    }
}

/// Whether the peer has closed.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
    matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted | NotConnected)
}

impl<T: AsyncRead + Unpin> AsyncRead for CountedStream<T> {
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

impl<T: AsyncWrite + Unpin> CountedStream<T> {
    /// A write of so many bytes is over.
    fn wrote(&mut self, result: Poll<io::Result<usize>>, all: usize) -> Poll<io::Result<usize>> {
        match &result {
            Poll::Ready(Ok(count)) => {
                self.heard.0.1.fetch_add(*count as u64, Ordering::Release);
                result
            }
            // Other errors are those of a connect that the first write began, for example.
            Poll::Ready(Err(error)) if is_end(error) => {
                tracing::trace!(%error, "a write failed: what the server sent is still read");
                self.broken = true;
                Poll::Ready(Ok(all))
            }
            Poll::Ready(Err(_)) | Poll::Pending => result,
        }
    }

    fn done(&mut self, result: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        match &result {
            Poll::Ready(Err(error)) if is_end(error) => {
                self.broken = true;
                Poll::Ready(Ok(()))
            }
            _ => result,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CountedStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.broken {
            return Poll::Ready(Ok(bytes.len()));
        }
        let result = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.wrote(result, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = bufs.iter().map(|buf| buf.len()).sum();
        if self.broken {
            return Poll::Ready(Ok(all));
        }
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.wrote(result, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.broken {
            return Poll::Ready(Ok(()));
        }
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.done(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.broken {
            return Poll::Ready(Ok(()));
        }
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.done(result)
    }
}

#[cfg(test)]
mod tests;
