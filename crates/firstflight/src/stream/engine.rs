//! Streams of an engine.

#[cfg(feature = "dns")]
mod in_lookup;

use super::connection::Connection;
use super::{Kind, Stream, Way};
use crate::shared::{Inner, Interest, Shared, io_error};
use crate::time::Time;
use firstflight_credential::{AcceptedBlock, Outcome, Reason};
use firstflight_stack::{CloseReason, ConnId, ConnectConfig, ConnectionInfo, IoError};
use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Up to this number of bytes, the parts of a vectored write are copied into one.
const TOGETHER: usize = 2048;

/// The first part of a vectored write that is not empty.
fn first_of<'a>(bufs: &'a [io::IoSlice<'_>]) -> &'a [u8] {
    bufs.iter().find(|buf| !buf.is_empty()).map_or(&[], |buf| buf)
}

/// The phase of a stream.
#[derive(Debug)]
enum Phase {
    /// Nothing was sent yet; the first write connects.
    Lazy(Box<Lazy>),
    Open(ConnId),
}

/// A stream before its first write.
#[derive(Debug)]
struct Lazy {
    config: ConnectConfig,
    wishes: Mutex<Wishes>,
}

/// Settings that the application made before the stream had a connection.
#[derive(Debug, Default)]
struct Wishes {
    nodelay: Option<bool>,
    aborted: bool,
    /// A reader that waits for the first write.
    reader: Option<Waker>,
}

impl Lazy {
    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects, with as much of `bytes` in the SYN as allowed. Returns how many bytes were taken.
    fn connect(&self, inner: &mut Inner, remote: SocketAddr, bytes: &[u8]) -> io::Result<(ConnId, usize)> {
        if self.wishes().aborted {
            return Err(io_error(IoError::Closed(CloseReason::Aborted)));
        }
        let mut config = Cow::Borrowed(&self.config);
        let data = first_data(&mut config, bytes);
        let (id, taken) = connect(inner, remote, data, &config)?;
        if let Some(nodelay) = self.wishes().nodelay {
            let now = inner.now();
            inner.stack.set_nodelay(id, nodelay, now);
        }
        Ok((id, taken))
    }
}

/// A connection of an engine: see [`crate::Stream`].
#[derive(Debug)]
pub(crate) struct EngineStream {
    shared: Arc<Shared>,
    phase: Phase,
    remote: SocketAddr,
    /// Nothing may be written before the handshake is complete.
    held: bool,
    /// The outcome of a first flight that was in another connection's SYN.
    elsewhere: Option<Outcome>,
    /// The credential block of a first flight that was accepted, and how many bytes of data it signs.
    block: Option<Box<(AcceptedBlock, u32)>>,
    /// Another stream has the connection now.
    handed_over: bool,
}

/// Whether the stack may get data before the handshake is complete. Without Fast Open the stack keeps it until then.
/// With Fast Open the data may ride in the SYN, which the application must have allowed.
fn rides(config: &ConnectConfig) -> bool {
    config.replay_safe || !config.fast_open || config.asap.as_ref().is_some_and(|certified| certified.once)
}

/// The part of `data` that the stack gets with the connect. If data is kept back, sets [`ConnectConfig::held_back`].
pub(crate) fn first_data<'a>(config: &mut Cow<'_, ConnectConfig>, data: &'a [u8]) -> &'a [u8] {
    if data.is_empty() || rides(config) {
        return data;
    }
    config.to_mut().held_back = Some(Reason::NotReplaySafe);
    &[]
}

impl EngineStream {
    /// Sends a SYN with as much of `first` as allowed. Returns how much of `first` was taken.
    pub(crate) fn open(
        shared: &Arc<Shared>,
        remote: SocketAddr,
        first: &[u8],
        config: &ConnectConfig,
    ) -> io::Result<(Self, usize)> {
        let mut inner = shared.lock();
        let (id, taken) = connect(&mut inner, remote, first, config)?;
        drop(inner);
        Ok((Self::opened(shared, id, remote, None), taken))
    }

    pub(crate) fn lazy(shared: &Arc<Shared>, remote: SocketAddr, config: ConnectConfig) -> Self {
        let held = !rides(&config);
        let phase = Phase::Lazy(Box::new(Lazy { config, wishes: Mutex::default() }));
        Self {
            shared: Arc::clone(shared),
            phase,
            remote,
            held,
            elsewhere: None,
            block: None,
            handed_over: false,
        }
    }

    pub(crate) fn accepted(
        shared: &Arc<Shared>,
        id: ConnId,
        peer: SocketAddr,
        block: Option<(AcceptedBlock, u32)>,
    ) -> Self {
        let mut stream = Self::opened(shared, id, peer, None);
        stream.block = block.map(Box::new);
        stream
    }

    /// A stream for connection `id`. `elsewhere` is the outcome of its first flight if another connection carried it.
    pub(crate) fn opened(
        shared: &Arc<Shared>,
        id: ConnId,
        remote: SocketAddr,
        elsewhere: Option<Outcome>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            phase: Phase::Open(id),
            remote,
            held: false,
            elsewhere,
            block: None,
            handed_over: false,
        }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.elsewhere.or_else(|| Some(self.info()?.outcome)).unwrap_or_default()
    }

    pub(crate) fn abort(&self) {
        match &self.phase {
            Phase::Open(id) => {
                let mut inner = self.shared.lock();
                let now = inner.now();
                inner.stack.abort(*id, now);
                inner.kick();
            }
            Phase::Lazy(lazy) => {
                let mut wishes = lazy.wishes();
                wishes.aborted = true;
                let reader = wishes.reader.take();
                drop(wishes);
                reader.into_iter().for_each(Waker::wake);
            }
        }
    }

    pub(crate) fn info(&self) -> Option<ConnectionInfo> {
        match self.phase {
            Phase::Open(id) => self.shared.lock().stack.info(id),
            Phase::Lazy(_) => None,
        }
    }

    /// Waits until the handshake is complete.
    pub(crate) async fn connected(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_connected(cx)).await
    }

    pub(crate) fn poll_connected(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self.phase {
            Phase::Open(id) => poll_complete(&mut self.shared.lock(), id, cx),
            Phase::Lazy(_) => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl From<EngineStream> for Stream {
    fn from(stream: EngineStream) -> Self {
        Self::of(Kind::Engine(stream))
    }
}

impl Stream {
    /// The state of the connection in the engine. `None` before the first write of a lazy stream, and for a stream of
    /// the kernel.
    #[must_use]
    pub fn info(&self) -> Option<ConnectionInfo> {
        match &self.kind {
            Kind::Engine(engine) => engine.info(),
            Kind::Kernel(_) => None,
        }
    }
}

impl Connection for EngineStream {
    fn way(&self) -> Way {
        match self.info().and_then(|info| info.carrier) {
            Some(_) => Way::Udp,
            None => Way::Ip,
        }
    }

    fn rtt(&self) -> Option<Duration> {
        self.info()?.rtt
    }

    fn outcome(&self) -> Outcome {
        Self::outcome(self)
    }

    fn peer_addr(&self) -> SocketAddr {
        self.remote
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.info().map(|i| i.local)
    }

    fn is_early(&self) -> bool {
        self.info().is_some_and(|i| !i.confirmed)
    }

    fn early_bytes(&self) -> u32 {
        self.info().map_or(0, |i| i.totals.early)
    }

    fn block(&self) -> Option<(AcceptedBlock, u32)> {
        self.block.as_deref().copied()
    }

    fn poll_confirmed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_connected(cx)
    }

    fn set_nodelay(&self, nodelay: bool) {
        match &self.phase {
            Phase::Open(id) => {
                let mut inner = self.shared.lock();
                let now = inner.now();
                inner.stack.set_nodelay(*id, nodelay, now);
            }
            Phase::Lazy(lazy) => lazy.wishes().nodelay = Some(nodelay),
        }
    }

    fn nodelay(&self) -> bool {
        match &self.phase {
            Phase::Open(_) => self.info().is_some_and(|info| info.nodelay),
            Phase::Lazy(lazy) => {
                let wish = lazy.wishes().nodelay;
                let configured = || lazy.config.tcp.as_ref().map(|tcp| tcp.nodelay);
                wish.or_else(configured).unwrap_or_else(|| self.shared.lock().stack.config().tcp.nodelay)
            }
        }
    }

    fn abort(&self) {
        Self::abort(self);
    }

    fn hand_over(&mut self) -> Option<Self> {
        let Phase::Open(id) = self.phase else { return None };
        self.handed_over = true;
        Some(Self::opened(&self.shared, id, self.remote, self.elsewhere))
    }
}

impl Phase {
    /// The connection, and how many of `bytes` were taken. A lazy stream connects now, with as much of `bytes` in the
    /// SYN as allowed.
    fn ensure(&mut self, inner: &mut Inner, remote: SocketAddr, bytes: &[u8]) -> io::Result<(ConnId, usize)> {
        let lazy = match self {
            Self::Open(id) => return Ok((*id, 0)),
            Self::Lazy(lazy) => lazy,
        };
        let (id, taken) = lazy.connect(inner, remote, bytes)?;
        let reader = lazy.wishes().reader.take();
        *self = Self::Open(id);
        reader.into_iter().for_each(Waker::wake);
        Ok((id, taken))
    }
}

/// Whether the handshake of `id` is complete.
fn poll_complete(inner: &mut Inner, id: ConnId, cx: &Context<'_>) -> Poll<io::Result<()>> {
    if inner.stack.is_confirmed(id) {
        return Poll::Ready(Ok(()));
    }
    if let Some(reason) = inner.stack.close_reason(id) {
        return Poll::Ready(Err(inner.io_error(id, IoError::Closed(reason))));
    }
    inner.check()?;
    inner.wait(id, Interest::Connected, cx);
    Poll::Pending
}

/// Sets the present time, from which a certificate's age is computed. A lazy stream may have been created long
/// before.
pub(crate) fn at_present<'a>(config: &'a ConnectConfig, time: &Time) -> io::Result<Cow<'a, ConnectConfig>> {
    let mut config = Cow::Borrowed(config);
    if config.asap.is_some() {
        let clock = time.certificate_clock()?;
        if let Some(certified) = &mut config.to_mut().asap {
            certified.now = clock;
        }
    }
    Ok(config)
}

/// Connects now.
pub(crate) fn connect(
    inner: &mut Inner,
    remote: SocketAddr,
    first: &[u8],
    config: &ConnectConfig,
) -> io::Result<(ConnId, usize)> {
    inner.check()?;
    inner.find_source(remote)?;
    let now = inner.now();
    let config = at_present(config, &inner.time)?;
    let made = inner.stack.connect(remote, first, &config, now).map_err(io::Error::other)?;
    inner.kick();
    Ok(made)
}

impl AsyncRead for EngineStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut inner = this.shared.lock();
        let id = match &this.phase {
            Phase::Open(id) => *id,
            Phase::Lazy(lazy) => {
                inner.check()?;
                let mut wishes = lazy.wishes();
                if wishes.aborted {
                    return Poll::Ready(Err(io_error(IoError::Closed(CloseReason::Aborted))));
                }
                wishes.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
        };
        let now = inner.now();
        match inner.stack.read(id, buf.initialize_unfilled(), now) {
            Ok(n) => {
                buf.advance(n);
                inner.kick();
                Poll::Ready(Ok(()))
            }
            Err(IoError::WouldBlock) => {
                inner.check()?;
                inner.wait(id, Interest::Read, cx);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(inner.io_error(id, error))),
        }
    }
}

impl AsyncWrite for EngineStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { shared, phase, remote, held, .. } = self.get_mut();
        let mut inner = shared.lock();
        let begins = matches!(phase, Phase::Lazy(_));
        let (id, taken) = phase.ensure(&mut inner, *remote, bytes)?;
        if taken > 0 || (begins && bytes.is_empty()) {
            return Poll::Ready(Ok(taken));
        }
        if *held {
            ready!(poll_complete(&mut inner, id, cx))?;
            *held = false;
        }
        let now = inner.now();
        match inner.stack.write(id, bytes, now) {
            Ok(n) => {
                inner.kick();
                Poll::Ready(Ok(n))
            }
            Err(IoError::WouldBlock) => {
                inner.check()?;
                inner.wait(id, Interest::Write, cx);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(inner.io_error(id, error))),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let Phase::Open(id) = this.phase else { return Pin::new(this).poll_write(cx, first_of(bufs)) };
        if this.held {
            return Pin::new(this).poll_write(cx, first_of(bufs));
        }
        let len = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        let mut together = [0; TOGETHER];
        if let Some(together) = together.get_mut(..len) {
            // A short head and its body are one write, which costs less than two.
            let mut rest = &mut *together;
            for buf in bufs {
                let (place, after) = rest.split_at_mut(buf.len());
                place.copy_from_slice(buf);
                rest = after;
            }
            return Pin::new(this).poll_write(cx, together);
        }
        let mut inner = this.shared.lock();
        let now = inner.now();
        let mut taken = 0;
        for buf in bufs.iter().filter(|buf| !buf.is_empty()) {
            match inner.stack.write(id, buf, now) {
                Ok(n) => {
                    taken += n;
                    if n < buf.len() {
                        break;
                    }
                }
                // The next write waits, or reports the error.
                Err(_) if taken > 0 => break,
                Err(IoError::WouldBlock) => {
                    inner.check()?;
                    inner.wait(id, Interest::Write, cx);
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(inner.io_error(id, error))),
            }
        }
        inner.kick();
        Poll::Ready(Ok(taken))
    }

    /// A lazy stream wants its first flight in one piece.
    fn is_write_vectored(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { shared, phase, remote, .. } = self.get_mut();
        let mut inner = shared.lock();
        let (id, _) = phase.ensure(&mut inner, *remote, &[])?;
        let now = inner.now();
        let result = inner.stack.shutdown(id, now).map_err(io_error);
        inner.kick();
        Poll::Ready(result)
    }
}

impl Drop for EngineStream {
    fn drop(&mut self) {
        if let Phase::Open(id) = self.phase
            && !self.handed_over
        {
            let mut inner = self.shared.lock();
            let now = inner.now();
            inner.stack.release(id, now);
            inner.forget(id);
            inner.kick();
        }
    }
}
