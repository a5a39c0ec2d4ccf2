//! A file as an HTTP body, read in pieces.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes read or written at a time.
pub const PIECE: usize = 128 * 1024;
/// Bytes read at once at the beginning. A piece stays in memory until the client accepts it.
const FIRST_PIECE: usize = 64 * 1024;
/// Bytes that must have been sent before pieces become larger.
const SHORT: u64 = 512 * 1024;

/// The content of a file, with the length that the file had when it was opened.
pub struct FileBody {
    source: Source,
    gone: u64,
    left: u64,
    buffer: Bytes,
}

/// Where the next piece comes from.
enum Source {
    File(File),
    /// A read is under way.
    Reading(JoinHandle<io::Result<(File, Bytes)>>),
    /// A read failed.
    Lost,
}

impl FileBody {
    /// Opens a file and reads its first piece, so that a small body can ride in one segment with the
    /// head of its message.
    ///
    /// # Errors
    /// Errors of the system. [`io::ErrorKind::InvalidInput`] if the path is not a regular file.
    pub async fn open(path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        elsewhere(move || Self::open_here(&path)).await?
    }

    /// Like [`FileBody::open`], for callers that may block on a disk.
    ///
    /// # Errors
    /// As [`FileBody::open`].
    pub fn open_here(path: &Path) -> io::Result<Self> {
        // Check before opening, because opening a pipe would wait for its writer.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut file = File::open(path)?;
        let left = file.metadata()?.len();
        let buffer = read(&mut file, piece_of(0, left))?;
        Ok(Self { source: Source::File(file), gone: 0, left, buffer })
    }

    /// Reads the next piece into the buffer, unless the buffer has one.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 || !self.buffer.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let mut reading = match std::mem::replace(&mut self.source, Source::Lost) {
            Source::Reading(reading) => reading,
            Source::File(mut file) => {
                let len = piece_of(self.gone, self.left);
                spawn_blocking(move || read(&mut file, len).map(|piece| (file, piece)))
            }
            Source::Lost => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
        };
        let Poll::Ready(read) = Pin::new(&mut reading).poll(cx) else {
            self.source = Source::Reading(reading);
            return Poll::Pending;
        };
        let (file, piece) = read.map_err(io::Error::other)??;
        (self.source, self.buffer) = (Source::File(file), piece);
        Poll::Ready(Ok(()))
    }
}

/// Size of the next piece of a file of which `gone` bytes are sent and `left` are not.
fn piece_of(gone: u64, left: u64) -> usize {
    let most = if gone < SHORT { FIRST_PIECE } else { PIECE };
    usize::try_from(left).map_or(most, |left| left.min(most))
}

/// Reads the next `len` bytes. A file that has become shorter is an error, since its length was announced to the
/// client.
fn read(file: &mut File, len: usize) -> io::Result<Bytes> {
    let mut piece = vec![0; len];
    file.read_exact(&mut piece)?;
    Ok(piece.into())
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
        this.gone += piece.len() as u64;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use http_body_util::BodyExt;

    /// Only one piece waits for a reader, and it is small until the reader has taken enough.
    #[tokio::test]
    async fn the_first_pieces_are_small() {
        let path = std::env::temp_dir().join(format!("firstflight-pieces-{}", std::process::id()));
        let all: Vec<u8> = (0..900_001).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &all).unwrap();
        let mut body = FileBody::open(&path).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(body.buffer.len(), FIRST_PIECE);
        let (mut pieces, mut got) = (Vec::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            pieces.push(piece.len());
            got.extend_from_slice(&piece);
        }
        let (small, rest) = pieces.split_at(8);
        assert!(small.iter().all(|len| *len == FIRST_PIECE), "{pieces:?}");
        assert_eq!(rest, [PIECE, PIECE, 900_001 - 8 * FIRST_PIECE - 2 * PIECE]);
        assert!(got == all && body.is_end_stream());
    }

    #[tokio::test]
    async fn a_file_that_shrinks_is_an_error() {
        let path = std::env::temp_dir().join(format!("firstflight-shrinks-{}", std::process::id()));
        std::fs::write(&path, vec![7; 3 * FIRST_PIECE]).unwrap();
        let mut body = FileBody::open(&path).await.unwrap();
        std::fs::write(&path, vec![7; FIRST_PIECE + 5]).unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), FIRST_PIECE);
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        std::fs::remove_file(&path).unwrap();
    }
}
