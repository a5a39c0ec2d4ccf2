//! The fronts: name servers of one zone with the same key. The first may be a part of the first server.

use super::server::{key_id, relay_key};
use super::{FRONTS, UNIX_MS};
use firstflight_credential::asap::ReplyKey;
use firstflight_dns::front::{RateLimit, RoundRobin};
use firstflight_dns::{
    Boot, Destination, DnsPathConfig, DnsPathKey, DnsPathKeys, Front, Name, OpenBuffer, ReassemblyLimits,
    RelaySender, RelayServer, Transport, ZoneData,
};
use firstflight_wire::asap::{DnsPathParam, Zone};
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16};
use std::time::Duration;

const ZONE: &[u8] = b"\x01f\x03xyz\x03com\x00";
const KEY_ID: NonZeroU8 = NonZeroU8::MIN;
/// Sets of fragments that a front keeps.
const SETS: u16 = 8;

fn dns_path_key() -> DnsPathKey {
    DnsPathKey::from_bytes(&[77; 32]).expect("a key")
}

/// The zone and key to which first flights are sealed.
pub fn dns_path() -> DnsPathParam<'static> {
    DnsPathParam { key_id: KEY_ID, key: dns_path_key().public(), zone: zone() }
}

pub fn zone() -> Zone<'static> {
    Zone::new(ZONE).expect("a zone")
}

/// A first flight that a front relays.
pub enum Handed {
    /// A datagram for the server with this number.
    Relay(usize, Vec<u8>),
    /// For the server that contains the front.
    Here(SocketAddr, Vec<u8>, ReplyKey),
}

/// A front and its clock.
pub struct NameServer {
    front: Front,
    number: usize,
    boot: u32,
    servers: usize,
    here: bool,
    random: ChaCha20Rng,
    pub offset_ms: i64,
}

impl NameServer {
    pub fn new(number: usize, servers: usize, here: bool) -> Self {
        let random = ChaCha20Rng::from_seed([60 + number as u8; 32]);
        let mut this = Self {
            front: Front::new(Vec::new(), RateLimit::default()).expect("no zone is twice"),
            number,
            boot: (UNIX_MS / 1000) as u32,
            servers,
            here: here && number == 0,
            random,
            offset_ms: 0,
        };
        this.restart();
        this
    }

    /// Restarts with a larger boot number.
    pub fn restart(&mut self) {
        self.boot += 1;
        let text = "$TTL 60\n@ IN SOA ns hostmaster 1 60 60 60 60\n@ IN NS ns\nns IN A 192.0.2.53\n";
        let zone =
            ZoneData::parse(text, None, &Name::from_ascii("xyz.com.").expect("a name")).expect("a zone");
        self.front = Front::new(vec![zone], RateLimit::default()).expect("one zone");
        let sender = |server| {
            RelaySender::new(&relay_key(self.number, server), key_id(self.number), 1, Boot(self.boot))
        };
        let servers =
            (0..self.servers).map(|n| RelayServer { address: port_of(n), sender: sender(n) }).collect();
        let to = match self.here {
            true => Destination::Here,
            false => Destination::Relay { servers, policy: Box::new(RoundRobin::default()) },
        };
        let config = DnsPathConfig {
            zone: Name::from_ascii("f.xyz.com.").expect("a name"),
            addresses: vec![Ipv4Addr::new(192, 0, 2, 80)],
            keys: DnsPathKeys::new(KEY_ID, dns_path_key()),
            to,
            limits: ReassemblyLimits::default()
                .sets(NonZeroU16::MIN.saturating_add(SETS - 1))
                .lifetime(Duration::from_secs(3)),
            opens_per_second: DnsPathConfig::OPENS_PER_SECOND,
        };
        self.front.carry(config, &mut self.random).expect("a zone, an address, a server");
    }

    /// Handles a query from a resolver. Returns the first flights that are complete.
    pub fn handle(&mut self, now: Instant, resolver: IpAddr, query: &[u8]) -> Vec<Handed> {
        self.front.handle_query(now, resolver, Transport::Udp, query, &mut self.random);
        assert!(self.front.sets() <= SETS.into(), "{} sets", self.front.sets());
        let unix_ms = (UNIX_MS + now.as_millis()).saturating_add_signed(self.offset_ms);
        let clock = Clock { mono: now, unix_ms, uncertainty: Duration::ZERO };
        let mut handed = Vec::new();
        if self.here {
            let mut buffer = OpenBuffer::new();
            while let Some(opened) = self.front.poll_opened(&clock, &mut buffer) {
                let Ok(opened) = opened else { continue };
                let client = SocketAddr::new(opened.ci.address, opened.ci.outer_port.get());
                handed.push(Handed::Here(client, opened.ci.segment(), opened.reply));
            }
        }
        while let Some(relay) = self.front.poll_relay(&clock) {
            let server = (0..self.servers).find(|n| port_of(*n) == relay.to).expect("one of the servers");
            handed.push(Handed::Relay(server, relay.datagram));
        }
        handed
    }
}

/// The address at which a server receives datagrams of fronts.
fn port_of(server: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 80 + server as u8], 4454))
}

/// The front that a resolver asks, chosen at random.
pub fn front_of(chance: u32) -> usize {
    chance as usize % FRONTS
}
