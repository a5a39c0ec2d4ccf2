//! Moves records between a rustls connection and a stream. It is the only code that calls `read_tls` and `write_tls` of an
//! established connection.

use rustls::{Connection, HandshakeKind};
use std::io::{self, BufRead, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A larger buffer is given back when it is empty, bytes.
const KEPT: usize = 4096;

/// A TLS connection and the stream below it.
pub(crate) struct Machine<IO> {
    io: IO,
    connection: Connection,
    /// Records that leave with the next write.
    outgoing: Vec<u8>,
    /// How many bytes of them have left.
    sent: usize,
    /// Bytes that somebody else has read from the stream, and how many of them are used.
    replayed: Vec<u8>,
    used: usize,
    /// Bytes that were read from the stream.
    received: u64,
    /// Application data may be sent.
    writable: bool,
    /// Nothing is sent: neither records nor alerts.
    silent: bool,
    /// The peer's fault, which ends the connection.
    fault: Option<rustls::Error>,
}

impl<IO> Machine<IO> {
    /// `replayed` comes before the first byte of `io`.
    pub(crate) const fn new(io: IO, connection: Connection, replayed: Vec<u8>) -> Self {
        Self {
            io,
            connection,
            outgoing: Vec::new(),
            sent: 0,
            replayed,
            used: 0,
            received: 0,
            writable: false,
            silent: false,
            fault: None,
        }
    }

    pub(crate) const fn io(&self) -> &IO {
        &self.io
    }

    pub(crate) const fn io_mut(&mut self) -> &mut IO {
        &mut self.io
    }

    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) const fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Whether nothing is sent.
    pub(crate) const fn be_silent(&mut self, silent: bool) {
        self.silent = silent;
    }

    /// Bytes that were read from the stream so far.
    pub(crate) const fn received(&self) -> u64 {
        self.received
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Machine<IO> {
    /// Sends all records that wait. Records that are ready at the same time leave with one write: a client's
    /// EndOfEarlyData, Finished and first data, for example.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.silent {
            return Poll::Ready(Ok(()));
        }
        loop {
            while self.connection.wants_write() {
                // rustls limits what waits, and writing to a vector does not fail.
                self.connection.write_tls(&mut self.outgoing)?;
            }
            let rest = self.outgoing.get(self.sent..).unwrap_or_default();
            if rest.is_empty() {
                self.sent = 0;
                match self.outgoing.capacity() > KEPT {
                    true => self.outgoing = Vec::new(),
                    false => self.outgoing.clear(),
                }
                return Poll::Ready(Ok(()));
            }
            match ready!(Pin::new(&mut self.io).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.sent += written,
            }
        }
    }

    /// Sends all records that wait, and flushes the stream.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// Reads once, and processes what has come. Returns false at the end of the stream, and after a close_notify.
    /// Errors: those of the stream. If the peer is at fault, the error contains a [`rustls::Error`]; the alert is sent.
    pub(crate) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if let Some(fault) = &self.fault {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault.clone())));
        }
        let rest = self.replayed.get(self.used..).unwrap_or_default();
        let count = if rest.is_empty() {
            self.replayed = Vec::new();
            self.used = 0;
            match self.connection.read_tls(&mut Source { io: &mut self.io, cx }) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        } else {
            let mut unread = rest;
            let count = self.connection.read_tls(&mut unread)?;
            self.used += count;
            count
        };
        self.received = self.received.saturating_add(count as u64);
        self.process(cx)?;
        Poll::Ready(Ok(count > 0))
    }

    /// Processes what rustls has received.
    pub(crate) fn process(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.connection.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // The alert says why. If the stream takes it not at once, the peer does without.
                let _ = self.poll_flush(cx);
                self.fault = Some(error.clone());
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }

    /// Reads plaintext. `Ok(None)` if there is none now.
    pub(crate) fn read(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<Option<Plain>> {
        if let Connection::Server(server) = &mut self.connection
            && let Some(mut early) = server.early_data()
        {
            let count = early.read(buf.initialize_unfilled())?;
            if count > 0 {
                buf.advance(count);
                return Ok(Some(Plain::Early(count)));
            }
        }
        match self.connection.reader().read(buf.initialize_unfilled()) {
            Ok(count) => {
                buf.advance(count);
                Ok(Some(if count == 0 { Plain::End } else { Plain::Data }))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a read returns at once.
    pub(crate) fn has_plaintext(&mut self) -> bool {
        self.connection.reader().fill_buf().is_ok_and(|plain| !plain.is_empty())
    }

    /// Encrypts as much of `bytes` as fits into what waits.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.writer().write(bytes)
    }

    /// Server: reads and writes until application data may be sent: behind the server's Finished, or the client's. Records
    /// may wait to be sent then.
    pub(crate) fn poll_until_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            // rustls does not say so. But while records wait to be sent, it wants to read only if application data may be
            // sent, so not behind a HelloRetryRequest.
            let connection = &self.connection;
            self.writable |=
                !connection.is_handshaking() || (connection.wants_write() && connection.wants_read());
            // It may wait until the client reads, and the client until this end does.
            let _ = self.poll_flush(cx)?;
            if self.writable {
                return Poll::Ready(Ok(()));
            }
            if !ready!(self.poll_receive(cx))? {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Client: reads and writes until the server's Finished is verified. The client's Finished waits then, so that it leaves
    /// with the first data. A silent one ends at a HelloRetryRequest, too.
    pub(crate) fn poll_answered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.connection.is_handshaking() {
            let retried = self.connection.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest);
            if self.silent && retried {
                return Poll::Ready(Ok(()));
            }
            // Another ClientHello, if the server wants one. It may wait until the server reads, and the server until this
            // end does.
            let _ = self.poll_flush(cx)?;
            if !ready!(self.poll_receive(cx))? {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and writes until `done` says so.
    /// Errors: as [`Machine::poll_receive`]. [`io::ErrorKind::UnexpectedEof`] when the stream ends first.
    pub(crate) fn poll_until(
        &mut self,
        cx: &mut Context<'_>,
        done: impl Fn(&Connection) -> bool,
    ) -> Poll<io::Result<()>> {
        loop {
            // Something may have arrived although nothing can be sent now.
            let sending = self.poll_flush(cx)?;
            if done(&self.connection) {
                return sending.map(Ok);
            }
            if !ready!(self.poll_receive(cx))? {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    /// This much early data of a client (RFC 8446 §2.3).
    Early(usize),
    Data,
    /// The peer's close_notify, or the buffer had no room.
    End,
}

/// A stream as what rustls reads from. `WouldBlock` means that the task will be woken.
struct Source<'a, 'b, IO> {
    io: &'a mut IO,
    cx: &'a mut Context<'b>,
}

impl<IO: AsyncRead + Unpin> Read for Source<'_, '_, IO> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(bytes);
        match Pin::new(&mut *self.io).poll_read(self.cx, &mut buf) {
            Poll::Ready(result) => result.map(|()| buf.filled().len()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}
