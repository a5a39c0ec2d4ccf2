//! A file as an HTTP body, read in pieces.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes read or written at a time.
pub const PIECE: usize = 128 * 1024;
/// Bytes read at once at the beginning. A piece stays in memory until the client accepts it.
const FIRST_PIECE: usize = 64 * 1024;
/// Bytes that must have been sent before pieces become larger.
const SHORT: u64 = 512 * 1024;

/// A part of a file, or all of it, with the length that the file had at the beginning. A file that has become shorter is an
/// error, which ends the connection.
///
/// What the system has in memory is read at once. Only a read that has to wait for the disk goes to a thread where
/// blocking is allowed.
pub struct FileBody {
    file: Arc<File>,
    /// A read that waits for the disk.
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    /// The byte of the file that is read next.
    at: u64,
    /// Bytes that were sent.
    gone: u64,
    left: u64,
    buffer: Bytes,
}

impl FileBody {
    /// Opens a file and reads its first piece, so that a small body can ride in one segment with the
    /// head of its message.
    ///
    /// # Errors
    /// Errors of the system. [`io::ErrorKind::InvalidInput`] if the path is not a regular file.
    pub async fn open(path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        elsewhere(move || {
            let file = open_file(&path)?;
            let len = file.metadata()?.len();
            let mut body = Self::new(Arc::new(file), 0..len);
            body.buffer = read(&body.file, piece_of(0, len), 0)?;
            Ok(body)
        })
        .await?
    }

    /// These bytes of `file`. Nothing is read yet.
    pub const fn new(file: Arc<File>, part: Range<u64>) -> Self {
        let left = part.end.saturating_sub(part.start);
        Self { file, reading: None, at: part.start, gone: 0, left, buffer: Bytes::new() }
    }

    /// Bytes that are left.
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Reads the first piece, so that a small body can ride in one segment with the head of its message.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn begin(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_fill(cx)).await
    }

    /// Reads the next piece into the buffer, unless the buffer has one.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 || !self.buffer.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let mut reading = match self.reading.take() {
            Some(reading) => reading,
            None => {
                let (len, from) = (piece_of(self.gone, self.left), self.at);
                if let Some(piece) = read_from_memory(&self.file, len, from)? {
                    self.buffer = piece;
                    return Poll::Ready(Ok(()));
                }
                let file = Arc::clone(&self.file);
                spawn_blocking(move || read(&file, len, from))
            }
        };
        let Poll::Ready(read) = Pin::new(&mut reading).poll(cx) else {
            self.reading = Some(reading);
            return Poll::Pending;
        };
        self.buffer = read.map_err(io::Error::other)??;
        Poll::Ready(Ok(()))
    }
}

/// Opens a regular file.
/// Errors: those of the system. [`io::ErrorKind::InvalidInput`] if the path is not a regular file.
fn open_file(path: &Path) -> io::Result<File> {
    // Check before opening, because opening a pipe would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path)
}

/// Size of the next piece of a file of which `gone` bytes are sent and `left` are not.
fn piece_of(gone: u64, left: u64) -> usize {
    let most = if gone < SHORT { FIRST_PIECE } else { PIECE };
    usize::try_from(left).map_or(most, |left| left.min(most))
}

/// Reads `len` bytes, starting with number `from`. A file that has become shorter is an error, since its length was
/// announced to the client.
fn read(file: &File, len: usize, from: u64) -> io::Result<Bytes> {
    let mut piece = vec![0; len];
    file.read_exact_at(&mut piece, from)?;
    Ok(piece.into())
}

/// Like [`read`], if the system has all of it in memory. `None` if it has not, or cannot tell.
#[cfg(target_os = "linux")]
fn read_from_memory(file: &File, len: usize, from: u64) -> io::Result<Option<Bytes>> {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let mut piece = vec![0; len];
    match preadv2(file, &mut [io::IoSliceMut::new(&mut piece)], from, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok((read == len).then(|| piece.into())),
        // Not in memory; or this file system or this kernel has no such reads.
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn read_from_memory(_: &File, _: usize, _: u64) -> io::Result<Option<Bytes>> {
    Ok(None)
}

/// Runs `work`, which may block on a disk, on a thread where blocking is allowed. Pass all of the work at once: each
/// step there and back wakes two threads, which costs a tenth of a millisecond.
///
/// # Errors
/// When the runtime ends before the work has begun.
pub async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)
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
        let piece = std::mem::take(&mut this.buffer);
        let len = piece.len() as u64;
        this.at += len;
        this.gone += len;
        this.left = this.left.saturating_sub(len);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests;
