//! One connection of HTTP/2 to a backend.
//!
//! It has as many requests as its window has room for, so that a response that its client does not take uses up nothing that
//! the others need. What became of a request whose connection ended is certain: see [`fate_of_h2`].

use super::body::{Abandoned, Incoming2};
use super::pool::{AnsweredBody, SendError};
use super::upload::Task;
use crate::http::Upload;
use bytes::Bytes;
use firstflight_http::heard::{CountedStream, Heard};
use firstflight_http::http2::{Messages, Strict, WatchedStream};
use firstflight_http::resend::{AttemptFate, fate_of_h2};
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use hyper::body::Body;
use hyper::header::CONTENT_LENGTH;
use hyper::{Request, Response};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Bytes of requests that wait in memory for each stream, and the longest list of fields of a response.
const BUFFER: usize = 32 * 1024;
/// How often it is looked whether a connection has other requests yet.
const AGAIN: Duration = Duration::from_secs(1);
/// A connection with requests is asked this often whether it still works, and must say so within as long.
const PING: Duration = Duration::from_secs(20);

/// Resets that a connection may have, in tenths: eight, and one more for ten answers.
const RESETS: u32 = 80;

/// What the requests of a connection share.
pub(super) struct Link {
    sender: SendRequest<Bytes>,
    /// Which responses are malformed.
    messages: Messages,
    /// Streams at one time, of ours.
    most: usize,
    taken: AtomicUsize,
    /// Uploads that wait until the backend takes more. They may hold the whole window of its connection.
    pub(super) stuck: AtomicUsize,
    /// It has answered a request.
    answered: AtomicBool,
    /// Tenths of resets that it may have. Backends end connections on which many streams are reset (RFC 9113 §10.5).
    resets: AtomicU32,
    /// Requests whose client has left.
    abandoned: AtomicUsize,
    /// It has no more requests, and ends with the last one.
    retired: AtomicBool,
    /// Hears when a stream ends.
    freed: Arc<Notify>,
    /// Wakes the connection, which ends when nobody has it any more.
    left: Arc<Notify>,
}

/// A place for one request on a connection.
pub(crate) struct Slot {
    link: Arc<Link>,
    /// The connection has answered other requests, so the backend may be about to close it.
    pub(super) kept: bool,
    /// What the request holds until it is over at the backend.
    held: Option<BackendHold>,
    /// Its stream, once it has one.
    watched: Option<WatchedStream>,
}

/// What a request holds until it is over at the backend, also if its client has left.
pub(crate) type BackendHold = Arc<dyn Send + Sync>;

impl Drop for Slot {
    fn drop(&mut self) {
        self.link.taken.fetch_sub(1, Ordering::AcqRel);
        self.link.freed.notify_waiters();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.left.notify_one();
    }
}

impl Link {
    /// Makes a connection. `freed` hears when a place becomes free.
    /// Errors: when the backend's side of it cannot be written.
    pub(super) async fn over<T>(
        io: T,
        window: u32,
        most: usize,
        freed: Arc<Notify>,
    ) -> Result<Arc<Self>, h2::Error>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let streams = u32::try_from(most).unwrap_or(u32::MAX);
        // No stream can take from the others: together they have what each may use.
        let whole = window.saturating_mul(streams).clamp(65_535, (1 << 31) - 1);
        let (io, heard) = CountedStream::new(io);
        let (io, messages) = Strict::of_client(io, BUFFER as u32);
        let (sender, mut connection) = Builder::new()
            .initial_window_size(window)
            .initial_connection_window_size(whole)
            .initial_max_send_streams(most)
            .max_header_list_size(BUFFER as u32)
            .max_send_buffer_size(BUFFER)
            .enable_push(false)
            // Otherwise what still comes for a stream that was reset is answered with a second reset.
            .max_concurrent_reset_streams(most)
            .reset_stream_duration(PING)
            .handshake(io)
            .await?;
        let left = Arc::new(Notify::new());
        let link = Arc::new(Self {
            sender,
            messages,
            most,
            taken: AtomicUsize::new(0),
            stuck: AtomicUsize::new(0),
            answered: AtomicBool::new(false),
            resets: AtomicU32::new(RESETS),
            abandoned: AtomicUsize::new(0),
            retired: AtomicBool::new(false),
            freed: Arc::clone(&freed),
            left: Arc::clone(&left),
        });
        let pings = connection.ping_pong();
        let watched = Arc::downgrade(&link);
        let busy = move || watched.upgrade().is_some_and(|link| link.taken.load(Ordering::Relaxed) > 0);
        tokio::spawn(async move {
            tokio::select! {
                result = drive(connection, &left) => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "a connection to a backend ended");
                    }
                }
                () = is_dead(pings, &heard, busy) => tracing::debug!("a backend does not answer a PING"),
            }
            freed.notify_waiters();
        });
        Ok(link)
    }

    /// Whether it takes further requests: it has not ended, and the backend has not said that it will.
    pub(super) fn is_open(&self) -> bool {
        if self.retired.load(Ordering::Acquire) {
            return false;
        }
        let mut sender = self.sender.clone();
        matches!(sender.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())))
    }

    /// Whether no request uses it.
    pub(super) fn is_unused(&self) -> bool {
        self.taken.load(Ordering::Acquire) == 0
    }

    /// Whether an upload may have used up the window of the connection.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire) > 0
    }

    /// How many requests it may have at one time, as far as the backend has said.
    pub(super) fn room(&self) -> usize {
        self.most.min(self.sender.current_max_send_streams())
    }

    /// A place, if one is free.
    pub(super) fn take(self: &Arc<Self>) -> Option<Slot> {
        let most = self.room();
        let more = |taken: usize| (taken < most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Slot {
            link: Arc::clone(self),
            kept: self.answered.load(Ordering::Acquire),
            held: None,
            watched: None,
        })
    }
}

/// Drives a connection until it ends. h2 does not notice by itself that nobody has it any more.
async fn drive<T>(mut connection: Connection<T, Bytes>, left: &Notify) -> Result<(), h2::Error>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    tokio::select! {
        result = &mut connection => result,
        () = left.notified() => connection.await,
    }
}

/// Ends when a connection with requests does not answer. Backends do not like to be asked while they send.
async fn is_dead(pings: Option<PingPong>, heard: &Heard, busy: impl Fn() -> bool) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        let before = heard.read();
        sleep(PING).await;
        let silent = heard.read() == before;
        if silent && busy() && !matches!(timeout(PING, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
    }
}

impl Slot {
    pub(super) fn hold(&mut self, held: Option<BackendHold>) {
        self.held = held;
    }

    /// Whether the response is malformed, as far as it has come.
    pub(super) fn is_malformed(&self) -> bool {
        self.watched.as_ref().is_some_and(WatchedStream::is_malformed)
    }

    /// Whether a stream may be reset.
    pub(super) fn may_reset(&self) -> bool {
        let less = |tenths: u32| tenths.checked_sub(10);
        self.link.resets.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// The response is whole.
    pub(super) fn answered(&self) {
        let more = |tenths: u32| (tenths < RESETS).then_some(tenths + 1);
        let _ = self.link.resets.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
    }

    /// The client has left. It counts until the result is dropped.
    pub(super) fn abandon(&self) -> AbandonedCount {
        self.link.abandoned.fetch_add(1, Ordering::AcqRel);
        AbandonedCount(Arc::clone(&self.link))
    }

    /// Waits until all requests of the connection are such whose clients have left. There are no new ones.
    pub(super) async fn until_nobody_is_left(&self) {
        self.link.retired.store(true, Ordering::Release);
        while self.link.taken.load(Ordering::Acquire) > self.link.abandoned.load(Ordering::Acquire) {
            sleep(AGAIN).await;
        }
    }

    /// Sends a request.
    /// Errors: when there is no response.
    pub(super) async fn send(
        mut self,
        request: Request<Upload>,
    ) -> Result<Response<AnsweredBody>, SendError> {
        let (parts, body) = request.into_parts();
        let whole = body.is_end_stream();
        // What is not accepted here is never written.
        let refused = |error: h2::Error| SendError { fate: AttemptFate::NotExecuted, error: error.into() };
        let mut sender = self.link.sender.clone();
        let begin = || sender.send_request(Request::from_parts(parts, ()), whole);
        let begun = self.link.messages.begin(begin, |(response, _)| response.stream_id().as_u32());
        let ((response, stream), watched) = begun.map_err(refused)?;
        self.watched = Some(watched);
        let upload = (!whole).then(|| Task::new(body, stream, &self.link));
        let mut flight = Flight { inner: Some((response, upload, self)), failed: None };
        let (result, interim) = flight.response().await;
        if flight.failed.is_some() {
            let error = "the body of the request ended early".into();
            return Err(SendError { fate: AttemptFate::Answered, error });
        }
        let inner = flight.inner.take();
        match result {
            Ok(response) => {
                let Some((_, upload, slot)) = inner else { return Err(over()) };
                slot.link.answered.store(true, Ordering::Release);
                let length = response.headers().get(CONTENT_LENGTH);
                let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
                let malformed = slot.is_malformed();
                let response = response.map(|body| {
                    // A response to HEAD has a length and no body.
                    let length = length.filter(|_| !body.is_end_stream());
                    AnsweredBody::Http2(Incoming2::new(body, upload, slot, length))
                });
                match malformed {
                    false => Ok(response),
                    true => Err(SendError {
                        fate: AttemptFate::Answered,
                        error: "the response is malformed".into(),
                    }),
                }
            }
            Err(Some(error)) => Err(SendError { fate: fate_of_h2(&error, !interim), error: error.into() }),
            Err(None) => Err(over()),
        }
    }
}

fn over() -> SendError {
    SendError { fate: AttemptFate::Answered, error: "the request is over".into() }
}

/// Requests whose client has left.
pub(super) struct AbandonedCount(Arc<Link>);

impl Drop for AbandonedCount {
    fn drop(&mut self) {
        self.0.abandoned.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A request whose response has not begun.
struct Flight {
    inner: Option<(ResponseFuture, Option<Task>, Slot)>,
    /// The client did not send the whole body. The stream is not reset yet.
    failed: Option<SendStream<Bytes>>,
}

impl Flight {
    /// The response, and whether an interim one came before it. There is none if the body failed.
    async fn response(&mut self) -> (Result<Response<h2::RecvStream>, Option<h2::Error>>, bool) {
        let mut interim = false;
        let result = poll_fn(|cx| {
            let Some((response, upload, _)) = &mut self.inner else { return Poll::Ready(Err(None)) };
            // Once more behind the failure of a body: the backend may have answered meanwhile.
            for again in [false, true] {
                while let Poll::Ready(Some(Ok(_))) = response.poll_informational(cx) {
                    interim = true;
                }
                if let Poll::Ready(result) = Pin::new(&mut *response).poll(cx) {
                    return Poll::Ready(result.map_err(Some));
                }
                match upload.as_mut().map(|upload| upload.poll_failed(cx)) {
                    Some(Poll::Ready(Some(stream))) if !again => self.failed = Some(stream),
                    _ => break,
                }
            }
            if self.failed.is_some() { Poll::Ready(Err(None)) } else { Poll::Pending }
        });
        let result = result.await;
        if result.is_ok() {
            self.failed = None;
        }
        (result, interim)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let Some((response, upload, slot)) = self.inner.take() else { return };
        let failed = self.failed.take();
        if slot.may_reset() {
            return;
        }
        let whole = failed.is_none() && upload.as_ref().is_none_or(Task::is_finished);
        match whole {
            true => {
                Abandoned::new(slot).read_to_end(async move { response.await.map(Response::into_body).ok() })
            }
            false => Abandoned::new(slot).keep((response, upload, failed)),
        }
    }
}
