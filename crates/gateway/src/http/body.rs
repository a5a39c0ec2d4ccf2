//! The body of a request on its way to a backend.

use super::BoxError;
use crate::backend::Backend;
use bytes::Bytes;
use firstflight_http::body::RequestBody;
use firstflight_http::patience::poll_over;
use hyper::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
    failed: OnceLock<(&'static str, Option<Arc<Backend>>)>,
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

    /// Why there is no response of a backend, and at which. The first reason counts.
    pub(super) fn failed(&self, kind: &'static str, backend: Option<&Arc<Backend>>) {
        let _ = self.0.failed.set((kind, backend.cloned()));
    }

    /// What [`Progress::failed`] was told.
    pub(super) fn failure(&self) -> Option<&(&'static str, Option<Arc<Backend>>)> {
        self.0.failed.get()
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
        poll_over(self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(most))).as_mut(), cx)
    }

    /// Something came.
    pub(super) fn reset(&mut self) {
        self.pause = None;
    }
}

/// How much of a body is kept until its answer begins, bytes, so that it can be sent again if a backend did not execute it.
const KEPT: usize = 64 * 1024;

/// The body of a request. It is read once, and its beginning can be sent several times.
#[derive(Clone)]
pub(super) struct Source {
    coming: Arc<Mutex<Coming>>,
    progress: Progress,
}

struct Coming {
    body: RequestBody,
    patience: Patience,
    /// Bytes that may still come.
    left: Option<u64>,
    /// What has been read. `None` if that is too much, or not needed any more.
    kept: Option<Vec<u8>>,
    trailers: Option<HeaderMap>,
    ended: bool,
    /// The upload that may read.
    turn: u64,
}

impl Source {
    /// This body, of at most `most` bytes.
    pub(super) fn new(body: RequestBody, patience: Duration, most: Option<u64>, progress: Progress) -> Self {
        let coming = Coming {
            body,
            patience: Patience::new(patience),
            left: most,
            kept: Some(Vec::new()),
            trailers: None,
            ended: false,
            turn: 0,
        };
        Self { coming: Arc::new(Mutex::new(coming)), progress }
    }

    fn lock(&self) -> MutexGuard<'_, Coming> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to send it. An upload that began before gets nothing any more.
    pub(super) fn begin(&self) -> Upload {
        let mut coming = self.lock();
        coming.turn += 1;
        Upload(Some(Reading { source: self.clone(), turn: coming.turn, at: 0 }))
    }

    /// Whether all that was read can be sent again.
    pub(super) fn can_begin_again(&self) -> bool {
        self.lock().kept.is_some()
    }

    /// It will not be sent again.
    pub(super) fn answered(&self) {
        self.lock().kept = None;
    }
}

/// The body of a request on its way to a backend.
pub(crate) struct Upload(Option<Reading>);

struct Reading {
    source: Source,
    turn: u64,
    /// How much of what is kept has gone on.
    at: usize,
}

impl Upload {
    /// No body.
    pub(super) const fn empty() -> Self {
        Self(None)
    }
}

impl Coming {
    /// The next frame from the client.
    fn poll_next(
        &mut self,
        progress: &Progress,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended {
            return Poll::Ready(self.trailers.clone().map(|trailers| Ok(Frame::trailers(trailers))));
        }
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending if self.patience.poll_over(cx).is_ready() => {
                return Poll::Ready(Some(Err(progress.fail(Fault::TooSlow))));
            }
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => {
                self.ended = true;
                progress.complete();
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(progress.fail(Fault::Client)))),
            Poll::Ready(Some(Ok(frame))) => frame,
        };
        self.patience.reset();
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                self.ended = true;
                progress.complete();
                // They are clean.
                let trailers = frame.into_trailers().unwrap_or_default();
                self.trailers = (!trailers.is_empty()).then_some(trailers);
                return Poll::Ready(self.trailers.clone().map(|trailers| Ok(Frame::trailers(trailers))));
            }
        };
        if let Some(left) = &mut self.left {
            match left.checked_sub(data.len() as u64) {
                Some(rest) => *left = rest,
                None => return Poll::Ready(Some(Err(progress.fail(Fault::TooLong)))),
            }
        }
        if let Some(kept) = &mut self.kept {
            if kept.len() + data.len() <= KEPT {
                kept.extend_from_slice(&data);
            } else {
                self.kept = None;
            }
        }
        progress.0.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        if self.body.is_end_stream() {
            progress.complete();
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(reading) = &mut self.0 else { return Poll::Ready(None) };
        let mut coming = reading.source.lock();
        if coming.turn != reading.turn {
            return Poll::Ready(Some(Err("the request was sent again".into())));
        }
        if let Some(again) = coming.kept.as_ref().and_then(|kept| kept.get(reading.at..))
            && !again.is_empty()
        {
            let again = Bytes::copy_from_slice(again);
            reading.at += again.len();
            return Poll::Ready(Some(Ok(Frame::data(again))));
        }
        let next = coming.poll_next(&reading.source.progress, cx);
        reading.at = coming.kept.as_ref().map_or(0, Vec::len);
        next
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|reading| {
            let coming = reading.source.lock();
            let sent = coming.kept.as_ref().is_none_or(|kept| kept.len() == reading.at);
            let ended = coming.ended && coming.trailers.is_none() || coming.body.is_end_stream();
            sent && ended
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(
            || SizeHint::with_exact(0),
            |reading| {
                let coming = reading.source.lock();
                let again = coming.kept.as_ref().map_or(0, |kept| kept.len().saturating_sub(reading.at));
                let hint = coming.body.size_hint();
                hint.exact().map_or_else(SizeHint::default, |rest| SizeHint::with_exact(rest + again as u64))
            },
        )
    }
}
