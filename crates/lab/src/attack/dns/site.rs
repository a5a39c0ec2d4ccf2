//! A site whose name server accepts first flights: the front, the server behind it, honest clients, and the clock.

use super::super::world::clock_at;
use crate::certified::{self, identity, key};
use firstflight_credential::{GuardKey, PendingLimit, ReplayTable, Window};
use firstflight_dns::front::{RateLimit, RoundRobin};
use firstflight_dns::{
    Attempt, Boot, ConnectionInfo, Destination, DnsPathConfig, DnsPathKey, DnsPathKeys, Fragments, Front,
    LABEL, Name, OpenBuffer, ReassemblyLimits, RelayKey, RelayReceiver, RelaySender, RelayServer, Transport,
    ZoneData, seal,
};
use firstflight_stack::{Config, EncapsulationConfig, Event, ListenConfig, ListenerId, RelayedFlight, Stack};
use firstflight_wire::asap::{DnsPathParam, Zone};
use firstflight_wire::encapsulation::{Carried, emit_segment_header};
use firstflight_wire::ip::{Ecn, Header as IpHeader, Packet, Protocol};
use firstflight_wire::tcp::{Flags, Header, Segment};
use firstflight_wire::udp::{self, Datagram};
use firstflight_wire::{Instant, SeqNum};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16};
use std::sync::Arc;
use std::time::Duration;

/// The DNS-path zone, in wire form. Its parent zone is also served.
pub const ZONE: &[u8] = b"\x01f\x03xyz\x03com\x00";
/// Bytes of a request, which needs seven fragments. Its first eight bytes distinguish requests.
pub const REQUEST: usize = 80;
/// Round-trip time between a client and the server.
const RTT: Duration = Duration::from_millis(100);
/// The fragments of an honest first flight arrive within this time, through one resolver.
const SPREAD_US: u64 = 20_000;
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 80));
const OUTER: u16 = 443;
const KEY_ID: NonZeroU8 = NonZeroU8::MIN;
/// The number of the relay key.
pub const RELAY_KEY_ID: u8 = 1;
/// Number of records of one type that exceed 1,232 octets.
const RECORDS: usize = 120;

/// The DNS-path zone.
pub fn zone() -> Option<Zone<'static>> {
    Zone::new(ZONE)
}

/// Something under way.
enum DnsArrival {
    /// A query at the front over UDP: the resolver, the message, and whether it is from an honest client.
    Query(IpAddr, Vec<u8>, bool),
    /// A datagram at the server's port for fronts.
    Datagram(Vec<u8>),
    /// A packet at the server.
    Packet(Vec<u8>),
}

/// The result of one first flight.
#[derive(Debug, Clone, Copy, Default)]
struct FlightResult {
    /// How often the front relayed it and the server's stack received it.
    handed: u32,
    /// How often the application executed its request.
    executed: u32,
}

/// Queries and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Queries that arrived.
    pub queries: u64,
    /// Bytes of the queries, without UDP and IP headers.
    pub bytes_in: u64,
    /// Bytes of the answers.
    pub bytes_out: u64,
}

impl Traffic {
    /// Bytes out for each byte in.
    pub fn factor(self) -> f64 {
        self.bytes_out as f64 / self.bytes_in.max(1) as f64
    }
}

/// The results so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    pub attack: Traffic,
    /// The maximum number of sets of fragments at one time.
    pub sets: usize,
    /// The maximum memory of the table of sets, bytes.
    pub table_bytes: usize,
    /// First flights for which opening was attempted.
    pub opened: u64,
    /// Honest first flights.
    pub honest: usize,
    /// Honest first flights that the server executed.
    pub served: usize,
    /// Honest fragments.
    pub fragments: u64,
    /// Honest fragments that were answered correctly.
    pub answered: u64,
    /// First flights relayed more than once.
    pub handed_again: usize,
    /// Requests executed more than once.
    pub twice: usize,
}

/// A front with its server, and what is under way to them.
pub struct DnsSite {
    pub now: Instant,
    pub front: Front,
    pub receiver: RelayReceiver,
    pub random: ChaCha20Rng,
    /// Relay datagrams, as an attacker between front and server sees them.
    pub overheard: Vec<Vec<u8>>,
    stack: Stack,
    listener: ListenerId,
    dns_path: DnsPathKey,
    coming: BTreeMap<(Instant, u64), DnsArrival>,
    sent: u64,
    boot: u32,
    fates: BTreeMap<[u8; 8], FlightResult>,
    outcome: Outcome,
    /// Buffer for the stack's packets.
    out: Vec<u8>,
}

fn relay_key() -> RelayKey {
    RelayKey::from_bytes(&[4; 32])
}

/// The parent of the DNS-path zone. It has one set of records that fits into no UDP answer.
fn parent() -> Option<ZoneData> {
    let many: String = (0..RECORDS).map(|n| format!("many IN A 10.1.0.{n}\n")).collect();
    let text = format!(
        "$TTL 300\n@ IN SOA ns hostmaster 1 3600 900 604800 60\n@ IN NS ns\nns IN A 192.0.2.53\n\
         www IN A 192.0.2.80\nfull IN TXT \"{0}\" \"{0}\" \"{0}\" \"{0}\"\n{many}",
        "t".repeat(250)
    );
    ZoneData::parse(&text, None, &Name::from_ascii("xyz.com.").ok()?).ok()
}

fn stack(now: Instant) -> Option<(Stack, ListenerId)> {
    let mut config = Config::new(vec![SERVER], [2; 32]);
    config.encapsulation = Some(EncapsulationConfig::new(OUTER).probe(false));
    let mut stack = Stack::new(config, now);
    stack.handle_clock(clock_at(now));
    let began = clock_at(now).unix_ms - 600_000;
    let guard = Arc::new(ReplayTable::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS, 1 << 20, began));
    let pending = Arc::new(PendingLimit::new(256));
    let mut policy = certified::policy(false, guard, &pending)?;
    policy.relayed = Some(Arc::new(PendingLimit::with_clients(64, 4).within(pending)));
    let mut config = ListenConfig::new(SocketAddr::new(SERVER, 80));
    config.asap = Some(policy);
    let listener = stack.listen(config).ok()?;
    Some((stack, listener))
}

impl DnsSite {
    /// A site with these limits, whose random numbers are derived from `seed`.
    pub fn new(seed: u64, rate: RateLimit) -> Option<Self> {
        let now = Instant::from_secs(1000);
        let mut random = ChaCha20Rng::seed_from_u64(seed);
        let dns_path = DnsPathKey::generate(&mut random);
        let (stack, listener) = stack(now)?;
        let mut receiver = RelayReceiver::new();
        receiver.set_key(RELAY_KEY_ID, &relay_key());
        let front = front(&dns_path, rate, &mut random)?;
        Some(Self {
            now,
            front,
            receiver,
            random,
            overheard: Vec::new(),
            stack,
            listener,
            dns_path,
            coming: BTreeMap::new(),
            sent: 0,
            boot: 1,
            fates: BTreeMap::new(),
            outcome: Outcome::default(),
            out: vec![0; 2048],
        })
    }

    /// Restarts the front. Its datagrams then have another boot number.
    pub fn restart_front(&mut self) {
        self.boot += 1;
        let known = self.front.set_servers(vec![relay_server(1, self.boot)]);
        debug_assert!(known);
    }

    /// Sends a query of the attacker, which arrives after `delay`.
    pub fn ask(&mut self, from: IpAddr, query: Vec<u8>, delay: Duration) {
        self.put(self.now + delay, DnsArrival::Query(from, query, false));
    }

    /// Sends a datagram of the attacker to the server's port for fronts.
    pub fn send(&mut self, datagram: Vec<u8>, delay: Duration) {
        self.put(self.now + delay, DnsArrival::Datagram(datagram));
    }

    fn put(&mut self, at: Instant, arrival: DnsArrival) {
        self.sent += 1;
        self.coming.insert((at, self.sent), arrival);
    }

    /// An honest client seals a first flight and queries its names at `resolver`. `number` identifies the flight.
    /// Returns when each of its labels arrives.
    pub fn visit(&mut self, number: u32, resolver: IpAddr) -> Vec<(Duration, [u8; LABEL])> {
        let mut arriving = Vec::new();
        for (n, label) in self.set_out(number).into_iter().enumerate() {
            let delay = Duration::from_micros(self.random.next_u64() % SPREAD_US);
            self.put(
                self.now + delay,
                DnsArrival::Query(resolver, super::forged::ask(&label, n as u16), true),
            );
            arriving.push((delay, label));
        }
        arriving
    }

    /// Like [`DnsSite::visit`], but queries nothing. Returns the labels.
    pub fn set_out(&mut self, number: u32) -> Vec<[u8; LABEL]> {
        let labels = self.seal(number).unwrap_or_default();
        self.outcome.honest += 1;
        self.outcome.fragments += labels.len() as u64;
        labels
    }

    /// A second front of the zone, with the same server.
    pub fn neighbour(&mut self) -> Option<Front> {
        let mut front = front(&self.dns_path, RateLimit::default(), &mut self.random)?;
        front.set_servers(vec![relay_server(2, 1)]).then_some(front)
    }

    /// The labels of a first flight of client `number`. Each client has its own address, key and certificate.
    fn seal(&mut self, number: u32) -> Option<Vec<[u8; LABEL]>> {
        let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a14_0000 + (number << 2)));
        let issued = (self.now, clock_at(self.now).unix_ms / 1000);
        let key = key(&mut self.random);
        let certificate = certified::certificate(key, address, issued, (certified::LASTS, 1))?;
        let name = u64::from(number).to_be_bytes();
        let mut data = [b'q'; REQUEST];
        data[..8].copy_from_slice(&name);
        let block = certificate.request_by_front(&identity(), &data, name, self.now);
        let ci = ConnectionInfo {
            address,
            outer_port: NonZeroU16::new(5000)?,
            source_port: NonZeroU16::new(50_000)?,
            destination_port: NonZeroU16::new(80)?,
            isn: SeqNum::new(number),
            window: 0xffff,
            mss: 1176,
            window_scale: None,
            sack_permitted: true,
            block,
            data: &data,
        };
        let to = DnsPathParam { key_id: KEY_ID, key: self.dns_path.public(), zone: zone()? };
        let (sealed, _) = seal(&ci, &to, &mut self.random).ok()?;
        self.fates.insert(name, FlightResult::default());
        Some(Fragments::split(&sealed, Attempt::default(), false).labels().collect())
    }

    /// Delivers everything that arrives until `end`.
    pub fn run(&mut self, end: Instant) {
        while let Some(entry) = self.coming.first_entry()
            && entry.key().0 <= end
        {
            let ((at, _), arrival) = entry.remove_entry();
            self.now = at.max(self.now);
            match arrival {
                DnsArrival::Query(from, query, honest) => {
                    self.query(from, Transport::Udp, &query, honest);
                }
                DnsArrival::Datagram(datagram) => self.take(&datagram),
                DnsArrival::Packet(packet) => self.stack.handle_packet(self.now, &packet),
            }
            self.serve();
        }
        self.now = end;
        self.stack.handle_timeout(end);
        self.serve();
    }

    /// Asks the front, which answers.
    pub fn query(
        &mut self,
        from: IpAddr,
        transport: Transport,
        query: &[u8],
        honest: bool,
    ) -> Option<Vec<u8>> {
        let answer = self.front.handle_query(self.now, from, transport, query, &mut self.random);
        if honest {
            // One record, with TTL 0.
            let good =
                answer.as_ref().is_some_and(|a| a.get(6..8) == Some(&[0, 1]) && a.ends_with(&octets()));
            self.outcome.answered += u64::from(good);
        } else {
            self.outcome.attack.queries += 1;
            self.outcome.attack.bytes_in += query.len() as u64;
            self.outcome.attack.bytes_out += answer.as_ref().map_or(0, |answer| answer.len() as u64);
        }
        self.hand_over();
        self.outcome.sets = self.outcome.sets.max(self.front.sets());
        self.outcome.table_bytes = self.outcome.table_bytes.max(self.front.table_bytes());
        answer
    }

    /// Delivers the front's datagrams to the server.
    pub fn hand_over(&mut self) {
        while let Some(relay) = self.front.poll_relay(&clock_at(self.now)) {
            self.take(&relay.datagram);
            self.overheard.push(relay.datagram);
        }
    }

    /// Handles a datagram at the server's port for fronts.
    pub fn take(&mut self, datagram: &[u8]) {
        let mut buffer = OpenBuffer::new();
        let unix_ms = clock_at(self.now).unix_ms;
        let Ok(relayed) = self.receiver.handle_datagram(datagram, unix_ms, &mut buffer) else { return };
        if let Some(fate) = relayed.ci.data.first_chunk().and_then(|name| self.fates.get_mut(name)) {
            fate.handed += 1;
        }
        let segment = relayed.ci.segment();
        let client = SocketAddr::new(relayed.ci.address, relayed.ci.outer_port.get());
        let flight =
            RelayedFlight { client, server: SERVER, segment: &segment, key: relayed.reply, seen_as: None };
        self.stack.handle_relayed(self.now, flight);
    }

    /// The server verifies, the application executes, and clients complete the handshake and leave.
    fn serve(&mut self) {
        while let Some(flights) = self.stack.poll_verifications() {
            let verdicts = flights.verify(&mut self.random);
            self.stack.handle_verified(flights, &verdicts, self.now);
        }
        while let Some(event) = self.stack.poll_event() {
            if !matches!(event, Event::Acceptable(_)) {
                continue;
            }
            while let Some(id) = self.stack.accept(self.listener) {
                let mut request = [0; 2 * REQUEST];
                let read = self.stack.read(id, &mut request, self.now);
                let name = request.first_chunk().filter(|_| read == Ok(REQUEST));
                if let Some(fate) = name.and_then(|name| self.fates.get_mut(name)) {
                    fate.executed += 1;
                }
                self.stack.release(id, self.now);
            }
        }
        while let Some(len) = self.stack.poll_transmit(self.now, &mut self.out) {
            for packet in self.out.get(..len).and_then(answers).unwrap_or_default() {
                self.put(self.now + RTT, DnsArrival::Packet(packet));
            }
        }
    }

    /// The results so far.
    pub fn outcome(&self) -> Outcome {
        let counters = self.front.counters();
        let count = |which: fn(&FlightResult) -> bool| self.fates.values().filter(|fate| which(fate)).count();
        Outcome {
            opened: counters.relayed + counters.not_opened,
            served: count(|fate| fate.executed > 0),
            handed_again: count(|fate| fate.handed > 1),
            twice: count(|fate| fate.executed > 1),
            ..self.outcome
        }
    }
}

/// The last octets of a fragment's answer: TTL, length and address.
const fn octets() -> [u8; 10] {
    [0, 0, 0, 0, 0, 4, 192, 0, 2, 80]
}

fn relay_server(front: u16, boot: u32) -> RelayServer {
    // Nothing is sent to this address: the datagrams are delivered here directly.
    let address = SocketAddr::new(SERVER, 4454);
    RelayServer { address, sender: RelaySender::new(&relay_key(), RELAY_KEY_ID, front, Boot(boot)) }
}

fn front(key: &DnsPathKey, rate: RateLimit, random: &mut ChaCha20Rng) -> Option<Front> {
    let mut front = Front::new(vec![parent()?], rate).ok()?;
    let config = DnsPathConfig {
        zone: Name::from_ascii("f.xyz.com.").ok()?,
        addresses: vec![Ipv4Addr::new(192, 0, 2, 80)],
        keys: DnsPathKeys::new(KEY_ID, key.clone()),
        to: Destination::Relay { servers: vec![relay_server(1, 1)], policy: Box::new(RoundRobin::default()) },
        limits: ReassemblyLimits::default(),
        opens_per_second: DnsPathConfig::OPENS_PER_SECOND,
    };
    front.carry(config, random).ok()?;
    Some(front)
}

/// A client's answer to a SYN-ACK: its ACK, after which the client is gone.
fn answers(packet: &[u8]) -> Option<Vec<Vec<u8>>> {
    let ip = Packet::parse(packet).ok()?;
    let datagram = Datagram::parse(ip.payload).ok()?;
    let Ok(Carried::Segment(segment)) = Carried::parse(datagram.payload) else { return None };
    let segment = Segment::parse(segment).ok()?;
    if !segment.flags.contains(Flags::SYN) {
        return None;
    }
    let flags = [Flags::ACK, Flags::RST.union(Flags::ACK)];
    Some(flags.into_iter().filter_map(|flags| answer(&ip, &datagram, &segment, flags)).collect())
}

fn answer(ip: &Packet<'_>, datagram: &Datagram<'_>, to: &Segment<'_>, flags: Flags) -> Option<Vec<u8>> {
    let header = Header {
        src_port: to.dst_port,
        dst_port: to.src_port,
        seq: to.ack,
        ack: to.seq + 1,
        flags,
        window: 0xffff,
        urgent: 0,
    };
    let (src, dst) = (ip.dst, ip.src);
    let mut bytes = vec![0; 8 + 4 + 60];
    emit_segment_header(bytes.get_mut(8..)?).ok()?;
    let len = 12 + header.emit(&[], bytes.get_mut(12..)?).ok()?;
    bytes.truncate(len);
    let ports = udp::Header { src_port: datagram.dst_port, dst_port: datagram.src_port };
    ports.emit(len - 8, &mut bytes).ok()?;
    udp::fill_checksum(&mut bytes, src, dst);
    let header = IpHeader {
        src,
        dst,
        protocol: Protocol::Udp,
        hop_limit: 60,
        ecn: Ecn::default(),
        dont_fragment: true,
        identification: 1,
    };
    let mut packet = vec![0; 20 + len];
    let at = header.emit(len, &mut packet).ok()?;
    packet.get_mut(at..)?.copy_from_slice(&bytes);
    Some(packet)
}
