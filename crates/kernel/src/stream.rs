//! A stream over the kernel's TCP.

use crate::info::{Facts, TcpInfo};
use crate::sys;
use firstflight_credential::{Outcome, Reason};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// How many buffers the system takes in one call (`UIO_MAXIOV` of Linux).
const MOST_BUFFERS: usize = 1024;

/// A TCP stream of the kernel, with the outcome of its first flight. `AsyncWrite::poll_shutdown` closes the sending
/// direction and leaves the other direction open (half close).
#[derive(Debug)]
pub struct Stream {
    tcp: TcpStream,
    remote: SocketAddr,
    outcome: Outcome,
    /// Server: how many bytes the SYN carried that were delivered early.
    early: u32,
    /// The handshake was complete at an earlier call.
    confirmed: AtomicBool,
    /// What ended the connection before the first read. The system reports it once, and the connect took that report.
    ended: Option<io::Error>,
}

impl Stream {
    /// The client's end, whose handshake is complete.
    pub(crate) fn connected(tcp: TcpStream, facts: Facts, remote: SocketAddr) -> Self {
        let outcome = match (info(&tcp), facts) {
            (Ok(info), _) => facts.outcome(&info),
            // Without the kernel's word nothing is known of data that was given to it.
            (Err(_), Facts::Plain(reason) | Facts::KeptBack(reason)) => Outcome::Handshake(reason),
            (Err(_), Facts::Given { .. }) => Outcome::Handshake(Reason::Unknown),
        };
        Self { tcp, remote, outcome, early: 0, confirmed: AtomicBool::new(true), ended: None }
    }

    /// The same stream, whose connection is over. What arrived before can be read.
    pub(crate) fn ended_by(mut self, error: io::Error) -> Self {
        self.ended = Some(error);
        self
    }

    /// The server's end.
    pub(crate) const fn accepted(tcp: TcpStream, remote: SocketAddr, outcome: Outcome, early: u32) -> Self {
        Self { tcp, remote, outcome, early, confirmed: AtomicBool::new(early == 0), ended: None }
    }

    /// The outcome of the first flight, with the reason.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Server side: how many bytes at the beginning of the stream arrived in the SYN. 0 for an ordinary handshake.
    #[must_use]
    pub const fn early_bytes(&self) -> u32 {
        self.early
    }

    /// Server side: true while the handshake is not complete, so that everything read so far arrived in the SYN. The
    /// request may be a copy that the network made. If the connection ended before anybody saw its ACK, this stays true.
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.is_confirmed().is_ok_and(|confirmed| !confirmed)
    }

    /// Whether the handshake is, or was, complete.
    fn is_confirmed(&self) -> io::Result<bool> {
        if self.confirmed.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let confirmed = self.info()?.confirmed;
        self.confirmed.fetch_or(confirmed, Ordering::Relaxed);
        Ok(confirmed)
    }

    /// Waits until the peer's ACK has completed the handshake.
    ///
    /// # Errors
    /// When the connection ends before the ACK arrives.
    pub async fn handshake_confirmed(&self) -> io::Result<()> {
        self.tcp.async_io(Interest::WRITABLE, || self.check_confirmed()).await
    }

    /// Poll version of [`Stream::handshake_confirmed`]. It shares its place for a waker with writes.
    ///
    /// # Errors
    /// As [`Stream::handshake_confirmed`].
    pub fn poll_handshake_confirmed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.tcp.poll_write_ready(cx))?;
            match self.tcp.try_io(Interest::WRITABLE, || self.check_confirmed()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// [`io::ErrorKind::WouldBlock`] before the ACK. A child is writable before it is confirmed, and Linux reports once
    /// more that it is when the ACK arrives: so the first report is to be forgotten. Writes do not wait for the second:
    /// see [`Stream::try_first`].
    fn check_confirmed(&self) -> io::Result<()> {
        match self.tcp.take_error()? {
            Some(error) => Err(error),
            None if self.is_confirmed()? => Ok(()),
            // An earlier call took the error, which the system reports once.
            None if self.info()?.closed => Err(io::ErrorKind::NotConnected.into()),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Ends the connection with a RST, at once on Linux, and elsewhere when the stream is dropped.
    ///
    /// # Errors
    /// The system's.
    pub fn abort(&self) -> io::Result<()> {
        match sys::disconnect(&self.tcp) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                socket2::SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO))
            }
            result => result,
        }
    }

    /// What the kernel says of the connection now.
    ///
    /// # Errors
    /// The system's. [`io::ErrorKind::Unsupported`] on other systems than Linux.
    pub fn info(&self) -> io::Result<TcpInfo> {
        info(&self.tcp)
    }

    /// The peer's address.
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.remote
    }

    /// The local address.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Sends small segments at once instead of waiting for acknowledgements (`TCP_NODELAY`).
    ///
    /// # Errors
    /// The system's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.tcp.set_nodelay(nodelay)
    }

    /// Whether small segments are sent at once.
    ///
    /// # Errors
    /// The system's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.tcp.nodelay()
    }

    /// The same connection in another descriptor. It stays open until both are dropped.
    ///
    /// # Errors
    /// The system's, for example when the process has too many files open.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O.
    pub fn try_clone(&self) -> io::Result<Self> {
        let socket = socket2::SockRef::from(&self.tcp).try_clone()?;
        Ok(Self {
            tcp: TcpStream::from_std(socket.into())?,
            remote: self.remote,
            outcome: self.outcome,
            early: self.early,
            confirmed: AtomicBool::new(self.confirmed.load(Ordering::Relaxed)),
            ended: None,
        })
    }

    /// Tokio's stream, which knows nothing of the first flight.
    #[must_use]
    pub fn into_inner(self) -> TcpStream {
        self.tcp
    }
}

fn info(tcp: &TcpStream) -> io::Result<TcpInfo> {
    Ok(TcpInfo::parse(&sys::tcp_info(tcp)?))
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (buf.filled().len(), buf.remaining() > 0);
        ready!(Pin::new(&mut self.tcp).poll_read(cx, buf))?;
        if room
            && buf.filled().len() == before
            && let Some(error) = self.ended.take()
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }
}

impl Stream {
    /// Tries first, because [`Stream::handshake_confirmed`] may have taken away the report that the socket is writable.
    fn try_first(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(socket2::SockRef<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match write(socket2::SockRef::from(&self.tcp)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => return Poll::Ready(result),
            }
            ready!(self.tcp.poll_write_ready(cx))?;
            // Ready, by a report that may be old: this forgets it if the socket still takes nothing.
            let again = self.tcp.try_io(Interest::WRITABLE, || write(socket2::SockRef::from(&self.tcp)));
            match again {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.try_first(cx, |socket| socket.send_with_flags(buf, sys::NO_SIGNAL))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bufs = bufs.get(..MOST_BUFFERS).unwrap_or(bufs);
        self.try_first(cx, |socket| socket.send_vectored_with_flags(bufs, sys::NO_SIGNAL))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
