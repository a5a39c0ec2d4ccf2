//! A TLS stream that connects with its first write.

use crate::connector::{Connector, Dial};
use crate::sealed::SealReport;
use crate::stream::TlsStream;
use firstflight::{Authority, Client, ReplaySafety, Stream};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use zeroize::Zeroizing;

/// The longest first write that is taken, bytes.
const MOST: usize = 64 * 1024;
/// Tasks that wait for the connection: one may read, another one write.
const TASKS: usize = 4;

type Open = io::Result<TlsStream<Stream>>;
type Connecting = Pin<Box<dyn Future<Output = (Open, Option<SealReport>)> + Send>>;
type Connect = Box<dyn FnOnce(Zeroizing<Vec<u8>>) -> Connecting + Send>;

enum State {
    Idle(Option<Connect>),
    Connecting(Connecting),
    Open(Box<TlsStream<Stream>>),
    /// It was shut down before its first write, so it never connects.
    Closed,
    Failed(Option<io::Error>, Option<SealReport>),
}

/// A TLS stream that connects with its first write, for libraries that do not know about first flights.
/// [`Connector::connect_lazy`] makes it. A read before the first write waits for that write. A shutdown before it ends the
/// stream, and nothing connects: reads return the end, and writes fail with [`io::ErrorKind::BrokenPipe`].
pub struct LazyTlsStream {
    state: State,
    waiting: Arc<Waiting>,
}

impl fmt::Debug for LazyTlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyTlsStream").field(&self.stream()).finish()
    }
}

/// All tasks that wait for the connection. It is woken for them.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn add(&self, waker: &Waker) {
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            if wakers.len() >= TASKS {
                wakers.remove(0).wake();
            }
            wakers.push(waker.clone());
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let wakers = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Connector {
    /// A stream that connects to `server` with its first write. `safety` says whether that write may be executed twice: if
    /// so, it travels as early data if a ticket allows it.
    #[must_use]
    pub fn connect_lazy(&self, client: &Client, server: Authority, safety: ReplaySafety) -> LazyTlsStream {
        let (connector, client) = (self.clone(), client.clone());
        let connect: Connect = Box::new(move |first| {
            Box::pin(async move {
                let data = safety.flight(&first);
                // More of a request with effects may follow.
                let complete = data.is_replayable();
                let dial = Dial::Client(&client, None);
                let (result, report) = connector.contact(dial, &server, data, complete).await;
                (result.map_err(io::Error::from), report)
            })
        });
        LazyTlsStream { state: State::Idle(Some(connect)), waiting: Arc::default() }
    }
}

impl LazyTlsStream {
    /// The connection, once there is one.
    #[must_use]
    pub fn stream(&self) -> Option<&TlsStream<Stream>> {
        match &self.state {
            State::Open(stream) => Some(stream),
            _ => None,
        }
    }

    /// What became of the seal, also of a connect that has failed. `None` if no seal was considered, or nothing is known yet.
    #[must_use]
    pub fn seal_report(&self) -> Option<SealReport> {
        match &self.state {
            State::Open(stream) => stream.seal_report(),
            State::Failed(_, report) => *report,
            State::Idle(_) | State::Connecting(_) | State::Closed => None,
        }
    }

    /// As [`TlsStream::poll_leave`]. Ready at once if there is no connection.
    ///
    /// # Errors
    /// As [`TlsStream::leave`].
    pub fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Open(stream) => stream.poll_leave(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Goes on to connect, if that is under way.
    fn go_on(&mut self) {
        let State::Connecting(connecting) = &mut self.state else { return };
        let waker = Waker::from(Arc::clone(&self.waiting));
        if let Poll::Ready(connected) = connecting.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.state = match connected {
                (Ok(stream), _) => State::Open(Box::new(stream)),
                (Err(error), report) => State::Failed(Some(error), report),
            };
            waker.wake();
        }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut TlsStream<Stream>>> {
        if matches!(self.state, State::Idle(_) | State::Connecting(_)) {
            self.waiting.add(cx.waker());
        }
        self.go_on();
        match &mut self.state {
            State::Open(stream) => Poll::Ready(Ok(stream)),
            State::Closed => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            State::Failed(error, _) => {
                Poll::Ready(Err(error.take().unwrap_or_else(|| io::ErrorKind::NotConnected.into())))
            }
            State::Idle(_) | State::Connecting(_) => Poll::Pending,
        }
    }

    /// Takes the first write. `None` if it was there before.
    fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let State::Idle(connect) = &mut self.state else { return None };
        let part = bytes.get(..MOST).unwrap_or(bytes);
        if part.is_empty() {
            return Some(0);
        }
        self.state = State::Connecting(connect.take()?(Zeroizing::new(part.to_vec())));
        Wake::wake(Arc::clone(&self.waiting));
        Some(part.len())
    }
}

impl AsyncRead for LazyTlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.state {
            State::Closed => Poll::Ready(Ok(())),
            _ => Pin::new(ready!(this.poll_open(cx))?).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for LazyTlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(taken) = this.take(bytes) {
            // The first flight leaves now. The next call returns an error, if there is one.
            this.waiting.add(cx.waker());
            this.go_on();
            return Poll::Ready(Ok(taken));
        }
        Pin::new(ready!(this.poll_open(cx))?).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.state {
            // There is nothing to flush, and a flush must not wait for a write.
            State::Idle(_) | State::Closed => Poll::Ready(Ok(())),
            _ => Pin::new(ready!(self.get_mut().poll_open(cx))?).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.state {
            State::Idle(_) => {
                this.state = State::Closed;
                Wake::wake(Arc::clone(&this.waiting));
                Poll::Ready(Ok(()))
            }
            State::Closed => Poll::Ready(Ok(())),
            _ => Pin::new(ready!(this.poll_open(cx))?).poll_shutdown(cx),
        }
    }
}
