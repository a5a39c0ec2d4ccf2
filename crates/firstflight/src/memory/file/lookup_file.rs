//! The file of [`LookupMemory`](crate::carriage::LookupMemory), which writes when its caller says so.

use super::changes::{Changes, Seen};
use super::content::Row;
use super::keeper::{counting, records_changed, server_of};
use super::{CacheError, CachedRecord, CachedResolver, CachedUnreachable, CredentialCache, disk};
use crate::memory::records::{Known, Named, Records};
use firstflight_wire::Clock;
use std::path::PathBuf;

/// The file, and what was known at the last write.
#[derive(Debug)]
pub(crate) struct LookupFile {
    path: PathBuf,
    records: Seen<CachedRecord, Known>,
    resolvers: Seen<CachedResolver, CachedResolver>,
    unreachable: Seen<CachedUnreachable, CachedUnreachable>,
}

impl LookupFile {
    /// What of `cache` counts: each record is given to `restore`, and the others are returned. Has to be
    /// [started](LookupFile::start) with what is known then.
    pub(crate) fn load(
        cache: CredentialCache,
        clock: &Clock,
        mut restore: impl FnMut(Named, Known),
    ) -> (Self, Vec<CachedResolver>, Vec<CachedUnreachable>) {
        let content = cache.content;
        for (server, row) in counting(&content.records, clock).filter_map(server_of) {
            restore(server, row.known(clock));
        }
        let resolvers = counting(&content.resolvers, clock).cloned().collect();
        let unreachable = counting(&content.unreachable, clock).cloned().collect();
        let file = Self {
            path: cache.path,
            records: Seen::default(),
            resolvers: Seen::default(),
            unreachable: Seen::default(),
        };
        (file, resolvers, unreachable)
    }

    /// Takes this as what the file holds.
    pub(crate) fn start(
        mut self,
        records: &Records,
        resolvers: &[CachedResolver],
        unreachable: &[CachedUnreachable],
        clock: &Clock,
    ) -> Self {
        self.look(records, resolvers, unreachable, clock);
        self
    }

    fn look(
        &mut self,
        records: &Records,
        resolvers: &[CachedResolver],
        unreachable: &[CachedUnreachable],
        clock: &Clock,
    ) -> Changes {
        fn rows<R: Row>(rows: &[R]) -> impl Iterator<Item = ((), R)> {
            rows.iter().filter(|row| row.network().is_known()).map(|row| ((), row.clone()))
        }
        let mut changes = Changes::default();
        changes.records.add(records_changed(&mut self.records, records, clock));
        changes.resolvers.add(self.resolvers.look(
            rows(resolvers),
            |(), row| row.key(),
            |(), row| row.clone(),
        ));
        changes.unreachable.add(self.unreachable.look(
            rows(unreachable),
            |(), row| row.key(),
            |(), row| row.clone(),
        ));
        changes
    }

    /// Writes what changed.
    pub(crate) fn write(
        &mut self,
        records: &Records,
        resolvers: &[CachedResolver],
        unreachable: &[CachedUnreachable],
        clock: &Clock,
    ) -> Result<(), CacheError> {
        let changes = self.look(records, resolvers, unreachable, clock);
        if changes.is_empty() {
            return Ok(());
        }
        disk::update(&self.path, |content| changes.apply(content, usize::MAX, false, clock.unix_ms))
    }
}
