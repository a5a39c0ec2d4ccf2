//! How an endpoint ends.

use super::{Endpoint, LAST_FINS, RELEASE};
use crate::shared::Shared;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

impl Endpoint {
    /// Waits until every connection has closed in order, for at most `timeout`, then stops the engine. Connections
    /// that are still open then fail; [`Endpoint::connections`] counts them.
    ///
    /// A connection whose stream was dropped has closed in order when its peer has acknowledged everything. Shutdown
    /// then waits 100 ms for the peer's FIN and no longer, because a peer may keep its own side open.
    ///
    /// ```
    /// # use firstflight::Endpoint;
    /// async fn stop(endpoint: Endpoint) {
    ///     endpoint.shutdown(std::time::Duration::from_secs(5)).await;
    /// }
    /// ```
    pub async fn shutdown(&self, timeout: Duration) {
        for shared in self.all() {
            let mut inner = shared.lock();
            let now = inner.now();
            inner.stack.limit_fin_wait2(LAST_FINS, now);
            inner.kick();
        }
        let idle = poll_fn(|cx| {
            self.poll_each(cx, |inner| inner.stopped.is_some() || inner.stack.connections() == 0)
        });
        // The engine stops whether it became idle or the timeout elapsed.
        let _ = self.time().timeout(timeout, idle).await;
        for shared in self.all() {
            let last = {
                let mut inner = shared.lock();
                inner.stopping = true;
                inner.kick();
                inner.save_last()
            };
            if let Some(snapshot) = last {
                // It fails only when the runtime shuts down; then there is no one left to inform.
                let _ = tokio::task::spawn_blocking(move || snapshot.write()).await;
            }
        }
        let released = poll_fn(|cx| self.poll_each(cx, |inner| inner.released));
        // The link's addresses and ports are free when this returns.
        let _ = self.time().timeout(RELEASE, released).await;
    }

    /// Whether `done` is true of every shard. The task is woken when one of the others changes.
    fn poll_each(&self, cx: &Context<'_>, done: impl Fn(&crate::shared::Inner) -> bool) -> Poll<()> {
        let mut all = Poll::Ready(());
        for shared in self.all() {
            let mut inner = shared.lock();
            if !done(&inner) {
                inner.wait_idle(cx);
                all = Poll::Pending;
            }
        }
        all
    }
}

/// Lets the driver see, when it is dropped, that a handle is gone. An engine that is idle has no other reason to look.
#[derive(Debug, Clone)]
pub(crate) struct Gone(Weak<Shared>);

impl Gone {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self(Arc::downgrade(shared))
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        let waker = self.0.upgrade().and_then(|shared| shared.lock().driver.clone());
        // The driver counts handles, of which `shared` was one.
        waker.into_iter().for_each(Waker::wake);
    }
}

/// An engine, for a moment. Its fields are dropped in this order.
#[derive(Debug)]
pub(crate) struct EngineRef {
    shared: Arc<Shared>,
    _gone: Gone,
}

impl EngineRef {
    /// The engine, if it has not ended.
    pub(crate) fn of(engine: &Weak<Shared>) -> Option<Self> {
        engine.upgrade().map(|shared| Self { _gone: Gone::of(&shared), shared })
    }
}

impl Deref for EngineRef {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// Says, when it is dropped, that the driver and its link are gone.
pub(crate) struct Released(Weak<Shared>);

impl Released {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self(Arc::downgrade(shared))
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.lock().release();
        }
    }
}
