//! Copies both directions of a connection. Each direction ends by itself, so half-closed connections go on. An idle
//! connection owns no buffer, and a slow reader costs at most one.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What is read at a time, and kept at most for a reader that is slow, bytes.
const PIECE: usize = 16 * 1024;
/// What is kept at most of a client that is not confirmed, bytes.
const HELD: usize = 16 * 1024;
/// Pieces of one direction that are copied before others have their turn.
const TURN: usize = 16;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
}

/// How a connection begins.
#[derive(Debug, Default)]
pub struct Start {
    /// The first bytes for the backend, which were read already, perhaps behind a PROXY header.
    pub bytes: Vec<u8>,
    /// Until the client is confirmed only so many of them pass. `None`: everything passes.
    pub passes: Option<usize>,
}

/// Why a connection is over.
#[derive(Debug)]
pub enum End {
    /// Both directions were closed in order.
    Closed,
    /// Nothing happened for too long.
    Idle,
    /// The client's side failed.
    Client(io::Error),
    /// The backend's side failed.
    Backend(io::Error),
}

impl End {
    /// Its name in the log.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Client(_) => "client-error",
            Self::Backend(_) => "backend-error",
        }
    }
}

/// Bytes that were copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// To the backend.
    pub up: u64,
    /// To the client.
    pub down: u64,
}

enum Fault {
    Reader(io::Error),
    Writer(io::Error),
}

/// One direction.
#[derive(Default)]
struct Half {
    pending: Vec<u8>,
    sent: usize,
    /// Only so many bytes of `pending` may pass.
    passes: Option<usize>,
    copied: u64,
    unflushed: bool,
    eof: bool,
    done: bool,
    progress: bool,
}

impl Half {
    fn poll<R, W>(&mut self, cx: &mut Context<'_>, reader: &mut R, writer: &mut W) -> Poll<Result<(), Fault>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        if self.done {
            return Poll::Ready(Ok(()));
        }
        let result = SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
            Ok(mut scratch) => self.turn(cx, reader, writer, &mut scratch),
            Err(_) => self.turn(cx, reader, writer, &mut vec![0; PIECE]),
        });
        if result.is_pending() && self.unflushed {
            match Pin::new(writer).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Fault::Writer(error))),
                Poll::Pending => {}
            }
        }
        result
    }

    fn turn<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
        scratch: &mut [u8],
    ) -> Poll<Result<(), Fault>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        for _ in 0..TURN {
            std::task::ready!(self.poll_pending(cx, writer))?;
            let empty = self.pending.is_empty();
            if self.eof && empty {
                std::task::ready!(Pin::new(&mut *writer).poll_shutdown(cx)).map_err(Fault::Writer)?;
                (self.done, self.progress) = (true, true);
                return Poll::Ready(Ok(()));
            }
            let room = if empty { PIECE } else { HELD.saturating_sub(self.pending.len()) };
            let room = scratch.get_mut(..room).filter(|room| !room.is_empty() && !self.eof);
            // What is held waits for the client's confirmation.
            let Some(room) = room else { return Poll::Pending };
            let mut buf = ReadBuf::new(room);
            std::task::ready!(Pin::new(&mut *reader).poll_read(cx, &mut buf)).map_err(Fault::Reader)?;
            self.progress = true;
            let bytes = buf.filled();
            self.eof = bytes.is_empty();
            let sent = match self.passes {
                None if !bytes.is_empty() => self.write(cx, writer, bytes)?,
                _ => 0,
            };
            self.pending.extend_from_slice(bytes.get(sent..).unwrap_or_default());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what waits and may pass.
    fn poll_pending<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut W,
    ) -> Poll<Result<(), Fault>> {
        let until = self.passes.unwrap_or(usize::MAX).min(self.pending.len());
        while self.sent < until {
            let pending = std::mem::take(&mut self.pending);
            let written = self.write(cx, writer, pending.get(self.sent..until).unwrap_or_default());
            self.pending = pending;
            match written? {
                0 => return Poll::Pending,
                count => self.sent += count,
            }
        }
        if self.passes.is_none() && self.sent == self.pending.len() {
            (self.pending, self.sent) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }

    /// Writes once. 0 if the writer has no room.
    fn write<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut W,
        bytes: &[u8],
    ) -> Result<usize, Fault> {
        match Pin::new(writer).poll_write(cx, bytes) {
            Poll::Pending => Ok(0),
            Poll::Ready(Ok(0)) => Err(Fault::Writer(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(count)) => {
                self.copied += count as u64;
                (self.unflushed, self.progress) = (true, true);
                Ok(count)
            }
            Poll::Ready(Err(error)) => Err(Fault::Writer(error)),
        }
    }
}

/// Copies until both directions have ended, one fails, or nothing happened for `idle`. `confirmed` says when the client is
/// confirmed; it is asked only if [`Start::passes`] says so.
pub async fn run<A, B>(
    client: &mut A,
    backend: &mut B,
    start: Start,
    idle: Duration,
    mut confirmed: impl FnMut(&A, &mut Context<'_>) -> Poll<io::Result<()>>,
) -> (Copied, End)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let mut up = Half { pending: start.bytes, passes: start.passes, ..Half::default() };
    let mut down = Half::default();
    let mut timer = pin!(tokio::time::sleep(idle));
    let mut last = Instant::now();
    let end = poll_fn(|cx| {
        if up.passes.is_some()
            && let Poll::Ready(result) = confirmed(client, cx)
        {
            if let Err(error) = result {
                return Poll::Ready(End::Client(error));
            }
            up.passes = None;
        }
        let uploading = up.poll(cx, client, backend);
        if let Poll::Ready(Err(fault)) = uploading {
            return Poll::Ready(match fault {
                Fault::Reader(error) => End::Client(error),
                Fault::Writer(error) => End::Backend(error),
            });
        }
        let downloading = down.poll(cx, backend, client);
        if let Poll::Ready(Err(fault)) = downloading {
            return Poll::Ready(match fault {
                Fault::Reader(error) => End::Backend(error),
                Fault::Writer(error) => End::Client(error),
            });
        }
        if uploading.is_ready() && downloading.is_ready() {
            return Poll::Ready(End::Closed);
        }
        if std::mem::take(&mut up.progress) | std::mem::take(&mut down.progress) {
            last = Instant::now();
        }
        poll_idle(timer.as_mut(), cx, last, idle)
    })
    .await;
    (Copied { up: up.copied, down: down.copied }, end)
}

/// The timer follows the last progress only when it fires, which costs nothing while bytes flow.
fn poll_idle(mut timer: Pin<&mut Sleep>, cx: &mut Context<'_>, last: Instant, idle: Duration) -> Poll<End> {
    while timer.as_mut().poll(cx).is_ready() {
        if last.elapsed() >= idle {
            return Poll::Ready(End::Idle);
        }
        timer.as_mut().reset(last + idle);
    }
    Poll::Pending
}

#[cfg(test)]
mod tests;
