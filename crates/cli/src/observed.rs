//! A stream given away to hyper that can still be asked how it fares.

use firstflight::credential::Outcome;
use firstflight::{ConnectionInfo, Stream};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

struct Inner {
    stream: Stream,
    /// When the first byte was read.
    first_byte: Option<Instant>,
}

/// The end that hyper gets.
pub struct Observed(Arc<Mutex<Inner>>);

/// The end that asks. While it lives, the stream is not released.
#[derive(Clone)]
pub struct Watch(Arc<Mutex<Inner>>);

/// Both ends of `stream`.
pub fn observe(stream: Stream) -> (Observed, Watch) {
    let inner = Inner { stream, first_byte: None };
    let shared = Arc::new(Mutex::new(inner));
    (Observed(Arc::clone(&shared)), Watch(shared))
}

fn lock(shared: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// What became of the first flight.
    pub fn outcome(&self) -> Outcome {
        lock(&self.0).stream.outcome()
    }

    /// What is known of the connection.
    pub fn info(&self) -> Option<ConnectionInfo> {
        lock(&self.0).stream.info()
    }

    /// When the first byte of the peer's was read.
    pub fn first_byte(&self) -> Option<Instant> {
        lock(&self.0).first_byte
    }
}

impl AsyncRead for Observed {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = lock(&self.0);
        let before = buf.filled().len();
        let result = Pin::new(&mut inner.stream).poll_read(cx, buf);
        if inner.first_byte.is_none() && buf.filled().len() > before {
            inner.first_byte = Some(Instant::now());
        }
        result
    }
}

impl AsyncWrite for Observed {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut lock(&self.0).stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).stream).poll_shutdown(cx)
    }
}
