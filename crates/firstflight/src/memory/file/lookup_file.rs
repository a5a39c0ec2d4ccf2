//! The file of what is remembered of lookups, which is written when its caller says so.

use super::changes::{Changes, LastLook};
use super::keeper::counting;
use super::row::Row;
use super::{CacheError, CachedResolver, CachedUnreachable, CredentialCache, disk};
use firstflight_wire::Clock;
use std::path::PathBuf;

/// The file, and what was known at the last write.
#[derive(Debug)]
pub(crate) struct LookupFile {
    path: PathBuf,
    resolvers: LastLook<CachedResolver, CachedResolver>,
    unreachable: LastLook<CachedUnreachable, CachedUnreachable>,
}

impl LookupFile {
    /// What of `cache` counts.
    pub(crate) fn load(
        cache: CredentialCache,
        clock: &Clock,
    ) -> (Self, Vec<CachedResolver>, Vec<CachedUnreachable>) {
        let content = cache.content;
        let resolvers: Vec<_> = counting(&content.resolvers, clock).cloned().collect();
        let unreachable: Vec<_> = counting(&content.unreachable, clock).cloned().collect();
        let mut file =
            Self { path: cache.path, resolvers: LastLook::default(), unreachable: LastLook::default() };
        // The file holds it.
        file.look(&resolvers, &unreachable);
        (file, resolvers, unreachable)
    }

    fn look(&mut self, resolvers: &[CachedResolver], unreachable: &[CachedUnreachable]) -> Changes {
        fn rows<R: Row>(rows: &[R]) -> impl Iterator<Item = ((), R)> {
            rows.iter().filter(|row| row.network().is_known()).map(|row| ((), row.clone()))
        }
        let mut changes = Changes::default();
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
        resolvers: &[CachedResolver],
        unreachable: &[CachedUnreachable],
        clock: &Clock,
    ) -> Result<(), CacheError> {
        let changes = self.look(resolvers, unreachable);
        if changes.is_empty() {
            return Ok(());
        }
        disk::update(&self.path, |content| changes.apply(content, usize::MAX, false, clock.unix_ms))
    }
}
