//! How a client keeps from being a nuisance (`docs/spec/dns-carriage.md`, section 10): first flights by DNS look like a
//! tunnel to an observer of a resolver. So they are few, and they pause where names are refused, changed or lost.

mod stops;
#[cfg(test)]
mod tests;

pub use stops::{Cause, Stop, backoff};

use crate::query::{Echo, Meaning};
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_credential::NetworkId;
use firstflight_wire::Instant;
use firstflight_wire::asap::Zone;
use std::collections::VecDeque;
use stops::{Place, Stops};

const MINUTE: Duration = Duration::from_secs(60);
/// First flights of one zone in a minute.
pub const PER_ZONE: usize = 4;
/// First flights in a minute.
pub const PER_CLIENT: usize = 20;
/// How long names may take to be answered before they are late, if none of their first flight is answered yet.
const UNHEARD: Duration = Duration::from_millis(250);
/// How long names may take at least before they are late.
const IN_TIME: Duration = Duration::from_millis(50);

/// Why a first flight does not go by DNS now: it goes the direct way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restraint {
    /// The resolver on this network refused, changed or lost names of this zone, or said that there are none, and the
    /// pause after that is not over. Or it is over, and the one first flight that tries again is under way.
    Stopped,
    /// Three zones are stopped with this resolver on this network.
    Resolver,
    /// The resolver has not answered names of an earlier first flight in the time that it needs for others.
    Unanswered,
    /// Four of this zone in the last minute.
    Zone,
    /// Twenty in the last minute.
    Client,
}

impl fmt::Display for Restraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "the resolver refused, changed or lost names of this zone a short time ago",
            Self::Resolver => "the resolver refused, changed or lost names of three zones a short time ago",
            Self::Unanswered => "the resolver has not answered names of an earlier first flight yet",
            Self::Zone => "four first flights of this zone in the last minute",
            Self::Client => "twenty first flights in the last minute",
        })
    }
}

/// A first flight that [`Manners`] keeps account of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlightId(u64);

/// The limits of one client, and what its resolvers did with names. Time is that of a clock that runs while the machine
/// sleeps.
#[derive(Debug, Default)]
pub struct Manners {
    /// Those of the last minute, oldest first; at most [`PER_CLIENT`].
    flights: VecDeque<Flight>,
    stops: Stops,
    /// The number of the next one.
    next: u64,
}

/// A first flight of the last minute.
#[derive(Debug)]
struct Flight {
    id: FlightId,
    at: Instant,
    place: Place,
    /// It is the one that may try again after a stop.
    trial: bool,
    state: State,
    /// Names that were asked for.
    asked: usize,
    /// How many of them may be lost.
    spare: usize,
    answered: usize,
    /// Answered with SERVFAIL.
    failed: usize,
    /// When the first answer came, since the departure.
    first_answer: Option<Duration>,
    /// The server answered it before it was contacted, so the front got the names.
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

/// What a first flight says of the resolver and the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The names reach the front.
    Well,
    /// Some names were lost: an ordinary loss of packets.
    Unclear,
    /// Half of the names or more were lost.
    Lost,
    /// A name was refused or changed.
    Refused,
    /// A name does not exist.
    NoZone,
}

impl Flight {
    /// Names of which nothing is known.
    const fn outstanding(&self) -> usize {
        self.asked.saturating_sub(self.answered + self.failed)
    }

    fn is_under_way(&self) -> bool {
        self.state == State::UnderWay
    }

    /// Whether more names than may be lost are unanswered, and that for longer than the resolver should need: twice
    /// the time of the first answer, as all names of a first flight go the same way at the same time.
    fn is_late(&self, now: Instant) -> bool {
        let due = self.first_answer.map_or(UNHEARD, |took| (took * 2).max(IN_TIME));
        let incomplete = !self.relayed && self.outstanding() > self.spare;
        self.is_under_way() && incomplete && now - self.at > due
    }

    /// What it says when no more answers are awaited.
    const fn verdict(&self) -> Verdict {
        let lost = self.asked.saturating_sub(self.answered);
        if self.relayed || lost <= self.spare {
            Verdict::Well
        } else if lost * 2 >= self.asked {
            Verdict::Lost
        } else {
            Verdict::Unclear
        }
    }
}

impl Manners {
    /// Nothing was sent, and nothing refused.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a first flight of `zone` through the resolver at `resolver`, unless it would be one too many.
    /// Another attempt at the same one counts again: it is as many names.
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
        let place = Place::new(network, resolver, zone);
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

    /// The names of a first flight were asked for: `asked` of them, of which `spare` may be lost.
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

    /// One of its names was answered. Gives for how long the zone is stopped, if it is now: then no other answer to
    /// this first flight counts.
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
            Meaning::NoZone => Some(Verdict::NoZone),
            Meaning::Refused => Some(Verdict::Refused),
        };
        match verdict {
            Some(verdict) => self.end(id, verdict, now),
            None if flight.outstanding() == 0 => self.handle_end(id, now),
            None => None,
        }
    }

    /// The server answered a first flight before it was contacted: its names reached the front, whatever the resolver
    /// says to the client.
    pub fn handle_relayed(&mut self, id: FlightId) {
        if let Some(flight) = self.flight(id) {
            flight.relayed = true;
        }
    }

    /// No more answers to its names are awaited. Gives for how long the zone is stopped, if it is now.
    pub fn handle_end(&mut self, id: FlightId, now: Instant) -> Option<Duration> {
        let verdict = self.flight(id).filter(|flight| flight.is_under_way())?.verdict();
        self.end(id, verdict, now)
    }

    /// Ends first flights whose names are late: the program ends, and answers to them will not be heard.
    pub fn conclude(&mut self, now: Instant) {
        let late = self.flights.iter().filter(|flight| flight.is_late(now)).map(|flight| flight.id);
        for id in late.collect::<Vec<_>>() {
            self.handle_end(id, now);
        }
    }

    /// Where it is stopped, or soon might be: to be remembered by [`Manners::restore`].
    pub fn stops(&self, now: Instant) -> impl Iterator<Item = &Stop> {
        self.stops.iter(now)
    }

    /// Takes back what was remembered.
    pub fn restore(&mut self, stop: Stop, now: Instant) {
        self.stops.restore(stop, now);
    }

    /// Whether first flights of `zone` are stopped there.
    #[must_use]
    pub fn is_stopped(&self, zone: Zone<'_>, network: NetworkId, resolver: IpAddr, now: Instant) -> bool {
        self.stops.admit(&Place::new(network, resolver, zone), now).is_err()
    }

    /// Whether names of a first flight were asked for there in the last minute. They may have used up what the resolver
    /// grants a client.
    #[must_use]
    pub fn has_asked(&self, network: NetworkId, resolver: IpAddr, now: Instant) -> bool {
        self.flights.iter().any(|flight| {
            flight.asked > 0 && flight.place.has_resolver(network, resolver) && now - flight.at < MINUTE
        })
    }

    fn flight(&mut self, id: FlightId) -> Option<&mut Flight> {
        self.flights.iter_mut().find(|flight| flight.id == id)
    }

    fn end(&mut self, id: FlightId, verdict: Verdict, now: Instant) -> Option<Duration> {
        let flight = self.flights.iter_mut().find(|flight| flight.id == id)?;
        flight.state = State::Ended;
        let (cause, stops_at_once) = match verdict {
            Verdict::Well => {
                self.stops.clear(&flight.place, flight.at);
                return None;
            }
            // The one that tries again after a stop has to succeed.
            Verdict::Unclear if !flight.trial => return None,
            Verdict::Unclear | Verdict::Lost => (Cause::Resolver, false),
            Verdict::Refused => (Cause::Resolver, true),
            Verdict::NoZone => (Cause::Zone, true),
        };
        self.stops.strike(&flight.place, flight.at, cause, stops_at_once, now)
    }
}
