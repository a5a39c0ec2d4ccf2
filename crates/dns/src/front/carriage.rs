//! What the front does with names below the carriage zone.

use super::{FrontCounters, FrontError, Policy, Relay};
use crate::budget::Budget;
use crate::fragment::Fragment;
use crate::keys::CarriageKeys;
use crate::names::{Position, wire_form};
use crate::query::Question;
use crate::reassembly::{Reassembled, Reassembly, ReassemblyCounters, ReassemblyLimits};
use crate::relay::{MAX_RELAY, RelaySender};
use crate::seal::{OpenBuffer, OpenError, Sealed};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::num::NonZeroU32;
use firstflight_wire::asap::Zone;
use firstflight_wire::{Clock, Instant};
use hickory_proto::rr::Name;
use rand_core::Rng;
use std::collections::VecDeque;

/// First flights that are whole and not yet opened. Whoever drives the front polls after each query, so one is
/// enough.
const WAITING: usize = 64;

/// A server, and what datagrams to it are sealed with.
#[derive(Debug)]
pub struct RelayServer {
    /// Its address and its UDP port for first flights from fronts.
    pub address: SocketAddr,
    /// Under the key that it shares with this front.
    pub sender: RelaySender,
}

/// A zone that carries first flights.
pub struct CarriageConfig {
    /// Where it begins.
    pub zone: Name,
    /// What fragments are answered with: the server's addresses.
    pub addresses: Vec<Ipv4Addr>,
    /// What first flights are sealed to.
    pub keys: CarriageKeys,
    /// Where they go.
    pub servers: Vec<RelayServer>,
    /// Which of them it is.
    pub policy: Box<dyn Policy>,
    /// How many fragments are kept, and for how long.
    pub limits: ReassemblyLimits,
    /// First flights that are opened in a second at most (section 4.2).
    pub opens_per_second: NonZeroU32,
}

impl CarriageConfig {
    /// How many first flights are opened in a second unless somebody says otherwise: a tenth of one core.
    pub const OPENS_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(999);
}

impl fmt::Debug for CarriageConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zone, addresses, keys, servers, policy: _, limits, opens_per_second } = self;
        f.debug_struct("CarriageConfig")
            .field("zone", zone)
            .field("addresses", addresses)
            .field("keys", keys)
            .field("servers", servers)
            .field("limits", limits)
            .field("opens_per_second", opens_per_second)
            .finish_non_exhaustive()
    }
}

pub(super) struct Carriage {
    /// Wire form, lower case.
    zone: Vec<u8>,
    addresses: Vec<Ipv4Addr>,
    keys: CarriageKeys,
    /// Their addresses stand apart for the policy.
    servers: Vec<SocketAddr>,
    senders: Vec<RelaySender>,
    policy: Box<dyn Policy>,
    table: Reassembly,
    budget: Budget,
    /// With the resolver that the last fragment came through.
    waiting: VecDeque<(Box<Sealed>, IpAddr)>,
    buffer: OpenBuffer,
}

impl Carriage {
    pub(super) fn new(config: CarriageConfig, rng: &mut impl Rng) -> Result<Self, FrontError> {
        let CarriageConfig { zone, addresses, keys, servers, policy, limits, opens_per_second } = config;
        let zone = wire_form(&zone);
        if Zone::new(&zone).is_none() {
            return Err(FrontError::CarriageZone);
        }
        if !(1..=Question::MAX_ADDRESSES).contains(&addresses.len()) {
            return Err(FrontError::Addresses);
        }
        if servers.is_empty() {
            return Err(FrontError::NoServer);
        }
        let (servers, senders) = apart(servers);
        Ok(Self {
            zone,
            addresses,
            keys,
            servers,
            senders,
            policy,
            table: Reassembly::new(limits, rng),
            budget: Budget::new(opens_per_second),
            waiting: VecDeque::new(),
            buffer: OpenBuffer::new(),
        })
    }

    pub(super) fn addresses(&self) -> &[Ipv4Addr] {
        &self.addresses
    }

    pub(super) const fn reassembly(&self) -> &ReassemblyCounters {
        self.table.counters()
    }

    pub(super) fn sets(&self) -> usize {
        self.table.len()
    }

    pub(super) fn set_keys(&mut self, keys: CarriageKeys) {
        self.keys = keys;
    }

    pub(super) fn set_servers(&mut self, servers: Vec<RelayServer>) {
        (self.servers, self.senders) = apart(servers);
    }

    /// Where the name that is asked for is; `None` if it is not in the zone.
    pub(super) fn position<'a>(&self, question: &'a Question) -> Option<Position<'a>> {
        let position = question.position(Zone::new(&self.zone)?);
        (position != Position::Outside).then_some(position)
    }

    /// Takes a label below the zone; false if it is none of a fragment's form. Whether it is a good one does not
    /// matter to the answer.
    pub(super) fn handle_label(
        &mut self,
        label: &[u8],
        from: IpAddr,
        now: Instant,
        counters: &mut FrontCounters,
        rng: &mut impl Rng,
    ) -> bool {
        if !Fragment::is_marked(label) {
            return false;
        }
        let Ok(fragment) = Fragment::parse(label) else {
            counters.malformed_fragments += 1;
            return true;
        };
        if let Reassembled::Complete(sealed) = self.table.handle_fragment(&fragment, from, now, rng) {
            if self.waiting.len() < WAITING {
                self.waiting.push_back((sealed, from));
            } else {
                counters.over_budget += 1;
            }
        }
        true
    }

    pub(super) fn poll_relay(&mut self, clock: &Clock, counters: &mut FrontCounters) -> Option<Relay> {
        let unix = clock.unix_ms / 1000;
        while let Some((sealed, resolver)) = self.waiting.pop_front() {
            if !self.budget.take(clock.mono) {
                counters.over_budget += 1;
                continue;
            }
            self.keys.handle_time(unix);
            let zone = Zone::new(&self.zone)?;
            let (ci, reply) = match self.keys.open(zone, &sealed, unix, &mut self.buffer) {
                Ok(opened) => opened,
                Err(OpenError::UnknownKey) => {
                    counters.unknown_key += 1;
                    continue;
                }
                Err(_) => {
                    counters.not_opened += 1;
                    continue;
                }
            };
            let last = self.servers.len().saturating_sub(1);
            let chosen = self.policy.choose(ci.address, resolver, &self.servers).min(last);
            let (Some(&to), Some(sender)) = (self.servers.get(chosen), self.senders.get_mut(chosen)) else {
                continue;
            };
            let mut datagram = vec![0; MAX_RELAY];
            match sender.emit(&ci, &reply, resolver, clock.unix_ms, &mut datagram) {
                Ok(len) => {
                    datagram.truncate(len);
                    counters.relayed += 1;
                    return Some(Relay { to, datagram });
                }
                Err(_) => counters.relay_failed += 1,
            }
        }
        None
    }
}

impl fmt::Debug for Carriage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carriage")
            .field("addresses", &self.addresses)
            .field("keys", &self.keys)
            .field("servers", &self.servers)
            .field("sets", &self.table.len())
            .finish_non_exhaustive()
    }
}

fn apart(servers: Vec<RelayServer>) -> (Vec<SocketAddr>, Vec<RelaySender>) {
    servers.into_iter().map(|server| (server.address, server.sender)).unzip()
}
