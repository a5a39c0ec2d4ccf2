//! A server's connection of HTTP/2 (RFC 9113), on the crate `h2`.
//!
//! hyper has one, too. This one can do what stands between two peers needs:
//!
//! - A response whose client opens no window is given up ([`Settings::patience`]). Its body is dropped, and with it what it
//!   holds, as a connection to a backend.
//! - Nothing of a body is taken before the client's window has room for it.
//! - `Expect: 100-continue` is answered, when the body is first asked for.
//! - A request that is answered before its body has come is not reset at once: some clients that still send take the reset for the
//!   end, and lose the answer. What comes of the body is dropped for a while ([`UNREAD`]), and only then the stream is reset, with
//!   NO_ERROR (RFC 9113 §8.1).
//! - A client that resets more streams than it lets end loses its connection ([`RESETS`]).
//! - A malformed message that h2 would make a well-formed one is an error of its stream ([`Strict`]).

mod hpack;
mod send;
mod strict;

pub use strict::{Messages, Strict, WatchedStream};

use crate::body::{BodyError, RequestBody};
use bytes::Bytes;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, EXPECT};
use hyper::http::{Request, Response};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::timeout;

/// A client may reset so many streams more than it lets end. A browser that leaves a page resets fewer.
pub const RESETS: u32 = 128;

/// Bytes of one response that wait in memory for a client that reads slowly. Its window may be larger.
const SEND_BUFFER: usize = 64 * 1024;

/// Bytes of a body that are still taken behind its answer, although nobody reads them.
pub const UNREAD: usize = 1 << 20;
/// How long they may take to come.
const UNREAD_WITHIN: Duration = Duration::from_secs(5);

/// Settings of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Requests at one time.
    pub streams: u32,
    /// Size of a request's head, bytes, as RFC 9113 §6.5.2 counts it (431).
    pub head: u32,
    /// What a client may send of one body before it is taken, bytes.
    pub stream_window: u32,
    /// The same for all bodies together.
    pub connection_window: u32,
    /// How long a response waits for its client to open a window.
    pub patience: Duration,
}

/// The body of a request.
#[derive(Debug)]
pub struct Upload {
    /// `None` when it is dropped.
    stream: Option<RecvStream>,
    unread: Arc<Unread>,
    /// What the head says of its length.
    left: Option<u64>,
    /// The last piece, while the stream has not ended. With it a server would take the request for whole, which may still turn
    /// out to be malformed.
    held: Option<Bytes>,
    expects: Option<Arc<Expects>>,
    watched: Arc<WatchedStream>,
}

/// Where a body goes that its reader has dropped before its end.
#[derive(Debug, Default)]
struct Unread(Mutex<Rest>);

#[derive(Debug, Default)]
enum Rest {
    /// The reader has it.
    #[default]
    Elsewhere,
    Here(RecvStream),
    /// Nobody waits for it any more.
    Over,
}

impl Unread {
    fn replace(&self, rest: Rest) -> Rest {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), rest)
    }

    fn put(&self, stream: RecvStream) {
        let former = self.replace(Rest::Here(stream));
        if matches!(former, Rest::Over) {
            drop(self.replace(Rest::Over));
        }
    }

    /// Takes what still comes behind an answer that was sent.
    async fn discard(&self) {
        let Rest::Here(mut stream) = self.replace(Rest::Over) else { return };
        let mut left = UNREAD;
        let rest = async {
            while let Some(Ok(data)) = poll_fn(|cx| stream.poll_data(cx)).await {
                let Some(rest) = left.checked_sub(data.len()) else { return };
                left = rest;
                // It fails only when the stream is over.
                let _ = stream.flow_control().release_capacity(data.len());
            }
        };
        // Either way h2 resets what has not ended, with NO_ERROR.
        let _ = timeout(UNREAD_WITHIN, rest).await;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take().filter(|stream| !stream.is_end_stream()) {
            self.unread.put(stream);
        }
    }
}

/// A client that waits for "100 Continue".
#[derive(Debug, Default)]
struct Expects {
    wanted: Notify,
}

impl Upload {
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(expects) = self.expects.take() {
            expects.wanted.notify_one();
        }
        loop {
            // It is there until the drop.
            let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
            match ready!(stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    // It fails only when the stream is over.
                    let _ = stream.flow_control().release_capacity(data.len());
                    let is_last = self.left == Some(data.len() as u64) && !stream.is_end_stream();
                    match (&self.held, is_last) {
                        (Some(_), _) => {}
                        (None, true) => self.held = Some(data),
                        (None, false) => return self.take(data),
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None if self.watched.is_malformed() => {
                    return Poll::Ready(Some(Err(Reason::PROTOCOL_ERROR.into())));
                }
                None => match self.held.take() {
                    Some(data) => return self.take(data),
                    None => {
                        let trailers = ready!(stream.poll_trailers(cx));
                        return Poll::Ready(
                            trailers.map(|trailers| trailers.map(Frame::trailers)).transpose(),
                        );
                    }
                },
            }
        }
    }

    fn take(&mut self, data: Bytes) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.stream.as_ref().is_none_or(RecvStream::is_end_stream)
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.left {
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}

/// How the streams of a connection ended.
#[derive(Debug, Default)]
struct StreamEnds {
    answered: AtomicU32,
    reset: AtomicU32,
    calm: AtomicBool,
}

impl StreamEnds {
    /// The client has reset a stream, or has left.
    fn reset(&self) {
        let resets = self.reset.fetch_add(1, Ordering::Relaxed) + 1;
        if resets > RESETS.saturating_add(self.answered.load(Ordering::Relaxed)) {
            self.calm.store(true, Ordering::Relaxed);
        }
    }
}

enum State<IO> {
    Begins(Handshake<Strict<IO>, Bytes>),
    Open(Connection<Strict<IO>, Bytes>),
}

/// A connection of HTTP/2. Poll it to its end.
#[must_use = "futures do nothing unless polled"]
pub struct Server<IO, F> {
    state: State<IO>,
    messages: Messages,
    service: F,
    patience: Duration,
    ends: Arc<StreamEnds>,
    is_ending: bool,
}

/// Serves a connection. `service` is called in this task when a request has come; what it returns runs in a task of its own,
/// and is dropped when the client resets the stream.
pub fn serve<IO, F, R, B>(io: IO, settings: &Settings, service: F) -> Server<IO, F>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    F: FnMut(Request<RequestBody>) -> R,
    R: Future<Output = Result<Response<B>, BodyError>> + Send + 'static,
    B: Body<Data = Bytes, Error = BodyError> + Send + 'static,
{
    let (io, messages) = Strict::of_server(io, settings.head);
    let handshake = Builder::new()
        .max_concurrent_streams(settings.streams)
        .max_header_list_size(settings.head)
        .max_send_buffer_size(SEND_BUFFER)
        .initial_window_size(settings.stream_window)
        .initial_connection_window_size(settings.connection_window)
        .handshake(io);
    let (ends, patience) = (Arc::default(), settings.patience);
    Server { state: State::Begins(handshake), messages, service, patience, ends, is_ending: false }
}

impl<IO: AsyncRead + AsyncWrite + Unpin, F> Server<IO, F> {
    /// Takes no more requests, and ends after those under way: GOAWAY twice (RFC 9113 §6.8).
    pub fn graceful_shutdown(&mut self) {
        self.is_ending = true;
        if let State::Open(connection) = &mut self.state {
            connection.graceful_shutdown();
        }
    }
}

impl<IO, F, R, B> Future for Server<IO, F>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    F: FnMut(Request<RequestBody>) -> R + Unpin,
    R: Future<Output = Result<Response<B>, BodyError>> + Send + 'static,
    B: Body<Data = Bytes, Error = BodyError> + Send + 'static,
{
    type Output = Result<(), h2::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Begins(handshake) => {
                    let mut connection = ready!(Pin::new(handshake).poll(cx))?;
                    if this.is_ending {
                        connection.graceful_shutdown();
                    }
                    this.state = State::Open(connection);
                }
                State::Open(connection) => {
                    if this.ends.calm.swap(false, Ordering::Relaxed) {
                        connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    }
                    match ready!(connection.poll_accept(cx)) {
                        None => return Poll::Ready(Ok(())),
                        Some(Err(error)) => return Poll::Ready(Err(error)),
                        Some(Ok((request, respond))) => this.begin(request, respond),
                    }
                }
            }
        }
    }
}

impl<IO, F, R, B> Server<IO, F>
where
    F: FnMut(Request<RequestBody>) -> R,
    R: Future<Output = Result<Response<B>, BodyError>> + Send + 'static,
    B: Body<Data = Bytes, Error = BodyError> + Send + 'static,
{
    fn begin(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let watched = Arc::new(self.messages.of_request(respond.stream_id().as_u32()));
        if watched.is_malformed() {
            respond.send_reset(Reason::PROTOCOL_ERROR);
            return self.ends.reset();
        }
        let is_head = request.method() == hyper::Method::HEAD;
        let (parts, stream) = request.into_parts();
        let expects = parts.headers.get(EXPECT).filter(|_| !stream.is_end_stream());
        let expects = expects.filter(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let expects: Option<Arc<Expects>> = expects.map(|_| Arc::default());
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let unread = Arc::<Unread>::default();
        let upload = Upload {
            stream: Some(stream),
            unread: Arc::clone(&unread),
            left: length,
            held: None,
            expects: expects.clone(),
            watched: Arc::clone(&watched),
        };
        let answer = (self.service)(Request::from_parts(parts, RequestBody::Http2(upload)));
        let stream = send::Stream { respond, watched, expects, is_head, patience: self.patience };
        let ends = Arc::clone(&self.ends);
        tokio::spawn(async move {
            match stream.run(answer).await {
                send::StreamEnd::Answered => {
                    ends.answered.fetch_add(1, Ordering::Relaxed);
                    unread.discard().await;
                }
                send::StreamEnd::Reset => ends.reset(),
                send::StreamEnd::Failed => {}
            }
        });
    }
}

#[cfg(test)]
#[path = "http2/tests.rs"]
mod tests;
