//! The body of a request on its way to a backend.

use super::BoxError;
use bytes::Bytes;
use firstflight_http::body::RequestBody;
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
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

/// What others know of a request under way.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    bytes: AtomicU64,
    fault: AtomicU8,
    is_complete: AtomicBool,
    is_sent: AtomicBool,
}

impl Progress {
    /// Bytes that went on.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Why it ended early.
    pub(super) fn fault(&self) -> Option<Fault> {
        match self.0.fault.load(Ordering::Relaxed) {
            1 => Some(Fault::TooLong),
            2 => Some(Fault::TooSlow),
            3 => Some(Fault::Client),
            _ => None,
        }
    }

    /// Whether a backend has the request.
    pub(super) fn is_sent(&self) -> bool {
        self.0.is_sent.load(Ordering::Relaxed)
    }

    pub(super) fn sent(&self) {
        self.0.is_sent.store(true, Ordering::Relaxed);
    }

    /// Whether all of the body has come.
    pub(super) fn is_complete(&self) -> bool {
        self.0.is_complete.load(Ordering::Relaxed)
    }

    pub(super) fn complete(&self) {
        self.0.is_complete.store(true, Ordering::Relaxed);
    }

    fn fail(&self, fault: Fault) -> BoxError {
        let code = match fault {
            Fault::TooLong => 1,
            Fault::TooSlow => 2,
            Fault::Client => 3,
        };
        self.0.fault.store(code, Ordering::Relaxed);
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
    body: RequestBody,
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
    pub(super) fn new(body: RequestBody, patience: Duration, most: Option<u64>, progress: Progress) -> Self {
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
            Poll::Ready(None) => {
                coming.progress.complete();
                return Poll::Ready(None);
            }
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
        coming.progress.0.bytes.fetch_add(count, Ordering::Relaxed);
        if coming.body.is_end_stream() {
            coming.progress.complete();
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|coming| coming.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |coming| coming.body.size_hint())
    }
}
