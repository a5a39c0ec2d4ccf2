//! Opens complete first flights, one by one.

use super::FrontCounters;
use crate::budget::{SharedBudget, network};
use crate::fragment::FragmentId;
use crate::keys::DnsPathKeys;
use crate::relay::Relayed;
use crate::seal::{OpenBuffer, OpenError, Sealed};
use core::net::IpAddr;
use core::num::NonZeroU32;
use core::time::Duration;
use firstflight_wire::asap::Zone;
use firstflight_wire::{Clock, Instant};
use std::collections::{BTreeSet, VecDeque};

/// The most complete first flights that wait to be opened. The driver of the front polls after each query, so
/// one place would be sufficient.
const WAITING: usize = 64;

/// Why a complete first flight is not handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotOpened {
    /// Too many in this second, or too many from this resolver's network (section 4.2).
    #[error("too many in this second")]
    Budget,
    /// The sender is at fault, or uses an old parameter.
    #[error("{0}")]
    Seal(OpenError),
}

pub(super) struct SetOpening {
    /// Wire form, lower case.
    zone: Vec<u8>,
    pub(super) keys: DnsPathKeys,
    /// The budget, shared among the networks of resolvers.
    budget: SharedBudget<IpAddr>,
    /// Each with the resolver that the last fragment came through.
    waiting: VecDeque<(Box<Sealed>, IpAddr)>,
    done: OpenedSet,
}

impl SetOpening {
    pub(super) fn new(zone: Vec<u8>, keys: DnsPathKeys, per_second: NonZeroU32) -> Self {
        Self {
            zone,
            keys,
            budget: SharedBudget::new(per_second),
            waiting: VecDeque::new(),
            done: OpenedSet::default(),
        }
    }

    pub(super) fn zone(&self) -> Option<Zone<'_>> {
        Zone::new(&self.zone)
    }

    /// Adds a complete first flight.
    pub(super) fn put(&mut self, sealed: Box<Sealed>, resolver: IpAddr, counters: &mut FrontCounters) {
        if self.waiting.len() < WAITING {
            self.waiting.push_back((sealed, resolver));
        } else {
            counters.over_budget += 1;
        }
    }

    /// Opens the next one, if there is one, into `buffer`.
    pub(super) fn next<'b>(
        &mut self,
        clock: &Clock,
        buffer: &'b mut OpenBuffer,
        counters: &mut FrontCounters,
    ) -> Option<Result<Relayed<'b>, NotOpened>> {
        let (sealed, id, resolver) = loop {
            let (sealed, resolver) = self.waiting.pop_front()?;
            let id = FragmentId::of(&sealed);
            if !self.done.has(id, clock.mono) {
                break (sealed, id, resolver);
            }
            counters.repeated += 1;
        };
        if !self.budget.take(network(resolver), clock.mono) {
            counters.over_budget += 1;
            return Some(Err(NotOpened::Budget));
        }
        let unix = clock.unix_ms / 1000;
        self.keys.handle_time(unix);
        let zone = Zone::new(&self.zone)?;
        Some(match self.keys.open(zone, &sealed, unix, buffer) {
            Ok((ci, reply)) => {
                self.done.add(id, clock.mono);
                Ok(Relayed { resolver, reply, ci })
            }
            Err(error) => {
                match error {
                    OpenError::UnknownKey => counters.unknown_key += 1,
                    OpenError::Forged | OpenError::Malformed(_) => counters.not_opened += 1,
                }
                Err(NotOpened::Seal(error))
            }
        })
    }
}

/// First flights that were opened recently. Resolvers and eavesdroppers may ask for the same names again
/// after the set is forgotten, and a request is valid for half a minute.
#[derive(Debug, Default)]
struct OpenedSet {
    /// Each id with the time until which it is remembered.
    order: VecDeque<(Instant, FragmentId)>,
    ids: BTreeSet<FragmentId>,
}

impl OpenedSet {
    /// Longer than any server accepts a relayed request (`docs/spec/dns-path.md` §9), including the error
    /// of its clock.
    const KEPT: Duration = Duration::from_secs(45);
    /// When there are more, the oldest is forgotten.
    const MOST: usize = 1 << 16;

    fn has(&mut self, id: FragmentId, now: Instant) -> bool {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_oldest();
        }
        self.ids.contains(&id)
    }

    fn add(&mut self, id: FragmentId, now: Instant) {
        if self.ids.insert(id) {
            if self.order.len() >= Self::MOST {
                self.forget_oldest();
            }
            self.order.push_back((now + Self::KEPT, id));
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.order.pop_front() {
            self.ids.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_what_was_opened_ends_and_is_bounded() {
        let (mut done, now) = (OpenedSet::default(), Instant::from_secs(100));
        let id = |n: u32| {
            let [a, b, c, d] = n.to_be_bytes();
            FragmentId([1, 2, a, b, c, d])
        };
        done.add(id(0), now);
        assert!(done.has(id(0), now + Duration::from_secs(44)));
        assert!(!done.has(id(0), now + Duration::from_secs(45)));
        for n in 0..100_000 {
            done.add(id(n), now);
            done.add(id(n), now);
        }
        assert_eq!((done.ids.len(), done.order.len()), (OpenedSet::MOST, OpenedSet::MOST));
        assert!(done.has(id(99_999), now) && !done.has(id(0), now));
    }
}
