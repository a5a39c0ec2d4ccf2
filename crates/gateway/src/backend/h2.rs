//! One connection of HTTP/2 to a backend.
//!
//! It has as many requests as its window has room for, so that a response that its client does not take uses up nothing that
//! the others need. What became of a request whose connection ended is certain: see [`fate_of_h2`].

use super::body::{Abandoned, Incoming2};
use super::pool::{Answered, SendError};
use crate::http::{BoxError, Upload};
use bytes::Bytes;
use firstflight_http::again::{Fate, fate_of_h2};
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, SendStream};
use hyper::body::Body;
use hyper::header::CONTENT_LENGTH;
use hyper::{Request, Response};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Bytes of requests that wait in memory for each stream, and the longest list of fields of a response.
const BUFFER: usize = 32 * 1024;
/// A connection with requests is asked this often whether it still works, and must say so within as long.
const PING: Duration = Duration::from_secs(20);

/// What the requests of a connection share.
pub(super) struct Link {
    sender: SendRequest<Bytes>,
    /// Streams at one time, of ours.
    most: usize,
    taken: AtomicUsize,
    /// Uploads that wait until the backend takes more. They may hold the whole window of its connection.
    stuck: AtomicUsize,
    /// It has answered a request.
    answered: AtomicBool,
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
}

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
    ///
    /// # Errors
    /// When the backend's side of it cannot be written.
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
        let (sender, mut connection) = Builder::new()
            .initial_window_size(window)
            .initial_connection_window_size(whole)
            .initial_max_send_streams(most)
            .max_header_list_size(BUFFER as u32)
            .max_send_buffer_size(BUFFER)
            .enable_push(false)
            .handshake(io)
            .await?;
        let left = Arc::new(Notify::new());
        let link = Arc::new(Self {
            sender,
            most,
            taken: AtomicUsize::new(0),
            stuck: AtomicUsize::new(0),
            answered: AtomicBool::new(false),
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
                () = is_dead(pings, busy) => tracing::debug!("a backend does not answer a PING"),
            }
            freed.notify_waiters();
        });
        Ok(link)
    }

    /// Whether it takes further requests: it has not ended, and the backend has not said that it will.
    pub(super) fn is_open(&self) -> bool {
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
        Some(Slot { link: Arc::clone(self), kept: self.answered.load(Ordering::Acquire) })
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

/// Ends when a connection with requests does not answer.
async fn is_dead(pings: Option<PingPong>, busy: impl Fn() -> bool) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        sleep(PING).await;
        if busy() && !matches!(timeout(PING, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
    }
}

impl Slot {
    /// Sends a request.
    ///
    /// # Errors
    /// When there is no response.
    pub(super) async fn send(self, request: Request<Upload>) -> Result<Response<Answered>, SendError> {
        let (parts, body) = request.into_parts();
        let whole = body.is_end_stream();
        // What is not accepted here is never written.
        let refused = |error: h2::Error| SendError { fate: Fate::NotExecuted, error: error.into() };
        let mut sender = self.link.sender.clone();
        let (response, stream) =
            sender.send_request(Request::from_parts(parts, ()), whole).map_err(refused)?;
        let upload = (!whole).then(|| Task(tokio::spawn(upload(body, stream, Arc::clone(&self.link)))));
        let mut flight = Flight { inner: Some((response, upload, self)) };
        let (result, interim) = flight.response().await;
        let Some((_, upload, slot)) = flight.inner.take() else { unreachable!("taken once") };
        match result {
            Ok(response) => {
                slot.link.answered.store(true, Ordering::Release);
                let length = response.headers().get(CONTENT_LENGTH);
                let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
                Ok(response.map(|body| {
                    // A response to HEAD has a length and no body.
                    let length = length.filter(|_| !body.is_end_stream());
                    Answered::Http2(Incoming2::new(body, upload, slot, length))
                }))
            }
            Err(error) => Err(SendError { fate: fate_of_h2(&error, !interim), error: error.into() }),
        }
    }
}

/// A request whose response has not begun.
struct Flight {
    inner: Option<(ResponseFuture, Option<Task>, Slot)>,
}

impl Flight {
    /// The response, and whether an interim one came before it.
    async fn response(&mut self) -> (Result<Response<h2::RecvStream>, h2::Error>, bool) {
        let mut interim = false;
        let result = poll_fn(|cx| {
            let Some((response, ..)) = &mut self.inner else { return Poll::Pending };
            while let Poll::Ready(Some(Ok(_))) = response.poll_informational(cx) {
                interim = true;
            }
            Pin::new(response).poll(cx)
        });
        (result.await, interim)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let Some((response, upload, slot)) = self.inner.take() else { return };
        if upload.as_ref().is_none_or(Task::is_finished) {
            Abandoned::new(slot).read_to_end(async move { response.await.map(Response::into_body).ok() });
        }
    }
}

/// A task that ends when it is dropped.
pub(super) struct Task(JoinHandle<()>);

impl Task {
    pub(super) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
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

/// Sends the body of a request.
async fn upload(mut body: Upload, mut stream: SendStream<Bytes>, link: Arc<Link>) {
    if let Err(error) = pipe(&mut body, &mut stream, &link).await {
        tracing::debug!(%error, "the body of a request ended early");
        stream.send_reset(Reason::CANCEL);
    }
}

async fn pipe(body: &mut Upload, stream: &mut SendStream<Bytes>, link: &Link) -> Result<(), BoxError> {
    loop {
        let next = poll_fn(|cx| {
            // The backend may have had enough.
            if let Poll::Ready(result) = stream.poll_reset(cx) {
                return Poll::Ready(Err(
                    result.map_or_else(BoxError::from, |reason| h2::Error::from(reason).into())
                ));
            }
            Pin::new(&mut *body).poll_frame(cx).map(Ok)
        });
        let frame = match next.await? {
            Some(frame) => frame?,
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
) -> Result<(), BoxError> {
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
        let capacity = capacity.await.ok_or("the stream is closed")??;
        let part = data.split_to(capacity.min(data.len()));
        stream.send_data(part, last && data.is_empty())?;
    }
    Ok(())
}
