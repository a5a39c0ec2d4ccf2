//! Keeps the cache file up to date while a client runs.
//!
//! Other processes may use the same file. So only what changed here is written, into what the file holds then, under a
//! lock.

use super::{CachedServer, CredentialCache, disk};
use firstflight_credential::{CredentialStore, Entry, NetworkId};
use firstflight_wire::{Clock, Instant};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Minimum time between two saves.
const SAVE_EVERY: Duration = Duration::from_secs(3);

/// Decides when the file is written, and with what changes.
#[derive(Debug)]
pub(crate) struct Keeper {
    file: Arc<File>,
    /// The store's change count at the last snapshot.
    saved: u64,
    /// Earliest time of the next save.
    next: Instant,
    /// What the store held at the last snapshot.
    known: HashMap<(NetworkId, IpAddr), Entry>,
}

/// The file, and what is not yet in it.
#[derive(Debug)]
struct File {
    path: Box<Path>,
    /// The most servers that the file may hold.
    most: usize,
    /// The store has no cookies of its own, so those in the file stay.
    keeps_cookies: bool,
    /// Locked during a write, so that what was taken first is written first.
    writing: Mutex<()>,
    unwritten: Mutex<Unwritten>,
}

/// Changes that are not in the file.
#[derive(Debug, Default)]
struct Unwritten {
    /// Everything was forgotten before the changes.
    afresh: bool,
    /// The servers that changed, the least recently used first.
    servers: Vec<CachedServer>,
}

#[cfg_attr(not(all(feature = "client", feature = "engine")), allow(dead_code, reason = "of one of the two"))]
impl Keeper {
    /// Gives the content of `cache` to `restore`, one server after another, which puts it into the store. Returns the
    /// keeper, which has to be [started](Keeper::start) with that store.
    pub(crate) fn load(
        cache: CredentialCache,
        clock: &Clock,
        mut restore: impl FnMut(NetworkId, IpAddr, Entry),
    ) -> Self {
        for server in cache.servers.iter().filter(|server| server.network.is_known()) {
            restore(server.network, server.server, server.entry(clock));
        }
        let file = File {
            path: cache.path.into(),
            most: usize::MAX,
            keeps_cookies: false,
            writing: Mutex::default(),
            unwritten: Mutex::default(),
        };
        Self { file: Arc::new(file), saved: 0, next: clock.mono, known: HashMap::new() }
    }

    /// Takes what `store` holds as what the file holds.
    pub(crate) fn start(mut self, store: &CredentialStore) -> Self {
        if let Some(file) = Arc::get_mut(&mut self.file) {
            file.most = store.capacity();
        }
        self.saved = store.changes();
        self.known = known(store).map(|(network, ip, entry)| ((network, ip), entry.clone())).collect();
        self
    }

    /// The store has no cookies of its own, as that of the kernel's sockets: what another program learnt of cookies and
    /// segment sizes stays in the file.
    pub(crate) fn without_cookies(mut self) -> Self {
        if let Some(file) = Arc::get_mut(&mut self.file) {
            file.keeps_cookies = true;
        }
        self
    }

    /// The store forgot everything, and the file must do so too.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
        *self.file.unwritten() = Unwritten { afresh: true, servers: Vec::new() };
    }

    /// When [`Keeper::snapshot`] has something to write. `None` if nothing changed.
    pub(crate) fn due(&self, store: &CredentialStore) -> Option<Instant> {
        (store.changes() != self.saved).then_some(self.next)
    }

    /// What is to be written, if anything changed since the last snapshot.
    pub(crate) fn snapshot(&mut self, store: &CredentialStore, clock: &Clock) -> Option<Snapshot> {
        self.due(store)?;
        Some(self.take(store, clock))
    }

    /// What is to be written at the end. The last snapshot may never be written, because the runtime drops what it has
    /// not begun when it shuts down.
    pub(crate) fn last(&mut self, store: &CredentialStore, clock: &Clock) -> Option<Snapshot> {
        // A write under way is to be waited for.
        let pending = !self.file.unwritten().is_empty() || self.file.writing.try_lock().is_err();
        (pending || self.due(store).is_some()).then(|| self.take(store, clock))
    }

    fn take(&mut self, store: &CredentialStore, clock: &Clock) -> Snapshot {
        self.saved = store.changes();
        self.next = clock.mono + SAVE_EVERY;
        let mut now = HashMap::with_capacity(self.known.len());
        let mut changed = Vec::new();
        for (network, ip, entry) in known(store) {
            if self.known.get(&(network, ip)) != Some(entry) {
                changed.push(CachedServer::of(network, ip, entry, clock));
            }
            now.insert((network, ip), entry.clone());
        }
        self.known = now;
        self.file.unwritten().add(changed);
        Snapshot(Arc::clone(&self.file))
    }
}

/// What of a store may be in a file: the servers of known networks, the least recently used first.
fn known(store: &CredentialStore) -> impl Iterator<Item = (NetworkId, IpAddr, &Entry)> {
    store.iter_by_use().filter(|(network, ..)| network.is_known())
}

impl File {
    fn unwritten(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unwritten {
    fn is_empty(&self) -> bool {
        !self.afresh && self.servers.is_empty()
    }

    /// Adds later changes.
    fn add(&mut self, later: Vec<CachedServer>) {
        put(&mut self.servers, later);
    }

    /// The content of the file with these changes, at most `most` servers.
    fn apply(&self, mut servers: Vec<CachedServer>, most: usize, keeps_cookies: bool) -> Vec<CachedServer> {
        servers.retain(|server| !self.afresh && server.network.is_known());
        let mut later = self.servers.clone();
        if keeps_cookies {
            for server in &mut later {
                if let Some(known) = servers.iter().find(|known| known.key() == server.key()) {
                    server.cookies.clone_from(&known.cookies);
                    server.path_mss.clone_from(&known.path_mss);
                    (server.one_time, server.mss) = (known.one_time, known.mss);
                }
            }
        }
        put(&mut servers, later);
        servers.drain(..servers.len().saturating_sub(most));
        servers
    }
}

/// Puts `later` behind `servers`, in the place of earlier entries of the same servers.
fn put(servers: &mut Vec<CachedServer>, later: Vec<CachedServer>) {
    let keys: std::collections::HashSet<_> = later.iter().map(CachedServer::key).collect();
    servers.retain(|server| !keys.contains(&server.key()));
    servers.extend(later);
}

/// Changes that are to be written.
#[derive(Debug)]
pub(crate) struct Snapshot(Arc<File>);

impl Snapshot {
    /// Writes what is not yet in the file. Blocks.
    pub(crate) fn write(self) {
        let Self(file) = self;
        let _writing = file.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = std::mem::take(&mut *file.unwritten());
        if changes.is_empty() {
            return;
        }
        if let Err(error) =
            disk::update(&file.path, |servers| changes.apply(servers, file.most, file.keeps_cookies))
        {
            tracing::warn!("{error}");
            // Try again with the next changes.
            let mut unwritten = file.unwritten();
            let later = std::mem::replace(&mut *unwritten, changes);
            match later.afresh {
                true => *unwritten = later,
                false => unwritten.add(later.servers),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstflight_stack::{Config, Stack};

    #[test]
    fn a_snapshot_that_was_never_written_is_made_again_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let clock = Clock { mono: Instant::ZERO, unix_ms: 1_800_000_000_000, uncertainty: Duration::ZERO };
        let mut stack = Stack::new(Config::new(Vec::new(), [1; 32]), Instant::ZERO);
        let cache = CredentialCache::open(&path).unwrap();
        let keeper =
            Keeper::load(cache, &clock, |network, ip, entry| stack.restore_credential(network, ip, entry));
        let mut keeper = keeper.start(stack.credentials());
        assert!(keeper.last(stack.credentials(), &clock).is_none(), "nothing is known");
        let network = NetworkId([7; 16]);
        stack.restore_credential(network, "192.0.2.1".parse().unwrap(), Entry::new());
        drop(keeper.snapshot(stack.credentials(), &clock).unwrap());
        assert!(keeper.snapshot(stack.credentials(), &clock).is_none(), "nothing has changed");
        keeper.last(stack.credentials(), &clock).unwrap().write();
        assert!(path.exists() && keeper.last(stack.credentials(), &clock).is_none());
    }
}
