//! The front: an authoritative name server that also accepts first flights (`docs/spec/dns-path.md`,
//! sections 7 to 9).
//!
//! It answers ordinary names from zones. Below the DNS-path zone it answers every fragment at once, valid or
//! not. Complete first flights are opened and handed to a server when [`Front::poll_relay`] is called, or
//! when the server itself calls [`Front::poll_opened`].

mod counters;
mod dns_path;
mod opening;
mod policy;
mod rate;

pub use counters::{FrontCounters, Kind};
pub use dns_path::{Destination, DnsPathConfig, RelayServer};
pub use opening::NotOpened;
pub use policy::{Nearest, NearestError, Policy, RoundRobin};
pub use rate::RateLimit;

use crate::forward::{ForwardCounters, ForwardRefused, ForwardSender, Forwarder, FrontChange};
use crate::keys::DnsPathKeys;
use crate::names::{HEADER, Position};
use crate::query::{Question, refuse};
use crate::reassembly::ReassemblyCounters;
use crate::relay::{ClockReport, Relay, RelayKey, Relayed};
use crate::seal::OpenBuffer;
use crate::zone::{FoundKind, ZoneData};
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use dns_path::DnsPathZone;
use firstflight_wire::{Clock, Instant};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{DNSClass, Name, RecordType};
use rand_core::Rng;
use rate::{RateLimiter, RateVerdict};

/// The transport of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A datagram. Its source may be forged, so answers are limited.
    Udp,
    /// A message of a stream, without its length.
    Tcp,
}

/// An authoritative name server. After each [`Front::handle_query`] send its answer, then call
/// [`Front::poll_relay`] until it returns `None`, or [`Front::poll_opened`] with [`Destination::Here`]. With
/// other fronts ([`Front::forward`]) also call [`Front::poll_forward`].
pub struct Front {
    zones: Vec<ZoneData>,
    dns_path: Option<DnsPathZone>,
    rate: RateLimiter,
    counters: FrontCounters,
}

struct CountedAnswer {
    bytes: Vec<u8>,
    kind: Kind,
    cut: bool,
}

impl Front {
    /// A name server of these zones.
    ///
    /// # Errors
    /// [`FrontError::Twice`]. The caller is at fault.
    pub fn new(zones: Vec<ZoneData>, rate: RateLimit) -> Result<Self, FrontError> {
        let zones = distinct(zones)?;
        let (rate, counters) = (RateLimiter::new(rate), FrontCounters::default());
        Ok(Self { zones, dns_path: None, rate, counters })
    }

    /// Makes the front accept first flights too. `rng` hides which fragments collide in the table.
    ///
    /// # Errors
    /// [`FrontError`]: the caller is at fault.
    pub fn carry(&mut self, config: DnsPathConfig, rng: &mut impl Rng) -> Result<(), FrontError> {
        let bare = bare(&self.zones, &config.zone)?;
        self.dns_path = Some(DnsPathZone::new(config, rng)?);
        self.zones.extend(bare);
        Ok(())
    }

    /// Replaces all zones at once, and returns the previous ones. The state of the DNS-path zone stays: keys,
    /// servers, sets of fragments, limits. If it is not among the new zones, its NS records are those of its
    /// delegation in them.
    ///
    /// # Errors
    /// [`FrontError::Twice`]: the caller is at fault, and nothing has changed.
    pub fn set_zones(&mut self, zones: Vec<ZoneData>) -> Result<Vec<ZoneData>, FrontError> {
        let mut zones = distinct(zones)?;
        if let Some(dns_path) = &self.dns_path {
            zones.extend(bare(&zones, dns_path.name())?);
        }
        Ok(core::mem::replace(&mut self.zones, zones))
    }

    /// The counts so far.
    #[must_use]
    pub const fn counters(&self) -> &FrontCounters {
        &self.counters
    }

    /// The counts of fragments so far.
    #[must_use]
    pub fn reassembly(&self) -> ReassemblyCounters {
        self.dns_path.as_ref().map(|dns_path| *dns_path.reassembly()).unwrap_or_default()
    }

    /// The number of sets of fragments in the table.
    #[must_use]
    pub fn sets(&self) -> usize {
        self.dns_path.as_ref().map_or(0, DnsPathZone::sets)
    }

    /// Memory of the table of fragments, bytes.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.dns_path.as_ref().map_or(0, DnsPathZone::table_bytes)
    }

    /// From now on the front forwards fragments that another front of the zone owns, and accepts those that
    /// it owns from others. False without a DNS-path zone.
    pub fn forward(&mut self, forwarder: Forwarder) -> bool {
        self.dns_path.as_mut().is_some_and(|dns_path| {
            dns_path.forwarder = Some(forwarder);
            true
        })
    }

    pub(crate) fn forwarder(&self) -> Option<&Forwarder> {
        self.dns_path.as_ref()?.forwarder.as_ref()
    }

    fn forwarder_mut(&mut self) -> Option<&mut Forwarder> {
        self.dns_path.as_mut()?.forwarder.as_mut()
    }

    /// As [`Forwarder::set_keys`]. False without other fronts.
    pub fn set_forward_keys(&mut self, sender: Option<ForwardSender>, keys: &[(u8, RelayKey)]) -> bool {
        self.forwarder_mut().is_some_and(|forwarder| {
            forwarder.set_keys(sender, keys);
            true
        })
    }

    /// The counts of the traffic with other fronts so far, and how many fronts are alive, including this one.
    /// `None` without other fronts.
    #[must_use]
    pub fn forwarding(&self, now: Instant) -> Option<(ForwardCounters, usize)> {
        self.forwarder().map(|forwarder| (forwarder.counters(), forwarder.alive(now)))
    }

    /// Handles a datagram from `from` at the port for other fronts. Keeps its fragments, and never forwards
    /// them again. Then poll as after a query.
    ///
    /// # Errors
    /// Why it was dropped, which is counted. There is never an answer.
    pub fn handle_forward(
        &mut self,
        clock: &Clock,
        from: SocketAddr,
        datagram: &[u8],
        rng: &mut impl Rng,
    ) -> Result<(), ForwardRefused> {
        let dns_path = self.dns_path.as_mut().ok_or(ForwardRefused::Off)?;
        dns_path.handle_forward(clock, from, datagram, &mut self.counters, rng)
    }

    /// The next datagram for another front, with fragments that it owns, or to say that this front is alive.
    pub fn poll_forward(&mut self, clock: &Clock) -> Option<Relay> {
        self.forwarder_mut()?.poll_datagram(clock)
    }

    /// The latest time at which [`Front::poll_forward`] has a datagram again. `None` without other fronts.
    #[must_use]
    pub fn next_forward_timeout(&self) -> Option<Instant> {
        self.forwarder().map(Forwarder::next_timeout)
    }

    /// The report on the clock of the last datagram's front, if a message is due: it is too far from this
    /// front's clock, or right again.
    pub fn poll_front_clock(&mut self) -> Option<ClockReport> {
        self.forwarder_mut()?.poll_clock()
    }

    /// The next other front that appeared or disappeared, for a log.
    pub fn poll_front_change(&mut self, now: Instant) -> Option<FrontChange> {
        self.forwarder_mut()?.poll_change(now)
    }

    /// From now on first flights are opened with these keys. False without a DNS-path zone.
    pub fn set_keys(&mut self, keys: DnsPathKeys) -> bool {
        self.dns_path.as_mut().is_some_and(|dns_path| {
            dns_path.set_keys(keys);
            true
        })
    }

    /// From now on first flights are handed to these servers. False if the list is empty, or there is no
    /// DNS-path zone that relays first flights.
    pub fn set_servers(&mut self, servers: Vec<RelayServer>) -> bool {
        !servers.is_empty() && self.dns_path.as_mut().is_some_and(|dns_path| dns_path.set_servers(servers))
    }

    /// The answer to `message`, from the resolver at `from`. `None` if it is not a query, or if the limit
    /// suppresses the answer. `rng` chooses which fragments are forgotten when there is no room.
    pub fn handle_query(
        &mut self,
        now: Instant,
        from: IpAddr,
        transport: Transport,
        message: &[u8],
        rng: &mut impl Rng,
    ) -> Option<Vec<u8>> {
        self.counters.note_query(transport, message.len());
        let question = match Question::parse(message) {
            Ok(question) => Some(question),
            Err(_) if is_query(message) => None,
            Err(_) => {
                self.counters.ignored += 1;
                return None;
            }
        };
        let answer = match &question {
            Some(question) => self.answer(question, now, from, transport, rng),
            None => refuse(message).map(|bytes| CountedAnswer { bytes, kind: Kind::Error, cut: false }),
        };
        let Some(mut answer) = answer else {
            self.counters.unanswered += 1;
            return None;
        };
        if transport == Transport::Udp {
            match self.rate.judge(from, answer.kind, now) {
                RateVerdict::Send => {}
                RateVerdict::Slip => {
                    let Some(cut) = question.as_ref().and_then(|question| question.slip().ok()) else {
                        self.counters.limited += 1;
                        return None;
                    };
                    self.counters.slipped += 1;
                    answer.bytes = cut;
                    answer.cut = false;
                }
                RateVerdict::Drop => {
                    self.counters.limited += 1;
                    return None;
                }
            }
        }
        self.counters.note_answer(answer.kind, answer.bytes.len());
        self.counters.truncated += u64::from(answer.cut);
        Some(answer.bytes)
    }

    /// The next complete first flight, opened into `buffer` for the server that this front is a part of, or
    /// the reason why it cannot be opened, which is counted. It costs one X25519 operation.
    pub fn poll_opened<'b>(
        &mut self,
        clock: &Clock,
        buffer: &'b mut OpenBuffer,
    ) -> Option<Result<Relayed<'b>, NotOpened>> {
        self.dns_path.as_mut()?.poll_opened(clock, buffer, &mut self.counters)
    }

    /// The next datagram for a server, with a complete first flight that it opens. It costs one X25519
    /// operation. `None` without servers to relay to.
    pub fn poll_relay(&mut self, clock: &Clock) -> Option<Relay> {
        self.dns_path.as_mut()?.poll_relay(clock, &mut self.counters)
    }

    fn answer(
        &mut self,
        question: &Question,
        now: Instant,
        from: IpAddr,
        transport: Transport,
        rng: &mut impl Rng,
    ) -> Option<CountedAnswer> {
        let fail =
            |code| Some(CountedAnswer { bytes: question.fail(code).ok()?, kind: Kind::Error, cut: false });
        if question.is_of_unknown_version() {
            return fail(ResponseCode::BADVERS);
        }
        let place = self.dns_path.as_ref().and_then(|dns_path| dns_path.position(question));
        if let Some(Position::Child(label)) = place
            && question.asks_for_a()
            && let Some(dns_path) = &mut self.dns_path
            && dns_path.handle_label(label, from, now, &mut self.counters, rng)
        {
            let bytes = question.answer(dns_path.addresses()).ok()?;
            return Some(CountedAnswer { bytes, kind: Kind::Fragment, cut: false });
        }
        let inside = matches!(place, Some(Position::Apex | Position::Child(_) | Position::Deeper));
        let (name, kind) = (question.asked().name(), question.asked().query_type());
        let class_in = matches!(question.asked().query_class(), DNSClass::IN | DNSClass::ANY);
        let Some(zone) = closest(&self.zones, name, kind) else { return fail(ResponseCode::Refused) };
        let mut found = match kind {
            // Nothing fails below the DNS-path zone (section 8.2).
            _ if inside && !class_in => zone.negative(FoundKind::NoData),
            RecordType::AXFR | RecordType::IXFR if inside => zone.negative(FoundKind::NoData),
            RecordType::AXFR | RecordType::IXFR => return fail(ResponseCode::Refused),
            _ if !class_in => return fail(ResponseCode::Refused),
            kind => zone.look_up(name, kind),
        };
        if inside {
            found.code = ResponseCode::NoError;
            if found.kind == FoundKind::NoName {
                found.kind = FoundKind::NoData;
            }
        }
        let kind = Kind::from(found.kind);
        let max = match transport {
            Transport::Udp => question.max_payload(),
            Transport::Tcp => u16::MAX,
        };
        match question.tell(found, max) {
            Ok((bytes, cut)) => Some(CountedAnswer { bytes, kind, cut }),
            // The set of records does not fit into a message.
            Err(_) if !inside => fail(ResponseCode::ServFail),
            Err(_) => {
                Some(CountedAnswer { bytes: question.answer(&[]).ok()?, kind: Kind::NoData, cut: false })
            }
        }
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zones, dns_path, rate: _, counters } = self;
        f.debug_struct("Front")
            .field("zones", zones)
            .field("dns_path", dns_path)
            .field("counters", counters)
            .finish_non_exhaustive()
    }
}

/// Returns the zones, if no two begin at the same name.
fn distinct(zones: Vec<ZoneData>) -> Result<Vec<ZoneData>, FrontError> {
    for (at, zone) in zones.iter().enumerate() {
        if zones.iter().take(at).any(|other| other.origin() == zone.origin()) {
            return Err(FrontError::Twice(zone.origin().clone()));
        }
    }
    Ok(zones)
}

/// A DNS-path zone at `name` with the servers that its parent in `zones` names, unless `zones` contains it.
fn bare(zones: &[ZoneData], name: &Name) -> Result<Option<ZoneData>, FrontError> {
    if zones.iter().any(|zone| zone.origin() == name) {
        return Ok(None);
    }
    let parents = zones.iter().filter(|zone| zone.origin().zone_of(name));
    let (servers, addresses) = parents.filter_map(|zone| zone.delegation(name)).next().unwrap_or_default();
    ZoneData::bare(name, servers, &addresses).map(Some).map_err(|_| FrontError::DnsPathZone)
}

/// The zone that begins closest above `name`. For the type DS at a zone's beginning it is the zone above.
fn closest<'a>(zones: &'a [ZoneData], name: &Name, kind: RecordType) -> Option<&'a ZoneData> {
    let above = |zone: &&ZoneData| zone.origin().zone_of(name);
    let depth = |zone: &&ZoneData| zone.origin().iter().len();
    if kind == RecordType::DS {
        let upper = zones.iter().filter(above).filter(|zone| zone.origin() != name).max_by_key(depth);
        if upper.is_some() {
            return upper;
        }
    }
    zones.iter().filter(above).max_by_key(depth)
}

/// Whether a message that cannot be parsed is at least a query, which gets an answer.
fn is_query(message: &[u8]) -> bool {
    message.len() >= HEADER && message.get(2).is_some_and(|flags| flags & 0x80 == 0)
}

/// Why a configuration is invalid. The caller is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrontError {
    /// Two zones begin at this name.
    #[error("two zones begin at {0}: give each its own --origin")]
    Twice(Name),
    /// The DNS-path zone is the root, or so long that no fragment fits below.
    #[error("the DNS-path zone is the root, or its name is too long: 190 octets at most")]
    DnsPathZone,
    /// No address to answer fragments with, or more than [`Question::MAX_ADDRESSES`].
    #[error("fragments are answered with 1 to {} addresses", Question::MAX_ADDRESSES)]
    Addresses,
    /// No server to hand first flights to.
    #[error("there is no server to hand first flights to: give one with --relay")]
    NoServer,
}

#[cfg(test)]
mod tests;
