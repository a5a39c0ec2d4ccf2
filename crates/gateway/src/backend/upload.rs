//! The body of a request on its way to a backend with HTTP/2.

use super::h2::Link;
use crate::http::{BoxError, Upload};
use bytes::Bytes;
use h2::{Reason, SendStream};
use hyper::body::Body;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;

/// The task of an upload. It ends when it is dropped. Its result is the stream if the client did not send the whole body.
pub(super) struct Task {
    handle: JoinHandle<Option<SendStream<Bytes>>>,
    /// Its result was taken.
    over: bool,
}

impl Task {
    pub(super) fn new(body: Upload, stream: SendStream<Bytes>, link: &Arc<Link>) -> Self {
        Self { handle: tokio::spawn(upload(body, stream, Arc::clone(link))), over: false }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Ready once, when it is over.
    pub(super) fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<Option<SendStream<Bytes>>> {
        if self.over {
            return Poll::Pending;
        }
        let result = std::task::ready!(Pin::new(&mut self.handle).poll(cx));
        self.over = true;
        Poll::Ready(result.ok().flatten())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// An upload that waits for its backend. It counts until it is dropped.
struct Stuck<'a>(&'a Link);

impl<'a> Stuck<'a> {
    fn new(link: &'a Link) -> Self {
        link.stuck.fetch_add(1, Ordering::AcqRel);
        Self(link)
    }
}

impl Drop for Stuck<'_> {
    fn drop(&mut self) {
        self.0.stuck.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Sends the body of a request. Returns the stream if the client did not send all of it.
async fn upload(
    mut body: Upload,
    mut stream: SendStream<Bytes>,
    link: Arc<Link>,
) -> Option<SendStream<Bytes>> {
    match pipe(&mut body, &mut stream, &link).await {
        Ok(()) => None,
        Err(Broken::Body(error)) => {
            tracing::debug!(%error, "the body of a request ended early");
            Some(stream)
        }
        // The response says why.
        Err(Broken::Stream(error)) => {
            tracing::debug!(%error, "a backend takes no more of a request");
            None
        }
    }
}

/// Why a body was not sent.
enum Broken {
    Body(BoxError),
    Stream(h2::Error),
}

impl From<h2::Error> for Broken {
    fn from(error: h2::Error) -> Self {
        Self::Stream(error)
    }
}

async fn pipe(body: &mut Upload, stream: &mut SendStream<Bytes>, link: &Link) -> Result<(), Broken> {
    loop {
        let next = poll_fn(|cx| {
            // The backend may have had enough.
            if let Poll::Ready(result) = stream.poll_reset(cx) {
                return Poll::Ready(Err(result.map_or_else(|error| error, h2::Error::from)));
            }
            Pin::new(&mut *body).poll_frame(cx).map(Ok)
        });
        let frame = match next.await? {
            Some(frame) => frame.map_err(Broken::Body)?,
            None => return Ok(stream.send_data(Bytes::new(), true)?),
        };
        match frame.into_data() {
            Ok(data) => {
                let last = body.is_end_stream();
                send_all(data, stream, link, last).await?;
                if last {
                    return Ok(());
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return Ok(stream.send_trailers(trailers)?);
                }
            }
        }
    }
}

/// Sends a part of a body, as far as the backend takes it.
async fn send_all(
    mut data: Bytes,
    stream: &mut SendStream<Bytes>,
    link: &Link,
    last: bool,
) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let mut stuck = None;
        let capacity = poll_fn(|cx| {
            loop {
                match stream.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(0))) => {}
                    Poll::Ready(other) => return Poll::Ready(other),
                    Poll::Pending => {
                        stuck.get_or_insert_with(|| Stuck::new(link));
                        return Poll::Pending;
                    }
                }
            }
        });
        let capacity = capacity.await.unwrap_or_else(|| Err(Reason::STREAM_CLOSED.into()))?;
        let part = data.split_to(capacity.min(data.len()));
        stream.send_data(part, last && data.is_empty())?;
    }
    Ok(())
}
