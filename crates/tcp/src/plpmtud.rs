//! Path-MTU discovery by a packetisation layer (RFC 8899): the segment sizes to try, and their results.
//!
//! A probe is a segment of real data that is larger than the MSS in use, so it costs nothing when it arrives.
//! If data behind it is SACKed and the probe is not, the probe was lost.

use core::time::Duration;
use firstflight_wire::{Instant, SeqNum};

/// Time before a size that failed is tried again (PMTU_RAISE_TIMER, RFC 8899 §5.1.1).
pub(crate) const RAISE_TIMER: Duration = Duration::from_secs(600);
/// Timeouts in a row at a raised size that mean a black hole (RFC 8899 §4.3).
pub(crate) const BLACK_HOLE: u8 = 2;
/// Payload that nearly every path takes (RFC 4821 §7.2: search_low = 1,024 bytes; Linux: tcp_base_mss).
pub(crate) const BASE: u16 = 1024;
/// Time after a black hole before larger sizes are tried again. It is short, so that a path that was only slow
/// or down for a while soon gets its size back.
const REST: Duration = Duration::from_secs(10);
/// The sizes that one connection tries, ascending; 0 is an empty place.
pub(crate) type Sizes = [u16; 3];

/// The state of the search (RFC 8899 §5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The next size may be tried.
    Searching,
    /// A probe with these numbers is under way.
    Probing { start: SeqNum, end: SeqNum, size: u16 },
    /// No size is tried before this time.
    Complete { until: Instant },
}

/// The search of one connection. Sizes are payloads without options, bytes.
#[derive(Debug)]
pub(crate) struct Search {
    base: u16,
    sizes: Sizes,
    phase: Phase,
    /// The end of a lost probe, while fast recovery repairs only that probe.
    pub spared: Option<SeqNum>,
}

impl Search {
    /// A search from `base` up through `sizes`, none above `limit`; `None` if there is nothing to try.
    pub(crate) fn new(base: u16, sizes: Sizes, limit: u16) -> Option<Self> {
        let sizes = sizes.map(|size| size.min(limit));
        let any = sizes.iter().any(|&size| size > base);
        any.then_some(Self { base, sizes, phase: Phase::Searching, spared: None })
    }

    /// A search that begins with a pause of 10 s, after a black hole.
    pub(crate) fn resting(base: u16, sizes: Sizes, now: Instant) -> Option<Self> {
        let mut search = Self::new(base, sizes, u16::MAX)?;
        search.phase = Phase::Complete { until: now + REST };
        Some(search)
    }

    /// The size to fall back to.
    pub(crate) fn base(&self) -> u16 {
        self.base
    }

    /// The size to try now, with `mss` in use.
    pub(crate) fn next(&mut self, mss: u16, now: Instant) -> Option<u16> {
        match self.phase {
            Phase::Probing { .. } => return None,
            Phase::Complete { until } if now < until => return None,
            Phase::Complete { .. } | Phase::Searching => self.phase = Phase::Searching,
        }
        self.sizes.into_iter().find(|&size| size > mss)
    }

    /// A probe of `size` left with these numbers.
    pub(crate) fn sent(&mut self, start: SeqNum, end: SeqNum, size: u16) {
        self.phase = Phase::Probing { start, end, size };
    }

    /// The numbers of the probe that is under way.
    pub(crate) fn probe(&self) -> Option<(SeqNum, SeqNum)> {
        match self.phase {
            Phase::Probing { start, end, .. } => Some((start, end)),
            _ => None,
        }
    }

    /// Everything below `ack` arrived. Returns the size that is now known to pass.
    pub(crate) fn acknowledged(&mut self, ack: SeqNum) -> Option<u16> {
        let Phase::Probing { end, size, .. } = self.phase else { return None };
        if ack.lt(end) {
            return None;
        }
        self.phase = Phase::Searching;
        Some(size)
    }

    /// Numbers from `start` to `end` are sent again. If they overlap the probe, its acknowledgement can no
    /// longer show whether the probe arrived, so the probe ends.
    pub(crate) fn resent(&mut self, start: SeqNum, end: SeqNum, now: Instant) {
        if self.probe().is_some_and(|probe| start.lt(probe.1) && probe.0.lt(end)) {
            self.complete(now);
        }
    }

    /// Tries nothing for [`RAISE_TIMER`].
    pub(crate) fn complete(&mut self, now: Instant) {
        self.phase = Phase::Complete { until: now + RAISE_TIMER };
    }
}
