//! Connections that close in stages.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long the peer may send nothing before the connection is given up. Both times are nginx' defaults.
const QUIET: Duration = Duration::from_secs(5);
/// How long it may send.
const WHOLE: Duration = Duration::from_secs(30);
/// Reads of [`CHUNK`] bytes before other tasks have their turn.
const READS: usize = 16;
const CHUNK: usize = 4096;

/// A server's connection that closes in stages, so that its client gets the whole last response (RFC 9112 §9.6).
///
/// A host answers data for a connection that its program has closed with a RST, and a client that receives a RST may lose
/// what it has not read yet. This happens when a client still sends while the server closes: the rest of an upload that was
/// refused, a further request, or the WINDOW_UPDATE of HTTP/2 for the response itself.
///
/// `poll_shutdown` first closes the sending direction. Then it reads until the client closes too, and throws away what comes.
/// It ends when the client sends nothing for five seconds, and thirty seconds after it began in any case. hyper calls it when
/// a connection ends in order, but not after a request for an upgrade, even a refused one.
///
/// Connections that go on in one direction after the other has ended, as tunnels do, must not lose data:
/// [`Lingering::stop`].
///
/// ```
/// # async fn serve(stream: firstflight::Stream) -> std::io::Result<()> {
/// use firstflight::Lingering;
/// use tokio::io::AsyncWriteExt;
///
/// let mut stream = Lingering::new(stream);
/// stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await?;
/// stream.shutdown().await
/// # }
/// ```
#[derive(Debug)]
pub struct Lingering<S> {
    stream: S,
    state: State,
}

#[derive(Debug)]
enum State {
    Open,
    /// The sending direction is closed. The peer's may still send.
    Closing(Box<Closing>),
    Closed,
    /// There is nothing to wait for.
    Off,
}

#[derive(Debug)]
struct Closing {
    quiet: Pin<Box<Sleep>>,
    until: Instant,
}

impl<S> Lingering<S> {
    /// Closes `stream` in stages.
    pub const fn new(stream: S) -> Self {
        Self { stream, state: State::Open }
    }

    /// From now on, a shutdown only closes the sending direction.
    pub fn stop(&mut self) {
        self.state = State::Off;
    }

    /// Whether a shutdown would begin the stages.
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Whether the sending direction is closed, and the peer's is waited for.
    pub const fn is_lingering(&self) -> bool {
        matches!(self.state, State::Closing(_))
    }

    /// The stream.
    pub const fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The stream. Closing its sending direction here skips the stages.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The stream.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl Closing {
    fn new() -> Self {
        let now = Instant::now();
        Self { quiet: Box::pin(sleep_until(now + QUIET)), until: now + WHOLE }
    }

    /// Reads until the peer has closed, or has had its time.
    fn poll<S: AsyncRead + Unpin>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..READS {
            if self.quiet.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let mut bytes = [MaybeUninit::uninit(); CHUNK];
            let mut thrown_away = ReadBuf::uninit(&mut bytes);
            match ready!(Pin::new(&mut *stream).poll_read(cx, &mut thrown_away)) {
                Ok(()) if !thrown_away.filled().is_empty() => {
                    self.quiet.as_mut().reset(self.until.min(Instant::now() + QUIET));
                }
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (before, room) = (buf.filled().len(), buf.remaining() > 0);
        let result = ready!(Pin::new(&mut this.stream).poll_read(cx, buf));
        if room && buf.filled().len() == before {
            // The end, or an error.
            this.state = State::Off;
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let State::Open | State::Off = this.state {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        if let State::Open = this.state {
            this.state = State::Closing(Box::new(Closing::new()));
        }
        if let State::Closing(closing) = &mut this.state {
            ready!(closing.poll(&mut this.stream, cx));
            this.state = State::Closed;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
