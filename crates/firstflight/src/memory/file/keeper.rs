//! Keeps the cache file up to date while a client runs.
//!
//! Other processes may use the same file. So only what changed here is written, into what the file holds then, under a
//! lock.

use super::changes::{Change, Changes, LastLook};
use super::disk;
use super::row::Row;
use super::{CachedClosedPort, CachedLostRace, CachedRecord, CachedServer, CachedUdpPause, CredentialCache};
use crate::memory::health::{self, Pause};
use crate::memory::history::HistoryWay;
use crate::memory::records::{KnownServer, NamedServer, Records};
use crate::memory::{Fact, HolderMemory, Others};
use firstflight_credential::{CredentialStore, Entry, NetworkId};
use firstflight_wire::{Clock, Instant};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Minimum time between two saves.
const SAVE_EVERY: Duration = Duration::from_secs(3);
/// No time in the file is farther in the future.
const FARTHEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// How long a record may be kept.
const LONGEST_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest name of a server, bytes.
const LONGEST_NAME: usize = 253;

/// Decides when the file is written, and with what changes.
#[derive(Debug)]
pub(crate) struct Keeper {
    file: Arc<File>,
    /// The count of changes at the last snapshot.
    saved: u64,
    /// Earliest time of the next save.
    next: Instant,
    /// What was known at the last snapshot.
    seen: AllSeen,
}

#[derive(Debug, Default)]
struct AllSeen {
    servers: LastLook<CachedServer, Entry>,
    lost_races: LastLook<CachedLostRace, Instant>,
    closed_ports: LastLook<CachedClosedPort, Instant>,
    udp_pauses: LastLook<CachedUdpPause, Pause>,
    records: LastLook<CachedRecord, KnownServer>,
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
    unwritten: Mutex<Changes>,
}

#[allow(dead_code, reason = "of one of the two holders")]
impl Keeper {
    /// Gives the content of `cache` to `restore`, one fact after another, which puts it where it belongs. Returns the
    /// keeper, which has to be [started](Keeper::start) with what is known then.
    pub(crate) fn load(cache: CredentialCache, clock: &Clock, mut restore: impl FnMut(Fact)) -> Self {
        let content = cache.content;
        for row in counting(&content.servers, clock) {
            restore(Fact::Server(row.network, row.server, row.entry(clock)));
        }
        for row in counting(&content.lost_races, clock) {
            restore(Fact::LostRace(
                HistoryWay::new(row.network, row.server, row.udp_port),
                mono(clock, row.at),
            ));
        }
        for row in counting(&content.closed_ports, clock) {
            restore(Fact::Closed(row.network, row.server, mono(clock, row.at)));
        }
        for row in counting(&content.udp_pauses, clock) {
            let until = mono(clock, row.until).min(clock.mono + health::LONGEST);
            restore(Fact::UdpPause(row.network, Pause { pauses: row.pauses, until }));
        }
        for (server, row) in counting(&content.records, clock).filter_map(server_of) {
            restore(Fact::Record(server, row.known(clock)));
        }
        let file = File {
            path: cache.path.into(),
            most: usize::MAX,
            keeps_cookies: false,
            writing: Mutex::default(),
            unwritten: Mutex::default(),
        };
        Self { file: Arc::new(file), saved: 0, next: clock.mono, seen: AllSeen::default() }
    }

    /// Takes what is `learnt` as what the file holds.
    pub(crate) fn start(mut self, learnt: &HolderMemory<'_>, clock: &Clock) -> Self {
        if let Some(file) = Arc::get_mut(&mut self.file) {
            file.most = learnt.servers.capacity();
        }
        self.saved = learnt.changes();
        self.seen.look(learnt, clock);
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

    /// The holder forgot everything, and the file must do so too.
    pub(crate) fn forget(&mut self) {
        self.seen.clear();
        *self.file.unwritten() = Changes::afresh();
    }

    /// When [`Keeper::snapshot`] has something to write. `None` if nothing changed.
    pub(crate) fn due(&self, learnt: &HolderMemory<'_>) -> Option<Instant> {
        (learnt.changes() != self.saved).then_some(self.next)
    }

    /// What is to be written, if anything changed since the last snapshot.
    pub(crate) fn snapshot(&mut self, learnt: &HolderMemory<'_>, clock: &Clock) -> Option<Snapshot> {
        self.due(learnt)?;
        Some(self.take(learnt, clock))
    }

    /// What is to be written at the end. The last snapshot may never be written, because the runtime drops what it has
    /// not begun when it shuts down.
    pub(crate) fn last(&mut self, learnt: &HolderMemory<'_>, clock: &Clock) -> Option<Snapshot> {
        // A write under way is to be waited for.
        let pending = !self.file.unwritten().is_empty() || self.file.writing.try_lock().is_err();
        (pending || self.due(learnt).is_some()).then(|| self.take(learnt, clock))
    }

    fn take(&mut self, learnt: &HolderMemory<'_>, clock: &Clock) -> Snapshot {
        self.saved = learnt.changes();
        self.next = clock.mono + SAVE_EVERY;
        self.file.unwritten().add(self.seen.look(learnt, clock));
        Snapshot { file: Arc::clone(&self.file), now: clock.unix_ms }
    }
}

impl AllSeen {
    /// What changed since the last look.
    fn look(&mut self, learnt: &HolderMemory<'_>, clock: &Clock) -> Changes {
        let mut changes = Changes::default();
        let entries = known(learnt.servers).map(|(network, ip, entry)| ((network, ip), entry.clone()));
        let servers =
            self.servers.look(entries, |of, _| *of, |of, entry| CachedServer::of(of.0, of.1, entry, clock));
        // The file may hold more servers than a store.
        changes.servers.add(servers.into_iter().filter(Change::is_put).collect());
        let races = learnt.history.iter().map(|(way, at)| (way.parts(), *at));
        let races = races.filter(|((network, ..), _)| network.is_known());
        changes.lost_races.add(self.lost_races.look(
            races,
            |of, _| *of,
            |&(network, server, udp_port), at| CachedLostRace {
                network,
                server,
                udp_port,
                at: unix(clock, *at),
            },
        ));
        let Some(Others { closed, udp, records }) = &learnt.others else { return changes };
        let ports = closed.iter().map(|(network, server, at)| ((*network, *server), *at));
        let ports = ports.filter(|((network, _), _)| network.is_known());
        changes.closed_ports.add(self.closed_ports.look(
            ports,
            |of, _| *of,
            |&(network, server), at| CachedClosedPort { network, server, at: unix(clock, *at) },
        ));
        let pauses = udp.pauses().filter(|(network, _)| network.is_known());
        changes.udp_pauses.add(self.udp_pauses.look(
            pauses,
            |of, _| *of,
            |&network, pause| CachedUdpPause {
                network,
                pauses: pause.pauses,
                until: unix(clock, pause.until),
            },
        ));
        changes.records.add(records_changed(&mut self.records, records, clock));
        changes
    }

    fn clear(&mut self) {
        self.servers.clear();
        self.lost_races.clear();
        self.closed_ports.clear();
        self.udp_pauses.clear();
        self.records.clear();
    }
}

pub(super) fn records_changed(
    seen: &mut LastLook<CachedRecord, KnownServer>,
    records: &Records,
    clock: &Clock,
) -> Vec<Change<CachedRecord>> {
    let mut published: Vec<_> = (records.iter())
        .filter(|(server, known)| server.network.is_known() && known.parameter.is_some())
        .map(|(server, known)| (server, known.clone()))
        .collect();
    // Where there are too many, those that expire first go first.
    published.sort_by_key(|(_, known)| known.until);
    seen.look(
        published.into_iter(),
        |server, _| (server.network, server.name.to_string(), server.port),
        |server, known| CachedRecord::of(server, known, clock),
    )
}

/// The server of a record, if its name can be one.
pub(super) fn server_of(row: &CachedRecord) -> Option<(NamedServer, &CachedRecord)> {
    (row.name.len() <= LONGEST_NAME).then(|| (NamedServer::new(row.network, &row.name, row.port), row))
}

impl CachedRecord {
    pub(super) fn of(server: &NamedServer, known: &KnownServer, clock: &Clock) -> Self {
        Self {
            network: server.network,
            name: server.name.to_string(),
            port: server.port,
            parameter: known.parameter.as_deref().unwrap_or_default().to_vec(),
            until: unix(clock, known.until),
            lost: known.lost,
            asked: known.asked.map(|asked| unix(clock, asked)),
        }
    }

    pub(super) fn known(&self, clock: &Clock) -> KnownServer {
        KnownServer {
            parameter: Some(self.parameter.as_slice().into()),
            until: mono(clock, self.until).min(clock.mono + LONGEST_TTL),
            lost: self.lost,
            // A clock that was set back does not prevent questions for good.
            asked: self.asked.map(|asked| mono(clock, asked).min(clock.mono)),
        }
    }
}

/// The rows of known networks that still count.
pub(super) fn counting<'a, R: Row>(rows: &'a [R], clock: &Clock) -> impl Iterator<Item = &'a R> {
    let now = clock.unix_ms;
    rows.iter().filter(move |row| row.counts(now)).skip(rows.len().saturating_sub(R::MOST))
}

/// A monotonic time as Unix time in milliseconds.
pub(super) fn unix(clock: &Clock, at: Instant) -> u64 {
    let ms = |time: Duration| time.as_millis() as u64;
    let past = clock.unix_ms.saturating_sub(ms(clock.mono.saturating_since(at)));
    past.saturating_add(ms(at.saturating_since(clock.mono)))
}

/// A Unix time in milliseconds as monotonic time. A time in the future is at most [`FARTHEST`] away.
pub(super) fn mono(clock: &Clock, unix: u64) -> Instant {
    let past = Duration::from_millis(clock.unix_ms.saturating_sub(unix));
    let future = Duration::from_millis(unix.saturating_sub(clock.unix_ms)).min(FARTHEST);
    clock.mono - past + future
}

/// What of a store may be in a file: the servers of known networks, the least recently used first.
fn known(store: &CredentialStore) -> impl Iterator<Item = (NetworkId, IpAddr, &Entry)> {
    store.iter_by_use().filter(|(network, ..)| network.is_known())
}

impl File {
    fn unwritten(&self) -> MutexGuard<'_, Changes> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes that are to be written.
#[derive(Debug)]
pub(crate) struct Snapshot {
    file: Arc<File>,
    /// Unix time, milliseconds.
    now: u64,
}

impl Snapshot {
    /// Writes what is not yet in the file. Blocks.
    pub(crate) fn write(self) {
        let Self { file, now } = self;
        let _writing = file.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = std::mem::take(&mut *file.unwritten());
        if changes.is_empty() {
            return;
        }
        let apply = |content| changes.apply(content, file.most, file.keeps_cookies, now);
        if let Err(error) = disk::update(&file.path, apply) {
            tracing::warn!("{error}");
            // Try again with the next changes.
            let mut unwritten = file.unwritten();
            let later = std::mem::replace(&mut *unwritten, changes);
            unwritten.add(later);
        }
    }
}

#[cfg(test)]
mod tests;
