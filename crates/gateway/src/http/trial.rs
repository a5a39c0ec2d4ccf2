//! What a service for trials answers besides files: `POST /echo` gives the body back, and `PUT /sink` counts it.

use super::body::{Source, Upload};
use super::forward::{Ask, Failure};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response};
use sha2::{Digest, Sha256};
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of an answer.
pub(super) enum Trial {
    /// The request's own.
    Echo {
        /// Read before the head of the response: a client that expects "100 Continue" gets it until then only.
        first: Option<Frame<Bytes>>,
        rest: Upload,
    },
    Text(Bytes),
}

/// The answer to a request. `None` if it is about a file.
/// Errors: when the body does not come whole.
pub(super) async fn answer(ask: &mut Ask) -> Result<Option<Response<Trial>>, Failure> {
    let echoes = match (&ask.parts.method, ask.parts.uri.path()) {
        (&Method::POST, "/echo") => true,
        (&Method::PUT, "/sink") => false,
        _ => return Ok(None),
    };
    // A client that closes its sending direction behind it waits for the answer.
    ask.progress.sent();
    let config = &ask.site.config;
    let mut body = match ask.body.take() {
        Some(body) => {
            let source = Source::new(body, config.body_timeout.0, config.max_body, ask.progress.clone());
            source.answered();
            source.begin()
        }
        None => Upload::empty(),
    };
    let fault = |error| match ask.progress.fault() {
        Some(fault) => Failure::from(fault),
        None => Failure::Gone(error),
    };
    let (kind, body) = if echoes {
        let first = body.frame().await.transpose().map_err(fault)?;
        ("application/octet-stream", Trial::Echo { first, rest: body })
    } else {
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        while let Some(frame) = body.frame().await {
            if let Some(data) = frame.map_err(fault)?.data_ref() {
                hash.update(data);
                bytes += data.len();
            }
        }
        let text = format!("{{\"bytes\":{bytes},\"sha256\":\"{}\"}}\n", HEXLOWER.encode(&hash.finalize()));
        ("application/json", Trial::Text(text.into()))
    };
    let mut response = Response::new(body);
    let length = response.body().size_hint().exact();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    Ok(Some(response))
}

impl Body for Trial {
    type Data = Bytes;
    type Error = super::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Echo { first, rest } => match first.take() {
                Some(first) => Poll::Ready(Some(Ok(first))),
                None => Pin::new(rest).poll_frame(cx),
            },
            Self::Text(text) => {
                let text = std::mem::take(text);
                Poll::Ready((!text.is_empty()).then(|| Ok(Frame::data(text))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Echo { first, rest } => first.is_none() && rest.is_end_stream(),
            Self::Text(text) => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Echo { first, rest } => {
                let first = first.as_ref().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64);
                let exact = rest.size_hint().exact();
                exact.map_or_else(SizeHint::default, |rest| SizeHint::with_exact(rest + first))
            }
            Self::Text(text) => SizeHint::with_exact(text.len() as u64),
        }
    }
}
