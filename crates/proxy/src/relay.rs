//! Copies bytes between a client and a server, in both directions, until both have closed.

use crate::shared::{Shared, Stopping};
use firstflight::Stream;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// The buffer of each direction, bytes. A direction that is not read fills it, and no more is read for it.
const BUFFER: usize = 32 * 1024;

/// Bytes that a tunnel carried.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub sent: AtomicU64,
    pub received: AtomicU64,
}

impl Traffic {
    fn total(&self) -> u64 {
        self.sent.load(Ordering::Relaxed).wrapping_add(self.received.load(Ordering::Relaxed))
    }

    /// Waits until nothing has passed for `limit`, at least.
    async fn idle(&self, limit: Duration) {
        loop {
            let before = self.total();
            sleep(limit).await;
            if self.total() == before {
                return;
            }
        }
    }
}

/// Copies until both ends have closed. One that closes its direction (half-close) still gets what the other one sends. If
/// one fails, is idle for too long, or the proxy ends, both are reset: a connection that was cut must not look like one
/// that has ended.
///
/// # Errors
/// Why it was reset.
pub(crate) async fn relay(
    shared: &Shared,
    near: &mut TcpStream,
    far: &mut Stream,
    traffic: &Traffic,
) -> io::Result<()> {
    let mut client = Counted { inner: &mut *near, read: &traffic.sent };
    let mut server = Counted { inner: &mut *far, read: &traffic.received };
    let copying = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER);
    let result = tokio::select! {
        copied = copying => copied.map(|_| ()),
        () = traffic.idle(shared.limits.idle_timeout) => Err(io::ErrorKind::TimedOut.into()),
        () = shared.stopping(Stopping::Now) => Err(io::Error::other("the proxy was stopped")),
    };
    if result.is_err() {
        far.abort();
        reset(near);
    }
    result
}

/// Makes the end of a client's connection a RST.
pub(crate) fn reset(near: &TcpStream) {
    if let Err(error) = near.set_zero_linger() {
        tracing::debug!(%error, "cannot reset a client's connection");
    }
}

/// Counts what is read.
struct Counted<'a, T> {
    inner: &'a mut T,
    read: &'a AtomicU64,
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut *self.inner).poll_read(cx, buf))?;
        let len = buf.filled().len().saturating_sub(before);
        self.read.fetch_add(len as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<'_, T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_shutdown(cx)
    }
}
