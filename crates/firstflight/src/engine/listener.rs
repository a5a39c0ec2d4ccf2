//! Listening sockets.

use crate::credential::{FastOpenPolicy, KeyRing, PolicyError};
use crate::keys::KeyHandle;
use crate::shared::{Inner, Shared};
use crate::stream::{EngineStream, Stream};
use crate::trust::TrustHandle;
use firstflight_credential::AcceptedBlock;
use firstflight_stack::{ConnId, ListenConfig, ListenError, ListenerId};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

/// A listening socket, of an engine or of the kernel. Dropping it resets the connections that were not accepted.
#[derive(Debug)]
pub struct Listener(Kind);

#[derive(Debug)]
enum Kind {
    Engine(EngineListener),
    Kernel(Arc<firstflight_kernel::Listener>),
}

/// A connection, its peer, and the credential block of its first flight with how many bytes of data it signs.
type Accepted = (ConnId, SocketAddr, Option<(AcceptedBlock, u32)>);

/// A listening socket of an engine, or one of each shard.
#[derive(Debug)]
struct EngineListener {
    parts: Vec<ListenerPart>,
    local: SocketAddr,
    /// The part that is asked first, so that each has its turn.
    turn: AtomicUsize,
}

/// The listening socket of one engine.
#[derive(Debug)]
pub(crate) struct ListenerPart {
    shared: Arc<Shared>,
    id: ListenerId,
    /// The number of the task that polls.
    place: u64,
}

/// A task that accepts. It leaves no waker behind.
struct Accepting<'a> {
    engine: &'a EngineListener,
    /// Its number at the first part, once it waits there.
    first: Option<u64>,
    /// Its numbers at the other parts.
    others: Vec<Option<u64>>,
}

impl Accepting<'_> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<io::Result<Stream>> {
        let parts = &self.engine.parts;
        self.others.resize(parts.len().saturating_sub(1), None);
        for index in self.engine.in_turn() {
            let Some(part) = parts.get(index) else { continue };
            let place = match index.checked_sub(1) {
                None => &mut self.first,
                Some(other) => match self.others.get_mut(other) {
                    Some(place) => place,
                    None => continue,
                },
            };
            let mut inner = part.shared.lock();
            if let Some(accepted) = part.next(&mut inner)? {
                if let Some(place) = place.take() {
                    inner.leave_accept(part.id, place);
                }
                drop(inner);
                return Poll::Ready(Ok(part.stream(accepted)));
            }
            let place = *place.get_or_insert_with(|| inner.place());
            inner.wait_accept(part.id, place, cx);
        }
        Poll::Pending
    }
}

impl Drop for Accepting<'_> {
    fn drop(&mut self) {
        let places = std::iter::once(&self.first).chain(&self.others);
        for (part, place) in self.engine.parts.iter().zip(places) {
            if let Some(place) = place {
                part.shared.lock().leave_accept(part.id, *place);
            }
        }
    }
}

impl From<firstflight_kernel::Listener> for Listener {
    fn from(listener: firstflight_kernel::Listener) -> Self {
        Self(Kind::Kernel(Arc::new(listener)))
    }
}

impl Listener {
    pub(crate) fn new(parts: Vec<ListenerPart>, local: SocketAddr) -> Self {
        Self(Kind::Engine(EngineListener { parts, local, turn: AtomicUsize::new(0) }))
    }

    /// The number of engines behind it: 1, unless its endpoint is [sharded](crate::Endpoint::sharded).
    #[must_use]
    pub const fn shards(&self) -> usize {
        match &self.0 {
            Kind::Engine(engine) => engine.parts.len(),
            Kind::Kernel(_) => 1,
        }
    }

    /// One listener for each shard of an [`Endpoint::sharded`](crate::Endpoint::sharded), in the order of the shards: give each to a task
    /// on the shard's worker, so that its connections stay on one thread. Another listener is returned as it is. The keys of
    /// all are set with a handle that was taken before, or with one of each.
    ///
    /// ```
    /// # use firstflight::{Listener, Workers};
    /// fn serve(listener: Listener, workers: &Workers) {
    ///     for (index, listener) in listener.split().into_iter().enumerate() {
    ///         workers.spawn(index, async move {
    ///             while let Ok(stream) = listener.accept().await {
    ///                 drop(stream);
    ///             }
    ///         });
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn split(self) -> Vec<Self> {
        match self.0 {
            Kind::Engine(EngineListener { parts, local, .. }) => {
                parts.into_iter().map(|part| Self::new(vec![part], local)).collect()
            }
            kernel @ Kind::Kernel(_) => vec![Self(kernel)],
        }
    }

    /// Returns the next connection. A connection whose first flight was accepted is returned before its handshake is
    /// complete: see [`Stream::is_early`].
    ///
    /// # Errors
    /// When the endpoint has stopped. With the kernel's sockets also the system's, for example when the process has too
    /// many files open: the listener goes on.
    ///
    /// ```
    /// # use firstflight::Listener;
    /// # use tokio::io::AsyncWriteExt;
    /// async fn serve(listener: Listener) -> std::io::Result<()> {
    ///     loop {
    ///         let mut stream = listener.accept().await?;
    ///         if stream.is_early() {
    ///             // Answering now is fine. Work that must not run twice has to wait.
    ///             stream.handshake_confirmed().await?;
    ///         }
    ///         stream.write_all(b"hello").await?;
    ///     }
    /// }
    /// ```
    pub async fn accept(&self) -> io::Result<Stream> {
        match &self.0 {
            Kind::Engine(engine) => {
                let mut accepting = Accepting { engine, first: None, others: Vec::new() };
                poll_fn(|cx| accepting.poll(cx)).await
            }
            Kind::Kernel(kernel) => kernel.accept().await.map(Stream::from),
        }
    }

    /// Poll version of [`Listener::accept`]. Poll it from one task at a time.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        match &self.0 {
            Kind::Engine(engine) => engine.poll_accept(cx),
            Kind::Kernel(kernel) => kernel.poll_accept(cx).map_ok(Stream::from),
        }
    }

    /// Replaces the listener's cookie keys, starting with the next SYN. First flights that were already accepted are
    /// not affected. Returns false if it listens without Fast Open, and if the keys' cookie function is not the kernel's
    /// and the listener is.
    ///
    /// ```
    /// # use firstflight::{Listener, credential::{CookieKeys, Scheme}};
    /// fn rotate(listener: &Listener, new: CookieKeys, old: &CookieKeys) -> bool {
    ///     let both = new.with_backup(old.primary.clone());
    ///     listener.set_keys(both.ring(Scheme::Linux).into())
    /// }
    /// ```
    pub fn set_keys(&self, keys: Arc<KeyRing>) -> bool {
        self.keys().set(keys)
    }

    /// A handle that sets the listener's keys. Give it to [`crate::keys::follow`].
    #[must_use]
    pub fn keys(&self) -> KeyHandle {
        match &self.0 {
            Kind::Engine(engine) => KeyHandle::new(engine.sockets()),
            Kind::Kernel(kernel) => KeyHandle::of_kernel(kernel),
        }
    }

    /// A handle that sets the verifiers that the listener trusts. Give it to [`crate::trust::follow`]. `None` for a
    /// listener of the kernel, which takes no certificates.
    #[must_use]
    pub fn trust(&self) -> Option<TrustHandle> {
        match &self.0 {
            Kind::Engine(engine) => Some(TrustHandle::new(engine.sockets())),
            Kind::Kernel(_) => None,
        }
    }

    /// Stops to complete handshakes on the kernel's TCP, and moves the connections that wait to be accepted to `waiting`.
    /// An engine's listener goes on until it is dropped.
    #[allow(dead_code, reason = "of servers")]
    pub(crate) fn drain(&self, waiting: &mut Vec<Stream>) -> io::Result<()> {
        match &self.0 {
            Kind::Engine(engine) => {
                let cx = Context::from_waker(std::task::Waker::noop());
                while let Poll::Ready(Ok(stream)) = engine.poll_accept(&cx) {
                    waiting.push(stream);
                }
            }
            Kind::Kernel(kernel) => {
                kernel.drain()?;
                while let Some(stream) = kernel.try_accept()? {
                    waiting.push(stream.into());
                }
            }
        }
        Ok(())
    }

    /// The address that it listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        match &self.0 {
            Kind::Engine(engine) => engine.local,
            Kind::Kernel(kernel) => kernel.local_addr(),
        }
    }
}

impl EngineListener {
    /// The indices of the parts, each time beginning with another one.
    fn in_turn(&self) -> impl Iterator<Item = usize> + use<> {
        let count = self.parts.len();
        let turn = match count {
            0 | 1 => 0,
            several => self.turn.fetch_add(1, Ordering::Relaxed) % several,
        };
        (turn..count).chain(0..turn)
    }

    fn sockets(&self) -> Vec<(Weak<Shared>, ListenerId)> {
        self.parts.iter().map(|part| (Arc::downgrade(&part.shared), part.id)).collect()
    }

    fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<Stream>> {
        for part in self.in_turn().filter_map(|index| self.parts.get(index)) {
            let mut inner = part.shared.lock();
            if let Some(accepted) = part.next(&mut inner)? {
                drop(inner);
                return Poll::Ready(Ok(part.stream(accepted)));
            }
            inner.wait_accept(part.id, part.place, cx);
        }
        Poll::Pending
    }
}

impl ListenerPart {
    /// Listens on one engine.
    pub(crate) fn listen(shared: &Arc<Shared>, mut config: ListenConfig) -> Result<Self, ListenError> {
        let mut inner = shared.lock();
        let needs_store = config.fast_open.as_ref().is_some_and(FastOpenPolicy::needs_store)
            || config.asap.as_ref().is_some_and(|policy| policy.guard.needs_store());
        if needs_store && !inner.has_store {
            return Err(ListenError::Policy(PolicyError::NeedsStore));
        }
        // Listening may close a replay guard, which needs the current wall clock.
        inner.set_clock();
        let beside = inner.desk.trust(config.asap.as_mut())?;
        let guard = config.asap.as_ref().map(|policy| Arc::clone(&policy.guard));
        let id = inner.stack.listen(config)?;
        if let (Some(trust), Some(guard)) = (beside, guard) {
            inner.desk.begin(id, trust, guard);
        }
        let place = inner.place();
        drop(inner);
        Ok(Self { shared: Arc::clone(shared), id, place })
    }

    /// The next connection, its peer, and the credential block of its first flight.
    fn next(&self, inner: &mut Inner) -> io::Result<Option<Accepted>> {
        let Some(id) = inner.stack.accept(self.id) else { return inner.check().map(|()| None) };
        let Some(peer) = inner.stack.peer(id) else { return Ok(None) };
        inner.accepted = true;
        Ok(Some((id, peer, inner.stack.accepted_block(id))))
    }

    fn stream(&self, (id, peer, block): Accepted) -> Stream {
        EngineStream::accepted(&self.shared, id, peer, block).into()
    }
}

impl Drop for ListenerPart {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        let now = inner.now();
        inner.stack.unlisten(self.id, now);
        inner.forget_listener(self.id);
        inner.desk.end(self.id);
        inner.kick();
    }
}
