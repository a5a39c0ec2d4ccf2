//! Path-MTU discovery by a packetisation layer (RFC 8899): which segment sizes to try, and what became of them.
//!
//! A probe is a segment of real data, larger than the MSS in use, so it costs nothing when it arrives. Its loss
//! is seen by what is SACKed behind it.

use core::time::Duration;
use firstflight_wire::{Instant, SeqNum};

/// A size that failed is not tried again for so long (PMTU_RAISE_TIMER, RFC 8899 §5.1.1).
pub const RAISE_TIMER: Duration = Duration::from_secs(600);
/// Timeouts in a row at a raised size that mean a black hole (RFC 8899 §4.3).
pub const BLACK_HOLE: u8 = 2;
/// Payload that nearly every path takes (RFC 4821 §7.2: search_low = 1,024 bytes; Linux: tcp_base_mss).
pub const BASE: u16 = 1024;
/// After a black hole larger sizes are tried again when this has passed: a path that is only slow or dead for a
/// while gets its size back soon.
const REST: Duration = Duration::from_secs(10);
/// Sizes that one connection tries, ascending; 0 is none.
pub type Sizes = [u16; 3];

/// Where the search stands (RFC 8899 §5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The next size may be tried.
    Searching,
    /// A probe with these numbers is under way.
    Probing { start: SeqNum, end: SeqNum, size: u16 },
    /// Nothing is tried before this time.
    Complete { until: Instant },
}

/// The search of one connection. Sizes are payloads without options, bytes.
#[derive(Debug)]
pub struct Search {
    base: u16,
    sizes: Sizes,
    phase: Phase,
    /// Fast recovery repairs a lost probe that ended here, and nothing else.
    pub spared: Option<SeqNum>,
}

impl Search {
    /// A search from `base` up through `sizes`, none above `limit`; `None` if there is nothing to try.
    pub fn new(base: u16, sizes: Sizes, limit: u16) -> Option<Self> {
        let sizes = sizes.map(|size| size.min(limit));
        let any = sizes.iter().any(|&size| size > base);
        any.then_some(Self { base, sizes, phase: Phase::Searching, spared: None })
    }

    /// A search that begins with a rest.
    pub fn resting(base: u16, sizes: Sizes, now: Instant) -> Option<Self> {
        let mut search = Self::new(base, sizes, u16::MAX)?;
        search.phase = Phase::Complete { until: now + REST };
        Some(search)
    }

    /// The size to fall back to.
    pub fn base(&self) -> u16 {
        self.base
    }

    /// The size to try now, with `mss` in use.
    pub fn next(&mut self, mss: u16, now: Instant) -> Option<u16> {
        match self.phase {
            Phase::Probing { .. } => return None,
            Phase::Complete { until } if now < until => return None,
            Phase::Complete { .. } | Phase::Searching => self.phase = Phase::Searching,
        }
        self.sizes.into_iter().find(|&size| size > mss)
    }

    /// A probe of `size` left with these numbers.
    pub fn sent(&mut self, start: SeqNum, end: SeqNum, size: u16) {
        self.phase = Phase::Probing { start, end, size };
    }

    /// The numbers of the probe that is under way.
    pub fn probe(&self) -> Option<(SeqNum, SeqNum)> {
        match self.phase {
            Phase::Probing { start, end, .. } => Some((start, end)),
            _ => None,
        }
    }

    /// All below `ack` arrived. Gives the size that is known to pass.
    pub fn acknowledged(&mut self, ack: SeqNum) -> Option<u16> {
        let Phase::Probing { end, size, .. } = self.phase else { return None };
        if ack.lt(end) {
            return None;
        }
        self.phase = Phase::Searching;
        Some(size)
    }

    /// Numbers from `start` to `end` are sent again: if the probe's are among them, nobody will know whether it
    /// arrived.
    pub fn resent(&mut self, start: SeqNum, end: SeqNum, now: Instant) {
        if self.probe().is_some_and(|probe| start.lt(probe.1) && probe.0.lt(end)) {
            self.complete(now);
        }
    }

    /// Tries nothing for [`RAISE_TIMER`].
    pub fn complete(&mut self, now: Instant) {
        self.phase = Phase::Complete { until: now + RAISE_TIMER };
    }
}
