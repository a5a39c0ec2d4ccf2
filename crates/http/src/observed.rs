//! A stream that is given to hyper and can still be observed.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Debug)]
struct Inner<S> {
    stream: S,
    /// When the first byte was read.
    first_byte: Option<Instant>,
}

/// The end for hyper.
#[derive(Debug)]
pub struct Observed<S>(Arc<Mutex<Inner<S>>>);

/// The end for the observer. While it exists, the stream is not released.
#[derive(Debug)]
pub struct Watch<S>(Arc<Mutex<Inner<S>>>);

/// Both ends of `stream`.
pub fn observe<S>(stream: S) -> (Observed<S>, Watch<S>) {
    let inner = Inner { stream, first_byte: None };
    let shared = Arc::new(Mutex::new(inner));
    (Observed(Arc::clone(&shared)), Watch(shared))
}

fn lock<S>(shared: &Mutex<Inner<S>>) -> MutexGuard<'_, Inner<S>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> Clone for Watch<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Watch<S> {
    /// Looks at the stream.
    pub fn look<T>(&self, look: impl FnOnce(&S) -> T) -> T {
        look(&lock(&self.0).stream)
    }

    /// Polls something of the stream.
    pub async fn poll<T>(&self, mut poll: impl FnMut(&mut S, &mut Context<'_>) -> Poll<T>) -> T {
        poll_fn(|cx| poll(&mut lock(&self.0).stream, cx)).await
    }

    /// When the first byte of the peer was read.
    #[must_use]
    pub fn first_byte(&self) -> Option<Instant> {
        lock(&self.0).first_byte
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
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

firstflight::forward_write!([S: AsyncWrite + Unpin] Observed<S>, Self(inner) => lock(inner).stream);
