//! Listening sockets.

use crate::credential::KeyRing;
use crate::keys::KeyHandle;
use crate::shared::Shared;
use crate::stream::Stream;
use crate::trust::TrustHandle;
use firstflight_stack::ListenerId;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A listening socket. Dropping it resets the connections that were not accepted.
#[derive(Debug)]
pub struct Listener {
    shared: Arc<Shared>,
    id: ListenerId,
    local: SocketAddr,
}

impl Listener {
    pub(crate) fn new(shared: Arc<Shared>, id: ListenerId, local: SocketAddr) -> Self {
        Self { shared, id, local }
    }

    /// Returns the next connection. A connection whose first flight was accepted is returned before its handshake is
    /// complete: see [`Stream::is_early`].
    ///
    /// # Errors
    /// When the endpoint has stopped.
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
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Poll version of [`Listener::accept`].
    pub fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<Stream>> {
        let mut inner = self.shared.lock();
        if let Some(id) = inner.stack.accept(self.id) {
            let Some(info) = inner.stack.info(id) else { return Poll::Pending };
            drop(inner);
            return Poll::Ready(Ok(Stream::accepted(&self.shared, id, &info)));
        }
        inner.check()?;
        inner.wait_accept(self.id, cx);
        Poll::Pending
    }

    /// Replaces the listener's cookie keys, starting with the next SYN. First flights that were already accepted are
    /// not affected. Returns false if it listens without Fast Open.
    ///
    /// ```
    /// # use firstflight::{Listener, credential::{CookieKeys, Scheme}};
    /// fn rotate(listener: &Listener, new: CookieKeys, old: &CookieKeys) -> bool {
    ///     let both = new.with_backup(old.primary.clone());
    ///     listener.set_keys(both.ring(Scheme::Linux).into())
    /// }
    /// ```
    pub fn set_keys(&self, keys: Arc<KeyRing>) -> bool {
        self.shared.lock().stack.set_keys(self.id, keys)
    }

    /// A handle that sets the listener's keys. Give it to [`crate::keys::follow`].
    #[must_use]
    pub fn keys(&self) -> KeyHandle {
        KeyHandle::new(&self.shared, self.id)
    }

    /// A handle that sets the verifiers that the listener trusts. Give it to [`crate::trust::follow`].
    #[must_use]
    pub fn trust(&self) -> TrustHandle {
        TrustHandle::new(&self.shared, self.id)
    }

    /// The address that it listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        let now = inner.now();
        inner.stack.unlisten(self.id, now);
        inner.kick();
    }
}
