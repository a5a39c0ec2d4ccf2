//! Ephemeral ports: double-hash port selection with random increments (RFC 6056 §3.3.4, §3.3.5).

use crate::flow::FlowKey;
use crate::isn::{Purpose, hash_flow};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;
use firstflight_wire::hint::unlikely;
use zeroize::Zeroize;

/// The default range of ports: that of Linux. RFC 6056 §3.2 wants the range larger than IANA's 49152–65535.
pub(crate) const DEFAULT_RANGE: RangeInclusive<u16> = 32_768..=60_999;

/// Number of counters. Destinations that hash to the same counter share it. With few counters, a destination learns
/// from gaps in its ports when others are contacted, and a machine can be recognised by which destinations share a
/// counter. For that reason Linux went to 2¹⁶.
const COUNTERS: usize = 1 << 16;

/// Largest step of a counter. Random steps make it hard to count connections to other destinations.
const MAX_STEP: u32 = 8;

/// Chooses local ports. They are hard to guess from outside, and all ports of the range are used before one is used
/// again towards the same destination.
///
/// `Debug` does not show the secret; dropping erases it.
pub(crate) struct PortSelector {
    secret: [u8; 16],
    first: u16,
    /// Ports in the range; 0 if it is empty.
    count: u32,
    /// Empty until the first use, so that a stack that only listens does not pay 128 KiB.
    counters: Vec<u16>,
    /// Ports that are never chosen, because listeners have them: how many.
    reserved: BTreeMap<u16, usize>,
    /// The last destination and its hash: most clients connect to the same destination again.
    last: Option<(FlowKey, u64)>,
}

impl PortSelector {
    /// A selector under 16 unpredictable bytes. Port 0 is left out of `range`.
    #[must_use]
    pub(crate) fn new(secret: [u8; 16], range: RangeInclusive<u16>) -> Self {
        let (first, last) = (u32::from((*range.start()).max(1)), u32::from(*range.end()));
        let count = (last + 1).saturating_sub(first);
        Self {
            secret,
            first: (*range.start()).max(1),
            count,
            counters: Vec::new(),
            reserved: BTreeMap::new(),
            last: None,
        }
    }

    /// The port to try first for `flow`; `None` if the range is empty. `random` decides how far the counter moves
    /// for the next call.
    #[cfg(test)]
    fn first_candidate(&mut self, flow: &FlowKey, random: u32) -> Option<u16> {
        self.select(flow, random, |_| false)
    }

    /// A port for `flow`, whose local port is 0, for which `in_use` is false. It tries each port of the range once,
    /// in the order of RFC 6056 §3.3.4. `None` if all are in use.
    ///
    /// The next call for this destination continues after the port that was chosen, so on average few candidates
    /// are tried even if many ports are in use.
    pub(crate) fn select(
        &mut self,
        flow: &FlowKey,
        random: u32,
        mut in_use: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let mut candidate = self.candidate(flow)?;
        while self.is_reserved(candidate.port) || in_use(candidate.port) {
            candidate = self.behind(candidate)?;
        }
        self.choose(candidate, random);
        Some(candidate.port)
    }

    /// From now on `port` is not chosen, until it is [freed](Self::free) as often as it was reserved.
    pub(crate) fn reserve(&mut self, port: u16) {
        *self.reserved.entry(port).or_default() += 1;
    }

    /// See [`Self::reserve`].
    pub(crate) fn free(&mut self, port: u16) {
        if let Some(count) = self.reserved.get_mut(&port) {
            *count -= 1;
            if *count == 0 {
                self.reserved.remove(&port);
            }
        }
    }

    /// Whether the port is never chosen.
    #[inline]
    #[must_use]
    pub(crate) fn is_reserved(&self, port: u16) -> bool {
        self.reserved.contains_key(&port)
    }

    /// The port to try first for `flow`, as in [`PortSelector::select`]. It is usually free, and
    /// [`PortSelector::choose`] comes next.
    #[inline(always)]
    pub(crate) fn candidate(&mut self, flow: &FlowKey) -> Option<Candidate> {
        if unlikely(self.counters.is_empty()) {
            self.counters.resize(COUNTERS, 0);
        }
        // F and G of the RFC are the two halves of one hash.
        let hash = self.hash(flow);
        // The number of counters equals the number of values of this type.
        let index = (hash >> 32) as u16;
        let counter = *self.counters.get(usize::from(index))?;
        let place = (u64::from(hash as u32) + u64::from(counter)).checked_rem(u64::from(self.count))?;
        // Below 2¹⁶ by construction: first + count − 1 is the last port.
        Some(Candidate { port: self.first.wrapping_add(place as u16), counter: index, tried: 0 })
    }

    /// The next candidate, if not all have been tried.
    fn behind(&self, before: Candidate) -> Option<Candidate> {
        let tried = before.tried + 1;
        let place = u32::from(before.port - self.first) + 1;
        let port = if place < self.count { before.port + 1 } else { self.first };
        (tried < self.count).then_some(Candidate { port, tried, ..before })
    }

    /// Moves the counter on, because this candidate is taken into use.
    #[inline]
    pub(crate) fn choose(&mut self, chosen: Candidate, random: u32) {
        if let Some(counter) = self.counters.get_mut(usize::from(chosen.counter)) {
            let next = u32::from(*counter) + chosen.tried + 1 + random % MAX_STEP;
            *counter = (if next < self.count { next } else { next % self.count.max(1) }) as u16;
        }
    }

    #[inline]
    fn hash(&mut self, flow: &FlowKey) -> u64 {
        match &self.last {
            Some((last, hash)) if last == flow => *hash,
            _ => {
                let hash = hash_flow(&self.secret, Purpose::Port, flow);
                self.last = Some((*flow, hash));
                hash
            }
        }
    }
}

/// A port to try.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub port: u16,
    /// The counter that it came from.
    counter: u16,
    /// Number of candidates tried before.
    tried: u32,
}

impl fmt::Debug for PortSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortSelector")
            .field("first", &self.first)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Drop for PortSelector {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

#[cfg(test)]
mod tests;
