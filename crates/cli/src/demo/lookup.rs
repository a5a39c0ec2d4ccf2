//! The demonstration's lookups: a resolver and a name server in this process, each at its own distance.

use super::DemoError;
use super::timeline::{LabelPart, Log, PacketPlace};
use super::world::{CERTIFICATES, CLIENT, UDP_PORT, unix_ms};
use crate::error::Error;
use firstflight::credential::asap::ClientCertificate;
use firstflight::dns_path::{Exchange, Proof};
use firstflight::record::Published;
use firstflight::{Authority, Client, Endpoint, FirstFlight, InsideLookups, RelayedFlight, Stream, Time};
use firstflight_dns::front::{RateLimit, RoundRobin};
use firstflight_dns::{
    Boot, Destination, DnsPathConfig, DnsPathKey, DnsPathKeys, Front, OpenBuffer, ReassemblyLimits, RelayKey,
    RelayReceiver, RelaySender, RelayServer, Transport, ZoneData,
};
use firstflight_wire::asap::{DnsPathParam, ServiceParam, UdpService, VerifierIds, Zone};
use firstflight_wire::{Clock, Instant};
use hickory_resolver::proto::op::{Message, MessageType, OpCode, Query};
use hickory_resolver::proto::rr::{Name, RecordType};
use rand_chacha::ChaCha20Rng;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub const NAME: &str = "www.xyz.com";
/// The address by which the client identifies the resolver. No packet is sent to it.
const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53)), 53);
const ZONE: &[u8] = b"\x01f\x03xyz\x03com\x00";
/// Bytes that the server accepts in a SYN.
const MSS: u16 = 1460;
const KEY_ID: NonZeroU8 = NonZeroU8::MIN;

/// Where the name server is, and what the resolver has cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupCase {
    /// The resolver has the address in its cache.
    Cached,
    /// The name server is at the server's site.
    Near,
    /// The name server is as far from the server as the client is.
    Far,
}

/// One-way times for each case, as fractions of the round-trip time between client and server.
impl LookupCase {
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
    client: Client,
    server: Authority,
}

impl Lookups {
    /// Lookups of the name of `server` for `client`, which shows this certificate. The round-trip time between them is `rtt`. The messages between
    /// resolver and name server, and at both ends, are recorded in `log`.
    pub fn open(
        client: &Endpoint,
        certificate: Arc<ClientCertificate>,
        server: &Endpoint,
        rtt: Duration,
        log: Log,
        mut random: ChaCha20Rng,
    ) -> Result<Self, Error> {
        let time = client.time();
        let (dns_path, relay) = (DnsPathKey::generate(&mut random), RelayKey::generate(&mut random));
        let key = dns_path.public();
        let front =
            front(dns_path, &relay, &time, &mut random).ok_or_else(|| fail("the name server's zone"))?;
        let mut relays = RelayReceiver::new();
        relays.set_key(1, &relay);
        let state = State { case: LookupCase::Near, front, relays, random };
        let resolver =
            Resolver { state: Arc::new(Mutex::new(state)), server: server.clone(), rtt, time, log };
        let asked = resolver.clone();
        let exchange = Exchange::new(move |query| asked.clone().answer(query));
        let seen = SocketAddr::new(CLIENT, UDP_PORT);
        let proof = Proof { seen, verifier: CERTIFICATES, at: std::time::Instant::now() };
        let asked = resolver.clone();
        let find = move |_| asked.clone().addresses();
        let inside = InsideLookups::by_program(RESOLVER, exchange, find, proof);
        let published = published(key, &certificate).ok_or_else(|| fail("the server's record"))?;
        let server = name()?;
        let client = Client::builder()
            .engine_in_udp(client.clone(), Some(UDP_PORT))
            .fast_open(false)
            .no_resolver()
            .certificate(certificate)
            .record(server.clone(), published)
            .inside_lookups(inside)
            .build()
            .map_err(|error| DemoError::Visit("the client", io::Error::other(error)))?;
        Ok(Self { resolver, client, server })
    }

    /// Changes the case.
    pub fn set(&self, case: LookupCase) {
        self.resolver.lock().case = case;
    }

    /// Looks the name up, without a request inside.
    pub async fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        self.resolver.clone().addresses().await
    }

    /// Sends the request inside the lookup, and directly when the address is known.
    pub async fn connect(&self, first: FirstFlight<'_>) -> io::Result<Stream> {
        Ok(self.client.connect(&self.server, first).await?)
    }
}

/// The server, by name.
fn name() -> Result<Authority, Error> {
    Ok(Authority::new(NAME, CERTIFICATES.port()).map_err(|_| fail("the server's name"))?)
}

/// What the server publishes: that it takes first flights by lookups, sealed to `key`, with certificates of this one's verifier.
fn published(key: [u8; 32], certificate: &ClientCertificate) -> Option<Published> {
    let dns_path = Some(DnsPathParam { key_id: KEY_ID, key, zone: Zone::new(ZONE)? });
    let udp = UdpService { port: NonZeroU16::new(UDP_PORT)?, dns_path };
    let ids = [certificate.verifier().id().0];
    let parameter = ServiceParam::new(false, Some(udp), MSS, VerifierIds::new(&ids)?, false)?;
    let mut bytes = [0; ServiceParam::MAX_LEN];
    let len = parameter.emit(&mut bytes).ok()?;
    Published::read(bytes.get(..len)?, u32::MAX)
}

fn fail(what: &'static str) -> DemoError {
    DemoError::Visit(what, io::ErrorKind::InvalidData.into())
}

fn front(dns_path: DnsPathKey, relay: &RelayKey, time: &Time, random: &mut ChaCha20Rng) -> Option<Front> {
    let IpAddr::V4(server) = CERTIFICATES.ip() else { return None };
    let text =
        format!("@ 60 IN SOA ns hostmaster 1 60 60 60 60\n@ IN NS ns\nns IN A {server}\nwww IN A {server}\n");
    let zone = ZoneData::parse(&text, None, &"xyz.com.".parse().ok()?).ok()?;
    let mut front = Front::new(vec![zone], RateLimit::default()).ok()?;
    let boot = u32::try_from(time.unix().as_secs()).ok()?;
    let config = DnsPathConfig {
        zone: "f.xyz.com.".parse().ok()?,
        addresses: vec![server],
        keys: DnsPathKeys::new(KEY_ID, dns_path),
        to: Destination::Relay {
            servers: vec![RelayServer {
                address: SocketAddr::new(server.into(), UDP_PORT),
                sender: RelaySender::new(relay, 1, 1, Boot(boot)),
            }],
            policy: Box::new(RoundRobin::default()),
        },
        limits: ReassemblyLimits::default(),
        opens_per_second: DnsPathConfig::OPENS_PER_SECOND,
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
    case: LookupCase,
    front: Front,
    relays: RelayReceiver,
    random: ChaCha20Rng,
}

impl Resolver {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while a message travels, for this fraction of the round-trip time between client and server.
    async fn travel(&self, from: PacketPlace, to: PacketPlace, share: f64, part: LabelPart) {
        let takes = self.rtt.mul_f64(share);
        self.log.travels(from, to, takes, part);
        self.time.sleep(takes).await;
    }

    /// The addresses of the server's name.
    async fn addresses(self) -> io::Result<Vec<IpAddr>> {
        let mut query = Message::new(0, MessageType::Query, OpCode::Query);
        query.metadata.recursion_desired = true;
        let name = Name::from_ascii(format!("{NAME}.")).map_err(io::Error::other)?;
        query.add_query(Query::query(name, RecordType::A));
        let answer = self.answer(query.to_vec().map_err(io::Error::other)?).await?;
        let answer = Message::from_vec(&answer).map_err(io::Error::other)?;
        Ok(answer.answers.iter().filter_map(|record| record.data.ip_addr()).collect())
    }

    /// The answer to `query`, at the time when the client receives it.
    async fn answer(self, query: Vec<u8>) -> io::Result<Vec<u8>> {
        use PacketPlace::{Client, NameServer, Resolver, Server};

        let address = query.windows(4).any(|four| four == b"\x03www");
        let asks = if address { LabelPart::Query } else { LabelPart::Name };
        self.travel(Client, Resolver, LookupCase::RESOLVER, asks).await;
        let case = self.lock().case;
        let (there, relay) = case.shares();
        // The names of a first flight are new each time.
        let cached = case == LookupCase::Cached && address;
        if !cached {
            self.travel(Resolver, NameServer, there, asks).await;
        }
        let NameAnswer { message, relays } = self.lock().handle(&query, &self.time);
        for datagram in relays {
            let resolver = self.clone();
            tokio::spawn(async move {
                resolver.travel(NameServer, Server, relay, LabelPart::Request).await;
                resolver.hand_over(&datagram);
            });
        }
        if !cached {
            self.travel(NameServer, Resolver, there, LabelPart::Answer).await;
        }
        self.travel(Resolver, Client, LookupCase::RESOLVER, LabelPart::Answer).await;
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
struct NameAnswer {
    message: Option<Vec<u8>>,
    relays: Vec<Vec<u8>>,
}

impl State {
    fn handle(&mut self, query: &[u8], time: &Time) -> NameAnswer {
        let mono = time.certificate_clock().unwrap_or(Instant::ZERO);
        let clock = Clock { mono, unix_ms: unix_ms(time), uncertainty: Duration::ZERO };
        let from = Ipv4Addr::LOCALHOST.into();
        let message = self.front.handle_query(mono, from, Transport::Udp, query, &mut self.random);
        let relays = std::iter::from_fn(|| self.front.poll_relay(&clock)).map(|relay| relay.datagram);
        NameAnswer { message, relays: relays.collect() }
    }
}
