//! Streams that connect with their first write.

mod http2;
pub(crate) mod method;
mod preface;
mod wakers;

use crate::first_flight::FirstFlight;
use crate::stream::Stream;
use firstflight_credential::Outcome;
use preface::Preface;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use wakers::Wakers;
use zeroize::Zeroizing;

/// The longest first flight that is taken, bytes. It is more than any SYN carries.
const MOST: usize = 64 * 1024;
/// How long an HTTP/2 preface waits for the request behind it.
const PREFACE_WAITS: Duration = Duration::from_millis(2);

/// Whether the first write of a [`LazyStream`] may be executed twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReplaySafety {
    /// It may if it is an HTTP request, all of it there, with a safe method: GET, HEAD, OPTIONS or TRACE (RFC 9110
    /// §9.2.1), in HTTP/1.1 or HTTP/2. So a POST of the same client waits for the handshake.
    #[default]
    ByMethod,
    /// It may.
    Safe,
    /// It must not.
    Unsafe,
}

impl ReplaySafety {
    /// The first flight that `data` is.
    #[must_use]
    pub fn flight(self, data: &[u8]) -> FirstFlight<'_> {
        let safe = match self {
            Self::Safe => true,
            Self::Unsafe => false,
            Self::ByMethod => method::is_safe_request(data) || http2::is_safe_request(data),
        };
        if safe { FirstFlight::safely_replayable(data) } else { FirstFlight::at_most_once(data) }
    }
}

/// Whether `data` asks for an upgrade, so that its connection goes by TCP.
pub(crate) fn is_upgrade(data: &[u8]) -> bool {
    method::is_upgrade(data)
}

type Connecting<S> = Pin<Box<dyn Future<Output = io::Result<S>> + Send>>;
type Connect<S> = Box<dyn FnOnce(Vec<u8>) -> Connecting<S> + Send>;

/// A connect that goes on also if nobody polls the stream. Dropping it gives it up.
struct Task<S>(JoinHandle<io::Result<S>>);

impl<S> Task<S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<S>> {
        let ended = ready!(Pin::new(&mut self.0).poll(cx));
        // It fails only when the runtime shuts down.
        Poll::Ready(ended.unwrap_or_else(|error| Err(io::Error::other(error))))
    }
}

impl<S> Drop for Task<S> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

enum State<S> {
    /// Nothing was written.
    Idle(Option<Connect<S>>),
    /// The preface of HTTP/2 waits for a request.
    Preface(Preface<S>),
    Connecting(Task<S>),
    Open(Box<S>),
    /// It was shut down before its first write, so it never connects.
    Closed,
    /// The error, until it is returned.
    Failed(Option<io::Error>),
}

impl<S> From<io::Result<S>> for State<S> {
    fn from(connected: io::Result<S>) -> Self {
        match connected {
            Ok(stream) => Self::Open(Box::new(stream)),
            Err(error) => Self::Failed(Some(error)),
        }
    }
}

/// A stream that connects with its first write, so that this write is the first flight. Libraries such as hyper need it,
/// because they do not know about first flights. A read before the first write waits for that write. If the server
/// speaks first, use [`Client::connect`](crate::Client::connect).
///
/// A shutdown before the first write ends the stream, and nothing connects: reads return the end, and writes fail with
/// [`io::ErrorKind::BrokenPipe`]. Pools shut connections down that they never used.
///
/// In HTTP/2 the first write is the preface, which is no request. It waits two milliseconds at most for the request
/// behind it.
///
/// It connects to a [`Stream`], or to any other stream that a first flight opens, such as one of TLS over it.
pub struct LazyStream<S = Stream> {
    state: State<S>,
    /// The tasks that wait for a connection: one may read and another one write.
    waiting: Arc<Wakers>,
}

impl<S: fmt::Debug> fmt::Debug for LazyStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stream = match &self.state {
            State::Open(stream) => Some(stream),
            _ => None,
        };
        f.debug_tuple("LazyStream").field(&stream).finish()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> LazyStream<S> {
    /// Like [`LazyStream::new`], for a stream of any kind.
    pub fn connecting<F, C>(connect: F) -> Self
    where
        F: FnOnce(Vec<u8>) -> C + Send + 'static,
        C: Future<Output = io::Result<S>> + Send + 'static,
    {
        let state = State::Idle(Some(Box::new(|first| Box::pin(connect(first)))));
        Self { state, waiting: Arc::default() }
    }

    /// A stream that is connected already.
    #[must_use]
    pub fn connected(stream: S) -> Self {
        Self { state: State::Open(Box::new(stream)), waiting: Arc::default() }
    }

    /// The connection, once there is one.
    #[must_use]
    pub fn stream(&self) -> Option<&S> {
        match &self.state {
            State::Open(stream) => Some(stream),
            _ => None,
        }
    }

    /// Like [`LazyStream::stream`], to change it.
    #[must_use]
    pub fn stream_mut(&mut self) -> Option<&mut S> {
        match &mut self.state {
            State::Open(stream) => Some(stream),
            _ => None,
        }
    }

    /// Goes on to connect, if that is under way.
    fn poll_connect(&mut self) -> Poll<()> {
        // The connect wakes all tasks that wait for it, not only the one that polls it now.
        let waker = Waker::from(Arc::clone(&self.waiting));
        let mut cx = Context::from_waker(&waker);
        let connected = match &mut self.state {
            State::Preface(preface) => ready!(preface.poll_connected(&mut cx)),
            State::Connecting(connecting) => ready!(connecting.poll(&mut cx)),
            _ => return Poll::Ready(()),
        };
        self.state = connected.into();
        self.waiting.wake_all();
        Poll::Ready(())
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut S>> {
        if !matches!(self.state, State::Open(_) | State::Closed | State::Failed(_)) {
            // Before the poll: what it finds out wakes everybody.
            self.waiting.add(cx.waker());
        }
        ready!(self.poll_connect());
        Poll::Ready(match &mut self.state {
            State::Open(stream) => Ok(stream),
            State::Closed => Err(io::ErrorKind::BrokenPipe.into()),
            State::Failed(error) => Err(error.take().unwrap_or_else(|| io::ErrorKind::NotConnected.into())),
            State::Idle(_) | State::Preface(_) | State::Connecting(_) => return Poll::Pending,
        })
    }

    /// Takes a write before the connect. `None` if there is a connect under way, or a connection.
    fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let part = bytes.get(..MOST).unwrap_or(bytes);
        match &mut self.state {
            State::Idle(_) if part.is_empty() => Some(0),
            State::Idle(connect) => {
                let connect = connect.take()?;
                self.state = match http2::awaits_request(part) {
                    true => State::Preface(Preface::new(connect, Zeroizing::new(part.to_vec()))),
                    false => {
                        let mut connecting = connect(part.to_vec());
                        // The SYN leaves now. The next call returns an error, if there is one.
                        match connecting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                            Poll::Ready(connected) => connected.into(),
                            Poll::Pending => State::Connecting(Task(tokio::spawn(connecting))),
                        }
                    }
                };
                self.waiting.wake_all();
                Some(part.len())
            }
            State::Preface(preface) => preface.take(part),
            _ => None,
        }
    }
}

impl LazyStream {
    /// A stream that calls `connect` with its first write.
    pub fn new<F, C>(connect: F) -> Self
    where
        F: FnOnce(Vec<u8>) -> C + Send + 'static,
        C: Future<Output = io::Result<Stream>> + Send + 'static,
    {
        Self::connecting(connect)
    }

    /// The outcome of the first flight; `Undecided` before there is a connection.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.stream().map_or(Outcome::Undecided, Stream::outcome)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncRead for LazyStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.state, State::Closed) {
            return Poll::Ready(Ok(()));
        }
        let stream = ready!(this.poll_open(cx))?;
        Pin::new(stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncWrite for LazyStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(taken) = this.take(bytes) {
            return Poll::Ready(Ok(taken));
        }
        let stream = ready!(this.poll_open(cx))?;
        Pin::new(stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if matches!(this.state, State::Idle(..) | State::Preface(..)) {
            // A request's head and body may be apart.
            let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter()).copied().take(MOST).collect();
            if let Some(taken) = this.take(&all) {
                return Poll::Ready(Ok(taken));
            }
        }
        let stream = ready!(this.poll_open(cx))?;
        Pin::new(stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.state {
            // There is nothing to flush, and a flush must not wait for a write.
            State::Idle(..) | State::Preface(..) | State::Closed => Poll::Ready(Ok(())),
            _ => {
                let stream = ready!(self.get_mut().poll_open(cx))?;
                Pin::new(stream).poll_flush(cx)
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.state, State::Idle(..)) {
            this.state = State::Closed;
            this.waiting.wake_all();
        }
        if matches!(this.state, State::Closed) {
            return Poll::Ready(Ok(()));
        }
        let stream = ready!(this.poll_open(cx))?;
        Pin::new(stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
