//! Copies both directions of a connection. Each direction ends by itself, so half-closed connections go on. An idle
//! connection owns no buffer, and a slow reader costs at most one.

use crate::patience::poll_over;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
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

/// How long nothing may happen in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// While both directions are open.
    pub idle: Duration,
    /// Once one direction has ended and everything in it was delivered. An end of this kind cannot be told from that of a
    /// program that has left, so this should be shorter.
    pub half_closed: Duration,
}

/// Why a connection is over.
#[derive(Debug)]
pub enum PumpEnd {
    /// Both directions were closed in order.
    Closed,
    /// Nothing happened for too long.
    Idle,
    /// One direction had ended, and nothing happened in the other one for too long.
    HalfClosed,
    /// The client's side failed.
    Client(io::Error),
    /// The backend's side failed.
    Backend(io::Error),
}

impl PumpEnd {
    /// Its name in the log.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::HalfClosed => "half-closed",
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

/// Counts the bytes of a connection while they are copied, so that they are known also if the pump is dropped.
#[derive(Debug, Default)]
pub struct Traffic {
    up: AtomicU64,
    down: AtomicU64,
}

impl Traffic {
    /// What was copied until now.
    #[must_use]
    pub fn copied(&self) -> Copied {
        Copied { up: self.up.load(Ordering::Relaxed), down: self.down.load(Ordering::Relaxed) }
    }

    /// Adds bytes that reached the backend in another way, as those of a first flight.
    pub fn add_up(&self, bytes: u64) {
        self.up.fetch_add(bytes, Ordering::Relaxed);
    }
}

enum Fault {
    Reader(io::Error),
    Writer(io::Error),
}

/// One direction.
struct Half<'a> {
    pending: Vec<u8>,
    sent: usize,
    /// Only so many bytes of `pending` may pass.
    passes: Option<usize>,
    copied: &'a AtomicU64,
    unflushed: bool,
    eof: bool,
    done: bool,
    progress: bool,
}

impl<'a> Half<'a> {
    const fn new(copied: &'a AtomicU64, pending: Vec<u8>, passes: Option<usize>) -> Self {
        Self { pending, sent: 0, passes, copied, unflushed: false, eof: false, done: false, progress: false }
    }

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
                self.copied.fetch_add(count as u64, Ordering::Relaxed);
                (self.unflushed, self.progress) = (true, true);
                Ok(count)
            }
            Poll::Ready(Err(error)) => Err(Fault::Writer(error)),
        }
    }
}

/// Copies until both directions have ended, one fails, or nothing happened for too long. `confirmed` says when the client is
/// confirmed; it is asked only if [`Start::passes`] says so. To stop earlier, drop it: `traffic` has what was copied.
pub async fn run<A, B>(
    client: &mut A,
    backend: &mut B,
    start: Start,
    limits: Limits,
    traffic: &Traffic,
    mut confirmed: impl FnMut(&A, &mut Context<'_>) -> Poll<io::Result<()>>,
) -> PumpEnd
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let mut up = Half::new(&traffic.up, start.bytes, start.passes);
    let mut down = Half::new(&traffic.down, Vec::new(), None);
    let mut idle = Idle { timer: pin!(tokio::time::sleep(limits.idle)), last: Instant::now() };
    poll_fn(|cx| {
        if up.passes.is_some()
            && let Poll::Ready(result) = confirmed(client, cx)
        {
            if let Err(error) = result {
                return Poll::Ready(PumpEnd::Client(error));
            }
            up.passes = None;
        }
        let uploading = up.poll(cx, client, backend);
        if let Poll::Ready(Err(fault)) = uploading {
            return Poll::Ready(match fault {
                Fault::Reader(error) => PumpEnd::Client(error),
                Fault::Writer(error) => PumpEnd::Backend(error),
            });
        }
        let downloading = down.poll(cx, backend, client);
        if let Poll::Ready(Err(fault)) = downloading {
            return Poll::Ready(match fault {
                Fault::Reader(error) => PumpEnd::Backend(error),
                Fault::Writer(error) => PumpEnd::Client(error),
            });
        }
        if uploading.is_ready() && downloading.is_ready() {
            return Poll::Ready(PumpEnd::Closed);
        }
        if std::mem::take(&mut up.progress) | std::mem::take(&mut down.progress) {
            idle.last = Instant::now();
        }
        match up.done || down.done {
            false => idle.poll(cx, limits.idle).map(|()| PumpEnd::Idle),
            true => idle.poll(cx, limits.idle.min(limits.half_closed)).map(|()| PumpEnd::HalfClosed),
        }
    })
    .await
}

/// When something happened last.
struct Idle<'a> {
    timer: Pin<&'a mut Sleep>,
    last: Instant,
}

impl Idle<'_> {
    /// Ready once nothing has happened for `limit`. The timer follows the last progress only when it fires, or when it would
    /// fire too late, which costs nothing while bytes flow.
    fn poll(&mut self, cx: &mut Context<'_>, limit: Duration) -> Poll<()> {
        let until = self.last + limit;
        if self.timer.deadline() > until {
            self.timer.as_mut().reset(until);
        }
        while poll_over(self.timer.as_mut(), cx).is_ready() {
            if self.last.elapsed() >= limit {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(until);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
