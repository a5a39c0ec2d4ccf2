//! The client's end of a connection.

use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A client that says nothing for this long is asked whether it is still there, and so often, with this pause. One whose
/// machine has vanished is gone after two minutes.
const QUIET: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(15);
const PROBES: u32 = 4;

/// A client's connection. While one part of the proxy reads and writes it, another one can watch whether the client has
/// left.
#[derive(Debug, Clone)]
pub(crate) struct Near(Arc<TcpStream>);

impl Near {
    pub(crate) fn new(tcp: TcpStream) -> Self {
        // Answers of small messages must not wait for each other.
        let _ = tcp.set_nodelay(true);
        let keepalive = TcpKeepalive::new().with_time(QUIET).with_interval(PAUSE).with_retries(PROBES);
        if let Err(error) = SockRef::from(&tcp).set_tcp_keepalive(&keepalive) {
            tracing::debug!(%error, "no keep-alives for a client");
        }
        Self(Arc::new(tcp))
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.0
    }

    /// Waits until the connection has failed, also behind bytes that are not read.
    pub(crate) async fn failed(&self) {
        // Without an event of its own a connection does not fail.
        if self.0.ready(Interest::ERROR).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the client has left: its connection failed, or it ended its direction before it had `said` anything behind
    /// its request. A client that has said something may have ended its direction only. Nothing is read.
    pub(crate) async fn left(&self, said: bool) {
        let ended = async {
            if said || !matches!(self.0.peek(&mut [0]).await, Ok(0) | Err(_)) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.failed() => {}
            () = ended => {}
        }
    }

    /// Makes the end of the connection a RST.
    pub(crate) fn reset(&self) {
        if let Err(error) = self.0.set_zero_linger() {
            tracing::debug!(%error, "cannot reset a client's connection");
        }
    }
}

impl AsyncRead for Near {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read_buf(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result.map(drop)),
            }
        }
    }
}

impl Near {
    fn poll_try(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

impl AsyncWrite for Near {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |tcp| tcp.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |tcp| tcp.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match SockRef::from(&*self.0).shutdown(std::net::Shutdown::Write) {
            // The peer has reset it.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}
