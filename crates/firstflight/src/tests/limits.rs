//! A client, a server with its front, and a resolver whose behaviour the test chooses, in virtual time: 5 ms from the
//! client to the resolver, 25 ms from the resolver to the front, 25 ms between client and server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use super::certified::{PORT, connect_config, policy};
use crate::dns_path::{DnsPath, Exchange, Form, HeldBack, LookupWay, Proof, Server};
use firstflight::credential::NetworkId;
use firstflight::credential::asap::{ClientCertificate, PrivateKey, certify};
use firstflight::link::{PathConfig, VirtualTime, virtual_time_pair};

use firstflight::{
    EncapsulationConfig, Endpoint, FirstFlight, ListenConfig, RelayedFlight, Time, block_on_virtual,
};
use firstflight_dns::front::{RateLimit, RoundRobin};
use firstflight_dns::{
    Boot, Destination, DnsPathConfig, DnsPathKey, DnsPathKeys, Front, Manners, OpenBuffer, ReassemblyLimits,
    RelayKey, RelayReceiver, RelaySender, RelayServer, Transport,
};
use firstflight_wire::asap::{CertificateFlags, DnsPathParam, UdpService, Zone};
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// DNS-path zones. The front serves zone A. The key is the same for all zones; it matters only when a flight is
/// opened.
pub(super) const A: &[u8] = b"\x01f\x01a\x03com\x00";
pub(super) const B: &[u8] = b"\x01f\x01b\x03com\x00";
pub(super) const C: &[u8] = b"\x01f\x01c\x03com\x00";
pub(super) const D: &[u8] = b"\x01f\x01d\x03com\x00";
/// Number of names of a first flight.
pub(super) const NAMES: usize = 6;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 80));
/// An address of the server's host without a listener.
pub(super) const REFUSES: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 81));
const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53)), 53);
const UDP_PORT: u16 = 4433;
const REQUEST: &[u8] = b"GET / HTTP/1.1";
const KEY_ID: NonZeroU8 = NonZeroU8::MIN;
const TO_RESOLVER: Duration = Duration::from_millis(5);
const TO_FRONT: Duration = Duration::from_millis(25);
const LATE: Duration = Duration::from_millis(50);
/// How long the client's library waits for an answer before it asks again, as hickory does.
const ASK_AGAIN: Duration = Duration::from_millis(333);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    Address,
    Name,
}

/// What the resolver does with a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Pass,
    /// It passes the question on 50 ms later.
    Late,
    /// It has the address in its cache.
    Cached,
    Drop,
    /// It asks the front, but its answer is lost.
    PassInSilence,
    /// It answers with this response code.
    Code(u8),
}

/// A rate limiter in front of the resolver, like dnsdist's `MaxQPSIPRule`: a token bucket that holds one second's
/// questions.
pub(super) struct Limit {
    rate: f64,
    left: f64,
    since: Duration,
    excess: Excess,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Excess {
    Drop,
    Refuse,
}

impl Limit {
    pub(super) fn new(rate: u32, excess: Excess) -> Self {
        Self { rate: rate.into(), left: rate.into(), since: Duration::ZERO, excess }
    }

    /// Decides about a question that arrives at time `at`.
    pub(super) fn decide(&mut self, at: Duration) -> Act {
        self.left = (self.left + (at - self.since).as_secs_f64() * self.rate).min(self.rate);
        self.since = at;
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Act::Pass;
        }
        match self.excess {
            Excess::Drop => Act::Drop,
            Excess::Refuse => Act::Code(5),
        }
    }
}

/// Runs a test in virtual time.
pub(super) fn run(test: impl AsyncFnOnce(VirtualTime)) {
    let time = VirtualTime::new(Duration::from_millis(firstflight::unix_ms()));
    block_on_virtual(&time, test(time.clone())).unwrap();
}

pub(super) fn zone(bytes: &[u8]) -> Zone<'_> {
    Zone::new(bytes).unwrap()
}

type Rule = Box<dyn FnMut(Question, Duration) -> Act + Send>;

/// The resolver.
#[derive(Clone)]
struct Resolver(Arc<Mutex<State>>);

struct State {
    time: Time,
    began: Instant,
    rule: Rule,
    /// What the resolver does with names of these zones.
    zones: HashMap<&'static [u8], Act>,
    /// Questions in the order in which they left the client.
    sent: Vec<Question>,
    front: Front,
    relays: RelayReceiver,
    rng: ChaCha20Rng,
    server: Endpoint,
}

impl Resolver {
    fn elapsed(&self) -> Duration {
        let state = self.0.lock().unwrap();
        state.time.now() - state.began
    }

    /// Sends a question. Returns what happens to it, when it has reached the resolver. Questions arrive in the order
    /// in which they were sent.
    async fn asked(&self, question: Question) -> (Time, Act) {
        let arrives = self.elapsed() + TO_RESOLVER;
        let (time, act) = {
            let state = &mut *self.0.lock().unwrap();
            state.sent.push(question);
            (state.time.clone(), (state.rule)(question, arrives))
        };
        time.sleep(TO_RESOLVER).await;
        (time, act)
    }

    /// The client library's address lookup.
    async fn address(self, found: Vec<IpAddr>) -> io::Result<Vec<IpAddr>> {
        // The library opens a socket and asks in its own task.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        for _ in 0..4 {
            let (time, act) = self.asked(Question::Address).await;
            match act {
                Act::Pass | Act::Late | Act::PassInSilence => {
                    time.sleep(TO_FRONT * 2 + TO_RESOLVER).await;
                    return Ok(found);
                }
                Act::Cached => {
                    time.sleep(TO_RESOLVER).await;
                    return Ok(found);
                }
                Act::Code(_) => {
                    time.sleep(TO_RESOLVER).await;
                    return Err(io::Error::other("refused"));
                }
                Act::Drop => time.sleep(ASK_AGAIN - TO_RESOLVER).await,
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// The answer to a name of a first flight.
    async fn name(self, query: Vec<u8>) -> io::Result<Vec<u8>> {
        let (time, mut act) = self.asked(Question::Name).await;
        let of = |zone: &[u8]| query.windows(zone.len()).any(|part| part == zone);
        if let Some((_, other)) = self.0.lock().unwrap().zones.iter().find(|(zone, _)| of(zone)) {
            act = *other;
        }
        if act == Act::Drop {
            return pending().await;
        }
        if act == Act::Late {
            time.sleep(LATE).await;
        }
        if matches!(act, Act::Pass | Act::Late | Act::PassInSilence) {
            time.sleep(TO_FRONT).await;
        }
        let mut answer = self.at_front(&query, act);
        match act {
            Act::Code(code) => answer[3] = answer[3] & 0xf0 | code,
            Act::PassInSilence => return pending().await,
            _ => time.sleep(TO_FRONT).await,
        }
        time.sleep(TO_RESOLVER).await;
        Ok(answer)
    }

    fn at_front(&self, query: &[u8], act: Act) -> Vec<u8> {
        let state = &mut *self.0.lock().unwrap();
        let (now, unix_ms) = (state.time.now(), state.time.unix().as_millis() as u64);
        let from = Ipv4Addr::LOCALHOST.into();
        let answer = state.front.handle_query(now, from, Transport::Udp, query, &mut state.rng).unwrap();
        let clock = Clock { mono: now, unix_ms, uncertainty: Duration::ZERO };
        while let Some(relay) = state.front.poll_relay(&clock) {
            if matches!(act, Act::Code(_)) {
                continue;
            }
            let mut open = OpenBuffer::new();
            let relayed = state.relays.handle_datagram(&relay.datagram, unix_ms, &mut open).unwrap();
            let segment = relayed.ci.segment();
            state.server.handle_relayed(RelayedFlight {
                client: SocketAddr::new(relayed.ci.address, relayed.ci.outer_port.get()),
                server: SERVER,
                segment: &segment,
                key: relayed.reply,
                seen_as: None,
            });
        }
        answer
    }
}

pub(super) struct World {
    pub path: DnsPath,
    /// The addresses that the server's name resolves to.
    pub addresses: Vec<IpAddr>,
    resolver: Resolver,
    time: Time,
    key: [u8; 32],
    certificate: Arc<ClientCertificate>,
    executed: Arc<AtomicU64>,
    client: Endpoint,
}

/// A fetch that succeeded.
#[derive(Debug)]
pub(super) struct Fetched {
    pub way: LookupWay,
    pub held_back: Option<HeldBack>,
    pub took: Duration,
}

impl World {
    pub(super) fn new(
        time: &VirtualTime,
        rule: impl FnMut(Question, Duration) -> Act + Send + 'static,
    ) -> Self {
        let path = PathConfig::with_delay(Duration::from_millis(25));
        let (near, far) = virtual_time_pair(path.clone(), path, 1, time).unwrap();
        let time = Time::from(time.clone());
        let engine = |addresses| {
            let mut config = firstflight::config(addresses).unwrap();
            config.encapsulation = Some(EncapsulationConfig::new(UDP_PORT));
            config
        };
        let client = Endpoint::in_time(engine(vec![CLIENT]), near, &time);
        let server = Endpoint::in_time(engine(vec![SERVER, REFUSES]), far, &time);
        let verifier = PrivateKey::from_seed(&[1; 32]);
        let executed = serve(&server, &verifier);

        let mut rng = ChaCha20Rng::from_seed([7; 32]);
        let (dns_path, relay) = (DnsPathKey::generate(&mut rng), RelayKey::generate(&mut rng));
        let key = dns_path.public();
        let front = front(dns_path, &relay, &time, &mut rng);
        let mut relays = RelayReceiver::new();
        relays.set_key(1, &relay);
        let state = State {
            began: time.now(),
            time: time.clone(),
            rule: Box::new(rule),
            zones: HashMap::new(),
            sent: Vec::new(),
            front,
            relays,
            rng,
            server,
        };
        let resolver = Resolver(Arc::new(Mutex::new(state)));
        let asked = resolver.clone();
        let exchange = Exchange::new(move |query| asked.clone().name(query));
        let seen = SocketAddr::new(CLIENT, UDP_PORT);
        let verified = SocketAddr::new(SERVER, 9);
        let proof = Some(Proof { seen, verifier: verified, at: std::time::Instant::now() });
        let network = NetworkId([3; 16]);
        let (endpoint, exchange) = (client.clone(), Some(exchange));
        let path =
            DnsPath::new(endpoint, RESOLVER, exchange, network, proof, Manners::new(), Form::default());
        let certificate = Arc::new(certificate(&verifier, &time));
        let addresses = vec![SERVER];
        Self { path, addresses, resolver, time, key, certificate, executed, client }
    }

    /// Sets what the resolver does with names of `zone` from now on.
    pub(super) fn set_zone(&self, zone: &'static [u8], act: Act) {
        self.resolver.0.lock().unwrap().zones.insert(zone, act);
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.resolver.elapsed()
    }

    pub(super) fn executed(&self) -> u64 {
        self.executed.load(Ordering::Relaxed)
    }

    /// Connections of the client.
    pub(super) fn connections(&self) -> usize {
        self.client.connections()
    }

    pub(super) fn sent(&self) -> Vec<Question> {
        self.resolver.0.lock().unwrap().sent.clone()
    }

    pub(super) async fn pause(&self, duration: Duration) {
        self.time.sleep(duration).await;
    }

    /// Fetches from the server, whose DNS-path zone is `zone`.
    pub(super) async fn fetch(&self, zone: &[u8]) -> io::Result<Fetched> {
        self.fetch_from(Some(self::zone(zone))).await
    }

    /// Fetches from the server, which is not known to take requests inside lookups.
    pub(super) async fn ordinary(&self) -> io::Result<Fetched> {
        self.fetch_from(None).await
    }

    pub(super) async fn four_at_once(&self) -> [Fetched; 4] {
        let fetched = tokio::join!(self.fetch(A), self.fetch(A), self.fetch(A), self.fetch(A));
        [fetched.0.unwrap(), fetched.1.unwrap(), fetched.2.unwrap(), fetched.3.unwrap()]
    }

    async fn fetch_from(&self, zone: Option<Zone<'_>>) -> io::Result<Fetched> {
        let began = self.time.now();
        let dns_path = zone.map(|zone| DnsPathParam { key_id: KEY_ID, key: self.key, zone });
        let port = NonZeroU16::new(UDP_PORT).unwrap();
        let server = Server { port: PORT, service: Some(UdpService { port, dns_path }) };
        let config = connect_config(&self.certificate, UDP_PORT);
        let lookup = || self.resolver.clone().address(self.addresses.clone());
        let first = FirstFlight::safely_replayable(REQUEST);
        let (mut stream, report) = self.path.connect(server, lookup, first, &config).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        assert_eq!(answer, REQUEST);
        Ok(Fetched { way: report.way, held_back: report.held_back, took: self.time.now() - began })
    }
}

/// Echoes requests, and counts them.
fn serve(server: &Endpoint, verifier: &PrivateKey) -> Arc<AtomicU64> {
    let mut listen = ListenConfig::new(SocketAddr::new(SERVER, PORT));
    listen.asap = Some(policy(verifier));
    let listener = server.listen(listen).unwrap();
    let executed = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&executed);
    tokio::spawn(async move {
        while let Ok(mut stream) = listener.accept().await {
            let executed = Arc::clone(&counter);
            tokio::spawn(async move {
                let mut request = [0; 1000];
                let len = stream.read(&mut request).await?;
                executed.fetch_add(u64::from(len > 0), Ordering::Relaxed);
                stream.write_all(&request[..len]).await?;
                stream.shutdown().await
            });
        }
    });
    executed
}

fn front(dns_path: DnsPathKey, relay: &RelayKey, time: &Time, rng: &mut ChaCha20Rng) -> Front {
    let sender = RelaySender::new(relay, 1, 1, Boot(time.unix().as_secs() as u32));
    let config = DnsPathConfig {
        zone: "f.a.com.".parse().unwrap(),
        addresses: vec![Ipv4Addr::LOCALHOST],
        keys: DnsPathKeys::new(KEY_ID, dns_path),
        to: Destination::Relay {
            servers: vec![RelayServer { address: SocketAddr::new(SERVER, 9), sender }],
            policy: Box::new(RoundRobin::default()),
        },
        limits: ReassemblyLimits::default(),
        opens_per_second: DnsPathConfig::OPENS_PER_SECOND,
    };
    let mut front = Front::new(Vec::new(), RateLimit::default()).unwrap();
    front.carry(config, rng).unwrap();
    front
}

fn certificate(verifier: &PrivateKey, time: &Time) -> ClientCertificate {
    let key = PrivateKey::from_seed(&[2; 32]);
    let flags = CertificateFlags::new(1, true, false).unwrap();
    let begins = time.unix().as_secs() as u32;
    let body = certify(verifier, &key.public(), CLIENT, begins, 1800, flags).unwrap();
    let obtained = time.certificate_clock().unwrap();
    ClientCertificate::new(body, verifier.public(), CLIENT, key, obtained).unwrap()
}
