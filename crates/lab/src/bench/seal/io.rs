//! A connection in memory whose other end is the benchmark.

use crate::bench::BenchError;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One end. Clones are handles to the same end.
#[derive(Debug, Clone, Default)]
pub struct Io(Arc<Mutex<Bytes>>);

#[derive(Debug, Default)]
struct Bytes {
    /// What the end may read, and how much of it was read.
    input: Vec<u8>,
    read: usize,
    /// What the end has written.
    output: Vec<u8>,
}

impl Io {
    /// An end that can read these bytes.
    pub fn with(input: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Bytes { input, ..Bytes::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Further bytes arrive.
    pub fn push(&self, bytes: &[u8]) {
        self.lock().input.extend_from_slice(bytes);
    }

    /// What the end has written since the last call.
    pub fn written(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock().output)
    }
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut bytes = self.lock();
        let Bytes { input, read, .. } = &mut *bytes;
        let rest = input.get(*read..).unwrap_or_default();
        if rest.is_empty() {
            return Poll::Pending;
        }
        let count = rest.len().min(buf.remaining());
        buf.put_slice(rest.get(..count).unwrap_or_default());
        *read += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.lock().output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Polls once.
pub fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The output of a future that has nothing to wait for.
pub fn now<T, E: std::fmt::Debug>(
    what: &'static str,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, BenchError> {
    match poll(pin!(future)) {
        Poll::Ready(result) => result.map_err(|error| BenchError::refused(what, error)),
        Poll::Pending => Err(BenchError::Wrong(format!("{what} waits"))),
    }
}
