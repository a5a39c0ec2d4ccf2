//! TCP streams, of an engine or of the kernel.

mod connected;
#[cfg_attr(not(feature = "engine"), path = "stream/no_engine.rs")]
mod engine;
mod kernel;
mod split;
#[allow(dead_code, reason = "only a server begins stages")]
mod staged;
mod times;

pub(crate) use engine::*;
pub use kernel::KernelStream;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReuniteError};
pub(crate) use staged::Stages;
pub use times::ConnectTimes;

use crate::dns_path::report::Report;
use crate::lingering::Lingering;
use firstflight_credential::{AcceptedBlock, Outcome};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A TCP stream. `AsyncWrite::poll_shutdown` closes the sending direction and leaves the other direction open (half
/// close). Dropping the stream closes the connection in order in the background; that of a [`Server`](crate::Server) in
/// stages, so that its client gets the answer ([`ServerBuilder::in_stages`](crate::ServerBuilder::in_stages)).
///
/// It has the methods of tokio's `TcpStream`, with its signatures, whatever carries the connection. A connection of the
/// kernel's TCP also has a descriptor: see [`Stream::kernel`].
///
/// ```no_run
/// # async fn talk(client: firstflight::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use firstflight::FirstFlight;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// let hello = FirstFlight::safely_replayable(b"hello ");
/// let stream = client.connect(("chat.example.com", 7000), hello).await?;
/// stream.set_nodelay(true)?;
/// println!("{} by way of {}", stream.peer_addr()?, stream.way().as_str());
/// let (mut reader, mut writer) = stream.into_split();
/// let reading = tokio::spawn(async move {
///     let mut all = Vec::new();
///     reader.read_to_end(&mut all).await.map(|_| all)
/// });
/// writer.write_all(b"world").await?;
/// writer.shutdown().await?;
/// println!("{} bytes", reading.await??.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Stream {
    kind: Kind,
    race: Option<Race>,
    /// The outcome of a first flight that was in another connection's SYN.
    elsewhere: Option<Outcome>,
    times: Option<ConnectTimes>,
    /// What became of the first flight in the lookup of the server's address.
    pub(crate) report: Option<Box<Report>>,
    /// A server's stream, whose peer has not closed yet: how it ends when it is dropped.
    stages: Option<Stages>,
    /// The peer has closed, or the connection is over: nothing can come.
    ended: AtomicBool,
    /// Dropping it sends a RST ([`Stream::set_linger`]).
    resets: AtomicBool,
}

/// How a connection's segments travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// The kernel's TCP.
    Kernel,
    /// An engine's TCP, in IP packets.
    Ip,
    /// An engine's TCP, in UDP datagrams.
    Udp,
}

impl Way {
    /// A label: `kernel`, `ip` or `udp`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Ip => "ip",
            Self::Udp => "udp",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A connection won a race against an attempt with Fast Open that had no answer yet, or was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Race {
    /// Whether data left with that attempt, so that the server may execute it twice.
    data_left_twice: bool,
}

impl Race {
    /// Whether the data of the first flight left with the other attempt, too. The server may execute it twice, which the
    /// caller has allowed.
    #[must_use]
    pub const fn data_left_twice(&self) -> bool {
        self.data_left_twice
    }
}

#[derive(Debug)]
enum Kind {
    Engine(EngineStream),
    Kernel(KernelStream),
}

/// Does the same with a connection of either kind.
macro_rules! each {
    ($kind:expr, $connection:ident => $result:expr) => {
        match $kind {
            Kind::Engine($connection) => $result,
            Kind::Kernel($connection) => $result,
        }
    };
}

impl Stream {
    const fn of(kind: Kind) -> Self {
        let (ended, resets) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { kind, race: None, elsewhere: None, times: None, report: None, stages: None, ended, resets }
    }

    /// A server's stream that closes in stages, so that its client gets the whole last response although it still sends.
    /// Use it wherever a server may answer before it has read everything: a request that is too large, or refused.
    ///
    /// ```no_run
    /// # async fn serve() -> std::io::Result<()> {
    /// use tokio::io::AsyncWriteExt;
    /// let server = firstflight::Server::bind("0.0.0.0:8080").await?;
    /// loop {
    ///     let mut stream = server.accept().await?.lingering();
    ///     tokio::spawn(async move {
    ///         stream.write_all(b"HTTP/1.1 405 Method Not Allowed\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await?;
    ///         // Returns when the client has closed, too, or after five seconds in which it sends nothing.
    ///         stream.shutdown().await
    ///     });
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn lingering(self) -> Lingering<Self> {
        let mut stream = self;
        stream.is_closed_by_others();
        Lingering::new(stream)
    }

    /// From now on, dropping the stream closes it at once.
    fn is_closed_by_others(&mut self) {
        self.stages = None;
    }

    /// How its segments travel.
    #[must_use]
    pub fn way(&self) -> Way {
        match &self.kind {
            Kind::Engine(engine) => engine.way(),
            Kind::Kernel(_) => Way::Kernel,
        }
    }

    /// The smoothed round-trip time, once it was measured.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        match &self.kind {
            Kind::Engine(engine) => engine.rtt(),
            Kind::Kernel(kernel) => Some(kernel.info().ok()?.srtt).filter(|rtt| !rtt.is_zero()),
        }
    }

    /// Kernel's sockets: whether the connection won a race against an attempt with Fast Open. `None` if there was no such
    /// race, and for a connection of an engine, whose second attempts are in [`Stream::info`].
    #[must_use]
    pub const fn race(&self) -> Option<Race> {
        self.race
    }

    /// The outcome of the first flight, with the reason; `Undecided` until the answer has arrived. After a
    /// race the first flight may have been in the SYN of another attempt.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.elsewhere.unwrap_or_else(|| each!(&self.kind, connection => connection.outcome()))
    }

    /// The peer's address.
    ///
    /// # Errors
    /// None today: it is known also when the connection is over. The signature is tokio's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.remote())
    }

    /// The peer's address.
    pub(crate) fn remote(&self) -> SocketAddr {
        each!(&self.kind, connection => connection.peer_addr())
    }

    /// The local address.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`] for a lazy stream before its first write. The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        each!(&self.kind, connection => connection.local_addr())
    }

    /// Server side: true while the handshake is not complete, so that everything read so far arrived early. Until
    /// then only the credential vouches for the client's address, and the request may be a copy that the network
    /// made. This ends with [`Stream::handshake_confirmed`]; after that [`Stream::early_bytes`] still says what
    /// arrived early.
    #[must_use]
    pub fn is_early(&self) -> bool {
        each!(&self.kind, connection => connection.is_early())
    }

    /// Server side: how many bytes at the beginning of the stream arrived in the SYN, before the handshake was
    /// complete. 0 for an ordinary handshake.
    #[must_use]
    pub fn early_bytes(&self) -> u32 {
        each!(&self.kind, connection => connection.early_bytes())
    }

    /// Server side: what the credential block said with which an accepted first flight came (ASAP). `None` if it came
    /// without one. A protocol above can bind what it encrypts to it.
    #[must_use]
    pub fn accepted_block(&self) -> Option<AcceptedBlock> {
        Some(self.block()?.0)
    }

    /// Server side: how many bytes at the beginning of the stream the signature of the [accepted
    /// block](Stream::accepted_block) covers. Not more than [`Stream::early_bytes`], which has what followed the SYN, too.
    /// 0 without a block.
    #[must_use]
    pub fn signed_bytes(&self) -> u32 {
        self.block().map_or(0, |(_, signed)| signed)
    }

    fn block(&self) -> Option<(AcceptedBlock, u32)> {
        match &self.kind {
            Kind::Engine(engine) => engine.block(),
            Kind::Kernel(_) => None,
        }
    }

    /// Waits until the peer's ACK has proved its address.
    ///
    /// # Errors
    /// When the connection ends before the ACK arrives. [`io::ErrorKind::NotConnected`] for a lazy stream before its
    /// first write.
    pub async fn handshake_confirmed(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_handshake_confirmed(cx)).await
    }

    /// Poll version of [`Stream::handshake_confirmed`]. Do not poll it from one task while another task writes.
    ///
    /// # Errors
    /// As [`Stream::handshake_confirmed`].
    pub fn poll_handshake_confirmed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&self.kind, connection => connection.poll_handshake_confirmed(cx))
    }

    /// Client side: waits for the server's SYN-ACK.
    ///
    /// # Errors
    /// When the connection is refused or times out. [`io::ErrorKind::NotConnected`] for a lazy stream before its first
    /// write.
    pub async fn connected(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_handshake_confirmed(cx)).await
    }

    /// Turns Nagle's algorithm off (true) or on (false). A lazy stream applies the setting when it connects.
    ///
    /// # Errors
    /// The system's. When the connection is gone.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        each!(&self.kind, connection => connection.set_nodelay(nodelay))
    }

    /// Whether Nagle's algorithm is off. For a lazy stream, whether it will be off.
    ///
    /// # Errors
    /// The system's. When the connection is gone.
    pub fn nodelay(&self) -> io::Result<bool> {
        each!(&self.kind, connection => connection.nodelay())
    }

    /// What dropping the stream does. `None`, the default, closes it in order in the background. Zero ends it with a RST, and
    /// throws away what is not sent yet; a server's stream then does not close in stages. Any other time is for the kernel's TCP
    /// alone: the drop *holds its thread* until the data is acknowledged, or the time is over.
    ///
    /// ```no_run
    /// # fn give_up(stream: firstflight::Stream) -> std::io::Result<()> {
    /// stream.set_linger(Some(std::time::Duration::ZERO))?;
    /// drop(stream); // The peer gets a RST.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The system's. [`io::ErrorKind::Unsupported`] for a time above zero and an engine's stream: no engine holds a thread.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        each!(&self.kind, connection => connection.set_linger(linger))?;
        self.resets.store(linger.is_some_and(|time| time.is_zero()), Ordering::Relaxed);
        Ok(())
    }

    /// What [`Stream::set_linger`] set.
    ///
    /// # Errors
    /// The system's.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        match &self.kind {
            Kind::Engine(_) => Ok(self.resets.load(Ordering::Relaxed).then_some(Duration::ZERO)),
            Kind::Kernel(kernel) => kernel.linger(),
        }
    }

    /// Asks a peer from which nothing has come for this long whether it is still there, and resets the connection when four
    /// questions, each a quarter of this time apart, have no answer. Times are at least one second; the kernel counts in whole
    /// seconds. `None` never asks. The default is that of the listener, or of the engine's settings. A lazy stream applies the
    /// setting when it connects.
    ///
    /// ```no_run
    /// # fn keep(stream: &firstflight::Stream) -> std::io::Result<()> {
    /// // A peer that is gone is noticed within two minutes.
    /// stream.set_keep_alive(Some(std::time::Duration::from_secs(60)))
    /// # }
    /// ```
    ///
    /// # Errors
    /// The system's. When the connection is gone.
    pub fn set_keep_alive(&self, after: Option<Duration>) -> io::Result<()> {
        each!(&self.kind, connection => connection.set_keep_alive(after))
    }

    /// After how long without data the peer is asked whether it is still there.
    ///
    /// # Errors
    /// The system's. When the connection is gone.
    pub fn keep_alive(&self) -> io::Result<Option<Duration>> {
        each!(&self.kind, connection => connection.keep_alive())
    }

    /// Waits for data, and copies it into `buf` without taking it out: the next read returns the same. Returns the number of
    /// bytes; 0 is the end of the stream. What has arrived in the SYN is data, too.
    ///
    /// ```no_run
    /// # async fn serve(stream: firstflight::Stream) -> std::io::Result<()> {
    /// // A TLS connection begins with a record of type 22.
    /// let mut first = [0];
    /// let tls = stream.peek(&mut first).await? == 1 && first == [22];
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As a read.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(buf);
        poll_fn(|cx| self.poll_peek(cx, &mut buf)).await
    }

    /// Poll version of [`Stream::peek`]. Do not poll it from one task while another task reads.
    ///
    /// # Errors
    /// As a read.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        each!(&self.kind, connection => connection.poll_peek(cx, buf))
    }

    /// Two halves that two tasks can use at the same time. Nothing is locked for them: a connection has its own rules for a
    /// reader beside a writer. [`OwnedReadHalf::reunite`] puts them together again. Dropping the write half closes the
    /// sending direction; the connection closes when both are dropped.
    ///
    /// ```no_run
    /// # async fn echo(stream: firstflight::Stream) -> std::io::Result<()> {
    /// let (mut reader, mut writer) = stream.into_split();
    /// tokio::io::copy(&mut reader, &mut writer).await?;
    /// println!("{}", writer.as_ref().outcome());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        split::halves(self)
    }

    /// The stream of the kernel's TCP, if it is one: it has `AsFd`, for options of the system that have no method here.
    ///
    /// ```no_run
    /// # #[cfg(target_os = "linux")]
    /// # fn mark(stream: &firstflight::Stream) -> std::io::Result<()> {
    /// if let Some(kernel) = stream.kernel() {
    ///     socket2::SockRef::from(kernel).set_tos_v4(0x10)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn kernel(&self) -> Option<&KernelStream> {
        match &self.kind {
            Kind::Kernel(kernel) => Some(kernel),
            Kind::Engine(_) => None,
        }
    }

    /// The standard library's stream, in non-blocking mode, if it is the kernel's. An engine's stream has no descriptor: it
    /// comes back. The stream no longer closes in stages, and its outcome is gone.
    ///
    /// ```no_run
    /// # fn hand_over(stream: firstflight::Stream) -> std::io::Result<()> {
    /// match stream.into_std()? {
    ///     Ok(tcp) => tcp.set_nonblocking(false),
    ///     Err(stream) => panic!("{} has no descriptor", stream.way().as_str()),
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// The system's.
    pub fn into_std(mut self) -> io::Result<Result<std::net::TcpStream, Self>> {
        let Kind::Kernel(kernel) = &self.kind else { return Ok(Err(self)) };
        let kernel = kernel.share();
        self.is_closed_by_others();
        drop(self);
        match kernel.into_inner() {
            Ok(tcp) => tcp.into_std().map(Ok),
            // Nobody else has it.
            Err(kernel) => Ok(Err(kernel.into())),
        }
    }

    /// Ends the connection with a RST. A lazy stream that has not connected yet will not connect: its reads and
    /// writes fail with [`io::ErrorKind::ConnectionAborted`].
    pub fn abort(&self) {
        match &self.kind {
            Kind::Engine(engine) => engine.abort(),
            // It fails only when the connection is over.
            Kind::Kernel(kernel) => drop(kernel.abort()),
        }
    }
}

/// What the traits do, for a shared reference: one task may read while another one writes.
impl Stream {
    fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (before, room) = (buf.filled().len(), buf.remaining() > 0);
        let read = each!(&self.kind, connection => connection.poll_receive(cx, buf));
        if read.is_ready() && room && buf.filled().len() == before {
            self.ended.store(true, Ordering::Relaxed);
        }
        read
    }

    fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(&self.kind, connection => connection.poll_send(cx, bytes))
    }

    fn poll_send_vectored(&self, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        each!(&self.kind, connection => connection.poll_send_vectored(cx, bufs))
    }

    fn sends_vectored(&self) -> bool {
        match &self.kind {
            // A lazy stream wants its first flight in one piece.
            Kind::Engine(engine) => !engine.is_idle(),
            Kind::Kernel(_) => true,
        }
    }

    fn close_sending(&self) -> io::Result<()> {
        each!(&self.kind, connection => connection.close_sending())
    }

    /// The write half is gone.
    fn writes_no_more(&self) {
        match &self.kind {
            // Without a write it never connects, and a reader would wait for ever.
            Kind::Engine(engine) if engine.is_idle() => engine.abort(),
            // It fails only when the connection is over.
            _ => drop(self.close_sending()),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_receive(cx, buf)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if *self.resets.get_mut() {
            match &self.kind {
                Kind::Engine(engine) => engine.abort(),
                // The socket does it by itself.
                Kind::Kernel(_) => {}
            }
            return;
        }
        if let Some(stages) = self.stages.take()
            && !*self.ended.get_mut()
        {
            stages.close(&mut self.kind);
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.sends_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.close_sending())
    }
}
