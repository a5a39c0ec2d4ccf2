//! TCP streams, of an engine or of the kernel.

#[cfg(feature = "client")]
mod connected;
mod connection;
#[cfg(feature = "engine")]
mod engine;
#[cfg(not(feature = "engine"))]
#[path = "stream/no_engine.rs"]
mod engine;
mod kernel;
#[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only a server begins stages"))]
mod staged;
mod times;

pub(crate) use engine::*;
pub(crate) use kernel::KernelStream;
pub(crate) use staged::Stages;
pub use times::ConnectTimes;

use crate::lingering::Lingering;
use connection::Connection;
use firstflight_credential::{AcceptedBlock, Outcome};
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
    times: Option<ConnectTimes>,
    /// A server's stream, whose peer has not closed yet: how it ends when it is dropped.
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

impl Stream {
    const fn of(kind: Kind) -> Self {
        Self { kind, race: None, elsewhere: None, times: None, stages: None }
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
            Kind::Kernel(kernel) => kernel.way(),
        }
    }

    /// The smoothed round-trip time, once it was measured.
    #[must_use]
    pub fn rtt(&self) -> Option<std::time::Duration> {
        match &self.kind {
            Kind::Engine(engine) => engine.rtt(),
            Kind::Kernel(kernel) => Connection::rtt(kernel),
        }
    }

    /// Kernel's sockets: whether the connection won a race against an attempt with Fast Open. `None` if there was no such
    /// race, and for a connection of an engine, whose second attempts are in [`Stream::info`].
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
            Kind::Engine(engine) => Connection::outcome(engine),
            Kind::Kernel(kernel) => Connection::outcome(kernel),
        })
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        match &self.kind {
            Kind::Engine(engine) => engine.peer_addr(),
            Kind::Kernel(kernel) => kernel.peer_addr(),
        }
    }

    /// The local address. `None` before the first write of a lazy stream.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Engine(engine) => engine.local_addr(),
            Kind::Kernel(kernel) => Connection::local_addr(kernel),
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
            Kind::Kernel(kernel) => kernel.is_early(),
        }
    }

    /// Server side: how many bytes at the beginning of the stream arrived in the SYN, before the handshake was
    /// complete. 0 for an ordinary handshake.
    #[must_use]
    pub fn early_bytes(&self) -> u32 {
        match &self.kind {
            Kind::Engine(engine) => engine.early_bytes(),
            Kind::Kernel(kernel) => kernel.early_bytes(),
        }
    }

    /// Server side: what the credential block said with which an accepted first flight came (ASAP). `None` if it came
    /// without one. A protocol above can bind what it encrypts to it.
    #[must_use]
    pub fn accepted_block(&self) -> Option<AcceptedBlock> {
        match &self.kind {
            Kind::Engine(engine) => Some(engine.block()?.0),
            Kind::Kernel(kernel) => Some(kernel.block()?.0),
        }
    }

    /// Server side: how many bytes at the beginning of the stream the signature of the [accepted
    /// block](Stream::accepted_block) covers. Not more than [`Stream::early_bytes`], which has what followed the SYN, too.
    /// 0 without a block.
    #[must_use]
    pub fn signed_bytes(&self) -> u32 {
        match &self.kind {
            Kind::Engine(engine) => engine.block().map_or(0, |(_, signed)| signed),
            Kind::Kernel(kernel) => kernel.block().map_or(0, |(_, signed)| signed),
        }
    }

    /// Waits until the peer's ACK has proved its address.
    ///
    /// # Errors
    /// When the connection ends before the ACK arrives. [`io::ErrorKind::NotConnected`] for a lazy stream before its
    /// first write.
    pub async fn handshake_confirmed(&self) -> io::Result<()> {
        match &self.kind {
            Kind::Engine(engine) => poll_fn(|cx| engine.poll_confirmed(cx)).await,
            Kind::Kernel(kernel) => poll_fn(|cx| kernel.poll_confirmed(cx)).await,
        }
    }

    /// Poll version of [`Stream::handshake_confirmed`]. Do not poll it from one task while another task writes.
    ///
    /// # Errors
    /// As [`Stream::handshake_confirmed`].
    pub fn poll_handshake_confirmed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.kind {
            Kind::Engine(engine) => engine.poll_confirmed(cx),
            Kind::Kernel(kernel) => kernel.poll_confirmed(cx),
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
            Kind::Kernel(kernel) => Connection::set_nodelay(kernel, nodelay),
        }
    }

    /// Whether Nagle's algorithm is off. For a lazy stream, whether it will be off. False when the connection is gone.
    #[must_use]
    pub fn nodelay(&self) -> bool {
        match &self.kind {
            Kind::Engine(engine) => engine.nodelay(),
            Kind::Kernel(kernel) => Connection::nodelay(kernel),
        }
    }

    /// Ends the connection with a RST. A lazy stream that has not connected yet will not connect: its reads and
    /// writes fail with [`io::ErrorKind::ConnectionAborted`].
    pub fn abort(&self) {
        match &self.kind {
            Kind::Engine(engine) => engine.abort(),
            Kind::Kernel(kernel) => Connection::abort(kernel),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (before, room) = (buf.filled().len(), buf.remaining() > 0);
        let read = match &mut this.kind {
            Kind::Engine(engine) => Pin::new(engine).poll_read(cx, buf),
            Kind::Kernel(kernel) => Pin::new(kernel).poll_read(cx, buf),
        };
        if read.is_ready() && room && buf.filled().len() == before {
            // The peer has closed, or the connection is over: nothing can come.
            this.stages = None;
        }
        read
    }
}

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
            Kind::Kernel(kernel) => Pin::new(kernel).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.kind {
            Kind::Engine(engine) => engine.is_write_vectored(),
            Kind::Kernel(kernel) => kernel.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Engine(engine) => Pin::new(engine).poll_flush(cx),
            Kind::Kernel(kernel) => Pin::new(kernel).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Engine(engine) => Pin::new(engine).poll_shutdown(cx),
            Kind::Kernel(kernel) => Pin::new(kernel).poll_shutdown(cx),
        }
    }
}
