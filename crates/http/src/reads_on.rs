//! A stream that is still read when it cannot be written any more.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A client's stream to its server. A server may answer before it has the whole request, and close: with a RST if something
/// of the request is unread. The writer then fails first, although the answer has arrived (RFC 9112 §9.5). Here it does not:
/// what cannot be written is thrown away, and the reader gets the answer, or the end.
///
/// A stream that fails before anything of the present request was written fails at once, because the request may then go
/// elsewhere.
#[derive(Debug)]
pub struct ReadsOn<T> {
    inner: T,
    /// Something was written since something was read.
    has_written: bool,
    is_broken: bool,
}

impl<T> ReadsOn<T> {
    /// Of this stream.
    pub const fn new(inner: T) -> Self {
        Self { inner, has_written: false, is_broken: false }
    }

    fn wrote(&mut self, count: usize, result: io::Result<usize>) -> io::Result<usize> {
        match result {
            // Other errors are those of a connect that the first write began.
            Err(error) if self.has_written && is_end(&error) => {
                self.is_broken = true;
                Ok(count)
            }
            Err(error) => Err(error),
            Ok(count) => {
                self.has_written |= count > 0;
                Ok(count)
            }
        }
    }
}

/// Whether the peer has closed.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl<T: AsyncRead + Unpin> AsyncRead for ReadsOn<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.has_written = false;
        }
        result
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ReadsOn<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_broken {
            return Poll::Ready(Ok(bytes.len()));
        }
        let result = std::task::ready!(Pin::new(&mut self.inner).poll_write(cx, bytes));
        Poll::Ready(self.wrote(bytes.len(), result))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = bufs.iter().map(|buf| buf.len()).sum();
        if self.is_broken {
            return Poll::Ready(Ok(count));
        }
        let result = std::task::ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs));
        Poll::Ready(self.wrote(count, result))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_broken {
            return Poll::Ready(Ok(()));
        }
        let result = std::task::ready!(Pin::new(&mut self.inner).poll_flush(cx));
        Poll::Ready(self.wrote(0, result.map(|()| 0)).map(drop))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_broken { Poll::Ready(Ok(())) } else { Pin::new(&mut self.inner).poll_shutdown(cx) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn an_answer_is_read_behind_a_write_that_failed() {
        let (near, mut far) = duplex(64);
        let mut near = ReadsOn::new(near);
        near.write_all(b"head").await.unwrap();
        far.write_all(b"refused").await.unwrap();
        drop(far);
        near.write_all(&[7; 1000]).await.unwrap();
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"refused");
        near.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn a_stream_that_takes_nothing_of_a_request_fails() {
        let (near, mut far) = duplex(64);
        let mut near = ReadsOn::new(near);
        near.write_all(b"one").await.unwrap();
        far.write_all(b"answer").await.unwrap();
        near.read_exact(&mut [0; 6]).await.unwrap();
        drop(far);
        assert!(near.write_all(b"two").await.is_err());
        let (mut near, _) = (ReadsOn::new(duplex(64).0), ());
        assert!(near.write_all(b"one").await.is_err());
    }
}
