//! The body of a request on its way to a backend.

use super::BoxError;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// Why a body ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("the body is longer than allowed")]
    TooLong,
    #[error("the client paused for too long in the body")]
    TooSlow,
    #[error("the client ended the connection in the body")]
    Client,
}

/// What others know of a body under way.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<(AtomicU64, AtomicU8)>);

impl Progress {
    /// Bytes that went on.
    pub(super) fn bytes(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }

    /// Why it ended early.
    pub(super) fn fault(&self) -> Option<Fault> {
        match self.0.1.load(Ordering::Relaxed) {
            1 => Some(Fault::TooLong),
            2 => Some(Fault::TooSlow),
            3 => Some(Fault::Client),
            _ => None,
        }
    }

    fn fail(&self, fault: Fault) -> BoxError {
        let code = match fault {
            Fault::TooLong => 1,
            Fault::TooSlow => 2,
            Fault::Client => 3,
        };
        self.0.1.store(code, Ordering::Relaxed);
        fault.into()
    }
}

/// A pause that is too long.
pub(super) struct Patience {
    most: Duration,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    pub(super) const fn new(most: Duration) -> Self {
        Self { most, pause: None }
    }

    /// Nothing came. Ready if that was so for too long.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let most = self.most;
        self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(most))).as_mut().poll(cx)
    }

    /// Something came.
    pub(super) fn reset(&mut self) {
        self.pause = None;
    }
}

/// The body of a request on its way to a backend.
pub(crate) struct Upload(Option<Coming>);

struct Coming {
    body: Incoming,
    patience: Patience,
    /// Bytes that may still come.
    left: Option<u64>,
    progress: Progress,
}

impl Upload {
    /// No body.
    pub(super) const fn empty() -> Self {
        Self(None)
    }

    /// This body, of at most `most` bytes.
    pub(super) fn new(body: Incoming, patience: Duration, most: Option<u64>, progress: Progress) -> Self {
        Self(Some(Coming { body, patience: Patience::new(patience), left: most, progress }))
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(coming) = &mut self.0 else { return Poll::Ready(None) };
        let frame = match Pin::new(&mut coming.body).poll_frame(cx) {
            Poll::Pending if coming.patience.poll_over(cx).is_ready() => {
                return Poll::Ready(Some(Err(coming.progress.fail(Fault::TooSlow))));
            }
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(coming.progress.fail(Fault::Client)))),
            Poll::Ready(Some(Ok(frame))) => frame,
        };
        coming.patience.reset();
        let count = frame.data_ref().map_or(0, |data| data.len() as u64);
        if let Some(left) = &mut coming.left {
            match left.checked_sub(count) {
                Some(rest) => *left = rest,
                None => return Poll::Ready(Some(Err(coming.progress.fail(Fault::TooLong)))),
            }
        }
        coming.progress.0.0.fetch_add(count, Ordering::Relaxed);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|coming| coming.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |coming| coming.body.size_hint())
    }
}
