//! Streams.

use crate::shared::{Inner, Interest, Shared, io_error};
use firstflight_credential::Outcome;
use firstflight_stack::{ConnId, ConnectConfig, ConnectionInfo, IoError};
use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Where a stream stands.
#[derive(Debug)]
enum Phase {
    /// Nothing was sent: the first write connects. Who reads before waits for it.
    Lazy(ConnectConfig, Option<Waker>),
    Open(ConnId),
}

/// A TCP stream. `AsyncWrite::poll_shutdown` closes the sending direction and leaves the other open
/// (half close). Dropped, it closes in order in the background.
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
    phase: Phase,
    remote: SocketAddr,
    /// Nothing may be written before the handshake is complete.
    held: bool,
    /// What became of the first flight in another connection's SYN.
    elsewhere: Option<Outcome>,
}

/// Whether data may be given to the stack before the handshake is complete: without Fast Open it waits there,
/// with it, it may ride in the SYN, which the application must have allowed.
pub(crate) fn rides(config: &ConnectConfig) -> bool {
    config.replay_safe || !config.fast_open || config.asap.as_ref().is_some_and(|certified| certified.once)
}

impl Stream {
    /// Sends a SYN, `first` in it as far as it may be; gives how much of `first` was taken.
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
        let phase = Phase::Lazy(config, None);
        Self { shared: Arc::clone(shared), phase, remote, held, elsewhere: None }
    }

    pub(crate) fn accepted(shared: &Arc<Shared>, id: ConnId, info: &ConnectionInfo) -> Self {
        Self::opened(shared, id, info.remote, None)
    }

    /// A stream for connection `id`; `elsewhere` is what became of its first flight if that was tried on
    /// another one.
    pub(crate) fn opened(
        shared: &Arc<Shared>,
        id: ConnId,
        remote: SocketAddr,
        elsewhere: Option<Outcome>,
    ) -> Self {
        Self { shared: Arc::clone(shared), phase: Phase::Open(id), remote, held: false, elsewhere }
    }

    /// The answer to the first flight inside a lookup is taken from whoever proves with `key` that he got it.
    #[cfg(feature = "dns")]
    pub(crate) fn expect_answer(&self, id: ConnId, key: firstflight_credential::asap::ReplyKey) {
        self.shared.lock().stack.expect_answer(id, key);
    }

    /// The peer was not known before.
    #[cfg(feature = "dns")]
    pub(crate) fn set_peer(&mut self, remote: SocketAddr) {
        self.remote = remote;
    }

    /// What became of the first flight, and why; `Undecided` until the answer has come. After
    /// [`Endpoint::connect_any`](crate::Endpoint::connect_any) it may have been in the SYN of another
    /// attempt.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.elsewhere.or_else(|| Some(self.info()?.outcome)).unwrap_or_default()
    }

    /// What can be known of the connection; `None` before the first write of a lazy one.
    #[must_use]
    pub fn info(&self) -> Option<ConnectionInfo> {
        match self.phase {
            Phase::Open(id) => self.shared.lock().stack.info(id),
            Phase::Lazy(..) => None,
        }
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.remote
    }

    /// Our address; `None` before the first write of a lazy stream.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.info().map(|i| i.local)
    }

    /// Server side: the handshake is not complete, so what was read so far came before. Only the credential
    /// speaks for the client's address, and the network may have made copies of the request. It ends with
    /// [`Stream::handshake_confirmed`]; what came early can still be told by [`Stream::early_bytes`].
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.info().is_some_and(|i| !i.confirmed)
    }

    /// Server side: how many bytes at the beginning of the stream came in the SYN, before the handshake was
    /// complete. 0 for an ordinary handshake.
    #[must_use]
    pub fn early_bytes(&self) -> u32 {
        self.info().map_or(0, |i| i.totals.early)
    }

    /// Waits until the peer's ACK has proved its address.
    ///
    /// # Errors
    /// When the connection ends before.
    pub async fn handshake_confirmed(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_connected(cx)).await
    }

    /// [`Stream::handshake_confirmed`] as a poll.
    ///
    /// # Errors
    /// When the connection ends before.
    pub fn poll_handshake_confirmed(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll_connected(cx)
    }

    /// Client side: waits until the server's SYN-ACK has come; a lazy stream that has written
    /// nothing waits for nothing.
    ///
    /// # Errors
    /// When the connection is refused or nobody answers.
    pub async fn connected(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_connected(cx)).await
    }

    fn poll_connected(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self.phase {
            Phase::Open(id) => poll_complete(&mut self.shared.lock(), id, cx),
            Phase::Lazy(..) => Poll::Ready(Ok(())),
        }
    }

    /// Turns Nagle's algorithm off (true) or on.
    pub fn set_nodelay(&self, nodelay: bool) {
        if let Phase::Open(id) = self.phase {
            let mut inner = self.shared.lock();
            let now = inner.now();
            inner.stack.set_nodelay(id, nodelay, now);
        }
    }

    /// Ends the connection with a RST.
    pub fn abort(&self) {
        if let Phase::Open(id) = self.phase {
            let mut inner = self.shared.lock();
            let now = inner.now();
            inner.stack.abort(id, now);
            inner.kick();
        }
    }

    /// The lazy stream is open now: who waits to read looks again.
    fn begin(&mut self, id: ConnId) {
        if let Phase::Lazy(_, Some(waker)) = std::mem::replace(&mut self.phase, Phase::Open(id)) {
            waker.wake();
        }
    }

    /// The connection, made now without data if it is not there yet.
    fn ensure(&mut self, inner: &mut Inner) -> io::Result<ConnId> {
        match &self.phase {
            Phase::Open(id) => Ok(*id),
            Phase::Lazy(config, _) => {
                let (id, _) = connect(inner, self.remote, &[], config)?;
                self.begin(id);
                Ok(id)
            }
        }
    }
}

/// Whether the handshake of `id` is complete.
fn poll_complete(inner: &mut Inner, id: ConnId, cx: &Context<'_>) -> Poll<io::Result<()>> {
    if inner.stack.info(id).is_some_and(|i| i.confirmed) {
        return Poll::Ready(Ok(()));
    }
    if let Some(reason) = inner.stack.close_reason(id) {
        return Poll::Ready(Err(io_error(IoError::Closed(reason))));
    }
    inner.check()?;
    inner.wait(id, Interest::Connected, cx);
    Poll::Pending
}

/// A certificate's age is that of the moment when it is shown; a lazy stream may have been made long before.
pub(crate) fn at_present(config: &ConnectConfig) -> io::Result<Cow<'_, ConnectConfig>> {
    let mut config = Cow::Borrowed(config);
    if config.asap.is_some() {
        let clock = crate::certificate_clock()?;
        if let Some(certified) = &mut config.to_mut().asap {
            certified.now = clock;
        }
    }
    Ok(config)
}

fn connect(
    inner: &mut Inner,
    remote: SocketAddr,
    first: &[u8],
    config: &ConnectConfig,
) -> io::Result<(ConnId, usize)> {
    inner.check()?;
    let now = inner.now();
    let config = at_present(config)?;
    let made = inner.stack.connect(remote, first, &config, now).map_err(io::Error::other)?;
    inner.kick();
    Ok(made)
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shared = Arc::clone(&this.shared);
        let mut inner = shared.lock();
        let id = match &mut this.phase {
            Phase::Open(id) => *id,
            Phase::Lazy(_, waker) => {
                inner.check()?;
                *waker = Some(cx.waker().clone());
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
            Err(error) => Poll::Ready(Err(io_error(error))),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let shared = Arc::clone(&this.shared);
        let mut inner = shared.lock();
        if let Phase::Lazy(config, _) = &this.phase
            && !this.held
        {
            let (id, taken) = connect(&mut inner, this.remote, bytes, config)?;
            this.begin(id);
            if taken > 0 || bytes.is_empty() {
                return Poll::Ready(Ok(taken));
            }
        }
        let id = this.ensure(&mut inner)?;
        if this.held {
            ready!(poll_complete(&mut inner, id, cx))?;
            this.held = false;
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
            Err(error) => Poll::Ready(Err(io_error(error))),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shared = Arc::clone(&this.shared);
        let mut inner = shared.lock();
        let id = this.ensure(&mut inner)?;
        let now = inner.now();
        let result = inner.stack.shutdown(id, now).map_err(io_error);
        inner.kick();
        Poll::Ready(result)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Phase::Open(id) = self.phase {
            let mut inner = self.shared.lock();
            let now = inner.now();
            inner.stack.release(id, now);
            inner.forget(id);
            inner.kick();
        }
    }
}
