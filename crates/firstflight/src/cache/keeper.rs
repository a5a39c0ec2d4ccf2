//! Keeps the cache file up to date while the engine runs.

use super::{CachedServer, CredentialCache, file};
use firstflight_stack::Stack;
use firstflight_wire::{Clock, Instant};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Minimum time between two saves.
const SAVE_EVERY: Duration = Duration::from_secs(3);

/// Decides when the file is written, and with what content.
#[derive(Debug)]
pub(crate) struct Keeper {
    path: Arc<Path>,
    /// The store's change count at the last snapshot.
    saved: u64,
    /// Earliest time of the next save.
    next: Instant,
    /// Number of the last snapshot made.
    number: u64,
    /// Number of the last snapshot written. Locked during a write.
    written: Arc<Mutex<u64>>,
}

impl Keeper {
    /// Loads the content of `cache` into `stack`.
    pub fn load(cache: CredentialCache, stack: &mut Stack, clock: &Clock) -> Self {
        for server in cache.servers.iter().filter(|server| server.network.is_known()) {
            stack.restore_credential(server.network, server.server, server.entry(clock));
        }
        Self {
            path: cache.path.into(),
            saved: stack.credentials().changes(),
            next: clock.mono,
            number: 0,
            written: Arc::default(),
        }
    }

    /// When [`Keeper::snapshot`] has something to write. `None` if nothing changed.
    pub fn due(&self, stack: &Stack) -> Option<Instant> {
        (stack.credentials().changes() != self.saved).then_some(self.next)
    }

    /// The content to write, if anything changed since the last snapshot.
    pub fn snapshot(&mut self, stack: &Stack, clock: &Clock) -> Option<Snapshot> {
        self.due(stack)?;
        self.saved = stack.credentials().changes();
        self.next = clock.mono + SAVE_EVERY;
        self.number += 1;
        let known = stack.credentials().iter_by_use().filter(|(network, ..)| network.is_known());
        let servers = known.map(|(network, ip, entry)| CachedServer::of(network, ip, entry, clock));
        Some(Snapshot {
            path: Arc::clone(&self.path),
            servers: servers.collect(),
            number: self.number,
            written: Arc::clone(&self.written),
        })
    }
}

/// The file's next content.
#[derive(Debug)]
pub(crate) struct Snapshot {
    path: Arc<Path>,
    servers: Vec<CachedServer>,
    number: u64,
    written: Arc<Mutex<u64>>,
}

impl Snapshot {
    /// Writes the snapshot, unless a newer one was already written. Blocks.
    pub fn write(self) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written > self.number {
            return;
        }
        *written = self.number;
        if let Err(error) = file::write(&self.path, &self.servers) {
            tracing::warn!("{error}");
        }
    }
}
