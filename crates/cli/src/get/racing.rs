//! A stream that connects with its first write, to whichever of several addresses answers first.

use firstflight::credential::{Outcome, Reason};
use firstflight::{ConnectAnyConfig, ConnectAnyError, Endpoint, FirstFlight, Stream};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest first write that is taken, bytes: more than any SYN carries.
const FIRST_WRITE: usize = 64 * 1024;

/// What to do when the first write comes.
pub struct Plan {
    pub endpoint: Endpoint,
    pub addresses: Vec<SocketAddr>,
    pub config: ConnectAnyConfig,
    /// The first write may ride in a SYN, and be executed twice.
    pub replay_safe: bool,
}

impl Plan {
    async fn run(self, first: Vec<u8>) -> Result<Stream, ConnectAnyError> {
        let first = if self.replay_safe {
            FirstFlight::safely_replayable(&first)
        } else {
            FirstFlight::at_most_once(&first)
        };
        self.endpoint.connect_any(&self.addresses, first, &self.config).await
    }
}

type Connecting = Pin<Box<dyn Future<Output = Result<Stream, ConnectAnyError>> + Send>>;

enum State {
    /// Nothing was written; who reads before waits.
    Idle(Option<Box<Plan>>, Option<Waker>),
    Connecting(Connecting),
    Open(Stream),
    /// What became of the first flight, and the error until it is told.
    Failed(Outcome, Option<io::Error>),
}

/// The stream.
pub struct Racing(State);

impl Racing {
    pub fn new(plan: Plan) -> Self {
        Self(State::Idle(Some(Box::new(plan)), None))
    }

    /// What became of the first flight.
    pub fn outcome(&self) -> Outcome {
        match &self.0 {
            State::Open(stream) => stream.outcome(),
            State::Failed(outcome, _) => *outcome,
            State::Idle(..) | State::Connecting(_) => Outcome::Undecided,
        }
    }

    /// The connection that won, if one has.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.0 {
            State::Open(stream) => Some(stream),
            _ => None,
        }
    }

    /// Goes on connecting, if that is what it does.
    fn poll_connect(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let State::Connecting(connecting) = &mut self.0 {
            self.0 = match ready!(connecting.as_mut().poll(cx)) {
                Ok(stream) => State::Open(stream),
                Err(error) => State::Failed(outcome(&error), Some(error.into())),
            };
        }
        Poll::Ready(())
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut Stream>> {
        ready!(self.poll_connect(cx));
        Poll::Ready(match &mut self.0 {
            State::Open(stream) => Ok(stream),
            State::Failed(_, error) => {
                Err(error.take().unwrap_or_else(|| io::ErrorKind::NotConnected.into()))
            }
            State::Idle(_, waker) => {
                *waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            State::Connecting(_) => return Poll::Pending,
        })
    }
}

/// Unknown, if any server may have executed the data.
fn outcome(error: &ConnectAnyError) -> Outcome {
    let unknown = Outcome::Handshake(Reason::Unknown);
    let unclear = error.attempts.iter().any(|attempt| attempt.outcome == unknown);
    if unclear { unknown } else { Outcome::Undecided }
}

impl AsyncRead for Racing {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = ready!(self.get_mut().poll_open(cx))?;
        Pin::new(stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Racing {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let State::Idle(plan, waker) = &mut this.0
            && let Some(plan) = plan.take()
        {
            let first = bytes.get(..FIRST_WRITE).unwrap_or(bytes).to_vec();
            let (taken, waker) = (first.len(), waker.take());
            this.0 = State::Connecting(Box::pin(plan.run(first)));
            waker.into_iter().for_each(Waker::wake);
            // The SYN leaves now; an error waits for the next call.
            let _ = this.poll_connect(cx);
            return Poll::Ready(Ok(taken));
        }
        let stream = ready!(this.poll_open(cx))?;
        Pin::new(stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.0 {
            // Nothing to flush; and a flush must not wait for a write.
            State::Idle(..) => Poll::Ready(Ok(())),
            _ => self.get_mut().poll_open(cx).map_ok(|_| ()),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.0, State::Idle(..)) {
            return Poll::Ready(Ok(()));
        }
        let stream = ready!(self.get_mut().poll_open(cx))?;
        Pin::new(stream).poll_shutdown(cx)
    }
}
