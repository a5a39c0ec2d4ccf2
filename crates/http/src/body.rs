//! The body of a request, of HTTP/1.1 or of HTTP/2.

use crate::fields::clean_trailers;
use crate::http2;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Why a body ended early.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request, as its client sends it. Its trailers have only what may be in trailers.
#[derive(Debug)]
pub enum RequestBody {
    /// As hyper reads it.
    Http1(Incoming),
    /// A stream of HTTP/2.
    Http2(http2::Upload),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match self.get_mut() {
            Self::Http1(body) => ready!(Pin::new(body).poll_frame(cx)).map(|frame| frame.map_err(Into::into)),
            Self::Http2(body) => ready!(body.poll_frame(cx)).map(|frame| frame.map_err(Into::into)),
        };
        let clean = |mut frame: Frame<Bytes>| {
            if let Some(trailers) = frame.trailers_mut() {
                clean_trailers(trailers);
            }
            frame
        };
        Poll::Ready(frame.map(|frame| frame.map(clean)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}
