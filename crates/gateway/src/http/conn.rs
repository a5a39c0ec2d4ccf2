//! A connection that hyper reads and writes, and that can still be asked whether its client is confirmed.

use super::framing::Framing;
use crate::client::Client;
use firstflight::Lingering;
use firstflight_tls::TlsStream;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::Sleep;

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
}

/// Passes a call on to the stream inside.
macro_rules! forward {
    ($io:expr, $cx:ident, $call:ident($($argument:expr),*)) => {
        match $io.get_mut() {
            Io::Plain(client) => Pin::new(client).$call($cx, $($argument),*),
            Io::Tls(stream) => Pin::new(&mut **stream).$call($cx, $($argument),*),
        }
    };
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        forward!(self, cx, poll_read(buf))
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        forward!(self, cx, poll_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self, cx, poll_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(client) => client.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, cx, poll_flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, cx, poll_shutdown())
    }
}

struct Inner {
    io: Lingering<Io>,
    /// Bytes that hyper has read.
    read: u64,
    /// Bytes that a proxy in front marked as early.
    marked: u64,
    /// Whether the client is confirmed; false if it will never be.
    confirmed: watch::Sender<Option<bool>>,
    framing: Framing,
    /// A client that takes nothing for this long is given up.
    patience: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

/// The end for hyper.
pub(super) struct ForHyper(Arc<Mutex<Inner>>);

/// The end for requests.
#[derive(Clone)]
pub(super) struct Watch {
    inner: Arc<Mutex<Inner>>,
    confirmed: watch::Receiver<Option<bool>>,
}

/// Both ends of a connection. `marked` bytes at its beginning may be a copy, as a proxy in front says.
pub(super) fn share(io: Io, marked: u32, patience: Duration) -> (ForHyper, Watch) {
    let (confirmed, told) = watch::channel((!io.is_early()).then_some(true));
    // TLS proves more than the proxy can know.
    let marked = if matches!(io, Io::Tls(_)) { 0 } else { u64::from(marked) };
    let (io, framing) = (Lingering::new(io), Framing::default());
    let inner = Inner { io, read: 0, marked, confirmed, framing, patience, stalled: None };
    let inner = Arc::new(Mutex::new(inner));
    (ForHyper(Arc::clone(&inner)), Watch { inner, confirmed: told })
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

    /// Whether the request of HTTP/1.1 that was just read has two lengths. Asked once for each request, in their order.
    pub(super) fn is_ambiguous(&self) -> bool {
        lock(&self.inner).framing.is_ambiguous()
    }

    /// Ends the connection with a RST: what it carried is cut, and a FIN would say that it is whole.
    pub(super) fn abort(&self) {
        let mut inner = lock(&self.inner);
        inner.io.stop();
        match inner.io.get_ref() {
            Io::Plain(client) => client.abort(),
            Io::Tls(stream) => stream.io().abort(),
        }
    }

    /// What follows on this connection is another protocol.
    pub(super) fn switches(&self) {
        let mut inner = lock(&self.inner);
        inner.framing.stop();
        inner.io.stop();
    }

    /// Closes the connection that hyper has left. hyper drops it without a shutdown after a request for an upgrade that was
    /// refused, for example.
    pub(super) async fn close(&self) {
        let closed = poll_fn(|cx| {
            let mut inner = lock(&self.inner);
            match inner.io.is_open() || inner.io.is_lingering() {
                true => inner.poll_shutdown(cx),
                // hyper did it, the client has gone, or it is a tunnel now.
                false => Poll::Ready(Ok(())),
            }
        });
        if let Err(error) = closed.await {
            tracing::debug!(%error, "a connection was not closed in order");
        }
    }

    /// Bytes that came early: of the first flight, with TLS its early data.
    pub(super) fn early_bytes(&self) -> u64 {
        match lock(&self.inner).io.get_ref() {
            Io::Plain(client) => u64::from(client.about().early_bytes),
            Io::Tls(stream) => stream.early_bytes(),
        }
    }

    /// Waits until the client is confirmed. `by_task` says that the caller runs in the task that drives the connection, as
    /// requests of HTTP/1.1 do: hyper does not read then, so the caller has to. Requests of HTTP/2 have tasks of their own,
    /// and must leave the connection to its task.
    ///
    /// # Errors
    /// When the connection ends first.
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
        self.marked > 0 && self.read <= self.marked
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

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_shutdown(cx);
        if self.io.is_lingering() {
            // It has bounds of its own. The client has taken everything that the system would take.
            return result;
        }
        self.watch_stall(cx, result)
    }

    /// Gives up a client that takes nothing.
    fn watch_stall<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for ForHyper {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = lock(&self.0);
        if inner.confirmed.borrow().is_none() {
            // It wakes the requests that wait. A failure shows below, after what can still be read.
            let _ = inner.poll_confirmed(cx);
        }
        let before = buf.filled().len();
        match inner.marked.saturating_sub(inner.read) {
            0 => std::task::ready!(Pin::new(&mut inner.io).poll_read(cx, buf))?,
            // What is marked is read alone, so that it is clear which requests are in it.
            left => {
                let most = buf.remaining().min(usize::try_from(left).unwrap_or(usize::MAX));
                let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
                std::task::ready!(Pin::new(&mut inner.io).poll_read(cx, &mut part))?;
                let count = part.filled().len();
                buf.advance(count);
            }
        }
        let read = buf.filled().get(before..).unwrap_or_default();
        inner.framing.read(read);
        inner.read += read.len() as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ForHyper {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = lock(&self.0);
        let result = Pin::new(&mut inner.io).poll_write(cx, bytes);
        inner.watch_stall(cx, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut inner = lock(&self.0);
        let result = Pin::new(&mut inner.io).poll_write_vectored(cx, bufs);
        inner.watch_stall(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        lock(&self.0).io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = lock(&self.0);
        let result = Pin::new(&mut inner.io).poll_flush(cx);
        inner.watch_stall(cx, result)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.0).poll_shutdown(cx)
    }
}
