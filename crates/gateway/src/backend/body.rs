//! The body of a response of HTTP/2, and what becomes of it if its client has left.

use super::h2::Slot;
use super::upload::Task;
use crate::http::BoxError;
use bytes::Bytes;
use h2::RecvStream;
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::timeout;

/// How much of a response, bytes, and for how long it is read for a client that has left, if its stream must not be reset.
const REST: u64 = 64 * 1024;
const REST_FOR: Duration = Duration::from_secs(60);

/// The body of a response.
pub(crate) struct Incoming2 {
    /// `None` when it is dropped.
    inner: Option<(RecvStream, Option<Task>, Slot)>,
    /// Bytes that are to come, if that is known.
    left: Option<u64>,
    data_ended: bool,
}

impl Incoming2 {
    pub(super) fn new(body: RecvStream, upload: Option<Task>, slot: Slot, length: Option<u64>) -> Self {
        Self { inner: Some((body, upload, slot)), left: length, data_ended: false }
    }
}

impl Body for Incoming2 {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Some((body, _, slot)) = &mut this.inner else { return Poll::Ready(None) };
        if !this.data_ended {
            match ready!(body.poll_data(cx)) {
                Some(Ok(data)) => {
                    // It fails only when the stream is over.
                    let _ = body.flow_control().release_capacity(data.len());
                    this.left = this.left.map(|left| left.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                // Whatever its code: a response without its end is cut.
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => this.data_ended = true,
            }
        }
        match ready!(body.poll_trailers(cx)) {
            Ok(Some(_)) if slot.is_malformed() => Poll::Ready(Some(Err("the trailers are malformed".into()))),
            Ok(Some(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Ok(None) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(|(body, ..)| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Incoming2 {
    fn drop(&mut self) {
        let Some((body, upload, slot)) = self.inner.take() else { return };
        let whole = upload.as_ref().is_none_or(Task::is_finished);
        if body.is_end_stream() {
            slot.answered();
        } else if !slot.may_reset() && whole {
            Abandoned::new(slot).read_to_end(async move { Some(body) });
        }
    }
}

/// A request whose client has left, on a connection that should have no more resets: the backend would end it, and the
/// requests of others with it (ENHANCE_YOUR_CALM).
pub(super) struct Abandoned(Slot);

impl Abandoned {
    pub(super) const fn new(slot: Slot) -> Self {
        Self(slot)
    }

    /// Keeps a request that cannot be completed until the others of its connection have ended.
    pub(super) fn keep(self, request: impl Send + 'static) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let _count = self.0.abandon();
            self.0.until_nobody_is_left().await;
            drop(request);
        });
    }

    /// Reads the response to its end, if that is near. Otherwise its connection has no further requests, and the stream is
    /// reset when those of others have ended. Meanwhile it keeps its place, and that of its client.
    pub(super) fn read_to_end(self, body: impl Future<Output = Option<RecvStream>> + Send + 'static) {
        // There is no runtime any more when a program ends.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let slot = self.0;
            let _count = slot.abandon();
            let mut body = Box::pin(body);
            let mut begun = None;
            let reading = async {
                begun = body.as_mut().await;
                let Some(body) = &mut begun else { return true };
                let mut left = REST;
                while let Some(Ok(data)) = body.data().await {
                    let _ = body.flow_control().release_capacity(data.len());
                    match left.checked_sub(data.len() as u64) {
                        Some(rest) => left = rest,
                        None => return false,
                    }
                }
                true
            };
            if timeout(REST_FOR, reading).await != Ok(true) {
                slot.until_nobody_is_left().await;
            }
        });
    }
}
