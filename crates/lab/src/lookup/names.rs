//! The resolver and the name server, message by message.

use super::thesis;
use crate::lookup::{ResolverCase, Resolving};
use firstflight_dns::front::{RateLimit, RoundRobin};
use firstflight_dns::{
    Attempt, Boot, ConnectionInfo, Destination, DnsPathConfig, DnsPathKey, DnsPathKeys, FragmentQuery,
    Fragments, Front, Name, ReassemblyLimits, RelayKey, RelaySender, RelayServer, Transport, ZoneData, seal,
};
use firstflight_stack::{InLookupSyn, Stack};
use firstflight_wire::asap::{DnsPathParam, Zone};
use firstflight_wire::{Clock, Instant};
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU8;

/// The server's name, and the number of its labels.
pub const NAME: &str = "www.xyz.com.";
pub const HOST: usize = 3;
pub const ZONE: &str = "f.xyz.com.";
pub const ZONE_WIRE: &[u8] = b"\x01f\x03xyz\x03com\x00";
pub const KEY_ID: NonZeroU8 = NonZeroU8::MIN;
/// The resolver's address.
const RESOLVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53));

/// The labels of [`NAME`].
pub fn plain() -> [&'static [u8]; HOST] {
    [b"www", b"xyz", b"com"]
}

/// A question for addresses.
pub fn query(id: u16, name: &Name) -> Option<Vec<u8>> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name.clone(), RecordType::A));
    message.to_vec().ok()
}

/// Id and name of a question, or of the question in an answer.
pub fn asked(message: &[u8]) -> Option<(u16, Name)> {
    let message = Message::from_vec(message).ok()?;
    Some((message.metadata.id, message.queries.first()?.name().clone()))
}

fn answer(query: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    let (id, name) = asked(query)?;
    let mut message = Message::new(id, MessageType::Response, OpCode::Query);
    message.add_query(Query::query(name.clone(), RecordType::A));
    message.add_answer(Record::from_rdata(name, 0, RData::A(A(address))));
    message.to_vec().ok()
}

/// The questions that carry the first flight of `in_lookup`, whose client is seen as `seen`, sealed to `key`. `stack`
/// accepts the answer of a server that opened them.
pub fn carrying(
    stack: &mut Stack,
    in_lookup: &InLookupSyn,
    seen: SocketAddr,
    key: [u8; 32],
    random: &mut ChaCha20Rng,
) -> Option<Vec<Vec<u8>>> {
    let zone = Zone::new(ZONE_WIRE)?;
    let info = ConnectionInfo::from_segment(seen, &in_lookup.segment).ok()?;
    let (sealed, reply) = seal(&info, &DnsPathParam { key_id: KEY_ID, key, zone }, random).ok()?;
    stack.expect_answer(in_lookup.id, reply);
    let fragments = Fragments::split(&sealed, Attempt::default(), false);
    let questions = fragments.labels().zip(10..).map(|(label, id)| FragmentQuery::new(id, &label, zone).ok());
    questions.map(|question| Some(question?.as_bytes().to_vec())).collect()
}

/// What the name server sends in addition to its answer.
#[derive(Debug)]
pub enum Handed {
    /// A relay datagram for the server.
    Relay(Vec<u8>),
    /// A SYN in the thesis' form, as if its client had sent it.
    Syn(Vec<u8>),
}

/// The authoritative side: the front, and its counterpart in the thesis.
pub struct NameServer {
    front: Front,
    random: ChaCha20Rng,
    server: Ipv4Addr,
}

impl NameServer {
    /// A name server that knows `server` and shares `relay` with it. First flights are sealed to `dns_path`.
    pub fn new(server: Ipv4Addr, relay: &RelayKey, dns_path: DnsPathKey, boot: u32) -> Option<Self> {
        let mut random = ChaCha20Rng::from_seed([11; 32]);
        let text = format!(
            "@ 60 IN SOA ns hostmaster 1 60 60 60 60\n@ IN NS ns\nns IN A {server}\nwww 60 IN A {server}\n"
        );
        let zone = ZoneData::parse(&text, None, &"xyz.com.".parse().ok()?).ok()?;
        let mut front = Front::new(vec![zone], RateLimit::default()).ok()?;
        let config = DnsPathConfig {
            zone: ZONE.parse().ok()?,
            addresses: vec![server],
            keys: DnsPathKeys::new(KEY_ID, dns_path),
            to: Destination::Relay {
                servers: vec![RelayServer {
                    address: SocketAddr::new(server.into(), 4454),
                    sender: RelaySender::new(relay, 1, 1, Boot(boot)),
                }],
                policy: Box::new(RoundRobin::default()),
            },
            limits: ReassemblyLimits::default(),
            opens_per_second: DnsPathConfig::OPENS_PER_SECOND,
        };
        front.carry(config, &mut random).ok()?;
        Some(Self { front, random, server })
    }

    /// The answer to a query, and what is sent in addition.
    pub fn handle(&mut self, now: Instant, clock: &Clock, query: &[u8]) -> (Option<Vec<u8>>, Vec<Handed>) {
        if let Some((_, name)) = asked(query)
            && let Some(bytes) = thesis::read(&name)
        {
            let info = ConnectionInfo::parse(&bytes).ok();
            let syn = info.and_then(|info| thesis::packet(&info, self.server.into()));
            return (answer(query, self.server), syn.map(Handed::Syn).into_iter().collect());
        }
        let answer = self.front.handle_query(now, RESOLVER, Transport::Udp, query, &mut self.random);
        let mut handed = Vec::new();
        while let Some(relay) = self.front.poll_relay(clock) {
            handed.push(Handed::Relay(relay.datagram));
        }
        (answer, handed)
    }
}

/// What the resolver does with a question of the client.
#[derive(Debug)]
pub enum Resolved {
    Answer(Vec<u8>),
    /// It asks the name server, after this many round trips to it for the parent names.
    Ask(u32),
}

/// A resolver that has the name servers' addresses.
#[derive(Debug)]
pub struct Resolver {
    pub case: ResolverCase,
    pub resolving: Resolving,
    /// Additional round trips for a name of several labels below the host, and for a name of the DNS path's zone.
    pub label_by_label: u32,
    pub zone_by_zone: u32,
    pub server: Ipv4Addr,
}

impl Resolver {
    /// Decides what to do with `query`, which it may change.
    pub fn handle(&self, query: &mut Vec<u8>) -> Option<Resolved> {
        let (id, name) = asked(query)?;
        if self.case == ResolverCase::Cached && name.to_string().eq_ignore_ascii_case(NAME) {
            return answer(query, self.server).map(Resolved::Answer);
        }
        let deep = usize::from(name.num_labels()) > HOST + 1;
        let fragment = name.to_lowercase().to_string().ends_with(ZONE);
        match self.resolving {
            // What the fragment belongs to is not known, so it answers itself.
            Resolving::Strips if fragment => return answer(query, self.server).map(Resolved::Answer),
            Resolving::Strips if deep => {
                if self.case == ResolverCase::Cached {
                    return answer(query, self.server).map(Resolved::Answer);
                }
                *query = super::names::query(id, &NAME.parse().ok()?)?;
            }
            Resolving::Rewrites if fragment || deep => *query = super::names::query(id, &rewritten(&name)?)?,
            _ => {}
        }
        let rounds = match (deep, fragment) {
            (true, _) => self.label_by_label,
            (_, true) => self.zone_by_zone,
            _ => 0,
        };
        Some(Resolved::Ask(rounds))
    }
}

/// `name` with other octets in place of those that host names do not have.
fn rewritten(name: &Name) -> Option<Name> {
    let octet = |octet: &u8| if octet.is_ascii_alphanumeric() || *octet == b'-' { *octet } else { b'x' };
    Name::from_labels(name.iter().map(|label| label.iter().map(octet).collect::<Vec<u8>>())).ok()
}
