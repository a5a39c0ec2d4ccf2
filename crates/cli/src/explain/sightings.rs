//! When a packet that may be sent again was seen.

use firstflight_wire::Instant;
use std::time::Duration;

/// The same packet seen twice within this time was captured twice (on two devices, say), not sent twice: no TCP
/// sends a SYN or SYN-ACK again as soon, and a capture of both ends of a device shows it sooner.
pub const COPY: Duration = Duration::from_millis(10);

/// Times kept. Linux gives up after seven SYNs.
const KEPT: usize = 8;

/// The times a packet was sent, as far as the capture tells. Their order of arrival does not matter.
#[derive(Debug, Clone, Copy)]
pub struct Sightings {
    times: [Instant; KEPT],
    count: u32,
}

impl Sightings {
    /// Seen once.
    pub fn first(at: Instant) -> Self {
        Self { times: [at; KEPT], count: 1 }
    }

    /// Seen again; false if it is a copy of one that was seen.
    pub fn add(&mut self, at: Instant) -> bool {
        let kept = self.times.iter_mut().take(self.count as usize);
        if let Some(seen) = kept.into_iter().find(|seen| apart(**seen, at) < COPY) {
            *seen = at.min(*seen);
            return false;
        }
        if let Some(place) = self.times.get_mut(self.count as usize) {
            *place = at;
        }
        self.count = self.count.saturating_add(1);
        true
    }

    /// How often it was sent again.
    pub fn again(&self) -> u32 {
        self.count - 1
    }

    /// The earliest.
    pub fn earliest(&self) -> Instant {
        self.kept().iter().copied().min().unwrap_or(Instant::ZERO)
    }

    /// The latest one that is not after `limit`.
    pub fn latest_until(&self, limit: Instant) -> Option<Instant> {
        self.kept().iter().copied().filter(|at| *at <= limit).max()
    }

    fn kept(&self) -> &[Instant] {
        self.times.get(..self.count as usize).unwrap_or(&self.times)
    }
}

/// The time between two instants, whichever is first.
pub fn apart(a: Instant, b: Instant) -> Duration {
    a.saturating_since(b).max(b.saturating_since(a))
}
