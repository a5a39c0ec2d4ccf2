//! A connection that a server of HTTP reads and writes, and that can still be asked whether its client is confirmed.

use crate::client::Client;
use crate::config::Listener;
use firstflight_http::conn::{Left, ServerIo, Times};
use firstflight_http::framing::Limits;
use firstflight_tls::TlsStream;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

/// The connection, with TLS or without.
pub(super) enum Io {
    Plain(Box<Client>),
    Tls(Box<TlsStream<Client>>),
}

impl Io {
    fn is_early(&self) -> bool {
        match self {
            Self::Plain(client) => client.is_early(),
            Self::Tls(stream) => stream.is_early(),
        }
    }

    fn poll_confirmed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(client) => client.poll_confirmed(cx),
            Self::Tls(stream) => stream.poll_confirmed(cx),
        }
    }

    fn client(&self) -> &Client {
        match self {
            Self::Plain(client) => client,
            Self::Tls(stream) => stream.io(),
        }
    }
}

firstflight::forward_io!([] Io, Self::Plain(client) => *client, Self::Tls(stream) => *stream);

struct Inner {
    io: ServerIo<Io>,
    /// Bytes at the beginning that a proxy in front marked as early.
    marked: u64,
    /// The server of HTTP has got all of them, and was stopped once to look at them.
    has_paused: bool,
    /// Whether the client is confirmed; false if it will never be.
    confirmed: watch::Sender<Option<bool>>,
}

/// The end for the server of HTTP.
pub(super) struct ForServer(Arc<Mutex<Inner>>);

/// The end for requests.
#[derive(Clone)]
pub(super) struct Watch {
    inner: Arc<Mutex<Inner>>,
    confirmed: watch::Receiver<Option<bool>>,
}

/// A connection before its protocol is known. `marked` bytes at its beginning may be a copy, as a proxy in front says.
pub(super) struct Fresh {
    io: ServerIo<Io>,
    marked: u64,
}

impl Fresh {
    pub(super) fn new(io: Io, marked: u32, config: &Listener) -> Self {
        // TLS proves more than the proxy can know.
        let marked = if matches!(io, Io::Tls(_)) { 0 } else { u64::from(marked) };
        let limits =
            Limits { bytes: *config.max_header_bytes.get_ref() as usize, fields: config.max_headers };
        // The idle time is that of all requests, which the connection's driver watches.
        let times = Times { head: config.header_timeout.0, idle: None, stall: Some(config.body_timeout.0) };
        Self { io: ServerIo::new(io, limits, times).apart(marked), marked }
    }

    /// Whether the client speaks HTTP/2 with prior knowledge. `None` if the connection is over.
    pub(super) async fn speaks_http2(&mut self) -> Option<bool> {
        self.io.speaks_http2().await
    }

    /// Method and target of a request whose first line came in the first flight, without the rest of its head.
    pub(super) fn begun(&self) -> Option<(&str, &str)> {
        if self.io.get_ref().is_early() { self.io.begun() } else { None }
    }

    /// TLS has agreed on HTTP/2.
    pub(super) fn switch(&mut self) {
        self.io.pass_all();
    }

    /// Both ends of the connection.
    pub(super) fn share(self) -> (ForServer, Watch) {
        let Self { io, marked } = self;
        let (confirmed, told) = watch::channel((!io.get_ref().is_early()).then_some(true));
        let inner = Arc::new(Mutex::new(Inner { io, marked, has_paused: false, confirmed }));
        (ForServer(Arc::clone(&inner)), Watch { inner, confirmed: told })
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Whether a request that was just read may be a copy of another connection's first flight.
    pub(super) fn is_early(&self) -> bool {
        let inner = lock(&self.inner);
        inner.is_marked() || (*self.confirmed.borrow() != Some(true) && inner.io.get_ref().is_early())
    }

    /// Whether it can be known later that it is none. A proxy that marked bytes does not tell.
    pub(super) fn can_be_confirmed(&self) -> bool {
        !lock(&self.inner).is_marked()
    }

    /// What follows on this connection is another protocol.
    pub(super) fn switches(&self) {
        lock(&self.inner).io.switch();
    }

    /// Whether no part of a further request of HTTP/1.1 has come.
    pub(super) fn is_between(&self) -> bool {
        lock(&self.inner).io.is_between()
    }

    /// Ends the connection with a RST: what was sent must not look whole.
    pub(super) fn abort(&self) {
        let mut inner = lock(&self.inner);
        inner.io.switch();
        inner.io.get_ref().client().abort();
    }

    /// Closes the connection that its server has left.
    pub(super) async fn close(&self) {
        if let Err(error) = poll_fn(|cx| lock(&self.inner).io.poll_close(cx)).await {
            tracing::debug!(%error, "a connection was not closed in order");
        }
    }

    /// Waits until the client has left. Only for the task that drives a connection of HTTP/1.1.
    pub(super) async fn left(&self) -> Left {
        poll_fn(|cx| lock(&self.inner).io.poll_left(cx)).await
    }

    /// Waits until the connection has failed: the client cannot get an answer. Only for the task that drives a connection of
    /// HTTP/1.1.
    pub(super) async fn failed(&self) {
        poll_fn(|cx| match lock(&self.inner).io.poll_left(cx) {
            Poll::Ready(Left::Failed) => Poll::Ready(()),
            // A client may close its sending direction and read on.
            Poll::Ready(Left::Closed) | Poll::Pending => Poll::Pending,
        })
        .await;
    }

    /// Bytes that came early: of the first flight, with TLS its early data.
    pub(super) fn early_bytes(&self) -> u64 {
        match lock(&self.inner).io.get_ref() {
            Io::Plain(client) => u64::from(client.about().early_bytes),
            Io::Tls(stream) => stream.early_bytes(),
        }
    }

    /// What became of the sealed first flight that the connection began with, and why. `None` if it began in clear.
    pub(super) fn seal(&self) -> Option<(&'static str, &'static str)> {
        match lock(&self.inner).io.get_ref() {
            Io::Plain(_) => None,
            Io::Tls(stream) => stream.served_seal().map(|seal| (seal.outcome.name(), seal.reason)),
        }
    }

    /// Waits until the client is confirmed. `by_task` says that the caller runs in the task that drives the connection, as
    /// requests of HTTP/1.1 do: hyper does not read then, so the caller has to. Requests of HTTP/2 have tasks of their own,
    /// and must leave the connection to its task.
    /// Errors: when the connection ends first.
    pub(super) async fn confirmed(&mut self, by_task: bool) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::ConnectionAborted);
        if by_task {
            return poll_fn(|cx| lock(&self.inner).poll_confirmed(cx)).await;
        }
        match self.confirmed.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(true)) => Ok(()),
            _ => Err(gone()),
        }
    }
}

impl Inner {
    fn is_marked(&self) -> bool {
        self.marked > 0 && self.io.consumed() <= self.marked
    }

    fn poll_confirmed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self.confirmed.borrow() {
            Some(true) => return Poll::Ready(Ok(())),
            Some(false) => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            None => {}
        }
        let result = std::task::ready!(self.io.get_mut().poll_confirmed(cx));
        self.confirmed.send_replace(Some(result.is_ok()));
        Poll::Ready(result)
    }
}

impl AsyncRead for ForServer {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = lock(&self.0);
        if inner.confirmed.borrow().is_none() {
            // It wakes the requests that wait. A failure shows below, after what can still be read.
            let _ = inner.poll_confirmed(cx);
        }
        // A server of HTTP/2 reads all that there is before it hands a request out. By then nobody would know any more that the
        // request was in the marked bytes.
        if inner.is_marked() && inner.io.consumed() == inner.marked && !inner.has_paused {
            inner.has_paused = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut inner.io).poll_read(cx, buf)
    }
}

firstflight::forward_write!([] ForServer, Self(inner) => lock(inner).io);
