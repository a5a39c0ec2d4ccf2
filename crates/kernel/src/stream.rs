//! A stream over the kernel's TCP.

use crate::info::{ConnectFacts, TcpInfo};
use crate::sys;
use firstflight_credential::Outcome;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// How many buffers the system takes in one call (`UIO_MAXIOV` of Linux).
const MOST_BUFFERS: usize = 1024;
/// After a read that did not fill its buffer the system has no more, and reports what comes next (`epoll`, `kqueue`). So the
/// next read need not ask in vain.
const SHORT_READ_IS_ALL: bool = cfg!(any(
    target_os = "linux",
    target_os = "android",
    target_os = "macos",
    target_os = "ios",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "dragonfly",
));

/// A TCP stream of the kernel, with the outcome of its first flight. `AsyncWrite::poll_shutdown` closes the sending
/// direction and leaves the other direction open (half close). It has `AsFd`, for options of the system that have no
/// method here.
#[derive(Debug)]
pub struct Stream {
    tcp: Arc<TcpStream>,
    remote: SocketAddr,
    outcome: Outcome,
    /// Server: how many bytes the SYN carried that were delivered early.
    early: u32,
    /// The handshake was complete at an earlier call.
    confirmed: AtomicBool,
    /// What ended the connection before the first read. The system reports it once, and the connect took that report.
    ended: Mutex<Option<io::Error>>,
}

impl Stream {
    /// The client's end, whose handshake is complete.
    pub(crate) fn connected(tcp: TcpStream, facts: ConnectFacts, remote: SocketAddr) -> Self {
        let outcome = facts.outcome_by(info(&tcp).ok().as_ref());
        Self::new(tcp, remote, outcome, 0)
    }

    fn new(tcp: TcpStream, remote: SocketAddr, outcome: Outcome, early: u32) -> Self {
        let confirmed = AtomicBool::new(early == 0);
        Self { tcp: Arc::new(tcp), remote, outcome, early, confirmed, ended: Mutex::default() }
    }

    /// The same stream, whose connection is over. What arrived before can be read.
    pub(crate) fn ended_by(self, error: io::Error) -> Self {
        Self { ended: Mutex::new(Some(error)), ..self }
    }

    /// The server's end.
    pub(crate) fn accepted(tcp: TcpStream, remote: SocketAddr, outcome: Outcome, early: u32) -> Self {
        Self::new(tcp, remote, outcome, early)
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
        match sys::disconnect(self) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => self.set_linger(Some(Duration::ZERO)),
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

    /// What closing does with data that waits (`SO_LINGER`): see [`Stream::linger`].
    ///
    /// # Errors
    /// The system's.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.socket().set_linger(linger)
    }

    /// How long the last close waits for data to be acknowledged, *and holds the thread*; zero throws the data away and sends a
    /// RST. `None`, the default: it closes in the background.
    ///
    /// # Errors
    /// The system's.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.socket().linger()
    }

    /// Asks a peer from which nothing has come for this long whether it is still there, and resets the connection when four
    /// questions, each a quarter of this time apart, have no answer (`SO_KEEPALIVE`). Times are whole seconds, at least one.
    /// `None`, the default, never asks. Other systems than Linux have an interval and a number of their own.
    ///
    /// # Errors
    /// The system's.
    pub fn set_keep_alive(&self, after: Option<Duration>) -> io::Result<()> {
        set_keep_alive(&self.socket(), after)
    }

    /// After how long without data the peer is asked.
    ///
    /// # Errors
    /// The system's. [`io::ErrorKind::Unsupported`] on some other systems than Linux.
    pub fn keep_alive(&self) -> io::Result<Option<Duration>> {
        let socket = self.socket();
        if !socket.keepalive()? {
            return Ok(None);
        }
        #[cfg(any(target_os = "linux", target_os = "macos", target_os = "freebsd"))]
        return socket.tcp_keepalive_time().map(Some);
        #[cfg(not(any(target_os = "linux", target_os = "macos", target_os = "freebsd")))]
        Err(io::ErrorKind::Unsupported.into())
    }

    fn socket(&self) -> socket2::SockRef<'_> {
        socket2::SockRef::from(&*self.tcp)
    }

    /// The same connection in another value, with the same descriptor. It closes when both are dropped. Both together are read
    /// by one task at a time, and written by one.
    #[must_use]
    pub fn share(&self) -> Self {
        Self {
            tcp: Arc::clone(&self.tcp),
            remote: self.remote,
            outcome: self.outcome,
            early: self.early,
            confirmed: AtomicBool::new(self.confirmed.load(Ordering::Relaxed)),
            ended: Mutex::new(self.ended()),
        }
    }

    /// Tokio's stream, which knows nothing of the first flight.
    ///
    /// # Errors
    /// Gives the stream back while it is [shared](Stream::share).
    pub fn into_inner(self) -> Result<TcpStream, Self> {
        Arc::try_unwrap(self.tcp).map_err(|tcp| Self { tcp, ..self })
    }
}

/// Sets `SO_KEEPALIVE`. The kernel counts in whole seconds, and takes none for an error.
pub(crate) fn set_keep_alive(socket: &socket2::SockRef<'_>, after: Option<Duration>) -> io::Result<()> {
    let Some(after) = after else { return socket.set_keepalive(false) };
    let second = Duration::from_secs(1);
    let keep_alive = socket2::TcpKeepalive::new().with_time(after.max(second));
    #[cfg(target_os = "linux")]
    let keep_alive = keep_alive.with_interval((after / 4).max(second)).with_retries(4);
    socket.set_tcp_keepalive(&keep_alive)
}

#[cfg(unix)]
impl std::os::fd::AsFd for Stream {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

#[cfg(unix)]
impl std::os::fd::AsRawFd for Stream {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.tcp.as_raw_fd()
    }
}

#[cfg(windows)]
impl std::os::windows::io::AsSocket for Stream {
    fn as_socket(&self) -> std::os::windows::io::BorrowedSocket<'_> {
        self.tcp.as_socket()
    }
}

fn info(tcp: &TcpStream) -> io::Result<TcpInfo> {
    Ok(TcpInfo::parse(&sys::tcp_info(tcp)?))
}

/// What the traits do, for a shared reference: one task may read while another one writes.
impl Stream {
    /// `AsyncRead::poll_read`, for a shared reference. Poll it from one task at a time.
    ///
    /// # Errors
    /// The system's.
    pub fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        loop {
            ready!(self.tcp.poll_read_ready(cx))?;
            let mut taken = 0;
            let read = self.tcp.try_io(Interest::READABLE, || {
                taken = self.tcp.try_read_buf(buf)?;
                match SHORT_READ_IS_ALL && (1..room).contains(&taken) {
                    // This forgets that the socket was readable.
                    true => Err(io::ErrorKind::WouldBlock.into()),
                    false => Ok(()),
                }
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken == 0 => continue,
                Err(error) if taken == 0 => return Poll::Ready(Err(error)),
                _ => {}
            }
            if room > 0
                && taken == 0
                && let Some(error) = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take()
            {
                return Poll::Ready(Err(error));
            }
            return Poll::Ready(Ok(()));
        }
    }

    /// Waits for data, and copies it without taking it out. Returns the number of bytes; 0 is the end of the stream. It shares
    /// its place for a waker with reads.
    ///
    /// # Errors
    /// The system's.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let room = buf.remaining() > 0;
        match ready!(self.tcp.poll_peek(cx, buf)) {
            Ok(0) if room => Poll::Ready(self.ended().map_or(Ok(0), Err)),
            peeked => Poll::Ready(peeked),
        }
    }

    /// What ended the connection before the first read, if nobody has got it yet. It stays.
    fn ended(&self) -> Option<io::Error> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let error = ended.as_ref()?;
        Some(error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error))
    }

    /// `AsyncWrite::poll_write`, for a shared reference. Poll it from one task at a time.
    ///
    /// # Errors
    /// The system's.
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.try_first(cx, |socket| socket.send_with_flags(buf, sys::NO_SIGNAL))
    }

    /// `AsyncWrite::poll_write_vectored`, for a shared reference. Poll it from one task at a time.
    ///
    /// # Errors
    /// The system's.
    pub fn poll_send_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // One buffer is cheaper alone.
        if let [buf] = bufs {
            return self.poll_send(cx, buf);
        }
        let bufs = bufs.get(..MOST_BUFFERS).unwrap_or(bufs);
        self.try_first(cx, |socket| socket.send_vectored_with_flags(bufs, sys::NO_SIGNAL))
    }

    /// Closes the sending direction. What waits is still sent.
    ///
    /// # Errors
    /// The system's.
    pub fn close_sending(&self) -> io::Result<()> {
        match self.socket().shutdown(std::net::Shutdown::Write) {
            // The connection is over.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    /// Tries first, because [`Stream::handshake_confirmed`] may have taken away the report that the socket is writable.
    fn try_first(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(socket2::SockRef<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match write(self.socket()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => return Poll::Ready(result),
            }
            ready!(self.tcp.poll_write_ready(cx))?;
            // Ready, by a report that may be old: this forgets it if the socket still takes nothing.
            match self.tcp.try_io(Interest::WRITABLE, || write(self.socket())) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_receive(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.close_sending())
    }
}

#[cfg(test)]
mod tests;
