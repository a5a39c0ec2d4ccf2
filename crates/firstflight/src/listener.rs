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

/// A listening socket. Dropped, it resets the connections that nobody accepted.
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

    /// The next connection. One whose first flight was accepted comes before its handshake is
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
    ///             // Fine to answer; what must not run twice waits.
    ///             stream.handshake_confirmed().await?;
    ///         }
    ///         stream.write_all(b"hello").await?;
    ///     }
    /// }
    /// ```
    pub async fn accept(&self) -> io::Result<Stream> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// [`Listener::accept`] as a poll.
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

    /// Replaces its cookie keys from the next SYN on; first flights that were accepted are not concerned.
    /// False if it listens without Fast Open.
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

    /// A handle that sets its keys from elsewhere: for [`crate::keys::follow`].
    #[must_use]
    pub fn keys(&self) -> KeyHandle {
        KeyHandle::new(&self.shared, self.id)
    }

    /// A handle that sets which verifiers it trusts: for [`crate::trust::follow`].
    #[must_use]
    pub fn trust(&self) -> TrustHandle {
        TrustHandle::new(&self.shared, self.id)
    }

    /// Where it listens.
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
