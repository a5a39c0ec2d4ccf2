//! One stream: from its request to the end of its response.

use super::{Expects, WatchedStream};
use crate::body::BodyError;
use crate::fields::{clean_trailers, strip_hop_by_hop};
use crate::patience::poll_over;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use hyper::StatusCode;
use hyper::body::Body;
use hyper::header::{CONTENT_LENGTH, DATE, HeaderValue};
use hyper::http::Response;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::time::{Sleep, sleep};

/// What is asked of the window at a time, bytes.
const PIECE: usize = 16 * 1024;
/// A client that takes less than this in the time that it has counts as one that takes nothing, bytes.
const PROGRESS: usize = 1024;

pub(super) enum StreamEnd {
    /// The response is whole.
    Answered,
    /// The client has reset it, or has left.
    Reset,
    /// The response failed, or its client took nothing.
    Failed,
}

pub(super) struct Stream {
    pub(super) respond: SendResponse<Bytes>,
    pub(super) watched: Arc<WatchedStream>,
    pub(super) expects: Option<Arc<Expects>>,
    pub(super) is_head: bool,
    pub(super) patience: Duration,
}

impl Stream {
    /// Sends the response.
    pub(super) async fn run<B>(
        mut self,
        answer: impl Future<Output = Result<Response<B>, BodyError>>,
    ) -> StreamEnd
    where
        B: Body<Data = Bytes, Error = BodyError>,
    {
        let response = match self.wait_for(answer).await {
            None => return StreamEnd::Reset,
            // Its trailers, behind a body that was long enough.
            Some(_) if self.watched.is_malformed() => {
                self.respond.send_reset(Reason::PROTOCOL_ERROR);
                return StreamEnd::Reset;
            }
            Some(Ok(response)) => response,
            Some(Err(error)) => {
                tracing::debug!(%error, "a stream has no response");
                // Only a code that the service itself has chosen.
                let code = error.downcast_ref::<h2::Error>().filter(|error| !error.is_remote());
                self.respond.send_reset(code.and_then(h2::Error::reason).unwrap_or(Reason::INTERNAL_ERROR));
                return StreamEnd::Failed;
            }
        };
        let (mut parts, body) = response.into_parts();
        strip_hop_by_hop(&mut parts.headers);
        if !parts.headers.contains_key(DATE)
            && let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(SystemTime::now()))
        {
            parts.headers.insert(DATE, date);
        }
        let is_empty = self.is_head
            || body.is_end_stream()
            || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if let (false, Some(length)) = (is_empty, body.size_hint().exact()) {
            parts.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        let mut head = Response::new(());
        (*head.status_mut(), *head.headers_mut()) = (parts.status, parts.headers);
        match self.respond.send_response(head, is_empty) {
            Ok(_) if is_empty => StreamEnd::Answered,
            Ok(sender) => Sender { sender, patience: self.patience, pause: None, taken: 0 }.send(body).await,
            Err(_) => StreamEnd::Reset,
        }
    }

    /// Waits for the response, and says meanwhile that the client may go on, once its body is asked for. `None` if the
    /// client has reset the stream.
    async fn wait_for<T>(&mut self, answer: impl Future<Output = T>) -> Option<T> {
        let expects = self.expects.take();
        let wanted = async {
            match &expects {
                Some(expects) => expects.wanted.notified().await,
                None => std::future::pending().await,
            }
        };
        let (mut answer, mut wanted, mut told) = (pin!(answer), pin!(wanted), false);
        poll_fn(|cx| {
            if self.respond.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            let polled = answer.as_mut().poll(cx).map(Some);
            // The answer, and nothing behind it, if it is there.
            if polled.is_pending() && !told && wanted.as_mut().poll(cx).is_ready() {
                told = true;
                let mut go_on = Response::new(());
                *go_on.status_mut() = StatusCode::CONTINUE;
                // It fails only when the stream is over.
                let _ = self.respond.send_informational(go_on);
            }
            polled
        })
        .await
    }
}

/// Sends a body.
struct Sender {
    sender: SendStream<Bytes>,
    patience: Duration,
    /// Ends the wait for the client's window.
    pause: Option<Pin<Box<Sleep>>>,
    /// What the client has taken since the wait began.
    taken: usize,
}

impl Sender {
    async fn send<B: Body<Data = Bytes, Error = BodyError>>(mut self, body: B) -> StreamEnd {
        let mut body = pin!(body);
        loop {
            // Bytes are asked for once the client takes some: until then they stay with the backend, not in memory. A
            // body that may have no more bytes is asked at once, because its end and its trailers need no window.
            if body.size_hint().lower() > 0 {
                // Not more: what a stream reserves before it has bytes, others of its connection lack.
                self.sender.reserve_capacity(1);
                if let Err(end) = poll_fn(|cx| self.poll_room(cx)).await {
                    return end;
                }
            }
            let frame = poll_fn(|cx| match self.sender.poll_reset(cx) {
                Poll::Ready(_) => Poll::Ready(Err(StreamEnd::Reset)),
                Poll::Pending => body.as_mut().poll_frame(cx).map(Ok),
            });
            let frame = match frame.await {
                Err(end) => return end,
                Ok(None) => return self.end(|sender| sender.send_data(Bytes::new(), true)),
                Ok(Some(Err(error))) => {
                    tracing::debug!(%error, "a response has failed");
                    self.sender.send_reset(Reason::INTERNAL_ERROR);
                    return StreamEnd::Failed;
                }
                Ok(Some(Ok(frame))) => frame,
            };
            match frame.into_data() {
                Ok(data) => {
                    let is_last = body.is_end_stream();
                    match self.send_data(data, is_last).await {
                        Err(end) => return end,
                        Ok(()) if is_last => return StreamEnd::Answered,
                        Ok(()) => {}
                    }
                }
                Err(frame) => {
                    if let Ok(mut trailers) = frame.into_trailers() {
                        clean_trailers(&mut trailers);
                        return self.end(|sender| sender.send_trailers(trailers));
                    }
                }
            }
        }
    }

    fn end(&mut self, send: impl FnOnce(&mut SendStream<Bytes>) -> Result<(), h2::Error>) -> StreamEnd {
        if send(&mut self.sender).is_ok() { StreamEnd::Answered } else { StreamEnd::Reset }
    }

    /// Sends as much as the client's window has room for, until all of it is sent.
    async fn send_data(&mut self, mut data: Bytes, is_last: bool) -> Result<(), StreamEnd> {
        if data.is_empty() && !is_last {
            return Ok(());
        }
        loop {
            let room = match data.is_empty() {
                true => 0,
                false => {
                    self.sender.reserve_capacity(data.len().min(PIECE));
                    poll_fn(|cx| self.poll_room(cx)).await?
                }
            };
            let part = data.split_to(room.min(data.len()));
            self.took(part.len());
            self.sender.send_data(part, is_last && data.is_empty()).map_err(|_| StreamEnd::Reset)?;
            if data.is_empty() {
                return Ok(());
            }
        }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, StreamEnd>> {
        loop {
            if self.sender.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(StreamEnd::Reset));
            }
            let room = self.sender.capacity();
            if room > 0 {
                return Poll::Ready(Ok(room));
            }
            match self.sender.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => return Poll::Ready(Err(StreamEnd::Reset)),
                Poll::Pending => break,
            }
        }
        let patience = self.patience;
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(patience)));
        std::task::ready!(poll_over(pause.as_mut(), cx));
        // Its body goes, and what it holds.
        self.sender.send_reset(Reason::CANCEL);
        Poll::Ready(Err(StreamEnd::Failed))
    }

    fn took(&mut self, count: usize) {
        self.taken += count;
        if self.taken >= PROGRESS {
            (self.taken, self.pause) = (0, None);
        }
    }
}
