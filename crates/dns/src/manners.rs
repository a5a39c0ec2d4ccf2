//! Limits that a client puts on itself (`docs/spec/dns-path.md`, section 10). To an observer of a
//! resolver, first flights by DNS look like a tunnel. So a client sends few of them, and pauses where names
//! are refused, changed or lost.

mod restraint;
mod stops;

pub use restraint::Restraint;
#[cfg(test)]
mod tests;

pub use stops::{Cause, Stop, backoff};

use crate::query::{Echo, Meaning};
use core::net::IpAddr;
use core::time::Duration;
use firstflight_credential::NetworkId;
use firstflight_wire::Instant;
use firstflight_wire::asap::Zone;
use std::collections::VecDeque;
use stops::{Stops, ZoneAtResolver};

const MINUTE: Duration = Duration::from_secs(60);
/// The most first flights of one zone in a minute.
pub const PER_ZONE: usize = 4;
/// The most first flights in a minute.
pub const PER_CLIENT: usize = 20;
/// After this time names are late, if no name of their first flight is answered yet.
const UNHEARD: Duration = Duration::from_millis(250);
/// Names are never late before this time.
const IN_TIME: Duration = Duration::from_millis(50);

/// The id of a first flight in [`Manners`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlightId(u64);

/// The limits of one client, and its memory of how resolvers treated names. Times are those of a clock that
/// also runs while the machine sleeps.
#[derive(Debug, Default)]
pub struct Manners {
    /// First flights of the last minute, oldest first, at most [`PER_CLIENT`].
    flights: VecDeque<Flight>,
    stops: Stops,
    /// The number of the next first flight.
    next: u64,
}

/// A first flight of the last minute.
#[derive(Debug)]
struct Flight {
    id: FlightId,
    at: Instant,
    place: ZoneAtResolver,
    /// It is the trial after a pause.
    trial: bool,
    state: State,
    /// Names that were asked for.
    asked: usize,
    /// How many of them may be lost.
    spare: usize,
    answered: usize,
    /// Names answered with SERVFAIL.
    failed: usize,
    /// Time from the departure to the first answer.
    first_answer: Option<Duration>,
    /// The server answered before the client contacted it, so the front has received the names.
    relayed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its names were not asked for yet.
    Waiting,
    /// Answers may come.
    UnderWay,
    Ended,
}

/// What a first flight shows about the resolver and the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlightVerdict {
    /// The names reach the front.
    Well,
    /// Some names were lost: an ordinary loss of packets.
    Unclear,
    /// At least half of the names were lost.
    Lost,
    /// A name was refused or changed.
    Refused,
    /// A name does not exist.
    NoZone,
}

impl Flight {
    /// Names without an answer so far.
    const fn outstanding(&self) -> usize {
        self.asked.saturating_sub(self.answered + self.failed)
    }

    fn is_under_way(&self) -> bool {
        self.state == State::UnderWay
    }

    /// Whether more names are unanswered than may be lost, for longer than the resolver should need: twice
    /// the time of the first answer, because all names of a first flight take the same way at the same time.
    fn is_late(&self, now: Instant) -> bool {
        let due = self.first_answer.map_or(UNHEARD, |took| (took * 2).max(IN_TIME));
        let incomplete = !self.relayed && self.outstanding() > self.spare;
        self.is_under_way() && incomplete && now - self.at > due
    }

    /// The verdict when no further answers are expected.
    const fn verdict(&self) -> FlightVerdict {
        let lost = self.asked.saturating_sub(self.answered);
        if self.relayed || lost <= self.spare {
            FlightVerdict::Well
        } else if lost * 2 >= self.asked {
            FlightVerdict::Lost
        } else {
            FlightVerdict::Unclear
        }
    }
}

impl Manners {
    /// Nothing was sent or refused yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a first flight of `zone` through the resolver at `resolver`, if the limits allow it. A second
    /// attempt at the same first flight counts again, because it asks for as many names.
    ///
    /// # Errors
    /// Why it does not go by DNS.
    pub fn take(
        &mut self,
        zone: Zone<'_>,
        network: NetworkId,
        resolver: IpAddr,
        now: Instant,
    ) -> Result<FlightId, Restraint> {
        while self.flights.front().is_some_and(|flight| now - flight.at >= MINUTE) {
            self.flights.pop_front();
        }
        let place = ZoneAtResolver::new(network, resolver, zone);
        let trial = self.stops.admit(&place, now)?;
        let mut others = self.flights.iter();
        if trial && others.any(|flight| flight.trial && flight.state != State::Ended && flight.place == place)
        {
            return Err(Restraint::Stopped);
        }
        let mut others = self.flights.iter();
        if others.any(|flight| flight.place.has_resolver(network, resolver) && flight.is_late(now)) {
            return Err(Restraint::Unanswered);
        }
        if self.flights.len() >= PER_CLIENT {
            return Err(Restraint::Client);
        }
        if self.flights.iter().filter(|flight| flight.place.has_zone(zone)).count() >= PER_ZONE {
            return Err(Restraint::Zone);
        }
        let id = FlightId(self.next);
        self.next = self.next.wrapping_add(1);
        self.flights.push_back(Flight {
            id,
            at: now,
            place,
            trial,
            state: State::Waiting,
            asked: 0,
            spare: 0,
            answered: 0,
            failed: 0,
            first_answer: None,
            relayed: false,
        });
        Ok(id)
    }

    /// The client has asked for `asked` names of a first flight, of which `spare` may be lost.
    pub fn handle_departure(&mut self, id: FlightId, asked: usize, spare: usize, now: Instant) {
        if let Some(flight) = self.flight(id).filter(|flight| flight.state == State::Waiting) {
            (flight.asked, flight.spare, flight.at) = (asked, spare, now);
            flight.state = State::UnderWay;
        }
    }

    /// Nothing of a first flight was sent.
    pub fn handle_failure(&mut self, id: FlightId) {
        if let Some(flight) = self.flight(id) {
            flight.state = State::Ended;
        }
    }

    /// One of its names was answered. Returns how long the zone is stopped, if this answer stops it. Then no
    /// other answer to this first flight counts.
    pub fn handle_answer(&mut self, id: FlightId, echo: Echo, now: Instant) -> Option<Duration> {
        let flight = self.flight(id).filter(|flight| flight.is_under_way())?;
        let took = now - flight.at;
        flight.first_answer.get_or_insert(took);
        let verdict = match echo.meaning() {
            Meaning::Carried => {
                flight.answered += 1;
                None
            }
            Meaning::Lost => {
                flight.failed += 1;
                None
            }
            Meaning::NoZone => Some(FlightVerdict::NoZone),
            Meaning::Refused => Some(FlightVerdict::Refused),
        };
        match verdict {
            Some(verdict) => self.end(id, verdict, now),
            None if flight.outstanding() == 0 => self.handle_end(id, now),
            None => None,
        }
    }

    /// The server answered a first flight before the client contacted it. So the names have reached the
    /// front, whatever the resolver answers.
    pub fn handle_relayed(&mut self, id: FlightId) {
        if let Some(flight) = self.flight(id) {
            flight.relayed = true;
        }
    }

    /// No further answers to its names are expected. Returns how long the zone is stopped, if this stops it.
    pub fn handle_end(&mut self, id: FlightId, now: Instant) -> Option<Duration> {
        let verdict = self.flight(id).filter(|flight| flight.is_under_way())?.verdict();
        self.end(id, verdict, now)
    }

    /// Ends first flights whose names are late. Call it when the program ends and will not receive further
    /// answers.
    pub fn conclude(&mut self, now: Instant) {
        let late = self.flights.iter().filter(|flight| flight.is_late(now)).map(|flight| flight.id);
        for id in late.collect::<Vec<_>>() {
            self.handle_end(id, now);
        }
    }

    /// The places that are stopped, or that have a strike. Save them for [`Manners::restore`].
    pub fn stops(&self, now: Instant) -> impl Iterator<Item = &Stop> {
        self.stops.iter(now)
    }

    /// Restores a saved stop.
    pub fn restore(&mut self, stop: Stop, now: Instant) {
        self.stops.restore(stop, now);
    }

    /// Whether first flights of `zone` are stopped with this resolver on this network.
    #[must_use]
    pub fn is_stopped(&self, zone: Zone<'_>, network: NetworkId, resolver: IpAddr, now: Instant) -> bool {
        self.stops.admit(&ZoneAtResolver::new(network, resolver, zone), now).is_err()
    }

    /// Whether the client asked this resolver on this network for names of a first flight in the last minute.
    /// They may have used up the limit that the resolver has for a client.
    #[must_use]
    pub fn has_asked(&self, network: NetworkId, resolver: IpAddr, now: Instant) -> bool {
        self.flights.iter().any(|flight| {
            flight.asked > 0 && flight.place.has_resolver(network, resolver) && now - flight.at < MINUTE
        })
    }

    fn flight(&mut self, id: FlightId) -> Option<&mut Flight> {
        self.flights.iter_mut().find(|flight| flight.id == id)
    }

    fn end(&mut self, id: FlightId, verdict: FlightVerdict, now: Instant) -> Option<Duration> {
        let flight = self.flights.iter_mut().find(|flight| flight.id == id)?;
        flight.state = State::Ended;
        let (cause, stops_at_once) = match verdict {
            FlightVerdict::Well => {
                self.stops.clear(&flight.place, flight.at);
                return None;
            }
            // The trial after a pause must succeed.
            FlightVerdict::Unclear if !flight.trial => return None,
            FlightVerdict::Unclear | FlightVerdict::Lost => (Cause::Resolver, false),
            FlightVerdict::Refused => (Cause::Resolver, true),
            FlightVerdict::NoZone => (Cause::Zone, true),
        };
        self.stops.strike(&flight.place, flight.at, cause, stops_at_once, now)
    }
}
