//! The demonstration's lookups: a resolver and a name server in this process, at distances of their own. Only the
//! resolver is a real socket, on the loopback device.

use super::{CERTIFICATES, CLIENT, UDP_PORT};
use crate::error::Error;
use crate::get::record::Names;
use firstflight::carriage::{DnsPath, Manners, Proof, Server};
use firstflight::credential::NetworkId;
use firstflight::wire::asap::{Carriage, UdpService, Zone};
use firstflight::wire::{Clock, Instant};
use firstflight::{ConnectConfig, Endpoint, FirstFlight, RelayedFlight, Stream};
use firstflight_dns::front::{RateLimit, RoundRobin};
use firstflight_dns::relay::MAX_RELAY;
use firstflight_dns::{
    Boot, CarriageConfig, CarriageKey, CarriageKeys, Destination, Front, OpenBuffer, ReassemblyLimits,
    RelayKey, RelayReceiver, RelaySender, RelayServer, Transport, ZoneData,
};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::sleep;

const NAME: &str = "www.xyz.com";
const ZONE: &[u8] = b"\x01f\x03xyz\x03com\x00";
const KEY_ID: NonZeroU8 = NonZeroU8::MIN;

/// Where the name server is, and what the resolver knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// The resolver has the address.
    Cached,
    /// The name server is at the server's site.
    Near,
    /// The name server is as far from the server as the client is.
    Far,
}

/// One-way times, by case, as shares of the round-trip time between client and server.
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
    names: Names,
    path: DnsPath,
    key: [u8; 32],
    state: Arc<Mutex<State>>,
}

struct State {
    case: Case,
    front: Front,
    relays: RelayReceiver,
    random: ChaCha20Rng,
}

impl Lookups {
    /// For `client`, of the name of `server`, whose round-trip time is `rtt`.
    pub async fn open(client: &Endpoint, server: &Endpoint, rtt: Duration) -> Result<Self, Error> {
        let mut seed = zeroize::Zeroizing::new([0; 32]);
        firstflight::random_bytes(&mut *seed).map_err(Error::Random)?;
        let mut random = ChaCha20Rng::from_seed(*seed);
        let (carriage, relay) = (CarriageKey::generate(&mut random), RelayKey::generate(&mut random));
        let key = carriage.public();
        let front = front(carriage, &relay, &mut random).ok_or_else(|| fail("the name server's zone"))?;
        let mut relays = RelayReceiver::new();
        relays.set_key(1, &relay);
        let state = Arc::new(Mutex::new(State { case: Case::Near, front, relays, random }));
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(Error::Runtime)?;
        let resolver = socket.local_addr().map_err(Error::Runtime)?;
        tokio::spawn(resolve(Arc::new(socket), Arc::clone(&state), server.clone(), rtt));
        let seen = SocketAddr::new(CLIENT, UDP_PORT);
        let proof = Some(Proof { seen, verifier: CERTIFICATES, at: std::time::Instant::now() });
        let path = DnsPath::new(client.clone(), resolver, NetworkId::UNKNOWN, proof, Manners::new(), false);
        Ok(Self { names: Names::at(resolver)?, path, key, state })
    }

    /// From now on it is like this.
    pub fn set(&self, case: Case) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).case = case;
    }

    /// The lookup alone.
    pub async fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        self.names.addresses(NAME, true).await
    }

    /// The request inside the lookup, and directly when the address is there.
    pub async fn connect(&self, first: FirstFlight<'_>, config: &ConnectConfig) -> io::Result<Stream> {
        let zone = Zone::new(ZONE).ok_or(io::ErrorKind::InvalidInput)?;
        let carriage = Some(Carriage { key_id: KEY_ID, key: self.key, zone });
        let port = NonZeroU16::new(UDP_PORT).ok_or(io::ErrorKind::InvalidInput)?;
        let server = Server { port: CERTIFICATES.port(), service: Some(UdpService { port, carriage }) };
        Ok(self.path.connect(server, self.addresses(), first, config).await?.0)
    }
}

fn fail(what: &'static str) -> Error {
    Error::Demo(what, io::ErrorKind::InvalidData.into())
}

fn front(carriage: CarriageKey, relay: &RelayKey, random: &mut ChaCha20Rng) -> Option<Front> {
    let IpAddr::V4(server) = CERTIFICATES.ip() else { return None };
    let text =
        format!("@ 60 IN SOA ns hostmaster 1 60 60 60 60\n@ IN NS ns\nns IN A {server}\nwww IN A {server}\n");
    let zone = ZoneData::parse(&text, None, &"xyz.com.".parse().ok()?).ok()?;
    let mut front = Front::new(vec![zone], RateLimit::default()).ok()?;
    let boot = u32::try_from(firstflight::unix_ms() / 1000).ok()?;
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

/// What the name server has for others.
struct Answered {
    message: Option<Vec<u8>>,
    relays: Vec<Vec<u8>>,
}

impl State {
    fn handle(&mut self, query: &[u8]) -> Answered {
        let mono = firstflight::certificate_clock().unwrap_or(Instant::ZERO);
        let clock = Clock { mono, unix_ms: firstflight::unix_ms(), uncertainty: Duration::ZERO };
        let from = Ipv4Addr::LOCALHOST.into();
        let message = self.front.handle_query(mono, from, Transport::Udp, query, &mut self.random);
        let relays = std::iter::from_fn(|| self.front.poll_relay(&clock)).map(|relay| relay.datagram);
        Answered { message, relays: relays.collect() }
    }
}

/// The resolver: it asks the name server for what it does not have.
async fn resolve(socket: Arc<UdpSocket>, state: Arc<Mutex<State>>, server: Endpoint, rtt: Duration) {
    let mut buffer = [0; MAX_RELAY];
    while let Ok((len, client)) = socket.recv_from(&mut buffer).await {
        let query = buffer.get(..len).unwrap_or_default().to_vec();
        let (socket, state, server) = (Arc::clone(&socket), Arc::clone(&state), server.clone());
        tokio::spawn(async move {
            sleep(rtt.mul_f64(Case::RESOLVER)).await;
            let case = state.lock().unwrap_or_else(PoisonError::into_inner).case;
            let (there, relay) = case.shares();
            // Names of first flights are new each time.
            let cached = case == Case::Cached && query.windows(4).any(|four| four == b"\x03www");
            if !cached {
                sleep(rtt.mul_f64(there)).await;
            }
            let Answered { message, relays } =
                state.lock().unwrap_or_else(PoisonError::into_inner).handle(&query);
            for datagram in relays {
                let (state, server) = (Arc::clone(&state), server.clone());
                tokio::spawn(async move {
                    sleep(rtt.mul_f64(relay)).await;
                    hand_over(&state, &server, &datagram);
                });
            }
            sleep(rtt.mul_f64(Case::RESOLVER + if cached { 0.0 } else { there })).await;
            if let Some(message) = message {
                // The client has gone: nobody waits for it.
                let _ = socket.send_to(&message, client).await;
            }
        });
    }
}

fn hand_over(state: &Mutex<State>, server: &Endpoint, datagram: &[u8]) {
    let mut buffer = OpenBuffer::new();
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(relayed) = state.relays.handle_datagram(datagram, firstflight::unix_ms(), &mut buffer) else {
        return;
    };
    let segment = relayed.ci.segment();
    server.handle_relayed(RelayedFlight {
        client: SocketAddr::new(relayed.ci.address, relayed.ci.outer_port.get()),
        server: CERTIFICATES.ip(),
        segment: &segment,
        key: relayed.reply,
        seen_as: None,
    });
}
