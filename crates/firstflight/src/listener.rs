//! Listening sockets.

use crate::credential::KeyRing;
use crate::keys::KeyHandle;
use crate::shared::{Inner, Shared};
use crate::stream::{EngineStream, Stream};
use crate::trust::TrustHandle;
use firstflight_credential::asap::AcceptedBlock;
use firstflight_stack::{ConnId, ListenerId};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A listening socket, of an engine or of the kernel. Dropping it resets the connections that were not accepted.
#[derive(Debug)]
pub struct Listener(Kind);

#[derive(Debug)]
enum Kind {
    Engine(EngineListener),
    #[cfg(feature = "kernel")]
    Kernel(Arc<firstflight_kernel::Listener>),
}

/// A connection, its peer, and the credential block of its first flight with how many bytes of data it signs.
type Accepted = (ConnId, SocketAddr, Option<(AcceptedBlock, u32)>);

/// A listening socket of an engine.
#[derive(Debug)]
struct EngineListener {
    shared: Arc<Shared>,
    id: ListenerId,
    local: SocketAddr,
    /// The number of the task that polls.
    place: u64,
}

/// A task that accepts. It leaves no waker behind.
struct Accepting<'a> {
    engine: &'a EngineListener,
    /// Its number, once it waits.
    place: Option<u64>,
}

impl Accepting<'_> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<io::Result<Stream>> {
        let mut inner = self.engine.shared.lock();
        let accepted = self.engine.next(&mut inner)?;
        if let Some((id, peer, block)) = accepted {
            if let Some(place) = self.place.take() {
                inner.leave_accept(self.engine.id, place);
            }
            drop(inner);
            return Poll::Ready(Ok(EngineStream::accepted(&self.engine.shared, id, peer, block).into()));
        }
        let place = *self.place.get_or_insert_with(|| inner.place());
        inner.wait_accept(self.engine.id, place, cx);
        Poll::Pending
    }
}

impl Drop for Accepting<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.engine.shared.lock().leave_accept(self.engine.id, place);
        }
    }
}

#[cfg(feature = "kernel")]
impl From<firstflight_kernel::Listener> for Listener {
    fn from(listener: firstflight_kernel::Listener) -> Self {
        Self(Kind::Kernel(Arc::new(listener)))
    }
}

impl Listener {
    pub(crate) fn new(shared: Arc<Shared>, id: ListenerId, local: SocketAddr) -> Self {
        let place = shared.lock().place();
        Self(Kind::Engine(EngineListener { shared, id, local, place }))
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
                let mut accepting = Accepting { engine, place: None };
                poll_fn(|cx| accepting.poll(cx)).await
            }
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => kernel.accept().await.map(Stream::from),
        }
    }

    /// Poll version of [`Listener::accept`]. Poll it from one task at a time.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        match &self.0 {
            Kind::Engine(engine) => engine.poll_accept(engine.place, cx),
            #[cfg(feature = "kernel")]
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
            Kind::Engine(engine) => KeyHandle::new(&engine.shared, engine.id),
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => KeyHandle::of_kernel(kernel),
        }
    }

    /// A handle that sets the verifiers that the listener trusts. Give it to [`crate::trust::follow`]. `None` for a
    /// listener of the kernel, which takes no certificates.
    #[must_use]
    pub fn trust(&self) -> Option<TrustHandle> {
        match &self.0 {
            Kind::Engine(engine) => Some(TrustHandle::new(&engine.shared, engine.id)),
            #[cfg(feature = "kernel")]
            Kind::Kernel(_) => None,
        }
    }

    /// Stops to complete handshakes on the kernel's TCP, and moves the connections that wait to be accepted to `waiting`.
    /// An engine's listener goes on until it is dropped.
    #[cfg(feature = "kernel")]
    pub(crate) fn drain(&self, waiting: &mut Vec<Stream>) -> io::Result<()> {
        match &self.0 {
            Kind::Engine(engine) => {
                let cx = Context::from_waker(std::task::Waker::noop());
                while let Poll::Ready(Ok(stream)) = engine.poll_accept(engine.place, &cx) {
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
            #[cfg(feature = "kernel")]
            Kind::Kernel(kernel) => kernel.local_addr(),
        }
    }
}

impl EngineListener {
    /// The next connection, its peer, and the credential block of its first flight.
    fn next(&self, inner: &mut Inner) -> io::Result<Option<Accepted>> {
        let Some(id) = inner.stack.accept(self.id) else { return inner.check().map(|()| None) };
        let Some(peer) = inner.stack.peer(id) else { return Ok(None) };
        inner.accepted = true;
        Ok(Some((id, peer, inner.stack.accepted_block(id))))
    }

    fn poll_accept(&self, place: u64, cx: &Context<'_>) -> Poll<io::Result<Stream>> {
        let mut inner = self.shared.lock();
        match self.next(&mut inner)? {
            Some((id, peer, block)) => {
                drop(inner);
                Poll::Ready(Ok(EngineStream::accepted(&self.shared, id, peer, block).into()))
            }
            None => {
                inner.wait_accept(self.id, place, cx);
                Poll::Pending
            }
        }
    }
}

impl Drop for EngineListener {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        let now = inner.now();
        inner.stack.unlisten(self.id, now);
        inner.forget_listener(self.id);
        inner.kick();
    }
}
