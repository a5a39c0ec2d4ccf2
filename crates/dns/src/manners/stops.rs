//! Where the carriage pauses: for a zone with a resolver on a network, with exponential backoff.

use super::Restraint;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_credential::NetworkId;
use firstflight_wire::Instant;
use firstflight_wire::asap::Zone;

/// The first pause.
const FIRST: Duration = Duration::from_secs(2 * 60);
/// The longest pause.
pub(super) const LONGEST: Duration = Duration::from_secs(60 * 60);
/// Strikes in a row until there is a pause.
const STRIKES: u32 = 2;
/// Zones that are stopped with a resolver until all are.
const ZONES: usize = 3;
/// How long strikes count after the pause.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// When there are more, the one whose pause ended or ends first is forgotten.
pub(super) const MAX_STOPS: usize = 256;

/// What speaks against first flights at one place, and until when there are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// The client's network.
    pub network: NetworkId,
    /// The resolver.
    pub resolver: IpAddr,
    /// The carriage zone in wire form; `None` for all of them.
    pub zone: Option<Box<[u8]>>,
    /// Why.
    pub cause: Cause,
    /// First flights in a row that did not go well: one is no reason to pause yet.
    pub strikes: u32,
    /// When the pause ends, or has ended; without a pause, the time of the strike.
    pub until: Instant,
}

/// What is wrong at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The resolver refuses, changes or loses names.
    Resolver,
    /// The resolver says that the names do not exist: this is no carriage zone (any more). Says nothing of the
    /// resolver.
    Zone,
}

/// A zone with a resolver on a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    network: NetworkId,
    resolver: IpAddr,
    zone: Box<[u8]>,
}

impl Place {
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

/// The places where it pauses; at most [`MAX_STOPS`].
#[derive(Debug, Default)]
pub(super) struct Stops(Vec<Record>);

#[derive(Debug)]
struct Record {
    stop: Stop,
    /// When the last strike was.
    since: Instant,
}

impl Record {
    fn is_of(&self, place: &Place) -> bool {
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
    /// Whether first flights may go there, and then, whether it is one that tries again after a pause.
    pub(super) fn admit(&self, place: &Place, now: Instant) -> Result<bool, Restraint> {
        let here = self.0.iter().find(|record| record.is_of(place));
        if here.is_some_and(|record| record.is_stopped(now)) {
            return Err(Restraint::Stopped);
        }
        let with_resolver = self.0.iter().filter(|record| {
            let stop = &record.stop;
            place.has_resolver(stop.network, stop.resolver) && record.is_stopped(now)
        });
        // A stop of all zones counts as enough of them.
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
    pub(super) fn clear(&mut self, place: &Place, departed: Instant) {
        // One that left before the pause says nothing of what comes after it.
        self.0.retain(|record| !record.is_of(place) || (record.is_stop() && departed <= record.since));
    }

    /// A first flight that left at `departed` did not go well. Gives how long the pause is, if there is a new one.
    pub(super) fn strike(
        &mut self,
        place: &Place,
        departed: Instant,
        cause: Cause,
        stops_at_once: bool,
        now: Instant,
    ) -> Option<Duration> {
        let known = self.0.iter().position(|record| record.is_of(place));
        let before = match known.map(|at| self.0.swap_remove(at)) {
            // It left beside the one that led to the pause: this is the same event.
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
        let Place { network, resolver, zone } = place.clone();
        let until = now + pause.unwrap_or_default();
        let stop = Stop { network, resolver, zone: Some(zone), cause, strikes, until };
        self.insert(Record { stop, since: now }, now);
        pause
    }

    /// Takes back what was remembered; no pause is longer than it can be.
    pub(super) fn restore(&mut self, mut stop: Stop, now: Instant) {
        stop.until = stop.until.min(now + LONGEST);
        // There is one for a place: several would count as that many zones.
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

/// The pause after this many strikes in a row.
fn pause(strikes: u32) -> Option<Duration> {
    strikes.checked_sub(STRIKES).map(backoff)
}

/// How long first flights pause when the pause has doubled this many times: 2 min at first, 1 h at most.
#[must_use]
pub fn backoff(doublings: u32) -> Duration {
    FIRST.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(LONGEST)
}
