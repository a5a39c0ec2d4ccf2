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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::format;

    fn to(port: u16) -> FlowKey {
        FlowKey::of("192.0.2.1".parse().unwrap(), 0, "198.51.100.7".parse().unwrap(), port)
    }

    #[test]
    fn candidates_cover_the_range_once() {
        let mut selector = PortSelector::new([1; 16], 40_000..=40_099);
        let mut tried = Vec::new();
        let none = selector.select(&to(443), 5, |port| {
            tried.push(port);
            true
        });
        assert_eq!(none, None);
        assert_eq!(tried.len(), 100);
        assert_eq!(tried.into_iter().collect::<BTreeSet<_>>(), (40_000..=40_099).collect());
    }

    #[test]
    fn one_free_port_is_found_wherever_it_is() {
        for free in 40_000..=40_030 {
            let mut selector = PortSelector::new([2; 16], 40_000..=40_030);
            assert_eq!(selector.select(&to(80), free.into(), |p| p != free), Some(free));
        }
    }

    #[test]
    fn ranges_at_the_edges() {
        for range in [0..=0, RangeInclusive::new(5, 4)] {
            let mut empty = PortSelector::new([1; 16], range);
            assert_eq!(empty.first_candidate(&to(80), 0), None);
        }
        let mut one = PortSelector::new([1; 16], 65_535..=65_535);
        for random in [0, 7, u32::MAX] {
            assert_eq!(one.first_candidate(&to(80), random), Some(65_535));
        }
        let mut all = PortSelector::new([1; 16], 0..=65_535);
        let mut seen = BTreeSet::new();
        all.select(&to(80), 0, |p| {
            seen.insert(p);
            true
        });
        assert_eq!((seen.len(), seen.first()), (65_535, Some(&1)));
    }

    #[test]
    fn a_port_towards_one_destination_comes_again_only_after_a_round() {
        let mut selector = PortSelector::new([3; 16], 50_000..=50_999);
        let ports: BTreeSet<_> = (0..1000).map(|_| selector.first_candidate(&to(80), 0).unwrap()).collect();
        assert_eq!(ports.len(), 1000);
        let mut selector = PortSelector::new([3; 16], 50_000..=50_999);
        let few: BTreeSet<_> = (0..125).map(|_| selector.first_candidate(&to(80), 7).unwrap()).collect();
        assert_eq!(few.len(), 125, "eight at a time, a round has 125");
    }

    #[test]
    fn each_destination_and_secret_has_its_own_sequence() {
        let mut selector = PortSelector::new([4; 16], DEFAULT_RANGE);
        let starts: BTreeSet<_> = (1..200).map(|n| selector.first_candidate(&to(n), 0).unwrap()).collect();
        assert!(starts.len() > 190, "{}", starts.len());
        let (mut a, mut b) =
            (PortSelector::new([5; 16], DEFAULT_RANGE), PortSelector::new([6; 16], DEFAULT_RANGE));
        let sequence = |s: &mut PortSelector| s.first_candidate(&to(80), 0);
        assert_ne!(sequence(&mut a), sequence(&mut b));
    }

    #[test]
    fn a_full_range_costs_few_tries_on_average() {
        // 90 % of the ports stay in use by others; the counter walks over them once a round.
        let mut selector = PortSelector::new([7; 16], 40_000..=49_999);
        let (mut tries, mut chosen) = (0u32, BTreeSet::new());
        for _ in 0..1000 {
            let port = selector.select(&to(80), 0, |p| {
                tries += 1;
                p % 10 != 0
            });
            chosen.insert(port.unwrap());
        }
        assert!(tries <= 10_000, "{tries}");
        assert_eq!(chosen.len(), 1000, "each free port once a round");
    }

    #[test]
    fn debug_keeps_the_secret() {
        let text = format!("{:?}", PortSelector::new([0xab; 16], DEFAULT_RANGE));
        assert_eq!(text, "PortSelector { first: 32768, count: 28232, .. }");
    }

    proptest! {
        #[test]
        fn chosen_ports_are_free_and_in_range(
            first in any::<u16>(),
            last in any::<u16>(),
            used in prop::collection::btree_set(any::<u16>(), 0..50),
            calls in prop::collection::vec((any::<u16>(), any::<u32>()), 1..20),
        ) {
            let mut selector = PortSelector::new([9; 16], first..=last);
            for (port, random) in calls {
                match selector.select(&to(port), random, |p| used.contains(&p)) {
                    Some(p) => prop_assert!(p != 0 && (first..=last).contains(&p) && !used.contains(&p)),
                    None => prop_assert!((first.max(1)..=last).all(|p| used.contains(&p))),
                }
            }
        }
    }
}
