//! Pauses of the DNS path, for a zone with a resolver on a network, with exponential backoff.

use super::restraint::Restraint;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_credential::NetworkId;
use firstflight_wire::Instant;
use firstflight_wire::asap::Zone;

/// The first pause.
const FIRST: Duration = Duration::from_secs(2 * 60);
/// The longest pause.
pub(super) const LONGEST: Duration = Duration::from_secs(60 * 60);
/// Consecutive strikes that cause a pause.
const STRIKES: u32 = 2;
/// If this number of zones is stopped with a resolver, all zones are.
const ZONES: usize = 3;
/// How long strikes count after the pause.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// The most places remembered. If there are more, the one whose pause ends or ended first is forgotten.
pub(super) const MAX_STOPS: usize = 256;

/// The strikes at one place, and until when its pause lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// The client's network.
    pub network: NetworkId,
    /// The resolver.
    pub resolver: IpAddr,
    /// The DNS-path zone in wire form. `None` for all zones.
    pub zone: Option<Box<[u8]>>,
    /// The cause.
    pub cause: Cause,
    /// Consecutive first flights that did not go well. One alone does not cause a pause.
    pub strikes: u32,
    /// When the pause ends or ended. Without a pause, the time of the strike.
    pub until: Instant,
}

/// What is wrong at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The resolver refuses, changes or loses names.
    Resolver,
    /// The resolver says that the names do not exist, so this is not a DNS-path zone (any more). It proves
    /// nothing about the resolver.
    Zone,
}

/// A zone with a resolver on a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ZoneAtResolver {
    network: NetworkId,
    resolver: IpAddr,
    zone: Box<[u8]>,
}

impl ZoneAtResolver {
    pub(super) fn new(network: NetworkId, resolver: IpAddr, zone: Zone<'_>) -> Self {
        Self { network, resolver, zone: zone.as_bytes().into() }
    }

    pub(super) fn has_resolver(&self, network: NetworkId, resolver: IpAddr) -> bool {
        (self.network, self.resolver) == (network, resolver)
    }

    pub(super) fn has_zone(&self, zone: Zone<'_>) -> bool {
        *self.zone == *zone.as_bytes()
    }
}

/// The places with a pause or a strike, at most [`MAX_STOPS`].
#[derive(Debug, Default)]
pub(super) struct Stops(Vec<Record>);

#[derive(Debug)]
struct Record {
    stop: Stop,
    /// When the last strike was.
    since: Instant,
}

impl Record {
    fn is_of(&self, place: &ZoneAtResolver) -> bool {
        let stop = &self.stop;
        place.has_resolver(stop.network, stop.resolver)
            && stop.zone.as_ref().is_some_and(|zone| *zone == place.zone)
    }

    const fn is_stop(&self) -> bool {
        self.stop.strikes >= STRIKES
    }

    fn is_stopped(&self, now: Instant) -> bool {
        self.is_stop() && self.stop.until > now
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        let after = if self.stop.zone.is_some() { FORGOTTEN_AFTER } else { Duration::ZERO };
        self.stop.until + after <= now
    }
}

impl Stops {
    /// Whether a first flight may go to this place. If so, returns whether it is the trial after a pause.
    pub(super) fn admit(&self, place: &ZoneAtResolver, now: Instant) -> Result<bool, Restraint> {
        let here = self.0.iter().find(|record| record.is_of(place));
        if here.is_some_and(|record| record.is_stopped(now)) {
            return Err(Restraint::Stopped);
        }
        let with_resolver = self.0.iter().filter(|record| {
            let stop = &record.stop;
            place.has_resolver(stop.network, stop.resolver) && record.is_stopped(now)
        });
        // A stop of all zones counts as `ZONES` stopped zones.
        let weight = |record: &Record| match (&record.stop.zone, record.stop.cause) {
            (None, _) => ZONES,
            (Some(_), Cause::Resolver) => 1,
            (Some(_), Cause::Zone) => 0,
        };
        if with_resolver.map(weight).sum::<usize>() >= ZONES {
            return Err(Restraint::Resolver);
        }
        Ok(here.is_some_and(Record::is_stop))
    }

    /// A first flight that left at `departed` went well.
    pub(super) fn clear(&mut self, place: &ZoneAtResolver, departed: Instant) {
        // A first flight that left before the pause proves nothing about the time after it.
        self.0.retain(|record| !record.is_of(place) || (record.is_stop() && departed <= record.since));
    }

    /// A first flight that left at `departed` did not go well. Returns the length of the pause, if a new one
    /// begins.
    pub(super) fn strike(
        &mut self,
        place: &ZoneAtResolver,
        departed: Instant,
        cause: Cause,
        stops_at_once: bool,
        now: Instant,
    ) -> Option<Duration> {
        let known = self.0.iter().position(|record| record.is_of(place));
        let before = match known.map(|at| self.0.swap_remove(at)) {
            // It left before the first flight that caused the pause ended, so this is the same event.
            Some(record) if record.is_stop() && departed <= record.since => {
                self.0.push(record);
                return None;
            }
            Some(record) if !record.is_forgotten(now) => record.stop.strikes,
            _ => 0,
        };
        let least = if stops_at_once { STRIKES } else { 1 };
        let strikes = before.saturating_add(1).max(least);
        let pause = pause(strikes);
        let ZoneAtResolver { network, resolver, zone } = place.clone();
        let until = now + pause.unwrap_or_default();
        let stop = Stop { network, resolver, zone: Some(zone), cause, strikes, until };
        self.insert(Record { stop, since: now }, now);
        pause
    }

    /// Restores a saved stop. Its pause is limited to the longest one.
    pub(super) fn restore(&mut self, mut stop: Stop, now: Instant) {
        stop.until = stop.until.min(now + LONGEST);
        // Keep one stop for each place, because several would count as several zones.
        let is_same = |other: &Stop| {
            (other.network, other.resolver, &other.zone) == (stop.network, stop.resolver, &stop.zone)
        };
        self.0.retain(|record| !is_same(&record.stop));
        // All first flights leave after this.
        self.insert(Record { stop, since: Instant::ZERO }, now);
    }

    pub(super) fn iter(&self, now: Instant) -> impl Iterator<Item = &Stop> {
        self.0.iter().filter(move |record| !record.is_forgotten(now)).map(|record| &record.stop)
    }

    fn insert(&mut self, record: Record, now: Instant) {
        self.0.retain(|record| !record.is_forgotten(now));
        let ends_first = self.0.iter().enumerate().min_by_key(|(_, record)| record.stop.until);
        if let Some((at, _)) = ends_first.filter(|_| self.0.len() >= MAX_STOPS) {
            self.0.swap_remove(at);
        }
        self.0.push(record);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The pause after this many consecutive strikes.
fn pause(strikes: u32) -> Option<Duration> {
    strikes.checked_sub(STRIKES).map(backoff)
}

/// The length of a pause after this many doublings: 2 min at first, at most 1 h.
#[must_use]
pub fn backoff(doublings: u32) -> Duration {
    FIRST.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(LONGEST)
}
