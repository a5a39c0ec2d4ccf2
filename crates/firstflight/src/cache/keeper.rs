//! Keeps the cache file up to date while the engine runs.

use super::{CachedServer, CredentialCache, file};
use firstflight_stack::Stack;
use firstflight_wire::{Clock, Instant};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time between two saves, at least.
const SAVE_EVERY: Duration = Duration::from_secs(3);

/// When the file is written, and with what.
#[derive(Debug)]
pub(crate) struct Keeper {
    path: Arc<Path>,
    /// Changes of the store that the file has.
    saved: u64,
    /// Not before.
    next: Instant,
    /// Number of the last snapshot made.
    number: u64,
    /// Number of the last one written; held while one is written.
    written: Arc<Mutex<u64>>,
}

impl Keeper {
    /// Puts what `cache` holds into `stack`.
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

    /// When [`Keeper::snapshot`] has something to write.
    pub fn due(&self, stack: &Stack) -> Option<Instant> {
        (stack.credentials().changes() != self.saved).then_some(self.next)
    }

    /// What there is to write, if anything changed since the last time.
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

/// What the file will hold.
#[derive(Debug)]
pub(crate) struct Snapshot {
    path: Arc<Path>,
    servers: Vec<CachedServer>,
    number: u64,
    written: Arc<Mutex<u64>>,
}

impl Snapshot {
    /// Writes it, unless a newer one was. Blocks.
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
