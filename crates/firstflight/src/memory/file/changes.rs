//! What changed in a process, to be written into what the file holds then.

use super::content::CacheContent;
use super::row::Row;
use super::server::CachedServer;
use super::{
    CachedClosedPort, CachedLostRace, CachedRecord, CachedResolver, CachedUdpPause, CachedUnreachable,
};
use std::collections::{HashMap, HashSet};

/// An entry that changed, or one that is gone. What is gone is removed from the file only if another process has not
/// changed it meanwhile.
#[derive(Debug, Clone)]
pub(crate) enum Change<R> {
    Put(R),
    Gone(R),
}

impl<R: Row> Change<R> {
    pub(super) const fn is_put(&self) -> bool {
        matches!(self, Self::Put(_))
    }

    fn key(&self) -> R::Key {
        match self {
            Self::Put(row) | Self::Gone(row) => row.key(),
        }
    }
}

/// The changes of one subject, the oldest first, one for each key.
#[derive(Debug)]
pub(crate) struct Section<R>(Vec<Change<R>>);

impl<R> Default for Section<R> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<R: Row> Section<R> {
    pub(super) fn add(&mut self, later: Vec<Change<R>>) {
        let keys: HashSet<_> = later.iter().map(Change::key).collect();
        self.0.retain(|change| !keys.contains(&change.key()));
        self.0.extend(later);
    }

    /// Makes the changes. What counts no more at `now` is left out, and so is what is of an unknown network.
    fn apply(&self, rows: &mut Vec<R>, most: usize, now: u64) {
        let keys: HashSet<_> = self.0.iter().map(Change::key).collect();
        let gone: HashMap<_, _> = (self.0.iter())
            .filter_map(|change| match change {
                Change::Gone(row) => Some((row.key(), row)),
                Change::Put(_) => None,
            })
            .collect();
        // One that another process changed meanwhile is not gone.
        rows.retain(|row| {
            let key = row.key();
            !keys.contains(&key) || gone.get(&key).is_some_and(|gone| *gone != row)
        });
        rows.extend(self.0.iter().filter_map(|change| match change {
            Change::Put(row) => Some(row.clone()),
            Change::Gone(_) => None,
        }));
        rows.retain(|row| row.counts(now));
        rows.drain(..rows.len().saturating_sub(most.min(R::MOST)));
    }
}

/// Changes that are not in the file.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Everything was forgotten before the changes.
    pub(super) afresh: bool,
    pub(super) servers: Section<CachedServer>,
    pub(super) lost_races: Section<CachedLostRace>,
    pub(super) closed_ports: Section<CachedClosedPort>,
    pub(super) udp_pauses: Section<CachedUdpPause>,
    pub(super) records: Section<CachedRecord>,
    pub(super) resolvers: Section<CachedResolver>,
    pub(super) unreachable: Section<CachedUnreachable>,
}

impl Changes {
    /// All that was known is forgotten.
    pub(super) fn afresh() -> Self {
        Self { afresh: true, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.afresh
            && self.servers.0.is_empty()
            && self.lost_races.0.is_empty()
            && self.closed_ports.0.is_empty()
            && self.udp_pauses.0.is_empty()
            && self.records.0.is_empty()
            && self.resolvers.0.is_empty()
            && self.unreachable.0.is_empty()
    }

    pub(super) fn add(&mut self, later: Self) {
        if later.afresh {
            *self = later;
            return;
        }
        self.servers.add(later.servers.0);
        self.lost_races.add(later.lost_races.0);
        self.closed_ports.add(later.closed_ports.0);
        self.udp_pauses.add(later.udp_pauses.0);
        self.records.add(later.records.0);
        self.resolvers.add(later.resolvers.0);
        self.unreachable.add(later.unreachable.0);
    }

    /// The content of the file with these changes, at most `most` servers. If the writer has no cookies of its own
    /// (`keeps_cookies`), those in the file stay.
    pub(super) fn apply(
        &self,
        mut content: CacheContent,
        most: usize,
        keeps_cookies: bool,
        now: u64,
    ) -> CacheContent {
        if self.afresh {
            content = CacheContent::default();
        }
        let before = if keeps_cookies { content.servers.clone() } else { Vec::new() };
        self.servers.apply(&mut content.servers, most, now);
        if keeps_cookies {
            let changed: HashSet<_> = self.servers.0.iter().map(Change::key).collect();
            for server in content.servers.iter_mut().filter(|server| changed.contains(&server.key())) {
                if let Some(known) = before.iter().find(|known| known.key() == server.key()) {
                    server.cookies.clone_from(&known.cookies);
                    server.path_mss.clone_from(&known.path_mss);
                    (server.one_time, server.mss) = (known.one_time, known.mss);
                }
            }
        }
        self.lost_races.apply(&mut content.lost_races, usize::MAX, now);
        self.closed_ports.apply(&mut content.closed_ports, usize::MAX, now);
        self.udp_pauses.apply(&mut content.udp_pauses, usize::MAX, now);
        self.records.apply(&mut content.records, usize::MAX, now);
        self.resolvers.apply(&mut content.resolvers, usize::MAX, now);
        self.unreachable.apply(&mut content.unreachable, usize::MAX, now);
        content
    }
}

/// What a holder had at the last look, so that only what changed is written.
#[derive(Debug)]
pub(crate) struct LastLook<R: Row, V>(HashMap<R::Key, (V, R)>);

impl<R: Row, V> Default for LastLook<R, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<R: Row, V: PartialEq + Clone> LastLook<R, V> {
    /// Looks at what a holder has now, in the order in which it is written, and returns what changed since the last look.
    /// `key` and `row` make what the file holds of it. What is of an unknown network is passed over.
    pub(super) fn look<T>(
        &mut self,
        now: impl Iterator<Item = (T, V)>,
        key: impl Fn(&T, &V) -> R::Key,
        row: impl Fn(&T, &V) -> R,
    ) -> Vec<Change<R>> {
        let mut before = std::mem::take(&mut self.0);
        let mut changes = Vec::new();
        for (of, value) in now {
            let key = key(&of, &value);
            let known = match before.remove(&key).filter(|(known, _)| *known == value) {
                Some(same) => same,
                None => {
                    let row = row(&of, &value);
                    changes.push(Change::Put(row.clone()));
                    (value, row)
                }
            };
            self.0.insert(key, known);
        }
        changes.extend(before.into_values().map(|(_, row)| Change::Gone(row)));
        changes
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
