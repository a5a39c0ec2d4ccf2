//! Streams of an engine.

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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Up to this number of bytes, the parts of a vectored write are copied into one.
const TOGETHER: usize = 2048;

/// The first part of a vectored write that is not empty.
fn first_of<'a>(bufs: &'a [io::IoSlice<'_>]) -> &'a [u8] {
    bufs.iter().find(|buf| !buf.is_empty()).map_or(&[], |buf| buf)
}

/// A stream before its first write, which connects, and the settings that the application made meanwhile.
#[derive(Debug)]
struct Lazy {
    config: ConnectConfig,
    nodelay: Option<bool>,
    keep_alive: Option<Option<Duration>>,
    aborted: bool,
    /// A reader that waits for the first write.
    reader: Option<Waker>,
}

impl Lazy {
    /// Connects, with as much of `bytes` in the SYN as allowed. Returns how many bytes were taken.
    fn connect(&self, inner: &mut Inner, remote: SocketAddr, bytes: &[u8]) -> io::Result<(ConnId, usize)> {
        if self.aborted {
            return Err(io_error(IoError::Closed(CloseReason::Aborted)));
        }
        let mut config = Cow::Borrowed(&self.config);
        let data = first_data(&mut config, bytes);
        let (id, taken) = connect(inner, remote, data, &config)?;
        if let Some(nodelay) = self.nodelay {
            let now = inner.now();
            inner.stack.set_nodelay(id, nodelay, now);
        }
        if let Some(after) = self.keep_alive {
            set_keep_alive(inner, id, after)?;
        }
        Ok((id, taken))
    }
}

/// Sets when the peer of connection `id` is asked whether it is there: see [`crate::Stream::set_keep_alive`].
fn set_keep_alive(inner: &mut Inner, id: ConnId, after: Option<Duration>) -> io::Result<()> {
    let config = inner.stack.connection(id).ok_or(io::ErrorKind::NotConnected)?.config();
    let second = Duration::from_secs(1);
    let keepalive = after.map(|after| firstflight_tcp::Keepalive {
        idle: after.max(second),
        interval: (after / 4).max(second),
        probes: 4,
    });
    let config = Arc::new(firstflight_tcp::Config::clone(config).keepalive(keepalive));
    let now = inner.now();
    inner.stack.set_tcp_config(id, config, now);
    inner.kick();
    Ok(())
}

/// A connection of an engine: see [`crate::Stream`].
#[derive(Debug)]
pub(crate) struct EngineStream {
    pub(crate) shared: Arc<Shared>,
    /// The connection, from the first write of a lazy stream on. It is set under the engine's lock.
    id: OnceLock<ConnId>,
    /// What is there until then. Whoever holds the engine's lock too took that first.
    lazy: Mutex<Option<Box<Lazy>>>,
    pub(crate) remote: SocketAddr,
    /// Nothing may be written before the handshake is complete.
    held: AtomicBool,
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
        let held = AtomicBool::new(!rides(&config));
        let lazy = Lazy { config, nodelay: None, keep_alive: None, aborted: false, reader: None };
        Self {
            shared: Arc::clone(shared),
            id: OnceLock::new(),
            lazy: Mutex::new(Some(Box::new(lazy))),
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
            id: id.into(),
            lazy: Mutex::default(),
            remote,
            held: AtomicBool::new(false),
            elsewhere,
            block: None,
            handed_over: false,
        }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.elsewhere.or_else(|| Some(self.info()?.outcome)).unwrap_or_default()
    }

    pub(crate) fn info(&self) -> Option<ConnectionInfo> {
        self.shared.lock().stack.info(*self.id.get()?)
    }

    /// Waits until the handshake is complete.
    pub(crate) async fn connected(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_handshake_confirmed(cx)).await
    }

    pub(crate) fn poll_handshake_confirmed(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self.id.get() {
            Some(id) => poll_complete(&mut self.shared.lock(), *id, cx),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn lazy_state(&self) -> MutexGuard<'_, Option<Box<Lazy>>> {
        self.lazy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `wish` with a stream that has no connection yet, or `now` with its connection.
    fn set<T>(
        &self,
        wish: impl FnOnce(&mut Lazy) -> T,
        now: impl FnOnce(&mut Inner, ConnId) -> T,
    ) -> io::Result<T> {
        if self.id.get().is_none()
            && let Some(lazy) = self.lazy_state().as_deref_mut()
        {
            return Ok(wish(lazy));
        }
        let id = *self.id.get().ok_or(io::ErrorKind::NotConnected)?;
        let mut inner = self.shared.lock();
        inner.stack.peer(id).ok_or(io::ErrorKind::NotConnected)?;
        Ok(now(&mut inner, id))
    }

    pub(crate) fn abort(&self) {
        let wish = |lazy: &mut Lazy| {
            lazy.aborted = true;
            lazy.reader.take()
        };
        let now = |inner: &mut Inner, id| {
            let now = inner.now();
            inner.stack.abort(id, now);
            inner.kick();
            None
        };
        // It fails only when the connection is over.
        if let Ok(Some(reader)) = self.set(wish, now) {
            reader.wake();
        }
    }

    /// Whether nothing was written yet, and nothing connects.
    pub(crate) fn is_idle(&self) -> bool {
        self.id.get().is_none()
    }

    /// The connection, and how many of `bytes` were taken. A lazy stream connects now, with as much of `bytes` in the
    /// SYN as allowed.
    fn ensure(&self, inner: &mut Inner, bytes: &[u8]) -> io::Result<(ConnId, usize)> {
        if let Some(id) = self.id.get() {
            return Ok((*id, 0));
        }
        let mut lazy = self.lazy_state();
        let (id, taken) =
            lazy.as_deref().ok_or(io::ErrorKind::NotConnected)?.connect(inner, self.remote, bytes)?;
        let id = *self.id.get_or_init(|| id);
        let before = lazy.take();
        drop(lazy);
        before.and_then(|lazy| lazy.reader).into_iter().for_each(Waker::wake);
        Ok((id, taken))
    }

    /// Calls `take` when there is data, or the end, or an error.
    fn poll_data<T>(
        &self,
        cx: &Context<'_>,
        take: impl FnOnce(&mut Inner, ConnId) -> Result<T, IoError>,
    ) -> Poll<io::Result<T>> {
        let mut inner = self.shared.lock();
        let Some(&id) = self.id.get() else {
            inner.check()?;
            let mut lazy = self.lazy_state();
            let lazy = lazy.as_deref_mut().ok_or(io::ErrorKind::NotConnected)?;
            if lazy.aborted {
                return Poll::Ready(Err(io_error(IoError::Closed(CloseReason::Aborted))));
            }
            lazy.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        match take(&mut inner, id) {
            Ok(taken) => {
                inner.kick();
                Poll::Ready(Ok(taken))
            }
            Err(IoError::WouldBlock) => {
                inner.check()?;
                inner.wait(id, Interest::Read, cx);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(inner.io_error(id, error))),
        }
    }

    /// `AsyncRead::poll_read`, for a shared reference.
    pub(crate) fn poll_receive(&self, cx: &Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = |inner: &mut Inner, id| {
            let now = inner.now();
            inner.stack.read(id, buf.initialize_unfilled(), now)
        };
        let n = ready!(self.poll_data(cx, read))?;
        buf.advance(n);
        Poll::Ready(Ok(()))
    }

    /// Copies data without taking it out. Returns the number of bytes; 0 is the end of the stream.
    pub(crate) fn poll_peek(&self, cx: &Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let peek = |inner: &mut Inner, id| match inner.stack.peek(id, buf.initialize_unfilled()) {
            // Why there is nothing, a read says.
            0 if buf.remaining() > 0 => {
                let now = inner.now();
                inner.stack.read(id, &mut [0], now)
            }
            n => Ok(n),
        };
        let n = ready!(self.poll_data(cx, peek))?;
        buf.advance(n);
        Poll::Ready(Ok(n))
    }

    /// `AsyncWrite::poll_write`, for a shared reference.
    pub(crate) fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.shared.lock();
        let begins = self.is_idle();
        let (id, taken) = self.ensure(&mut inner, bytes)?;
        if taken > 0 || (begins && bytes.is_empty()) {
            return Poll::Ready(Ok(taken));
        }
        if self.held.load(Ordering::Relaxed) {
            ready!(poll_complete(&mut inner, id, cx))?;
            self.held.store(false, Ordering::Relaxed);
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

    /// `AsyncWrite::poll_write_vectored`, for a shared reference.
    pub(crate) fn poll_send_vectored(
        &self,
        cx: &Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Some(&id) = self.id.get() else { return self.poll_send(cx, first_of(bufs)) };
        if self.held.load(Ordering::Relaxed) {
            return self.poll_send(cx, first_of(bufs));
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
            return self.poll_send(cx, together);
        }
        let mut inner = self.shared.lock();
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

    /// Closes the sending direction. A lazy stream connects first.
    pub(crate) fn close_sending(&self) -> io::Result<()> {
        let mut inner = self.shared.lock();
        let (id, _) = self.ensure(&mut inner, &[])?;
        let now = inner.now();
        let result = inner.stack.shutdown(id, now).map_err(io_error);
        inner.kick();
        result
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

impl EngineStream {
    pub(super) fn way(&self) -> Way {
        match self.info().and_then(|info| info.encapsulation) {
            Some(_) => Way::Udp,
            None => Way::Ip,
        }
    }

    pub(super) fn rtt(&self) -> Option<Duration> {
        self.info()?.rtt
    }

    pub(super) fn peer_addr(&self) -> SocketAddr {
        self.remote
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.info().map(|info| info.local).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    pub(super) fn is_early(&self) -> bool {
        self.info().is_some_and(|i| !i.confirmed)
    }

    pub(super) fn early_bytes(&self) -> u32 {
        self.info().map_or(0, |i| i.totals.early)
    }

    pub(super) fn block(&self) -> Option<(AcceptedBlock, u32)> {
        self.block.as_deref().copied()
    }

    pub(super) fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        let now = |inner: &mut Inner, id| {
            let now = inner.now();
            inner.stack.set_nodelay(id, nodelay, now);
        };
        self.set(|lazy| lazy.nodelay = Some(nodelay), now)
    }

    pub(super) fn nodelay(&self) -> io::Result<bool> {
        let wish = |lazy: &mut Lazy| lazy.nodelay.or_else(|| Some(lazy.config.tcp.as_ref()?.sends_at_once()));
        let now = |inner: &mut Inner, id| inner.stack.connection(id).map(|connection| connection.nodelay());
        let nodelay = self.set(wish, now)?;
        Ok(nodelay.unwrap_or_else(|| self.shared.lock().stack.config().tcp.sends_at_once()))
    }

    pub(super) fn set_keep_alive(&self, after: Option<Duration>) -> io::Result<()> {
        let wish = |lazy: &mut Lazy| {
            lazy.keep_alive = Some(after);
            Ok(())
        };
        self.set(wish, |inner, id| set_keep_alive(inner, id, after))?
    }

    pub(super) fn keep_alive(&self) -> io::Result<Option<Duration>> {
        let idle = |tcp: &firstflight_tcp::Config| tcp.keepalive_probing().map(|keepalive| keepalive.idle);
        let wish = |lazy: &mut Lazy| lazy.keep_alive.or_else(|| lazy.config.tcp.as_deref().map(idle));
        let now =
            |inner: &mut Inner, id| inner.stack.connection(id).map(|connection| idle(connection.config()));
        let after = self.set(wish, now)?;
        Ok(after.unwrap_or_else(|| idle(&self.shared.lock().stack.config().tcp)))
    }

    pub(super) fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        match linger {
            Some(time) if !time.is_zero() => {
                let text = "an engine's stream closes in the background, or at once with a RST";
                Err(io::Error::new(io::ErrorKind::Unsupported, text))
            }
            // The stream does it when it is dropped.
            _ => Ok(()),
        }
    }

    /// Another value for the same connection; `None` if there is none.
    pub(super) fn hand_over(&mut self) -> Option<Self> {
        let id = *self.id.get()?;
        self.handed_over = true;
        Some(Self::opened(&self.shared, id, self.remote, self.elsewhere))
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
        self.poll_receive(cx, buf)
    }
}

impl AsyncWrite for EngineStream {
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

    /// A lazy stream wants its first flight in one piece.
    fn is_write_vectored(&self) -> bool {
        !self.is_idle()
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.close_sending())
    }
}

impl Drop for EngineStream {
    fn drop(&mut self) {
        if let Some(&id) = self.id.get()
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
