//! The two halves of a stream.

use super::Stream;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The half of a [`Stream`] that reads: see [`Stream::into_split`]. `as_ref()` is the stream, for everything that is neither a
/// read nor a write.
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<Stream>);

/// The half of a [`Stream`] that writes: see [`Stream::into_split`]. `as_ref()` is the stream, for everything that is neither a
/// read nor a write.
///
/// Dropping it closes the sending direction, unless that was [forgotten](OwnedWriteHalf::forget). A lazy stream to which
/// nothing was written will then not connect: its reads fail with [`io::ErrorKind::ConnectionAborted`].
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<Stream>,
    closes: bool,
}

/// Two halves that are not of one stream, given back.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are not of one stream")
    }
}

impl std::error::Error for ReuniteError {}

pub(super) fn halves(stream: Stream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let stream = Arc::new(stream);
    (OwnedReadHalf(Arc::clone(&stream)), OwnedWriteHalf { stream, closes: true })
}

impl OwnedReadHalf {
    /// Puts the halves of one stream together again.
    ///
    /// ```no_run
    /// # fn whole(stream: firstflight::Stream) -> Result<firstflight::Stream, firstflight::ReuniteError> {
    /// let (reader, writer) = stream.into_split();
    /// reader.reunite(writer)
    /// # }
    /// ```
    ///
    /// # Errors
    /// Gives both back when they are not of one stream.
    pub fn reunite(self, mut other: OwnedWriteHalf) -> Result<Stream, ReuniteError> {
        if !Arc::ptr_eq(&self.0, &other.stream) {
            return Err(ReuniteError(self, other));
        }
        other.closes = false;
        drop(other);
        // The two halves alone had it, so it is this half's now.
        Arc::try_unwrap(self.0).map_err(|stream| {
            let writer = OwnedWriteHalf { stream: Arc::clone(&stream), closes: true };
            ReuniteError(Self(stream), writer)
        })
    }

    /// As [`Stream::peek`].
    ///
    /// # Errors
    /// As [`Stream::peek`].
    pub async fn peek(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(buf);
        poll_fn(|cx| self.0.poll_peek(cx, &mut buf)).await
    }

    /// As [`Stream::peer_addr`].
    ///
    /// # Errors
    /// As [`Stream::peer_addr`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }

    /// As [`Stream::local_addr`].
    ///
    /// # Errors
    /// As [`Stream::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl OwnedWriteHalf {
    /// As [`OwnedReadHalf::reunite`].
    ///
    /// # Errors
    /// Gives both back when they are not of one stream.
    pub fn reunite(self, other: OwnedReadHalf) -> Result<Stream, ReuniteError> {
        other.reunite(self)
    }

    /// Drops the half, and leaves the sending direction open.
    pub fn forget(mut self) {
        self.closes = false;
    }

    /// As [`Stream::peer_addr`].
    ///
    /// # Errors
    /// As [`Stream::peer_addr`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// As [`Stream::local_addr`].
    ///
    /// # Errors
    /// As [`Stream::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }
}

impl AsRef<Stream> for OwnedReadHalf {
    fn as_ref(&self) -> &Stream {
        &self.0
    }
}

impl AsRef<Stream> for OwnedWriteHalf {
    fn as_ref(&self) -> &Stream {
        &self.stream
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        // The last half: the stream closes, in its own way.
        if mem::take(&mut self.closes) && Arc::strong_count(&self.stream) > 1 {
            self.stream.writes_no_more();
        }
    }
}

impl AsyncRead for OwnedReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.poll_receive(cx, buf)
    }
}

impl AsyncWrite for OwnedWriteHalf {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.poll_send(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_send_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.sends_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Closes the sending direction. Dropping the half then does nothing more.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let closed = this.stream.close_sending();
        if closed.is_ok() {
            this.closes = false;
        }
        Poll::Ready(closed)
    }
}
