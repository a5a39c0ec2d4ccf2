//! First flights that are whole, opened one by one.

use super::FrontCounters;
use super::rate::network;
use crate::budget::SharedBudget;
use crate::keys::CarriageKeys;
use crate::relay::Relayed;
use crate::seal::{OpenBuffer, OpenError, Sealed};
use core::fmt;
use core::net::IpAddr;
use core::num::NonZeroU32;
use firstflight_wire::Clock;
use firstflight_wire::asap::Zone;
use std::collections::VecDeque;

/// First flights that are whole and not yet opened. Whoever drives the front polls after each query, so one is
/// enough.
const WAITING: usize = 64;

/// Why a first flight that was whole goes nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotOpened {
    /// Too many in this second, or of this resolver's network (section 4.2).
    Budget,
    /// The sender is at fault, or uses an old parameter.
    Seal(OpenError),
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget => f.write_str("too many in this second"),
            Self::Seal(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for NotOpened {}

pub(super) struct Opening {
    /// Wire form, lower case.
    zone: Vec<u8>,
    pub(super) keys: CarriageKeys,
    /// By networks of resolvers.
    budget: SharedBudget<u128>,
    /// With the resolver that the last fragment came through.
    waiting: VecDeque<(Box<Sealed>, IpAddr)>,
}

impl Opening {
    pub(super) fn new(zone: Vec<u8>, keys: CarriageKeys, per_second: NonZeroU32) -> Self {
        Self { zone, keys, budget: SharedBudget::new(per_second), waiting: VecDeque::new() }
    }

    pub(super) fn zone(&self) -> Option<Zone<'_>> {
        Zone::new(&self.zone)
    }

    /// One more is whole.
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
        let (sealed, resolver) = self.waiting.pop_front()?;
        if !self.budget.take(network(resolver), clock.mono) {
            counters.over_budget += 1;
            return Some(Err(NotOpened::Budget));
        }
        let unix = clock.unix_ms / 1000;
        self.keys.handle_time(unix);
        let zone = Zone::new(&self.zone)?;
        Some(match self.keys.open(zone, &sealed, unix, buffer) {
            Ok((ci, reply)) => Ok(Relayed { resolver, reply, ci }),
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
