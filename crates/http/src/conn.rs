//! A server's connection of HTTP/1.1, or of another protocol, as hyper gets it.

use crate::framing::{Framing, Limits, PassedBytes};
use crate::patience::poll_over;
use firstflight::Lingering;
use hyper::StatusCode;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Bytes that are read at a time.
const PIECE: usize = 8 * 1024;
/// Bytes that are read ahead at most to see whether a client has left.
const AHEAD: usize = 16 * 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
}

/// Times of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// How long a client may take for a head, and for the first byte of a connection. Then a head that has begun gets 408.
    pub head: Duration,
    /// How long a connection waits for its next request. `None`: something else ends it.
    pub idle: Option<Duration>,
    /// A client that takes nothing of what is written for this long is given up.
    pub stall: Option<Duration>,
}

/// How a client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// It has closed its sending direction. Perhaps it still reads.
    Closed,
    /// The connection has failed.
    Failed,
}

/// A connection under hyper: its requests are read by [`Framing`], it closes in stages ([`Lingering`]), and clients that
/// send no head or take no response are given up.
///
/// Switch hyper's own limit of time for heads off: `header_read_timeout(None)`.
#[derive(Debug)]
pub struct ServerIo<S> {
    io: Lingering<S>,
    framing: Framing,
    times: Times,
    /// Ends a head, or the wait for it.
    head: Option<Pin<Box<Sleep>>>,
    /// It began with the first byte of a head.
    has_begun: bool,
    /// A request was passed on.
    has_served: bool,
    stalled: Option<Pin<Box<Sleep>>>,
    /// Bytes at the beginning of the connection that may be read only by themselves.
    apart: u64,
    /// Closes at once between requests.
    is_quick: bool,
    left: Option<Left>,
}

impl<S> ServerIo<S> {
    /// A connection that begins.
    pub fn new(stream: S, limits: Limits, times: Times) -> Self {
        let (io, framing) = (Lingering::new(stream), Framing::new(limits));
        let (head, stalled) = (None, None);
        Self {
            io,
            framing,
            times,
            head,
            has_begun: false,
            has_served: false,
            stalled,
            apart: 0,
            is_quick: false,
            left: None,
        }
    }

    /// A connection of a server that answers one short question on each, as exporters of metrics do: a head of 16 KiB at
    /// most, `patience` for it and for a client that takes nothing, and [`ServerIo::quick`].
    pub fn for_question(stream: S, patience: Duration) -> Self {
        let times = Times { head: patience, idle: Some(patience), stall: Some(patience) };
        Self::new(stream, Limits { bytes: 16 * 1024, fields: 100 }, times).quick()
    }

    /// Never reads the first `count` bytes together with others, so that it is clear which requests are among them.
    #[must_use]
    pub const fn apart(mut self, count: u64) -> Self {
        self.apart = count;
        self
    }

    /// Closes at once, and not in stages, between requests: when the last one was read whole and nothing of another one is
    /// there. A response could be lost only to a client that sends requests without waiting for responses. Then a server
    /// that stops need not wait until idle clients close.
    #[must_use]
    pub const fn quick(mut self) -> Self {
        self.is_quick = true;
        self
    }

    /// The stream.
    pub const fn get_ref(&self) -> &S {
        self.io.get_ref()
    }

    /// The stream. What was read of it may still be here.
    pub const fn get_mut(&mut self) -> &mut S {
        self.io.get_mut()
    }

    /// The stream, and what was read of it and has not gone on.
    pub fn into_parts(mut self) -> (S, Vec<u8>) {
        let read = std::mem::take(self.framing.input());
        (self.io.into_inner(), read)
    }

    /// Bytes of the client's that went on.
    pub const fn consumed(&self) -> u64 {
        self.framing.consumed()
    }

    /// Whether no part of a further head has come.
    pub fn is_between(&self) -> bool {
        self.framing.is_between()
    }

    /// Method and target of a request of which the first line was read, and not the whole head.
    pub fn begun(&self) -> Option<(&str, &str)> {
        self.framing.begun()
    }

    /// Everything goes on as it is, from now on: HTTP/2.
    pub fn pass_all(&mut self) {
        self.framing.switch();
    }

    /// What follows is another protocol, which may close one direction before the other.
    pub fn switch(&mut self) {
        self.framing.switch();
        self.io.stop();
    }

    /// Whether a shutdown would do something.
    pub const fn is_open(&self) -> bool {
        self.io.is_open() || self.io.is_lingering()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ServerIo<S> {
    /// Waits until it is clear whether the client speaks HTTP/2 with prior knowledge. If so, what it sends goes on as it
    /// is. `None` if the connection ends, or the client says too little for too long.
    pub async fn speaks_http2(&mut self) -> Option<bool> {
        poll_fn(|cx| {
            loop {
                if let Some(speaks) = self.framing.speaks_http2() {
                    if speaks {
                        self.pass_all();
                    }
                    return Poll::Ready(Some(speaks));
                }
                if self.poll_late(cx).is_ready() {
                    // What has come is refused as a request.
                    return Poll::Ready((!self.framing.is_between()).then_some(false));
                }
                match ready!(self.poll_more(cx)) {
                    Ok(1..) => {}
                    Ok(0) if !self.framing.is_between() => return Poll::Ready(Some(false)),
                    Ok(0) | Err(_) => return Poll::Ready(None),
                }
            }
        })
        .await
    }

    /// Reads into the framing. 0 at the end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self.left {
            Some(Left::Closed) => return Poll::Ready(Ok(0)),
            Some(Left::Failed) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            None => {}
        }
        let read = self.framing.consumed() + self.framing.waiting() as u64;
        let most = self.apart.checked_sub(read).filter(|left| *left > 0).unwrap_or(u64::MAX);
        let most = usize::try_from(most).unwrap_or(PIECE).min(PIECE);
        // To fill an array with zeros for each read would cost more than the read.
        SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
            Ok(mut room) => self.poll_into(cx, room.get_mut(..most).unwrap_or_default()),
            Err(_) => self.poll_into(cx, &mut vec![0; most]),
        })
    }

    fn poll_into(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(room);
        let result = ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf));
        match &result {
            Ok(()) if buf.filled().is_empty() => self.left = Some(Left::Closed),
            Ok(()) => self.framing.input().extend_from_slice(buf.filled()),
            Err(_) => self.left = Some(Left::Failed),
        }
        Poll::Ready(result.map(|()| buf.filled().len()))
    }

    /// Ready when the client has taken too long for a head, or with its next request.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let begun = !self.framing.is_between();
        let within = match (begun, self.has_served) {
            (false, true) => self.times.idle,
            _ => Some(self.times.head),
        };
        let Some(within) = within else { return Poll::Pending };
        let timer = self.head.get_or_insert_with(|| Box::pin(sleep(within)));
        // A head has its time from its first byte on, but the first one of a connection from the beginning on.
        if begun && !self.has_begun && self.has_served {
            timer.as_mut().reset(Instant::now() + within);
        }
        self.has_begun = begun;
        poll_over(timer.as_mut(), cx)
    }

    /// Ready when the client has left. Reads a little ahead. Meant for the task that drives the connection.
    pub fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<Left> {
        loop {
            if let Some(left) = self.left {
                return Poll::Ready(left);
            }
            if self.framing.waiting() >= AHEAD || self.apart > 0 {
                return Poll::Pending;
            }
            if let Ok(1..) = ready!(self.poll_more(cx))
                && !self.framing.is_at_head()
            {
                // hyper may wait for it.
                cx.waker().wake_by_ref();
            }
        }
    }

    /// Closes the connection that hyper has left. hyper drops it without a shutdown after a request for an upgrade that was
    /// refused, for example. Ready at once if hyper did it, the client has gone, or it is a tunnel now.
    pub fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_open() { Pin::new(self).poll_shutdown(cx) } else { Poll::Ready(Ok(())) }
    }

    /// Gives up a client that takes nothing.
    fn watch_stall<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let Some(patience) = self.times.stall.filter(|_| result.is_pending()) else {
            self.stalled = None;
            return result;
        };
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        match poll_over(stalled.as_mut(), cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ServerIo<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            let at_head = this.framing.is_at_head();
            match this.framing.pass(buf).map_err(malformed)? {
                PassedBytes::Bytes => {
                    if at_head {
                        (this.head, this.has_begun, this.has_served) = (None, false, true);
                    }
                    return Poll::Ready(Ok(()));
                }
                // hyper answers the refusal, and closes.
                PassedBytes::Over => return Poll::Pending,
                PassedBytes::Directly(most) if this.left.is_none() => {
                    let read = this.framing.consumed();
                    let apart = this.apart.checked_sub(read).filter(|left| *left > 0).unwrap_or(u64::MAX);
                    let most = usize::try_from(most.min(apart)).unwrap_or(usize::MAX);
                    let count = ready!(this.poll_directly(cx, buf, most))?;
                    this.framing.passed_directly(count);
                    return Poll::Ready(Ok(()));
                }
                PassedBytes::Directly(_) => {}
                PassedBytes::NeedsMore if !at_head => {}
                PassedBytes::NeedsMore => {
                    if this.poll_late(cx).is_ready() {
                        if this.framing.is_between() {
                            return Poll::Ready(Ok(()));
                        }
                        this.framing.refuse(StatusCode::REQUEST_TIMEOUT);
                        continue;
                    }
                }
            }
            if ready!(this.poll_more(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ServerIo<S> {
    fn poll_directly(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        if most >= buf.remaining() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
            return Poll::Ready(Ok(buf.filled().len() - before));
        }
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        buf.advance(count);
        Poll::Ready(Ok(count))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ServerIo<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.watch_stall(cx, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.io).poll_write_vectored(cx, bufs);
        this.watch_stall(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.io).poll_flush(cx);
        this.watch_stall(cx, result)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_quick && this.io.is_open() && this.framing.is_between() {
            let more_comes = matches!(this.poll_more(cx), Poll::Ready(Ok(1..)));
            if !more_comes {
                this.io.stop();
            }
        }
        let result = Pin::new(&mut this.io).poll_shutdown(cx);
        if this.io.is_lingering() {
            // It has bounds of its own. The client has taken everything that the system would take.
            return result;
        }
        this.watch_stall(cx, result)
    }
}

#[cfg(test)]
#[path = "conn/tests.rs"]
mod tests;
