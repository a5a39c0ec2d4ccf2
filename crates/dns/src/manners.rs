//! How a client keeps from being a nuisance (`docs/spec/dns-carriage.md`, section 10): first flights by DNS look like a
//! tunnel to whoever watches a resolver, so they are few, and end for a day where they are not liked.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_credential::NetworkId;
use firstflight_wire::Instant;
use firstflight_wire::asap::Zone;
use std::collections::VecDeque;

const MINUTE: Duration = Duration::from_secs(60);
/// How long the carriage stops where it was refused or changed.
pub const STOPPED_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// First flights of one zone in a minute.
pub const PER_ZONE: usize = 4;
/// First flights in a minute.
pub const PER_CLIENT: usize = 20;
/// Networks with a resolver where it is stopped. When there are more, the oldest one is forgotten.
const MAX_STOPS: usize = 256;

/// Why a first flight does not go by DNS now: it goes the direct way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restraint {
    /// The resolver on this network refused fragments or changed them, less than a day ago.
    Stopped,
    /// Four of this zone in the last minute.
    Zone,
    /// Twenty in the last minute.
    Client,
}

impl fmt::Display for Restraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "the resolver refused or changed fragments less than a day ago",
            Self::Zone => "four first flights of this zone in the last minute",
            Self::Client => "twenty first flights in the last minute",
        })
    }
}

/// The limits of one client. Time is that of a clock that runs while the machine sleeps.
#[derive(Debug, Default)]
pub struct Manners {
    /// The last ones, with their zones in wire form; at most [`PER_CLIENT`].
    sent: VecDeque<(Instant, Box<[u8]>)>,
    /// Since when; the oldest first.
    stops: VecDeque<(Instant, NetworkId, IpAddr)>,
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
    ) -> Result<(), Restraint> {
        if self.is_stopped(network, resolver, now) {
            return Err(Restraint::Stopped);
        }
        while self.sent.front().is_some_and(|(at, _)| now.saturating_since(*at) >= MINUTE) {
            self.sent.pop_front();
        }
        if self.sent.len() >= PER_CLIENT {
            return Err(Restraint::Client);
        }
        if self.sent.iter().filter(|(_, other)| **other == *zone.as_bytes()).count() >= PER_ZONE {
            return Err(Restraint::Zone);
        }
        self.sent.push_back((now, zone.as_bytes().into()));
        Ok(())
    }

    /// The resolver at `resolver` refused a fragment or changed it ([`Echo::stops`](crate::Echo::stops)).
    pub fn handle_refusal(&mut self, network: NetworkId, resolver: IpAddr, now: Instant) {
        self.stops.retain(|(_, of, at)| (*of, *at) != (network, resolver));
        if self.stops.len() >= MAX_STOPS {
            self.stops.pop_front();
        }
        self.stops.push_back((now, network, resolver));
    }

    /// Where it is stopped, and for how long: to be remembered. [`Manners::handle_refusal`] takes them back, with the
    /// time when that began.
    pub fn stops(&self, now: Instant) -> impl Iterator<Item = (NetworkId, IpAddr, Duration)> {
        self.stops.iter().filter_map(move |(since, network, resolver)| {
            let left =
                STOPPED_FOR.checked_sub(now.saturating_since(*since)).filter(|left| !left.is_zero())?;
            Some((*network, *resolver, left))
        })
    }

    /// Whether it is stopped there.
    #[must_use]
    pub fn is_stopped(&self, network: NetworkId, resolver: IpAddr, now: Instant) -> bool {
        let here = |(since, of, at): &&(Instant, NetworkId, IpAddr)| {
            (*of, *at) == (network, resolver) && now.saturating_since(*since) < STOPPED_FOR
        };
        self.stops.iter().any(|stop| here(&stop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: NetworkId = NetworkId([1; 16]);
    const NOW: Instant = Instant::from_secs(1_000_000);

    fn zone(name: &[u8]) -> Zone<'_> {
        Zone::new(name).unwrap()
    }

    fn resolver() -> IpAddr {
        [127, 0, 0, 53].into()
    }

    fn at(ms: u64) -> Instant {
        NOW + Duration::from_millis(ms)
    }

    #[test]
    fn four_of_a_zone_in_any_minute() {
        let mut manners = Manners::new();
        for n in 0..4 {
            assert_eq!(manners.take(zone(b"\x01a\0"), HOME, resolver(), at(n * 1000)), Ok(()));
        }
        assert_eq!(manners.take(zone(b"\x01a\0"), HOME, resolver(), at(59_999)), Err(Restraint::Zone));
        assert_eq!(manners.take(zone(b"\x01b\0"), HOME, resolver(), at(59_999)), Ok(()));
        assert_eq!(manners.take(zone(b"\x01a\0"), HOME, resolver(), at(60_000)), Ok(()));
        assert_eq!(manners.take(zone(b"\x01a\0"), HOME, resolver(), at(60_500)), Err(Restraint::Zone));
    }

    #[test]
    fn twenty_in_any_minute() {
        let mut manners = Manners::new();
        let names: Vec<Vec<u8>> = (0..10).map(|n| vec![1, b'a' + n, 0]).collect();
        let mut taken = Vec::new();
        for ms in (0..600_000).step_by(97) {
            let name = &names[(ms / 97) as usize % 10];
            if manners.take(zone(name), HOME, resolver(), at(ms)).is_ok() {
                taken.push(ms);
            }
        }
        assert_eq!(taken.iter().filter(|ms| **ms < 60_000).count(), PER_CLIENT);
        assert!(taken.windows(PER_CLIENT + 1).all(|run| run[PER_CLIENT] - run[0] >= 60_000));
        assert!(manners.sent.len() <= PER_CLIENT);
    }

    #[test]
    fn a_refusal_stops_one_resolver_of_one_network_for_a_day() {
        let mut manners = Manners::new();
        manners.handle_refusal(HOME, resolver(), NOW);
        let mut take = |network, resolver, now| manners.take(zone(b"\x01a\0"), network, resolver, now);
        assert_eq!(take(HOME, resolver(), NOW), Err(Restraint::Stopped));
        assert_eq!(take(HOME, [127, 0, 0, 1].into(), NOW), Ok(()));
        assert_eq!(take(NetworkId([2; 16]), resolver(), NOW), Ok(()));
        let day = Duration::from_secs(86_400);
        assert_eq!(take(HOME, resolver(), NOW + day - Duration::from_millis(1)), Err(Restraint::Stopped));
        assert_eq!(take(HOME, resolver(), NOW + day), Ok(()));
        // What is left of it outlives the process.
        let hour = Duration::from_secs(3600);
        let left: Vec<_> = manners.stops(NOW + hour).collect();
        assert_eq!(left, [(HOME, resolver(), day - hour)]);
        assert_eq!(manners.stops(NOW + day).count(), 0);
    }

    #[test]
    fn the_memory_of_refusals_is_bounded() {
        let mut manners = Manners::new();
        for n in 0..10_000_u32 {
            manners.handle_refusal(NetworkId::UNKNOWN, IpAddr::V4(n.into()), NOW);
            manners.handle_refusal(HOME, resolver(), NOW);
        }
        assert_eq!(manners.stops.len(), MAX_STOPS);
        assert!(manners.is_stopped(HOME, resolver(), NOW));
    }
}
