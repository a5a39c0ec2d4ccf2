//! The demonstration's lookups: a resolver and a name server in this process, each at its own distance.

use super::DemoError;
use super::timeline::{Log, Part, Place};
use super::{CERTIFICATES, CLIENT, UDP_PORT, unix_ms};
use crate::error::Error;
use firstflight::carriage::{DnsPath, Exchange, Manners, Proof, Server};
use firstflight::credential::NetworkId;
use firstflight::wire::asap::{Carriage, UdpService, Zone};
use firstflight::wire::{Clock, Instant};
use firstflight::{ConnectConfig, Endpoint, FirstFlight, RelayedFlight, Stream, Time};
use firstflight_dns::front::{RateLimit, RoundRobin};
use firstflight_dns::{
    Boot, CarriageConfig, CarriageKey, CarriageKeys, Destination, Front, OpenBuffer, ReassemblyLimits,
    RelayKey, RelayReceiver, RelaySender, RelayServer, Transport, ZoneData,
};
use hickory_resolver::proto::op::{Message, MessageType, OpCode, Query};
use hickory_resolver::proto::rr::{Name, RecordType};
use rand_chacha::ChaCha20Rng;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const NAME: &str = "www.xyz.com.";
/// The address by which the client identifies the resolver. No packet is sent to it.
const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53)), 53);
const ZONE: &[u8] = b"\x01f\x03xyz\x03com\x00";
const KEY_ID: NonZeroU8 = NonZeroU8::MIN;

/// Where the name server is, and what the resolver has cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// The resolver has the address in its cache.
    Cached,
    /// The name server is at the server's site.
    Near,
    /// The name server is as far from the server as the client is.
    Far,
}

/// One-way times for each case, as fractions of the round-trip time between client and server.
impl Case {
    /// From client to resolver.
    const RESOLVER: f64 = 0.05;

    /// From resolver to name server, and from there to the server.
    const fn shares(self) -> (f64, f64) {
        match self {
            Self::Cached | Self::Near => (0.5, 0.005),
            Self::Far => (0.5, 0.5),
        }
    }
}

/// Resolver and name server.
pub struct Lookups {
    resolver: Resolver,
    path: DnsPath,
    key: [u8; 32],
}

impl Lookups {
    /// Lookups of the name of `server` for `client`. The round-trip time between them is `rtt`. The messages between
    /// resolver and name server, and at both ends, are recorded in `log`.
    pub fn open(
        client: &Endpoint,
        server: &Endpoint,
        rtt: Duration,
        log: Log,
        mut random: ChaCha20Rng,
    ) -> Result<Self, Error> {
        let time = client.time();
        let (carriage, relay) = (CarriageKey::generate(&mut random), RelayKey::generate(&mut random));
        let key = carriage.public();
        let front =
            front(carriage, &relay, &time, &mut random).ok_or_else(|| fail("the name server's zone"))?;
        let mut relays = RelayReceiver::new();
        relays.set_key(1, &relay);
        let state = State { case: Case::Near, front, relays, random };
        let resolver =
            Resolver { state: Arc::new(Mutex::new(state)), server: server.clone(), rtt, time, log };
        let asked = resolver.clone();
        let exchange = Exchange::new(move |query| asked.clone().answer(query));
        let seen = SocketAddr::new(CLIENT, UDP_PORT);
        let proof = Some(Proof { seen, verifier: CERTIFICATES, at: std::time::Instant::now() });
        let (network, manners) = (NetworkId::UNKNOWN, Manners::new());
        let path = DnsPath::through(client.clone(), RESOLVER, exchange, network, proof, manners, false);
        Ok(Self { resolver, path, key })
    }

    /// Changes the case.
    pub fn set(&self, case: Case) {
        self.resolver.lock().case = case;
    }

    /// Looks the name up, without a request inside.
    pub async fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        let mut query = Message::new(0, MessageType::Query, OpCode::Query);
        query.metadata.recursion_desired = true;
        query.add_query(Query::query(Name::from_ascii(NAME).map_err(io::Error::other)?, RecordType::A));
        let answer = self.resolver.clone().answer(query.to_vec().map_err(io::Error::other)?).await?;
        let answer = Message::from_vec(&answer).map_err(io::Error::other)?;
        Ok(answer.answers.iter().filter_map(|record| record.data.ip_addr()).collect())
    }

    /// Sends the request inside the lookup, and directly when the address is known.
    pub async fn connect(&self, first: FirstFlight<'_>, config: &ConnectConfig) -> io::Result<Stream> {
        let zone = Zone::new(ZONE).ok_or(io::ErrorKind::InvalidInput)?;
        let carriage = Some(Carriage { key_id: KEY_ID, key: self.key, zone });
        let port = NonZeroU16::new(UDP_PORT).ok_or(io::ErrorKind::InvalidInput)?;
        let server = Server { port: CERTIFICATES.port(), service: Some(UdpService { port, carriage }) };
        Ok(self.path.connect(server, || self.addresses(), first, config).await?.0)
    }
}

fn fail(what: &'static str) -> DemoError {
    DemoError::Visit(what, io::ErrorKind::InvalidData.into())
}

fn front(carriage: CarriageKey, relay: &RelayKey, time: &Time, random: &mut ChaCha20Rng) -> Option<Front> {
    let IpAddr::V4(server) = CERTIFICATES.ip() else { return None };
    let text =
        format!("@ 60 IN SOA ns hostmaster 1 60 60 60 60\n@ IN NS ns\nns IN A {server}\nwww IN A {server}\n");
    let zone = ZoneData::parse(&text, None, &"xyz.com.".parse().ok()?).ok()?;
    let mut front = Front::new(vec![zone], RateLimit::default()).ok()?;
    let boot = u32::try_from(time.unix().as_secs()).ok()?;
    let config = CarriageConfig {
        zone: "f.xyz.com.".parse().ok()?,
        addresses: vec![server],
        keys: CarriageKeys::new(KEY_ID, carriage),
        to: Destination::Relay {
            servers: vec![RelayServer {
                address: SocketAddr::new(server.into(), UDP_PORT),
                sender: RelaySender::new(relay, 1, 1, Boot(boot)),
            }],
            policy: Box::new(RoundRobin::default()),
        },
        limits: ReassemblyLimits::default(),
        opens_per_second: CarriageConfig::OPENS_PER_SECOND,
    };
    front.carry(config, random).ok()?;
    Some(front)
}

/// A resolver that asks the name server for records that it has not cached.
#[derive(Clone)]
struct Resolver {
    state: Arc<Mutex<State>>,
    server: Endpoint,
    rtt: Duration,
    time: Time,
    log: Log,
}

struct State {
    case: Case,
    front: Front,
    relays: RelayReceiver,
    random: ChaCha20Rng,
}

impl Resolver {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while a message travels, for this fraction of the round-trip time between client and server.
    async fn travel(&self, from: Place, to: Place, share: f64, part: Part) {
        let takes = self.rtt.mul_f64(share);
        self.log.travels(from, to, takes, part);
        self.time.sleep(takes).await;
    }

    /// The answer to `query`, at the time when the client receives it.
    async fn answer(self, query: Vec<u8>) -> io::Result<Vec<u8>> {
        use Place::{Client, NameServer, Resolver, Server};

        let address = query.windows(4).any(|four| four == b"\x03www");
        let asks = if address { Part::Query } else { Part::Name };
        self.travel(Client, Resolver, Case::RESOLVER, asks).await;
        let case = self.lock().case;
        let (there, relay) = case.shares();
        // The names of a first flight are new each time.
        let cached = case == Case::Cached && address;
        if !cached {
            self.travel(Resolver, NameServer, there, asks).await;
        }
        let Answered { message, relays } = self.lock().handle(&query, &self.time);
        for datagram in relays {
            let resolver = self.clone();
            tokio::spawn(async move {
                resolver.travel(NameServer, Server, relay, Part::Request).await;
                resolver.hand_over(&datagram);
            });
        }
        if !cached {
            self.travel(NameServer, Resolver, there, Part::Answer).await;
        }
        self.travel(Resolver, Client, Case::RESOLVER, Part::Answer).await;
        message.ok_or_else(|| io::Error::other("the name server does not answer"))
    }

    /// Gives a relayed first flight to the server.
    fn hand_over(&self, datagram: &[u8]) {
        let mut buffer = OpenBuffer::new();
        let mut state = self.lock();
        let Ok(relayed) = state.relays.handle_datagram(datagram, unix_ms(&self.time), &mut buffer) else {
            return;
        };
        let segment = relayed.ci.segment();
        self.server.handle_relayed(RelayedFlight {
            client: SocketAddr::new(relayed.ci.address, relayed.ci.outer_port.get()),
            server: CERTIFICATES.ip(),
            segment: &segment,
            key: relayed.reply,
            seen_as: None,
        });
    }
}

/// What the name server returns for a query.
struct Answered {
    message: Option<Vec<u8>>,
    relays: Vec<Vec<u8>>,
}

impl State {
    fn handle(&mut self, query: &[u8], time: &Time) -> Answered {
        let mono = time.certificate_clock().unwrap_or(Instant::ZERO);
        let clock = Clock { mono, unix_ms: unix_ms(time), uncertainty: Duration::ZERO };
        let from = Ipv4Addr::LOCALHOST.into();
        let message = self.front.handle_query(mono, from, Transport::Udp, query, &mut self.random);
        let relays = std::iter::from_fn(|| self.front.poll_relay(&clock)).map(|relay| relay.datagram);
        Answered { message, relays: relays.collect() }
    }
}
