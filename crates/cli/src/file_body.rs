//! A file as an HTTP body, read piece by piece.

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use std::io::{self, Read};
use std::path::Path;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// Bytes read or written at a time.
pub const PIECE: usize = 128 * 1024;

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
        let path = path.to_owned();
        elsewhere(move || Self::open_here(&path)).await?
    }

    /// The same, for who may wait for a disk.
    ///
    /// # Errors
    /// As those of [`FileBody::open`].
    pub fn open_here(path: &Path) -> io::Result<Self> {
        // Looked at before it is opened: opening a pipe would wait for its writer.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut file = std::fs::File::open(path)?;
        let left = file.metadata()?.len();
        let mut first = vec![0; piece_of(left)];
        file.read_exact(&mut first)?;
        let buffer = BytesMut::from(Bytes::from(first));
        Ok(Self { file: File::from_std(file), left, buffer })
    }

    /// Reads the next piece into the buffer, unless there is one.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 || !self.buffer.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let most = piece_of(self.left);
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

/// Bytes of the next piece of a file with `left` bytes to read.
fn piece_of(left: u64) -> usize {
    usize::try_from(left).map_or(PIECE, |left| left.min(PIECE))
}

/// Does what waits for a disk where it stops nobody. All of it at once: each step there and back costs two threads'
/// waking, a tenth of a millisecond.
///
/// # Errors
/// When the runtime ends before it has begun.
pub async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
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
