//! The kernel's TCP: what a client remembers of servers and paths there, connects in an event loop of the program's own
//! ([`Client::begin`](crate::Client::begin)), and listeners. Without an engine and without privileges.
//!
//! The memory adds what the kernel's Fast Open lacks: servers and paths where it failed, a second attempt when a path drops the
//! SYN, and a reason for every outcome.

#[cfg(unix)]
mod connecting;
#[cfg(feature = "server")]
pub(crate) mod listen;

#[cfg(unix)]
pub use connecting::{Connected, Connecting};
pub use firstflight_kernel::Setting;
#[cfg(feature = "server")]
pub use listen::{ListenConfig, adopt, listen};

use crate::attempts::interleave;
use crate::cache::CredentialCache;
use crate::client::authority::Authority;
use crate::client::transport::{self, Finish, RaceLost, Transports};
use crate::credential::{NetworkId, Permission};
use crate::memory::kernel::Memory;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What is remembered of servers and paths on the kernel's TCP. Clones share one memory.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    memory: Mutex<Memory>,
    /// A task waits to write the cache file.
    saving: AtomicBool,
}

/// A task that waits to write the file. The flag falls with it, also when its runtime ends.
struct Saving(Weak<Shared>);

impl Drop for Saving {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.saving.store(false, Ordering::Release);
        }
    }
}

impl Default for Kernel {
    /// On an unknown network.
    fn default() -> Self {
        Self::on(NetworkId::UNKNOWN)
    }
}

impl Kernel {
    /// The kernel's TCP on a network ([`crate::network_id`]). What is learnt on one network is not used on another.
    pub(crate) fn on(network: NetworkId) -> Self {
        let memory = Mutex::new(Memory::new(network));
        Self { shared: Arc::new(Shared { memory, saving: AtomicBool::new(false) }) }
    }

    /// Runs a race, and saves what it taught.
    pub(crate) async fn race<T: Transports>(
        &self,
        transports: &T,
        addresses: impl Future<Output = io::Result<Vec<SocketAddr>>> + Send,
    ) -> Result<Finish, RaceLost> {
        // The racer has room for all attempts. Connects are parts of other futures, which stay small.
        let result = Box::pin(transport::run(transports, addresses)).await;
        self.save_later();
        result
    }

    /// Loads what `cache` remembers about servers and keeps its file up to date: at most once every few seconds, and in
    /// [`Kernel::save`]. An engine can use the same file. The cookies are the kernel's own, and are not in it.
    ///
    /// Returns false, and does nothing, if the network is not known.
    pub(crate) fn use_cache(&self, cache: CredentialCache) -> bool {
        self.memory().keep(cache)
    }

    /// Writes the cache file now, if anything has changed. Call it at the end of the program. Blocks.
    pub(crate) fn save(&self) {
        let snapshot = self.memory().save();
        if let Some(snapshot) = snapshot {
            snapshot.write();
        }
    }

    /// Starts a task that writes the cache file when it is time, if anything has changed and no task waits yet.
    fn save_later(&self) {
        let Some(wait) = self.memory().save_in() else { return };
        if self.shared.saving.swap(true, Ordering::AcqRel) {
            return;
        }
        let saving = Saving(Arc::downgrade(&self.shared));
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let Some(shared) = saving.0.upgrade() else { return };
            drop(saving);
            // It fails only when the runtime shuts down.
            let _ = tokio::task::spawn_blocking(move || Self { shared }.save()).await;
        });
    }

    /// Reports that the host is now on this network.
    pub(crate) fn move_to(&self, network: NetworkId) {
        self.memory().move_to(network);
    }

    /// Forgets what was learnt on a network without an id. False on any other.
    pub(crate) fn leave_unknown(&self) -> bool {
        self.memory().leave_unknown()
    }

    /// Forgets everything about servers. The kernel keeps its cookies.
    pub(crate) fn forget(&self) {
        self.memory().forget();
    }

    /// The addresses in the order in which they are tried: those that lost lately behind the others.
    pub(crate) fn order(&self, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
        let (last, first) = self.memory().split(addresses);
        [interleave(&first), interleave(&last)].concat()
    }

    /// Whether data would ride in the SYN to the first of `addresses`: the kernel has a cookie, and nothing speaks against
    /// its use.
    pub(crate) fn has_cookie(&self, addresses: &[SocketAddr]) -> bool {
        let Some(first) = self.order(addresses).first().copied() else { return false };
        let memory = self.memory();
        let free = memory.permission(first.ip()) == Permission::Everything && !memory.was_closed(first);
        drop(memory);
        free && firstflight_kernel::has_cookie(first.ip()).unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot ask the kernel for its cookies");
            false
        })
    }

    /// Whether the first of `addresses` that is tried was asked for a cookie, and has granted none.
    pub(crate) fn grants_none(&self, addresses: &[SocketAddr]) -> bool {
        self.order(addresses).first().is_some_and(|first| self.memory().grants_none(first.ip()))
    }

    /// A connect to `server` that began on `network` has ended.
    pub(crate) fn note_contact(&self, network: NetworkId, server: &Authority, succeeded: bool) {
        let mut memory = self.memory();
        if memory.network() == network {
            memory.note_contact(server, succeeded);
        }
    }

    /// Whether the last connect to `server` succeeded, on this network.
    pub(crate) fn answered(&self, server: &Authority) -> bool {
        self.memory().answered(server)
    }

    /// The network that the host is on, as far as is known.
    pub(crate) fn network(&self) -> NetworkId {
        self.memory().network()
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.shared.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
