//! A front, its messages, and one step for each row.

use super::super::certificates::signatures::{NOW, NOW_MS};
use super::super::{BenchError, timed};
use super::Row;
use crate::certified::{LASTS, certificate, identity, key};
use firstflight_dns::front::{RateLimit, RoundRobin};
use firstflight_dns::relay::RelayCounters;
use firstflight_dns::{
    Attempt, Boot, ConnectionInfo, Destination, DnsPathConfig, DnsPathKey, DnsPathKeys, FragmentQuery,
    Fragments, Front, Name, OpenBuffer, ReassemblyLimits, RelayKey, RelayReceiver, RelaySender, RelayServer,
    Sealed, Transport, ZoneData, seal,
};
use firstflight_wire::asap::{DnsPathParam, Zone};
use firstflight_wire::{Clock, Instant, SeqNum};
use hickory_proto::op::{Message, MessageType, Metadata, OpCode, Query};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::time::Duration;

/// Number of first flights. Their fragments do not fit into the nearest caches.
const FLIGHTS: usize = 4096;
/// Number of fragments of each first flight.
pub const PARTS: usize = 7;
/// Bytes of a request: in the middle of the range that seven fragments carry.
const REQUEST: usize = 60;
/// Number of first flights or queries in one step.
pub const BATCH: usize = 64;
/// Virtual time of a first flight. With it, up to about 3,750 sets are held.
const EVERY: Duration = Duration::from_micros(800);
/// Virtual time before all first flights are repeated, so that the front has forgotten them.
const AGAIN: Duration = Duration::from_secs(45);
const ZONE: &[u8] = b"\x01f\x03xyz\x03com\x00";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(ADDRESS), 4454);

/// A sealed first flight, and its seven queries.
struct Flight {
    sealed: Sealed,
    queries: Vec<FragmentQuery>,
}

/// A front whose limits are never reached, and its queries.
struct BenchFront {
    front: Front,
    now: Instant,
    next: usize,
}

/// Everything that the steps need.
pub struct Work {
    random: ChaCha20Rng,
    keys: DnsPathKeys,
    relay: RelayKey,
    flights: Vec<Flight>,
    plain: Vec<u8>,
    relaying: BenchFront,
    here: BenchFront,
    receiver: RelayReceiver,
    boot: u32,
}

fn wrong(what: impl Into<String>) -> BenchError {
    BenchError::Wrong(what.into())
}

fn zone() -> Result<Zone<'static>, BenchError> {
    Zone::new(ZONE).ok_or_else(|| wrong("the zone"))
}

fn name(text: &str) -> Result<Name, BenchError> {
    Name::from_ascii(text).map_err(|error| BenchError::refused("a name", error))
}

/// One of 64 resolvers, each in its own network.
fn resolver(n: usize) -> IpAddr {
    Ipv4Addr::new(100, 64, n as u8 % 64, 53).into()
}

fn clock(now: Instant) -> Clock {
    let unix_ms = NOW_MS + (now - NOW).as_millis() as u64;
    Clock { mono: now, unix_ms, uncertainty: Duration::from_millis(1) }
}

/// A query for an ordinary name.
fn plain() -> Result<Vec<u8>, BenchError> {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name("www.xyz.com.")?, RecordType::A));
    message.to_vec().map_err(|error| BenchError::refused("a query", error))
}

/// Uses only the library to parse `query` and to encode an answer with one address.
fn answer(query: &[u8], ttl: u32) -> Option<Vec<u8>> {
    let asked = Message::from_vec(query).ok()?;
    let question = asked.queries.first()?.clone();
    let mut answer = Message::new(asked.metadata.id, MessageType::Response, OpCode::Query);
    answer.metadata = Metadata::response_from_request(&asked.metadata);
    answer.metadata.authoritative = true;
    answer.add_answers([Record::from_rdata(question.name().clone(), ttl, RData::A(A(ADDRESS)))]);
    answer.add_query(question);
    answer.to_vec().ok()
}

fn front(keys: DnsPathKeys, to: Destination, random: &mut ChaCha20Rng) -> Result<Front, BenchError> {
    let text = "$TTL 300\n@ IN SOA ns hostmaster 1 3600 900 604800 60\n@ IN NS ns\nns IN A 192.0.2.53\n\
                www IN A 192.0.2.80\n";
    let parent = ZoneData::parse(text, None, &name("xyz.com.")?);
    let parent = parent.map_err(|error| BenchError::refused("a zone", error))?;
    // One answer per nanosecond, so the rate limit has no effect.
    let most = NonZeroU32::MIN.saturating_add(999_999_999);
    let rate = RateLimit { per_second: most, ..RateLimit::default() };
    let mut front = Front::new(vec![parent], rate).map_err(|error| BenchError::refused("a front", error))?;
    let config = DnsPathConfig {
        zone: name("f.xyz.com.")?,
        addresses: vec![ADDRESS],
        keys,
        to,
        limits: ReassemblyLimits::default(),
        opens_per_second: most,
    };
    front.carry(config, random).map_err(|error| BenchError::refused("a DNS-path zone", error))?;
    Ok(front)
}

/// Sealed first flights of one client, each with a request of its own.
fn flights(to: &DnsPathParam<'_>, random: &mut ChaCha20Rng) -> Result<Vec<Flight>, BenchError> {
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    let certificate = certificate(key(random), address, (NOW, NOW_MS / 1000), (LASTS, 1));
    let certificate = certificate.ok_or_else(|| wrong("a certificate"))?;
    let port = |number| NonZeroU16::new(number).ok_or_else(|| wrong("a port"));
    let data = [b'q'; REQUEST];
    let mut all = Vec::with_capacity(FLIGHTS);
    for n in 0..FLIGHTS {
        let block = certificate.request_by_front(&identity(), &data, random.next_u64().to_be_bytes(), NOW);
        let ci = ConnectionInfo {
            address,
            outer_port: port(5000)?,
            source_port: port(50_000)?,
            destination_port: port(80)?,
            isn: SeqNum::new(n as u32),
            window: 0xffff,
            mss: 1176,
            window_scale: None,
            sack_permitted: true,
            block,
            data: &data,
        };
        let (sealed, _) = seal(&ci, to, random).map_err(|error| BenchError::refused("a seal", error))?;
        let labels = Fragments::split(&sealed, Attempt::default(), false);
        let query = |label: [u8; 63]| FragmentQuery::new(n as u16, &label, to.zone);
        let queries: Result<Vec<FragmentQuery>, _> = labels.labels().map(query).collect();
        let queries = queries.map_err(|error| BenchError::refused("a query", error))?;
        if queries.len() != PARTS {
            return Err(wrong("not seven fragments"));
        }
        all.push(Flight { sealed, queries });
    }
    Ok(all)
}

impl Work {
    /// Makes keys, fronts and messages.
    pub fn new(seed: u64) -> Result<Self, BenchError> {
        let mut random = ChaCha20Rng::seed_from_u64(seed);
        let (key, relay) = (DnsPathKey::generate(&mut random), RelayKey::generate(&mut random));
        let to = DnsPathParam { key_id: NonZeroU8::MIN, key: key.public(), zone: zone()? };
        let flights = flights(&to, &mut random)?;
        let keys = || DnsPathKeys::new(NonZeroU8::MIN, key.clone());
        let sender = RelaySender::new(&relay, 1, 1, Boot(1));
        let servers = vec![RelayServer { address: SERVER, sender }];
        let to = Destination::Relay { servers, policy: Box::new(RoundRobin::default()) };
        let relaying = front(keys(), to, &mut random)?;
        let here = front(keys(), Destination::Here, &mut random)?;
        let mut receiver = RelayReceiver::new();
        receiver.set_key(1, &relay);
        let site = |front| BenchFront { front, now: NOW, next: 0 };
        Ok(Self {
            keys: keys(),
            relay,
            flights,
            plain: plain()?,
            relaying: site(relaying),
            here: site(here),
            receiver,
            boot: 1,
            random,
        })
    }

    /// Performs one step of a row. Returns the number of operations and their CPU time.
    pub fn step(&mut self, row: Row) -> Result<(u64, Duration), BenchError> {
        match row {
            Row::Library => {
                let query = &self.plain;
                library(|_| (query.as_slice(), 300))
            }
            Row::LibraryFragment => {
                let flights = &self.flights;
                library(|n| (flights[n].queries[n % PARTS].as_bytes(), 0))
            }
            Row::Plain => self.plain(),
            Row::Begins => self.fragments(0..1),
            Row::Waits => self.fragments(1..PARTS - 1),
            Row::Open => self.open(),
            Row::Relayed => self.relayed(),
            Row::Here => self.here(),
            Row::Received => self.received(),
        }
    }

    fn plain(&mut self) -> Result<(u64, Duration), BenchError> {
        let Self { relaying: BenchFront { front, now, .. }, plain, random, .. } = self;
        let (answered, took) = timed(|| {
            let ask = |n| front.handle_query(*now, resolver(n), Transport::Udp, plain, random);
            (0..BATCH).map(ask).filter(Option::is_some).count()
        })?;
        if answered == BATCH { Ok((BATCH as u64, took)) } else { Err(wrong("queries without an answer")) }
    }

    /// Handles these fragments of a batch of sets, none of which becomes complete. The fragments before them are not
    /// counted.
    fn fragments(&mut self, parts: std::ops::Range<usize>) -> Result<(u64, Duration), BenchError> {
        let Self { relaying: site, flights, random, .. } = self;
        let batch = site.batch(flights);
        for (n, flight) in batch.iter().enumerate() {
            for query in &flight.queries[..parts.start] {
                site.front.handle_query(site.now, resolver(n), Transport::Udp, query.as_bytes(), random);
            }
        }
        let duplicates = site.front.reassembly().duplicates;
        let (answered, took) = timed(|| {
            let mut answered = 0;
            for (n, flight) in batch.iter().enumerate() {
                for query in &flight.queries[parts.clone()] {
                    let query = query.as_bytes();
                    let answer =
                        site.front.handle_query(site.now, resolver(n), Transport::Udp, query, random);
                    answered += u64::from(answer.is_some());
                }
            }
            answered
        })?;
        let all = (batch.len() * parts.len()) as u64;
        if answered == all && site.front.reassembly().duplicates == duplicates {
            return Ok((all, took));
        }
        Err(wrong(format!("{answered} of {all} fragments, {:?}", site.front.reassembly())))
    }

    fn open(&mut self) -> Result<(u64, Duration), BenchError> {
        let Self { keys, flights, .. } = self;
        let (zone, mut buffer) = (zone()?, OpenBuffer::new());
        let (opened, took) = timed(|| {
            let open = |flight: &&Flight| {
                black_box(keys.open(zone, &flight.sealed, NOW_MS / 1000, &mut buffer).is_ok())
            };
            flights.iter().take(BATCH).filter(open).count()
        })?;
        if opened == BATCH { Ok((BATCH as u64, took)) } else { Err(wrong("not opened")) }
    }

    fn relayed(&mut self) -> Result<(u64, Duration), BenchError> {
        let Self { relaying: site, flights, random, .. } = self;
        let (batch, clock) = (site.batch(flights), clock(site.now));
        let (datagrams, took) = timed(|| {
            let mut datagrams = Vec::with_capacity(BATCH);
            for (n, flight) in batch.iter().enumerate() {
                for query in &flight.queries {
                    let query = query.as_bytes();
                    let answer =
                        site.front.handle_query(site.now, resolver(n), Transport::Udp, query, random);
                    black_box(answer);
                }
                datagrams.extend(site.front.poll_relay(&clock));
            }
            datagrams
        })?;
        if datagrams.len() != BATCH {
            return Err(wrong(format!("{} of {BATCH} relayed, {:?}", datagrams.len(), site.front)));
        }
        Ok((BATCH as u64, took))
    }

    fn here(&mut self) -> Result<(u64, Duration), BenchError> {
        let Self { here: site, flights, random, .. } = self;
        let (batch, clock, mut buffer) = (site.batch(flights), clock(site.now), OpenBuffer::new());
        let (opened, took) = timed(|| {
            let mut opened = 0;
            for (n, flight) in batch.iter().enumerate() {
                for query in &flight.queries {
                    let query = query.as_bytes();
                    let answer =
                        site.front.handle_query(site.now, resolver(n), Transport::Udp, query, random);
                    black_box(answer);
                }
                opened += usize::from(matches!(site.front.poll_opened(&clock, &mut buffer), Some(Ok(_))));
            }
            opened
        })?;
        if opened == BATCH { Ok((BATCH as u64, took)) } else { Err(wrong(format!("{:?}", site.front))) }
    }

    /// Datagrams of a front that restarts each time. They are made in advance.
    fn received(&mut self) -> Result<(u64, Duration), BenchError> {
        let (mut sender, mut buffer) =
            (RelaySender::new(&self.relay, 1, 1, Boot(self.boot)), OpenBuffer::new());
        self.boot += 1;
        let mut datagrams = Vec::with_capacity(BATCH);
        for flight in self.flights.iter().take(BATCH) {
            let opened = self.keys.open(zone()?, &flight.sealed, NOW_MS / 1000, &mut buffer);
            let (ci, reply) = opened.map_err(|error| BenchError::refused("a seal", error))?;
            let mut datagram = vec![0; firstflight_dns::relay::MAX_RELAY];
            let len = sender.emit(&ci, &reply, resolver(0), NOW_MS, &mut datagram);
            datagram.truncate(len.map_err(|error| BenchError::refused("a datagram", error))?);
            datagrams.push(datagram);
        }
        let receiver = &mut self.receiver;
        let (taken, took) = timed(|| {
            let take = |datagram: &&Vec<u8>| {
                black_box(receiver.handle_datagram(datagram, NOW_MS, &mut buffer).is_ok())
            };
            datagrams.iter().filter(take).count()
        })?;
        let counters: &RelayCounters = self.receiver.counters();
        if taken == BATCH { Ok((BATCH as u64, took)) } else { Err(wrong(format!("{counters:?}"))) }
    }
}

impl Work {
    /// The CPU time of single operations: `count` ordinary queries, and as many first flights of seven fragments that are
    /// opened and sealed for the server.
    pub fn each(&mut self, row: Row, count: usize) -> Result<Vec<Duration>, BenchError> {
        let mut all = Vec::with_capacity(count);
        let Self { relaying: site, flights, random, plain, .. } = self;
        while all.len() < count {
            let (batch, clock) = (site.batch(flights), clock(site.now));
            for (n, flight) in batch.iter().enumerate().take(count - all.len()) {
                let (done, took) = timed(|| {
                    let BenchFront { front, now, .. } = &mut *site;
                    let mut ask = |query: &[u8]| {
                        front.handle_query(*now, resolver(n), Transport::Udp, query, random).is_some()
                    };
                    if row == Row::Plain {
                        return ask(plain);
                    }
                    let answered = flight.queries.iter().all(|query| ask(query.as_bytes()));
                    black_box(front.poll_relay(&clock)).is_some() && answered
                })?;
                if !done {
                    return Err(wrong(format!("{row:?}: no answer, {:?}", site.front)));
                }
                all.push(took);
            }
        }
        Ok(all)
    }
}

impl BenchFront {
    /// The next first flights. Their earlier sets have expired, and so have incomplete sets of others.
    fn batch<'a>(&mut self, flights: &'a [Flight]) -> &'a [Flight] {
        let from = self.next;
        self.next = (from + BATCH) % flights.len();
        self.now += EVERY * BATCH as u32;
        if self.next == 0 {
            self.now += AGAIN;
        }
        &flights[from..from + BATCH]
    }
}

fn library<'a>(query: impl Fn(usize) -> (&'a [u8], u32)) -> Result<(u64, Duration), BenchError> {
    let (answered, took) = timed(|| {
        let ask = |n| {
            let (query, ttl) = query(n);
            answer(query, ttl)
        };
        (0..BATCH).map(ask).filter(Option::is_some).count()
    })?;
    if answered == BATCH { Ok((BATCH as u64, took)) } else { Err(wrong("the library has no answer")) }
}
