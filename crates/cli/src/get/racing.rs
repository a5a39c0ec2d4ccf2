//! A stream that connects with its first write, to the first of several addresses that answers.

use super::via_dns::{Named, ViaDns};
use firstflight::carriage::Report;
use firstflight::credential::{Outcome, Reason};
use firstflight::{ConnectAnyConfig, ConnectAnyError, Endpoint, FirstFlight, Stream};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest first write that is accepted, bytes. It is more than any SYN carries.
const FIRST_WRITE: usize = 64 * 1024;

/// What to do at the first write.
pub struct Plan {
    pub endpoint: Endpoint,
    pub addresses: Vec<SocketAddr>,
    pub config: ConnectAnyConfig,
    /// Whether the first write may ride in a SYN and be executed twice.
    pub replay_safe: bool,
    /// Set if the request also travels inside the lookup of this server's name.
    pub via: Option<(Arc<ViaDns>, Named)>,
}

/// A connection, and how it was established if there was a choice.
type Connected = (Stream, Option<Report>);

impl Plan {
    async fn run(self, first: Vec<u8>) -> Result<Connected, Failure> {
        let first = if self.replay_safe {
            FirstFlight::safely_replayable(&first)
        } else {
            FirstFlight::at_most_once(&first)
        };
        if let Some((via, to)) = &self.via {
            let connected = via.connect(to, first, &self.config.connect).await;
            return connected.map(|(stream, report)| (stream, Some(report))).map_err(Failure::from);
        }
        let stream = self.endpoint.connect_any(&self.addresses, first, &self.config).await?;
        Ok((stream, None))
    }
}

/// The outcome of the first flight, and the connection error.
struct Failure(Outcome, io::Error);

impl From<ConnectAnyError> for Failure {
    fn from(error: ConnectAnyError) -> Self {
        Self(outcome(&error), error.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self(Outcome::Undecided, error)
    }
}

type Connecting = Pin<Box<dyn Future<Output = Result<Connected, Failure>> + Send>>;

enum State {
    /// Nothing was written. A reader waits.
    Idle(Option<Box<Plan>>, Option<Waker>),
    Connecting(Connecting),
    Open(Box<Connected>),
    /// The outcome of the first flight, and the error until it is returned.
    Failed(Outcome, Option<io::Error>),
}

/// The stream.
pub struct Racing(State);

impl Racing {
    pub fn new(plan: Plan) -> Self {
        Self(State::Idle(Some(Box::new(plan)), None))
    }

    /// The outcome of the first flight.
    pub fn outcome(&self) -> Outcome {
        match &self.0 {
            State::Open(open) => open.0.outcome(),
            State::Failed(outcome, _) => *outcome,
            State::Idle(..) | State::Connecting(_) => Outcome::Undecided,
        }
    }

    /// The connection that won, if there is one.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.0 {
            State::Open(open) => Some(&open.0),
            _ => None,
        }
    }

    /// How the connection was established, if requests also travel inside lookups.
    pub fn report(&self) -> Option<&Report> {
        match &self.0 {
            State::Open(open) => open.1.as_ref(),
            _ => None,
        }
    }

    /// Continues to connect, if the stream is connecting.
    fn poll_connect(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let State::Connecting(connecting) = &mut self.0 {
            self.0 = match ready!(connecting.as_mut().poll(cx)) {
                Ok(connected) => State::Open(Box::new(connected)),
                Err(Failure(outcome, error)) => State::Failed(outcome, Some(error)),
            };
        }
        Poll::Ready(())
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut Stream>> {
        ready!(self.poll_connect(cx));
        Poll::Ready(match &mut self.0 {
            State::Open(open) => Ok(&mut open.0),
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

/// The outcome is unknown if any server may have executed the data.
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
            // The SYN is sent now. The next call returns an error, if there is one.
            let _ = this.poll_connect(cx);
            return Poll::Ready(Ok(taken));
        }
        let stream = ready!(this.poll_open(cx))?;
        Pin::new(stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.0 {
            // There is nothing to flush, and a flush must not wait for a write.
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
