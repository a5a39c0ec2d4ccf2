//! Connections to servers that wait for their next request.

use crate::connector::Link;
use firstflight::Authority;
use firstflight_http::idle::Idle;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// How long a connection waits for its next request, and how many wait for each server.
const KEPT: Duration = Duration::from_secs(30);
const KEPT_FOR_EACH: usize = 8;
/// Servers that have such connections. The one whose last use is the longest ago loses them first.
const SERVERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(127);

/// The connections that wait: of all clients, or of one client if a login has begun on them.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Mutex<Inner>>);

struct Inner {
    servers: LruCache<Authority, Idle<Link>>,
    /// A task closes those that have waited for too long.
    is_swept: bool,
}

impl Default for Pool {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Inner { servers: LruCache::new(SERVERS), is_swept: false })))
    }
}

impl Pool {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to this server that is ready.
    pub(crate) fn take(&self, server: &Authority) -> Option<Link> {
        self.inner().servers.get(server)?.take(KEPT)
    }

    /// Keeps a connection that has had its response.
    pub(crate) fn put(&self, mut link: Link) {
        link.is_kept = true;
        link.show_traffic();
        let mut inner = self.inner();
        let server = link.server.clone();
        inner.servers.get_or_insert_mut(server, Idle::default).put(link, KEPT_FOR_EACH);
        if !std::mem::replace(&mut inner.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
    }
}

/// Closes what has waited for too long, until nothing is left.
async fn sweep(pool: std::sync::Weak<Mutex<Inner>>) {
    loop {
        sleep(KEPT / 2).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut inner = pool.lock().unwrap_or_else(PoisonError::into_inner);
        let mut empty = Vec::new();
        for (server, idle) in &inner.servers {
            idle.close_idle(KEPT);
            if idle.is_empty() {
                empty.push(server.clone());
            }
        }
        for server in empty {
            inner.servers.pop(&server);
        }
        if inner.servers.is_empty() {
            inner.is_swept = false;
            return;
        }
    }
}
