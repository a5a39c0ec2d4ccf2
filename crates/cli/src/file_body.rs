//! A file as an HTTP body, read piece by piece.

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// Bytes read at a time.
const PIECE: usize = 128 * 1024;

/// The content of a file, of the length it had when it was opened.
pub struct FileBody {
    file: File,
    left: u64,
    buffer: BytesMut,
}

impl FileBody {
    /// Opens a file and reads its first piece, so that a small body can ride in one segment with the
    /// head of its message.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::InvalidInput`] for what is no regular file.
    pub async fn open(path: &Path) -> io::Result<Self> {
        // Looked at before it is opened: opening a pipe would wait for its writer.
        if !tokio::fs::metadata(path).await?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path).await?;
        let left = file.metadata().await?.len();
        let buffer = BytesMut::new();
        let mut body = Self { file, left, buffer };
        poll_fn(|cx| body.poll_fill(cx)).await?;
        Ok(body)
    }

    /// Reads the next piece into the buffer, unless there is one.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 || !self.buffer.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let most = usize::try_from(self.left).unwrap_or(PIECE).min(PIECE);
        self.buffer.reserve(most);
        // The file keeps the state of a read under way, so the future may be made anew each time.
        let read = ready!(pin!(self.file.read_buf(&mut self.buffer)).poll(cx))?;
        if read == 0 {
            // The length was promised: better a broken connection than a short body.
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        // A file that grows is cut at the promised length.
        self.buffer.truncate(most);
        Poll::Ready(Ok(()))
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        ready!(this.poll_fill(cx))?;
        if this.left == 0 {
            return Poll::Ready(None);
        }
        let piece = this.buffer.split().freeze();
        this.left -= piece.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
