//! When a packet that may be repeated was seen.

use super::frame::CapturePlace;
use firstflight_wire::Instant;
use std::time::Duration;

/// If nothing else distinguishes them, the same packet seen twice within this time was captured twice (for example on
/// two devices), not sent twice. No TCP repeats a SYN or SYN-ACK so soon without a reason, and a capture of both ends
/// of a device shows the copy sooner.
pub(crate) const COPY: Duration = Duration::from_millis(10);

/// Maximum number of times kept. Linux gives up after seven SYNs.
const KEPT: usize = 7;
/// Maximum number of places kept. A forwarded packet passes two places, and one more with a bridge.
const PLACES: usize = 4;

/// When and where a packet was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// The time.
    pub at: Instant,
    /// The place, if the capture has several places and identifies them.
    pub place: Option<CapturePlace>,
}

impl From<Instant> for Sighting {
    fn from(at: Instant) -> Self {
        Self { at, place: None }
    }
}

/// The times at which a packet was sent, as far as the capture shows. The order in which they are added does not
/// matter.
///
/// A forwarded packet passes several devices, and each of them shows it. A packet that passes one place a second time
/// was sent twice. A packet that passes another place is a copy of a known one. So it was sent as often as it passed
/// the place that it passed most often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sightings {
    times: [Instant; KEPT],
    count: u32,
    places: [Option<PassedPlace>; PLACES],
}

/// How often the packet passed one place.
#[derive(Debug, Clone, Copy)]
struct PassedPlace {
    place: CapturePlace,
    count: u8,
}

impl Sightings {
    /// Starts with the first sighting.
    pub(crate) fn first(seen: Sighting) -> Self {
        let mut new = Self { times: [seen.at; KEPT], count: 0, places: [None; PLACES] };
        new.add(seen);
        new
    }

    /// Adds a sighting. Returns false if it is a copy of one that was already seen.
    pub(crate) fn add(&mut self, seen: Sighting) -> bool {
        let at = seen.at;
        match seen.place.and_then(|place| self.pass(place, at)) {
            Some(number) if number <= self.count => {
                if let Some(time) = self.times.get_mut(number as usize - 1) {
                    *time = at.min(*time);
                }
                return false;
            }
            Some(_) => {}
            None => {
                let kept = self.times.iter_mut().take(self.count as usize);
                if let Some(seen) = kept.into_iter().find(|seen| apart(**seen, at) < COPY) {
                    *seen = at.min(*seen);
                    return false;
                }
            }
        }
        if let Some(place) = self.times.get_mut(self.count as usize) {
            *place = at;
        }
        self.count = self.count.saturating_add(1);
        true
    }

    /// How often the packet has passed this place, including now; `None` if there are too many places.
    fn pass(&mut self, place: CapturePlace, at: Instant) -> Option<u32> {
        let known = |passed: &&mut Option<PassedPlace>| passed.is_none_or(|passed| passed.place == place);
        let PassedPlace { count, .. } =
            self.places.iter_mut().find(known)?.get_or_insert(PassedPlace { place, count: 0 });
        let last = usize::from(*count).checked_sub(1).and_then(|last| self.times.get(last));
        // Two devices may look like one place.
        if place.is_exact() || last.is_none_or(|last| apart(*last, at) >= COPY) {
            *count = count.saturating_add(1);
        }
        Some(u32::from(*count))
    }

    /// How often the packet was repeated.
    pub(crate) fn again(&self) -> u32 {
        self.count - 1
    }

    /// The earliest time.
    pub(crate) fn earliest(&self) -> Instant {
        self.kept().iter().copied().min().unwrap_or(Instant::ZERO)
    }

    /// The latest time that is not after `limit`.
    pub(crate) fn latest_until(&self, limit: Instant) -> Option<Instant> {
        self.kept().iter().copied().filter(|at| *at <= limit).max()
    }

    fn kept(&self) -> &[Instant] {
        self.times.get(..self.count as usize).unwrap_or(&self.times)
    }
}

/// The time between two instants, in either order.
pub(crate) fn apart(a: Instant, b: Instant) -> Duration {
    a.saturating_since(b).max(b.saturating_since(a))
}
