//! Handles names below the DNS-path zone.

use super::opening::{NotOpened, SetOpening};
use super::{FrontCounters, FrontError, Policy};
use crate::forward::{ForwardRefused, Forwarder};
use crate::fragment::Fragment;
use crate::keys::DnsPathKeys;
use crate::names::{Position, wire_form};
use crate::query::Question;
use crate::reassembly::{Reassembled, Reassembly, ReassemblyCounters, ReassemblyLimits};
use crate::relay::{MAX_RELAY, Relay, RelaySender, Relayed};
use crate::seal::OpenBuffer;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::num::NonZeroU32;
use firstflight_wire::asap::Zone;
use firstflight_wire::{Clock, Instant};
use hickory_proto::rr::Name;
use rand_core::Rng;

/// A server, and the sender that seals datagrams to it.
#[derive(Debug)]
pub struct RelayServer {
    /// Its address and its UDP port for first flights from fronts.
    pub address: SocketAddr,
    /// The sender, which uses the key that the server shares with this front.
    pub sender: RelaySender,
}

/// The destination of first flights.
pub enum Destination {
    /// To the server that this front is a part of. [`Front::poll_opened`](super::Front::poll_opened) returns
    /// them to it (the thesis' SDNS, §5.3).
    Here,
    /// To other machines, in datagrams: [`Front::poll_relay`](super::Front::poll_relay).
    Relay {
        /// The servers, at least one.
        servers: Vec<RelayServer>,
        /// Chooses one of them for each first flight.
        policy: Box<dyn Policy>,
    },
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("Here"),
            Self::Relay { servers, policy: _ } => f.debug_tuple("Relay").field(servers).finish(),
        }
    }
}

/// A zone that carries first flights.
#[derive(Debug)]
pub struct DnsPathConfig {
    /// The name at which it begins.
    pub zone: Name,
    /// The addresses in the answers to fragments, which are those of the server.
    pub addresses: Vec<Ipv4Addr>,
    /// The keys that first flights are sealed to.
    pub keys: DnsPathKeys,
    /// Where first flights go.
    pub to: Destination,
    /// How many fragments are kept, and for how long.
    pub limits: ReassemblyLimits,
    /// The most first flights that are opened in a second (section 4.2).
    pub opens_per_second: NonZeroU32,
}

impl DnsPathConfig {
    /// The default of the first flights opened in a second, which takes a tenth of one core.
    pub const OPENS_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(999);
}

pub(super) struct DnsPathZone {
    name: Name,
    addresses: Vec<Ipv4Addr>,
    table: Reassembly,
    opening: SetOpening,
    /// `None` if there is no other front.
    pub(super) forwarder: Option<Forwarder>,
    /// `None` if the front is a part of the server.
    servers: Option<Servers>,
}

/// The servers that first flights are relayed to.
struct Servers {
    /// The addresses are separate from the senders, because the policy gets only them.
    addresses: Vec<SocketAddr>,
    senders: Vec<RelaySender>,
    policy: Box<dyn Policy>,
    buffer: OpenBuffer,
}

impl DnsPathZone {
    pub(super) fn new(config: DnsPathConfig, rng: &mut impl Rng) -> Result<Self, FrontError> {
        let DnsPathConfig { zone, addresses, keys, to, limits, opens_per_second } = config;
        let (name, zone) = (zone.clone(), wire_form(&zone));
        if Zone::new(&zone).is_none() {
            return Err(FrontError::DnsPathZone);
        }
        if !(1..=Question::MAX_ADDRESSES).contains(&addresses.len()) {
            return Err(FrontError::Addresses);
        }
        let servers = match to {
            Destination::Here => None,
            Destination::Relay { servers, .. } if servers.is_empty() => return Err(FrontError::NoServer),
            Destination::Relay { servers, policy } => {
                let (addresses, senders) = apart(servers);
                Some(Servers { addresses, senders, policy, buffer: OpenBuffer::new() })
            }
        };
        let table = Reassembly::new(limits, rng);
        let opening = SetOpening::new(zone, keys, opens_per_second);
        Ok(Self { name, addresses, table, opening, forwarder: None, servers })
    }

    /// The name at which the zone begins.
    pub(super) const fn name(&self) -> &Name {
        &self.name
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

    pub(super) fn table_bytes(&self) -> usize {
        self.table.heap_bytes()
    }

    pub(super) fn set_keys(&mut self, keys: DnsPathKeys) {
        self.opening.keys = keys;
    }

    pub(super) fn set_servers(&mut self, servers: Vec<RelayServer>) -> bool {
        self.servers.as_mut().is_some_and(|known| {
            (known.addresses, known.senders) = apart(servers);
            true
        })
    }

    /// The position of the question's name. `None` if the name is not in the zone.
    pub(super) fn position<'a>(&self, question: &'a Question) -> Option<Position<'a>> {
        let position = question.position(self.opening.zone()?);
        (position != Position::Outside).then_some(position)
    }

    /// Takes a label below the zone. False if it does not have the form of a fragment's label. The answer
    /// does not depend on whether the fragment is valid.
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
        if !self.forwarder.as_mut().is_some_and(|forwarder| forwarder.route(&fragment, from, now)) {
            self.keep(&fragment, from, now, counters, rng);
        }
        true
    }

    /// Takes fragments that another front forwarded.
    pub(super) fn handle_forward(
        &mut self,
        clock: &Clock,
        from: SocketAddr,
        datagram: &[u8],
        counters: &mut FrontCounters,
        rng: &mut impl Rng,
    ) -> Result<(), ForwardRefused> {
        let forwarder = self.forwarder.as_mut().ok_or(ForwardRefused::Off)?;
        for forwarded in forwarder.handle_datagram(from, datagram, clock)? {
            self.keep(&forwarded.fragment, forwarded.resolver, clock.mono, counters, rng);
        }
        Ok(())
    }

    /// Adds a fragment to its set.
    fn keep(
        &mut self,
        fragment: &Fragment,
        resolver: IpAddr,
        now: Instant,
        counters: &mut FrontCounters,
        rng: &mut impl Rng,
    ) {
        if let Reassembled::Complete(sealed) = self.table.handle_fragment(fragment, resolver, now, rng) {
            self.opening.put(sealed, resolver, counters);
        }
    }

    pub(super) fn poll_opened<'b>(
        &mut self,
        clock: &Clock,
        buffer: &'b mut OpenBuffer,
        counters: &mut FrontCounters,
    ) -> Option<Result<Relayed<'b>, NotOpened>> {
        let opened = self.opening.next(clock, buffer, counters)?;
        counters.relayed += u64::from(opened.is_ok());
        Some(opened)
    }

    pub(super) fn poll_relay(&mut self, clock: &Clock, counters: &mut FrontCounters) -> Option<Relay> {
        let Servers { addresses, senders, policy, buffer } = self.servers.as_mut()?;
        loop {
            let Ok(Relayed { resolver, reply, ci }) = self.opening.next(clock, buffer, counters)? else {
                continue;
            };
            let last = addresses.len().saturating_sub(1);
            let chosen = policy.choose(ci.address, resolver, addresses).min(last);
            let (Some(&to), Some(sender)) = (addresses.get(chosen), senders.get_mut(chosen)) else {
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
    }
}

impl fmt::Debug for DnsPathZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DnsPathZone")
            .field("addresses", &self.addresses)
            .field("keys", &self.opening.keys)
            .field("servers", &self.servers.as_ref().map(|servers| &servers.addresses))
            .field("sets", &self.table.len())
            .finish_non_exhaustive()
    }
}

fn apart(servers: Vec<RelayServer>) -> (Vec<SocketAddr>, Vec<RelaySender>) {
    servers.into_iter().map(|server| (server.address, server.sender)).unzip()
}
