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
    pub(crate) fn load(cache: CredentialCache, stack: &mut Stack, clock: &Clock) -> Self {
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
    pub(crate) fn due(&self, stack: &Stack) -> Option<Instant> {
        (stack.credentials().changes() != self.saved).then_some(self.next)
    }

    /// The content to write, if anything changed since the last snapshot.
    pub(crate) fn snapshot(&mut self, stack: &Stack, clock: &Clock) -> Option<Snapshot> {
        self.due(stack)?;
        Some(self.take(stack, clock))
    }

    /// The content to write at the end. The last snapshot may never be written, because the runtime drops what it has not
    /// begun when it shuts down.
    pub(crate) fn last(&mut self, stack: &Stack, clock: &Clock) -> Option<Snapshot> {
        let pending = self.written.try_lock().map_or(true, |written| *written < self.number);
        (pending || self.due(stack).is_some()).then(|| self.take(stack, clock))
    }

    fn take(&mut self, stack: &Stack, clock: &Clock) -> Snapshot {
        self.saved = stack.credentials().changes();
        self.next = clock.mono + SAVE_EVERY;
        self.number += 1;
        let known = stack.credentials().iter_by_use().filter(|(network, ..)| network.is_known());
        let servers = known.map(|(network, ip, entry)| CachedServer::of(network, ip, entry, clock));
        Snapshot {
            path: Arc::clone(&self.path),
            servers: servers.collect(),
            number: self.number,
            written: Arc::clone(&self.written),
        }
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
    pub(crate) fn write(self) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use firstflight_credential::{Entry, NetworkId};
    use firstflight_stack::Config;

    #[test]
    fn a_snapshot_that_was_never_written_is_made_again_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let clock = Clock { mono: Instant::ZERO, unix_ms: 1_800_000_000_000, uncertainty: Duration::ZERO };
        let mut stack = Stack::new(Config::new(Vec::new(), [1; 32]), Instant::ZERO);
        let cache = CredentialCache::open(&path).unwrap();
        let mut keeper = Keeper::load(cache, &mut stack, &clock);
        assert!(keeper.last(&stack, &clock).is_none(), "nothing is known");
        let network = NetworkId([7; 16]);
        stack.restore_credential(network, "192.0.2.1".parse().unwrap(), Entry::new());
        drop(keeper.snapshot(&stack, &clock).unwrap());
        assert!(keeper.snapshot(&stack, &clock).is_none(), "nothing has changed");
        keeper.last(&stack, &clock).unwrap().write();
        assert!(path.exists() && keeper.last(&stack, &clock).is_none());
    }
}
