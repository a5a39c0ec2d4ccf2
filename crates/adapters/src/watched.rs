//! A stream that a library owns and that can still be looked at.

use firstflight::credential::Outcome;
use firstflight::{Stream, Way};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is kept of a connection that is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamFacts {
    pub(crate) outcome: Outcome,
    pub(crate) way: Option<Way>,
    #[cfg(feature = "hyper-util")]
    pub(crate) race: Option<firstflight::Race>,
    #[cfg(feature = "hyper-util")]
    pub(crate) times: Option<firstflight::ConnectTimes>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
    /// It ended before its handshake was complete.
    pub(crate) early: bool,
    pub(crate) early_bytes: u32,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
}

/// What is known of TLS, once its handshake is complete.
#[cfg(feature = "tls")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tls {
    pub(crate) handshake: firstflight_tls::Handshake,
    pub(crate) tickets: u32,
}

#[cfg(feature = "tls")]
impl Tls {
    fn of(stream: &firstflight_tls::TlsStream<Stream>) -> Self {
        Self { handshake: stream.handshake(), tickets: stream.tickets() }
    }
}

impl StreamFacts {
    fn of<S: Connects>(connects: &S) -> Self {
        let stream = connects.connection();
        Self {
            #[cfg(feature = "tls")]
            tls: connects.tls(),
            outcome: stream.map_or(Outcome::Undecided, Stream::outcome),
            way: stream.map(Stream::way),
            #[cfg(feature = "hyper-util")]
            race: stream.and_then(Stream::race),
            #[cfg(feature = "hyper-util")]
            times: stream.and_then(Stream::times),
            early: connects.is_early(),
            early_bytes: connects.early_bytes(),
            peer: stream.and_then(|stream| stream.peer_addr().ok()),
            local: stream.and_then(|stream| stream.local_addr().ok()),
        }
    }
}

/// A stream, or what connects to one.
pub(crate) trait Connects: AsyncRead + AsyncWrite + Unpin {
    /// Whether tasks read that wait for the handshake. Then the library's reads have the waker of all, too: a stream keeps
    /// one waker for its reader.
    const READS_ARE_SHARED: bool = false;

    /// The connection, once there is one.
    fn connection(&self) -> Option<&Stream>;

    #[cfg(feature = "tls")]
    fn tls(&self) -> Option<Tls> {
        None
    }

    /// Whether what was read may be a copy.
    fn is_early(&self) -> bool {
        self.connection().is_some_and(Stream::is_early)
    }

    /// How many bytes of the application came early.
    fn early_bytes(&self) -> u32 {
        self.connection().map_or(0, Stream::early_bytes)
    }
}

/// A stream that a server has accepted.
pub(crate) trait Accepted: Connects {
    fn poll_confirmed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl Connects for Stream {
    fn connection(&self) -> Option<&Stream> {
        Some(self)
    }
}

impl Accepted for Stream {
    fn poll_confirmed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_handshake_confirmed(cx)
    }
}

#[cfg(feature = "tls")]
impl Connects for firstflight_tls::TlsStream<Stream> {
    const READS_ARE_SHARED: bool = true;

    fn connection(&self) -> Option<&Stream> {
        Some(self.io())
    }

    fn tls(&self) -> Option<Tls> {
        Some(Tls::of(self))
    }

    /// TCP's handshake is not enough: who repeats a first flight can complete it.
    fn is_early(&self) -> bool {
        firstflight_tls::TlsStream::is_early(self)
    }

    fn early_bytes(&self) -> u32 {
        u32::try_from(firstflight_tls::TlsStream::early_bytes(self)).unwrap_or(u32::MAX)
    }
}

#[cfg(feature = "tls")]
impl Accepted for firstflight_tls::TlsStream<Stream> {
    fn poll_confirmed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        firstflight_tls::TlsStream::poll_confirmed(self, cx)
    }
}

#[cfg(any(feature = "hyper-util", feature = "hickory"))]
impl Connects for firstflight::LazyStream {
    fn connection(&self) -> Option<&Stream> {
        self.stream()
    }
}

#[cfg(feature = "tls")]
impl Connects for firstflight_tls::LazyTlsStream {
    fn connection(&self) -> Option<&Stream> {
        self.stream().map(firstflight_tls::TlsStream::io)
    }

    fn tls(&self) -> Option<Tls> {
        self.stream().map(Tls::of)
    }
}

#[cfg(all(feature = "hickory", feature = "tls"))]
impl Connects for firstflight::LazyStream<firstflight_tls::TlsStream<Stream>> {
    fn connection(&self) -> Option<&Stream> {
        self.stream().map(firstflight_tls::TlsStream::io)
    }
}

enum State<S> {
    Open(S),
    Over(StreamFacts),
}

/// The tasks that wait for what a stream reports to writers, and with TLS to readers, too. A stream keeps one waker for them,
/// and a task that waits for the handshake need not be the task that writes.
#[derive(Default)]
struct Writers(Mutex<Vec<Waker>>);

impl Wake for Writers {
    fn wake(self: Arc<Self>) {
        let waiting = std::mem::take(&mut *lock(&self.0));
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Writers {
    fn add(&self, waker: &Waker) {
        let mut waiting = lock(&self.0);
        if !waiting.iter().any(|one| one.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }
}

struct Shared<S> {
    state: Mutex<State<S>>,
    writers: Arc<Writers>,
    /// Wakes all of `writers`.
    waker: Waker,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end for the library. The connection ends when it is dropped.
pub(crate) struct LibraryEnd<S: Connects>(Arc<Shared<S>>);

/// The end for the observer. It does not keep the connection open, and afterwards shows how it ended.
pub(crate) struct Watch<S>(Arc<Shared<S>>);

impl<S> Clone for Watch<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Connects> fmt::Debug for Watch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts().fmt(f)
    }
}

impl<S: Connects> fmt::Debug for LibraryEnd<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watch().fmt(f)
    }
}

impl<S: Connects> LibraryEnd<S> {
    pub(crate) fn new(stream: S) -> Self {
        let writers = Arc::new(Writers::default());
        let waker = Arc::clone(&writers).into();
        Self(Arc::new(Shared { state: Mutex::new(State::Open(stream)), writers, waker }))
    }

    pub(crate) fn watch(&self) -> Watch<S> {
        Watch(Arc::clone(&self.0))
    }

    fn poll<T>(&self, poll: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &mut *lock(&self.0.state) {
            State::Open(stream) => poll(Pin::new(stream)),
            // Only a drop gets here, and afterwards nobody polls.
            State::Over(_) => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Polls with the waker of all that wait.
    fn poll_shared<T>(
        &self,
        cx: &Context<'_>,
        poll: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.0.writers.add(cx.waker());
        self.poll(|stream| poll(stream, &mut Context::from_waker(&self.0.waker)))
    }
}

impl<S: Connects> Drop for LibraryEnd<S> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        let State::Open(stream) = &*state else { return };
        let facts = StreamFacts::of(stream);
        let open = std::mem::replace(&mut *state, State::Over(facts));
        drop(state);
        drop(open);
        // Who waits for the handshake waits in vain.
        self.0.waker.wake_by_ref();
    }
}

impl<S: Connects> Watch<S> {
    /// Looks at the connection: at the stream if there is one, at what is kept if it is over or has not begun.
    pub(crate) fn look<T>(
        &self,
        stream: impl FnOnce(&Stream) -> T,
        otherwise: impl FnOnce(&StreamFacts) -> T,
    ) -> T {
        match &*lock(&self.0.state) {
            State::Open(open) => match open.connection() {
                Some(connection) => stream(connection),
                None => otherwise(&StreamFacts::of(open)),
            },
            State::Over(facts) => otherwise(facts),
        }
    }

    pub(crate) fn facts(&self) -> StreamFacts {
        match &*lock(&self.0.state) {
            State::Open(open) => StreamFacts::of(open),
            State::Over(facts) => *facts,
        }
    }

    /// Whether what was read may be a copy.
    pub(crate) fn is_early(&self) -> bool {
        match &*lock(&self.0.state) {
            State::Open(open) => open.is_early(),
            State::Over(facts) => facts.early,
        }
    }

    /// How many bytes of the application came early.
    pub(crate) fn early_bytes(&self) -> u32 {
        match &*lock(&self.0.state) {
            State::Open(open) => open.early_bytes(),
            State::Over(facts) => facts.early_bytes,
        }
    }
}

impl<S: Accepted> Watch<S> {
    /// Waits until nothing that was read can be a copy. Any number of tasks may wait, beside one that reads and one that
    /// writes.
    pub(crate) fn poll_confirmed(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.0.writers.add(cx.waker());
        let mut cx = Context::from_waker(&self.0.waker);
        match &mut *lock(&self.0.state) {
            State::Open(stream) => stream.poll_confirmed(&mut cx),
            State::Over(facts) => {
                Poll::Ready(if facts.early { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) })
            }
        }
    }
}

impl<S: Connects> AsyncRead for LibraryEnd<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match S::READS_ARE_SHARED {
            true => self.poll_shared(cx, |stream, cx| stream.poll_read(cx, buf)),
            false => self.poll(|stream| stream.poll_read(cx, buf)),
        }
    }
}

impl<S: Connects> AsyncWrite for LibraryEnd<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_shared(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_shared(cx, |stream, cx| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &*lock(&self.0.state) {
            State::Open(stream) => stream.is_write_vectored(),
            State::Over(_) => false,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_shared(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_shared(cx, |stream, cx| stream.poll_shutdown(cx))
    }
}
