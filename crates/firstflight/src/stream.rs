//! TCP streams, of an engine or of the kernel.

mod engine;
#[cfg(feature = "kernel")]
mod staged;

#[cfg(feature = "dns")]
pub(crate) use engine::at_present;
pub(crate) use engine::{EngineStream, connect, first_data};
#[cfg(feature = "kernel")]
pub(crate) use staged::Stages;

use crate::lingering::Lingering;
use firstflight_credential::Outcome;
use firstflight_stack::ConnectionInfo;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A TCP stream. `AsyncWrite::poll_shutdown` closes the sending direction and leaves the other direction open (half
/// close). Dropping the stream closes the connection in order in the background; that of a [`Server`](crate::Server) in
/// stages, so that its client gets the answer ([`ServerBuilder::in_stages`](crate::ServerBuilder::in_stages)).
#[derive(Debug)]
pub struct Stream {
    kind: Kind,
    race: Option<Race>,
    /// The outcome of a first flight that was in another connection's SYN.
    elsewhere: Option<Outcome>,
    #[cfg(feature = "kernel")]
    times: Option<crate::client::ConnectTimes>,
    /// A server's stream, whose peer has not closed yet: how it ends when it is dropped.
    #[cfg(feature = "kernel")]
    stages: Option<Stages>,
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

/// A connection won a race against an attempt with Fast Open that had no answer yet, or was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Race {
    /// Whether data left with that attempt, so that the server may execute it twice.
    data_left_twice: bool,
}

impl Race {
    #[cfg(feature = "kernel")]
    pub(crate) const fn new(data_left_twice: bool) -> Self {
        Self { data_left_twice }
    }

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
    #[cfg(feature = "kernel")]
    Kernel(firstflight_kernel::Stream),
}

impl From<EngineStream> for Stream {
    fn from(stream: EngineStream) -> Self {
        Self::of(Kind::Engine(stream))
    }
}

#[cfg(feature = "kernel")]
impl From<firstflight_kernel::Stream> for Stream {
    fn from(stream: firstflight_kernel::Stream) -> Self {
        Self::of(Kind::Kernel(stream))
    }
}

impl Stream {
    const fn of(kind: Kind) -> Self {
        Self {
            kind,
            race: None,
            elsewhere: None,
            #[cfg(feature = "kernel")]
            times: None,
            #[cfg(feature = "kernel")]
            stages: None,
        }
    }

    /// The same stream, which closes in stages when it is dropped.
    #[cfg(feature = "kernel")]
    pub(crate) fn staged(mut self, stages: &Stages) -> Self {
        self.stages = Some(stages.clone());
        self
    }

    /// The same stream, which took this long to connect.
    #[cfg(feature = "kernel")]
    pub(crate) const fn took(mut self, times: crate::client::ConnectTimes) -> Self {
        self.times = Some(times);
        self
    }

    /// How long the connect took, of a stream by [`Client::connect`](crate::Client::connect).
    #[cfg(feature = "kernel")]
    #[must_use]
    pub const fn times(&self) -> Option<crate::client::ConnectTimes> {
        self.times
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
    #[cfg_attr(
        not(feature = "kernel"),
        allow(clippy::unused_self, clippy::missing_const_for_fn, reason = "no stages")
    )]
    fn is_closed_by_others(&mut self) {
        #[cfg(feature = "kernel")]
        {
            self.stages = None;
        }
    }

    /// How its segments travel.
    #[must_use]
    pub fn way(&self) -> Way {
        match &self.kind {
            Kind::Engine(engine) => match engine.info().and_then(|info| info.carrier) {
                Some(_) => Way::Udp,
                None => Way::Ip,
            },
            #[cfg(feature = "kernel")]
            Kind::Kernel(_) => Way::Kernel,
        }
    }

    /// The smoothed round-trip time, once it was measured.
    #[must_use]
    pub fn rtt(&self) -> Option<std::time::Duration> {
        match &self.kind {
            Kind::Engine(engine) => engine.info()?.rtt,
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => Some(kernel.info().ok()?.srtt).filter(|rtt| !rtt.is_zero()),
        }
    }

    /// A stream of the kernel after a race. `elsewhere` is the outcome of its first flight if that was in the SYN of an
    /// attempt at another address.
    #[cfg(feature = "kernel")]
    pub(crate) const fn raced(
        stream: firstflight_kernel::Stream,
        race: Option<Race>,
        elsewhere: Option<Outcome>,
    ) -> Self {
        Self { kind: Kind::Kernel(stream), race, elsewhere, times: None, stages: None }
    }

    /// Kernel's sockets: whether the connection won a race against an attempt with Fast Open. `None` if there was no such
    /// race, and for a connection of an engine, whose second attempts are in [`ConnectionInfo`].
    #[must_use]
    pub const fn race(&self) -> Option<Race> {
        self.race
    }

    /// The outcome of the first flight, with the reason; `Undecided` until the answer has arrived. After
    /// [`Endpoint::connect_any`](crate::Endpoint::connect_any) the first flight may have been in the SYN of another
    /// attempt.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.elsewhere.unwrap_or_else(|| match &self.kind {
            Kind::Engine(engine) => engine.outcome(),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => kernel.outcome(),
        })
    }

    /// The state of the connection in the engine. `None` before the first write of a lazy stream, and for a stream of
    /// the kernel.
    #[must_use]
    pub fn info(&self) -> Option<ConnectionInfo> {
        match &self.kind {
            Kind::Engine(engine) => engine.info(),
            #[cfg(feature = "kernel")]
            Kind::Kernel(_) => None,
        }
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        match &self.kind {
            Kind::Engine(engine) => engine.peer_addr(),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => kernel.peer_addr(),
        }
    }

    /// The local address. `None` before the first write of a lazy stream.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Engine(engine) => engine.local_addr(),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => kernel.local_addr().ok(),
        }
    }

    /// Server side: true while the handshake is not complete, so that everything read so far arrived early. Until
    /// then only the credential vouches for the client's address, and the request may be a copy that the network
    /// made. This ends with [`Stream::handshake_confirmed`]; after that [`Stream::early_bytes`] still says what
    /// arrived early.
    #[must_use]
    pub fn is_early(&self) -> bool {
        match &self.kind {
            Kind::Engine(engine) => engine.is_early(),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => kernel.is_early(),
        }
    }

    /// Server side: how many bytes at the beginning of the stream arrived in the SYN, before the handshake was
    /// complete. 0 for an ordinary handshake.
    #[must_use]
    pub fn early_bytes(&self) -> u32 {
        match &self.kind {
            Kind::Engine(engine) => engine.early_bytes(),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => kernel.early_bytes(),
        }
    }

    /// Server side: what the credential block said with which an accepted first flight came (ASAP). `None` if it came
    /// without one. A protocol above can bind what it encrypts to it.
    #[must_use]
    pub fn accepted_block(&self) -> Option<crate::credential::asap::AcceptedBlock> {
        match &self.kind {
            Kind::Engine(engine) => engine.accepted_block().map(|(block, _)| block),
            #[cfg(feature = "kernel")]
            Kind::Kernel(_) => None,
        }
    }

    /// Server side: how many bytes at the beginning of the stream the signature of the [accepted
    /// block](Stream::accepted_block) covers. Not more than [`Stream::early_bytes`], which has what followed the SYN, too.
    /// 0 without a block.
    #[must_use]
    pub fn signed_bytes(&self) -> u32 {
        match &self.kind {
            Kind::Engine(engine) => engine.accepted_block().map_or(0, |(_, signed)| signed),
            #[cfg(feature = "kernel")]
            Kind::Kernel(_) => 0,
        }
    }

    /// Waits until the peer's ACK has proved its address.
    ///
    /// # Errors
    /// When the connection ends before the ACK arrives. [`io::ErrorKind::NotConnected`] for a lazy stream before its
    /// first write.
    pub async fn handshake_confirmed(&self) -> io::Result<()> {
        match &self.kind {
            Kind::Engine(engine) => engine.connected().await,
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => kernel.handshake_confirmed().await,
        }
    }

    /// Poll version of [`Stream::handshake_confirmed`]. Do not poll it from one task while another task writes.
    ///
    /// # Errors
    /// As [`Stream::handshake_confirmed`].
    pub fn poll_handshake_confirmed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.kind {
            Kind::Engine(engine) => engine.poll_connected(cx),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => kernel.poll_handshake_confirmed(cx),
        }
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
    pub fn set_nodelay(&self, nodelay: bool) {
        match &self.kind {
            Kind::Engine(engine) => engine.set_nodelay(nodelay),
            // It fails only when the connection is over, and then it makes no difference.
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => drop(kernel.set_nodelay(nodelay)),
        }
    }

    /// Whether Nagle's algorithm is off. For a lazy stream, whether it will be off. False when the connection is gone.
    #[must_use]
    pub fn nodelay(&self) -> bool {
        match &self.kind {
            Kind::Engine(engine) => engine.nodelay(),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => kernel.nodelay().unwrap_or_default(),
        }
    }

    /// Ends the connection with a RST. A lazy stream that has not connected yet will not connect: its reads and
    /// writes fail with [`io::ErrorKind::ConnectionAborted`].
    pub fn abort(&self) {
        match &self.kind {
            Kind::Engine(engine) => engine.abort(),
            // It fails only when the connection is over.
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => drop(kernel.abort()),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        #[cfg(feature = "kernel")]
        let (before, room) = (buf.filled().len(), buf.remaining() > 0);
        let read = match &mut this.kind {
            Kind::Engine(engine) => Pin::new(engine).poll_read(cx, buf),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => Pin::new(kernel).poll_read(cx, buf),
        };
        #[cfg(feature = "kernel")]
        if read.is_ready() && room && buf.filled().len() == before {
            // The peer has closed, or the connection is over: nothing can come.
            this.stages = None;
        }
        read
    }
}

#[cfg(feature = "kernel")]
impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(stages) = self.stages.take() {
            stages.close(&mut self.kind);
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().kind {
            Kind::Engine(engine) => Pin::new(engine).poll_write(cx, bytes),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => Pin::new(kernel).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().kind {
            Kind::Engine(engine) => Pin::new(engine).poll_write_vectored(cx, bufs),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => Pin::new(kernel).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.kind {
            Kind::Engine(engine) => engine.is_write_vectored(),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => kernel.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Engine(engine) => Pin::new(engine).poll_flush(cx),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => Pin::new(kernel).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Engine(engine) => Pin::new(engine).poll_shutdown(cx),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => Pin::new(kernel).poll_shutdown(cx),
        }
    }
}
