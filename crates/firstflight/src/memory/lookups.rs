//! What is remembered of first flights inside lookups: which resolvers refuse, change or lose names, and on which networks
//! servers that this host never contacted cannot reach it.

pub(crate) mod losses;

use super::file::lookup_file::LookupFile;
use super::file::row::Row;
use super::file::{CacheError, CachedResolver, CachedUnreachable, CredentialCache};
use crate::clock::Monotonic;
use firstflight_credential::NetworkId;
use firstflight_dns::{Cause, Manners, Stop};
use firstflight_wire::asap::Zone;
use firstflight_wire::{Clock, Instant};
use std::path::PathBuf;
use std::time::Duration;

/// How long a network is not verified again after unknown servers could not reach this host.
const UNREACHABLE_FOR: Duration = Duration::from_secs(60 * 60);

/// What is remembered of first flights inside lookups, on one network. It can be kept in the file of [`CredentialCache`],
/// which other programs use at the same time.
#[derive(Debug)]
pub(crate) struct LookupMemory {
    network: NetworkId,
    resolvers: Vec<CachedResolver>,
    unreachable: Vec<CachedUnreachable>,
    time: Monotonic,
    file: Option<LookupFile>,
}

impl LookupMemory {
    /// In this process only. On an unknown network nothing else is possible.
    pub(crate) fn new(network: NetworkId) -> Self {
        Self { network, resolvers: Vec::new(), unreachable: Vec::new(), time: Monotonic::begin(), file: None }
    }

    /// With the file at `path`. [`LookupMemory::save`] writes it. On an unknown network it is not used.
    pub(crate) fn open(path: impl Into<PathBuf>, network: NetworkId) -> Result<Self, CacheError> {
        let mut memory = Self::new(network);
        if network.is_known() {
            let clock = memory.time.clock();
            memory.load(CredentialCache::open(path)?, &clock);
        }
        Ok(memory)
    }

    fn load(&mut self, cache: CredentialCache, clock: &Clock) {
        let (file, resolvers, unreachable) = LookupFile::load(cache, clock);
        (self.resolvers, self.unreachable) = (resolvers, unreachable);
        self.file = Some(file);
    }

    /// Writes what was learnt into the file, if there is one and anything changed. Blocks.
    pub(crate) fn save(&mut self) -> Result<(), CacheError> {
        let clock = self.time.clock();
        self.save_at(&clock)
    }

    fn save_at(&mut self, clock: &Clock) -> Result<(), CacheError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write(&self.resolvers, &self.unreachable, clock)
    }

    /// What resolvers did so far. `now` is the time of [`certificate_clock`](crate::certificate_clock).
    pub(crate) fn manners(&self, now: Instant) -> Manners {
        self.manners_at(now, self.time.clock().unix_ms)
    }

    fn manners_at(&self, now: Instant, unix: u64) -> Manners {
        let mut manners = Manners::new();
        for row in self.resolvers.iter().filter(|row| Zone::new(&row.zone).is_some()) {
            let far = Duration::from_millis(row.until.abs_diff(unix));
            let stop = Stop {
                network: row.network,
                resolver: row.resolver,
                zone: Some(row.zone.clone().into()),
                cause: if row.no_zone { Cause::Zone } else { Cause::Resolver },
                strikes: row.strikes,
                until: if row.until > unix { now + far } else { now - far },
            };
            manners.restore(stop, now);
        }
        manners
    }

    /// Takes what resolvers did. `now` is as for [`LookupMemory::manners`].
    pub(crate) fn set_stops(&mut self, stops: &[Stop], now: Instant) {
        self.set_stops_at(stops, now, self.time.clock().unix_ms);
    }

    fn set_stops_at(&mut self, stops: &[Stop], now: Instant, unix: u64) {
        let ms = |time: Duration| time.as_millis() as u64;
        let row = |stop: &Stop| {
            let until = unix.saturating_add(ms(stop.until.saturating_since(now)));
            let until = until.saturating_sub(ms(now.saturating_since(stop.until)));
            Some(CachedResolver {
                network: stop.network,
                resolver: stop.resolver,
                zone: stop.zone.as_deref()?.to_vec(),
                strikes: stop.strikes,
                no_zone: stop.cause == Cause::Zone,
                // In whole seconds: two clocks differ a little, and what did not change is not written.
                until: (until + 500) / 1000 * 1000,
            })
        };
        self.resolvers = stops.iter().filter_map(row).collect();
    }

    /// Whether the last verification on this network, less than an hour ago, found that unknown servers cannot reach this
    /// host.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.is_unreachable_at(self.time.clock().unix_ms)
    }

    fn is_unreachable_at(&self, unix: u64) -> bool {
        let here = |row: &CachedUnreachable| row.network == self.network && row.counts(unix);
        self.network.is_known() && self.unreachable.iter().any(here)
    }

    /// Records whether unknown servers can reach this host.
    pub(crate) fn set_unreachable(&mut self, unreachable: bool) {
        self.set_unreachable_at(unreachable, self.time.clock().unix_ms);
    }

    fn set_unreachable_at(&mut self, unreachable: bool, unix: u64) {
        self.unreachable.retain(|row| row.network != self.network);
        if unreachable {
            let until = unix.saturating_add(UNREACHABLE_FOR.as_millis() as u64);
            self.unreachable.push(CachedUnreachable { network: self.network, until });
        }
    }
}

#[cfg(test)]
mod tests;
