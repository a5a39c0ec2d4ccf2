//! The kernel's TCP: connects and listeners without an engine and without privileges.
//!
//! A [`Kernel`] adds what the kernel's Fast Open lacks: a memory of the servers and paths where it failed, a second
//! attempt when a path drops the SYN, and a reason for every outcome.
//!
//! ```no_run
//! # async fn ask() -> std::io::Result<()> {
//! use firstflight::{FirstFlight, kernel::Kernel};
//! let kernel = Kernel::default();
//! let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
//! let stream = kernel.connect("192.0.2.1:80".parse().unwrap(), request).await?;
//! println!("{}: {}", stream.outcome().as_str(), stream.outcome());
//! # Ok(())
//! # }
//! ```

#[cfg(unix)]
mod connecting;
#[cfg(feature = "server")]
mod listen;

#[cfg(unix)]
pub use connecting::{Connected, Connecting};
#[cfg(feature = "server")]
pub use firstflight_kernel::ListenConfig;
pub use firstflight_kernel::Setting;

use crate::attempts::{ConnectAnyError, interleave};
use crate::cache::CredentialCache;
use crate::client::Authority;
use crate::client::transport::kernel::KernelTcp;
use crate::client::transport::{self, Finish, Lost, Transports};
use crate::credential::{NetworkId, Permission};
use crate::first_flight::{FirstFlight, Flights};
use crate::memory::kernel::Memory;
use crate::stream::Stream;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The kernel's TCP, and what is remembered of servers and paths. Clones share one memory.
#[derive(Debug, Clone)]
pub struct Kernel {
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
    #[must_use]
    pub fn on(network: NetworkId) -> Self {
        let memory = Mutex::new(Memory::new(network));
        Self { shared: Arc::new(Shared { memory, saving: AtomicBool::new(false) }) }
    }

    /// Connects and sends `first`. Data that is [`FirstFlight::safely_replayable`] rides in the SYN if the kernel has a
    /// cookie for the server. Data that is [`FirstFlight::at_most_once`] is sent when the handshake is complete. Resolves
    /// when the handshake is complete and the kernel has taken all of the data.
    ///
    /// If the SYN gets no answer for twice the round-trip time (50 ms to 1 s; 1 s if it is not known), an ordinary SYN
    /// follows from another port, and the first answer wins: see [`Stream::race`].
    ///
    /// # Errors
    /// When the peer refuses or does not answer.
    pub async fn connect(&self, remote: SocketAddr, first: FirstFlight<'_>) -> io::Result<Stream> {
        self.connect_any(&[remote], first).await.map_err(|mut error| match error.attempts.len() {
            1 => error.attempts.remove(0).error,
            _ => error.into(),
        })
    }

    /// Connects to the first of `addresses` that answers, and sends `first` there (Happy Eyeballs, RFC 8305). The caller
    /// gives the addresses with the best one first.
    ///
    /// Only the first attempt uses Fast Open. The next one begins when one fails, or after 250 ms; after the delay of
    /// [`Kernel::connect`] if the first server's round-trip time is known. There are two attempts at a time: a third one
    /// takes the place of the older, after two seconds if they are at different addresses. An address that failed, or that lost to a later one, is tried last for ten
    /// minutes.
    ///
    /// Data that left in the SYN of an attempt that lost is sent again on the winner, which its caller has allowed.
    ///
    /// # Errors
    /// When every attempt has failed; the error contains all their errors. Dropping the future closes the attempts.
    pub async fn connect_any(
        &self,
        addresses: &[SocketAddr],
        first: FirstFlight<'_>,
    ) -> Result<Stream, ConnectAnyError> {
        let tcp = KernelTcp::new(self, Flights::Given(first), true);
        let result = self.race(&tcp, ready(Ok(addresses.to_vec()))).await;
        result.map(|finish| finish.stream).map_err(|lost| lost.error)
    }

    /// Runs a race, and saves what it taught.
    pub(crate) async fn race<T: Transports>(
        &self,
        transports: &T,
        addresses: impl Future<Output = io::Result<Vec<SocketAddr>>> + Send,
    ) -> Result<Finish, Lost> {
        // The racer has room for all attempts. Connects are parts of other futures, which stay small.
        let result = Box::pin(transport::run(transports, addresses)).await;
        self.save_later();
        result
    }

    /// Loads what `cache` remembers about servers and keeps its file up to date: at most once every few seconds, and in
    /// [`Kernel::save`]. An engine can use the same file. The cookies are the kernel's own, and are not in it.
    ///
    /// Returns false, and does nothing, if the network is not known.
    pub fn use_cache(&self, cache: CredentialCache) -> bool {
        self.memory().keep(cache)
    }

    /// Writes the cache file now, if anything has changed. Call it at the end of the program. Blocks.
    pub fn save(&self) {
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
    pub fn move_to(&self, network: NetworkId) {
        self.memory().move_to(network);
    }

    /// Forgets what was learnt on a network without an id. False on any other.
    pub(crate) fn leave_unknown(&self) -> bool {
        self.memory().leave_unknown()
    }

    /// Forgets everything about servers. The kernel keeps its cookies.
    pub fn forget(&self) {
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
