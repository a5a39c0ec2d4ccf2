//! Bodies of requests and responses.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Why a body ended early.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body of any kind.
pub(crate) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A body that is at hand.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body that passes through. It fails if its sender pauses for longer than `idle`.
pub(crate) fn passing(body: Incoming, idle: Duration) -> Body {
    Passing { body, idle, until: None }.boxed_unsync()
}

struct Passing {
    body: Incoming,
    idle: Duration,
    until: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Passing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.until = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let idle = self.idle;
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(idle)));
        match until.as_mut().poll(cx) {
            Poll::Ready(()) => {
                until.as_mut().reset(Instant::now() + idle);
                Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
