//! One client, its resolver, a name server and a server, and the messages between them.

use super::client::Client;
use super::names::{Handed, NameServer, Resolved, Resolver};
use super::{Case, Distances, Measured, Way};
use crate::certified;
use firstflight_credential::asap::AsapPolicy;
use firstflight_credential::{
    CookieKey, FastOpenPolicy, GuardKey, KeyRing, PendingLimit, ReplayTable, Scheme, Window,
};
use firstflight_dns::{CarriageKey, OpenBuffer, RelayKey, RelayReceiver};
use firstflight_stack::{CarrierConfig, Config, ConnId, ListenConfig, ListenerId, RelayedFlight, Stack};
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 80);
pub const PORT: u16 = 80;
/// UDP ports of the carrier.
pub const CLIENT_UDP: u16 = 5000;
pub const SERVER_UDP: u16 = 4433;
pub const REQUEST: &[u8] = b"GET /object\r\n\r\n";
/// The wall clock when an experiment begins, Unix seconds.
const UNIX_S: u64 = 1_800_000_000;
/// The maximum time for a page. A page that takes longer never arrives.
const PATIENCE: Duration = Duration::from_secs(60);

/// Something that arrives.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arrival {
    Client(Vec<u8>),
    Server(Vec<u8>),
    /// A question at the resolver, and an answer at the client.
    Question(Vec<u8>),
    Answer(Vec<u8>),
    /// The resolver's question at the name server.
    Asked(Vec<u8>),
    /// A relay datagram at the server.
    Relay(Vec<u8>),
    /// A SYN in the thesis' form at the server, from the name server.
    Syn(Vec<u8>),
}

/// The experiment.
pub struct World {
    pub now: Instant,
    pub client: Client,
    server: Stack,
    listener: ListenerId,
    open: BTreeMap<ConnId, (Vec<u8>, usize)>,
    resolver: Resolver,
    names: NameServer,
    relays: RelayReceiver,
    distances: Distances,
    size: usize,
    executed: u32,
    /// Whether the copy inside the lookup reached the server first.
    by_lookup: Option<bool>,
    events: BinaryHeap<Reverse<(Instant, u64, Arrival)>>,
    count: u64,
    out: Vec<u8>,
}

pub fn clock(now: Instant) -> Clock {
    let unix_ms = UNIX_S * 1000 + now.as_millis();
    Clock { mono: now, unix_ms, uncertainty: Duration::ZERO }
}

/// A stack at `ip` with TCP in UDP at `port`.
pub fn stack(ip: IpAddr, port: u16, secret: u8) -> Stack {
    let mut config = Config::new(vec![ip], [secret; 32]);
    config.carrier = Some(CarrierConfig::new(port).probe(false));
    config.tcp.nodelay = true;
    let mut stack = Stack::new(config, Instant::ZERO);
    stack.handle_clock(clock(Instant::ZERO));
    stack
}

fn policy() -> Option<AsapPolicy> {
    let guard =
        ReplayTable::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS, 1 << 16, (UNIX_S - 600) * 1000);
    let policy = certified::policy(true, Arc::new(guard), &Arc::new(PendingLimit::new(64)))?;
    Some(AsapPolicy { relayed: Some(Arc::new(PendingLimit::with_clients(64, 4))), ..policy })
}

impl World {
    /// Creates everything. The client has visited the server before, so it has a cookie and a certificate and knows
    /// what the server publishes.
    pub fn new(case: Case, distances: Distances, size: usize, label_by_label: u32) -> Self {
        let mut random = ChaCha20Rng::from_seed([21; 32]);
        let (relay, carriage) = (RelayKey::generate(&mut random), CarriageKey::generate(&mut random));
        let published = carriage.public();
        let mut server = stack(SERVER.into(), SERVER_UDP, 2);
        let keys = Arc::new(KeyRing::new(Scheme::default(), CookieKey::from_bytes([5; 16])));
        let mut listen = ListenConfig::new(SocketAddr::new(SERVER.into(), PORT));
        listen.fast_open = Some(FastOpenPolicy::new(keys, Arc::new(PendingLimit::new(64))));
        listen.asap = policy();
        let listener = server.listen(listen).unwrap_or_else(|_| unreachable!("nobody else listens"));
        let mut relays = RelayReceiver::new();
        relays.set_key(1, &relay);
        let names = NameServer::new(SERVER, &relay, carriage, UNIX_S as u32)
            .unwrap_or_else(|| unreachable!("zones and keys are constants"));
        let mut world = Self {
            now: Instant::ZERO,
            client: Client::new(published, UNIX_S),
            server,
            listener,
            open: BTreeMap::new(),
            resolver: Resolver { case, label_by_label, server: SERVER },
            names,
            relays,
            distances,
            size,
            executed: 0,
            by_lookup: None,
            events: BinaryHeap::new(),
            count: 0,
            out: vec![0; 2048],
        };
        world.visit_before();
        world
    }

    /// An earlier visit, which gets the cookie.
    fn visit_before(&mut self) {
        self.client.begin(Way::Today, self.now, true);
        self.client.resolved(self.now);
        self.run(false);
        (self.executed, self.by_lookup) = (0, None);
        self.client.forget();
        self.now += Duration::from_secs(1);
    }

    /// Fetches one page.
    pub fn fetch(&mut self, way: Way) -> Option<Measured> {
        let began = self.now;
        for question in self.client.begin(way, self.now, false) {
            self.later(self.distances.resolver / 2, Arrival::Question(question));
        }
        self.run(true);
        Some(Measured {
            way,
            first_byte: self.client.first_byte()? - began,
            total: self.client.whole()? - began,
            by_lookup: self.by_lookup.unwrap_or_default(),
            executed: self.executed,
        })
    }

    fn later(&mut self, after: Duration, arrival: Arrival) {
        self.count += 1;
        self.events.push(Reverse((self.now + after, self.count, arrival)));
    }

    /// Runs until nothing more happens or, if `enough` is set, until the client has the page.
    fn run(&mut self, enough: bool) {
        let end = self.now + PATIENCE;
        loop {
            self.serve();
            self.flush();
            if enough && self.client.whole().is_some() {
                return;
            }
            let timers = [self.client.poll_timeout(), self.server.poll_timeout()];
            let arrival = self.events.peek().map(|Reverse((at, ..))| *at);
            let Some(next) = timers.into_iter().chain([arrival]).flatten().min() else { return };
            if next > end {
                return;
            }
            self.now = self.now.max(next);
            while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= self.now) {
                if let Some(Reverse((_, _, arrival))) = self.events.pop() {
                    self.arrive(arrival);
                }
            }
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let Distances { resolver, front, relay, .. } = self.distances;
        match arrival {
            Arrival::Client(packet) => self.client.handle_packet(self.now, &packet),
            Arrival::Server(packet) => {
                self.by_lookup.get_or_insert(false);
                self.server.handle_packet(self.now, &packet);
            }
            Arrival::Syn(packet) => {
                self.by_lookup.get_or_insert(true);
                self.server.handle_packet(self.now, &packet);
            }
            Arrival::Question(query) => match self.resolver.handle(&query) {
                Some(Resolved::Answer(answer)) => self.later(resolver / 2, Arrival::Answer(answer)),
                Some(Resolved::Ask(rounds)) => self.later(front * rounds + front / 2, Arrival::Asked(query)),
                None => {}
            },
            Arrival::Asked(query) => {
                let (answer, handed) = self.names.handle(self.now, &clock(self.now), &query);
                if let Some(answer) = answer {
                    self.later(front / 2 + resolver / 2, Arrival::Answer(answer));
                }
                for handed in handed {
                    let arrival = match handed {
                        Handed::Relay(datagram) => Arrival::Relay(datagram),
                        Handed::Syn(packet) => Arrival::Syn(packet),
                    };
                    self.later(relay / 2, arrival);
                }
            }
            Arrival::Answer(answer) => self.client.handle_answer(self.now, &answer),
            Arrival::Relay(datagram) => {
                self.by_lookup.get_or_insert(true);
                self.take_relay(&datagram);
            }
        }
    }

    fn take_relay(&mut self, datagram: &[u8]) {
        let mut buffer = OpenBuffer::new();
        let unix_ms = clock(self.now).unix_ms;
        let Ok(relayed) = self.relays.handle_datagram(datagram, unix_ms, &mut buffer) else { return };
        let segment = relayed.ci.segment();
        let client = SocketAddr::new(relayed.ci.address, relayed.ci.outer_port.get());
        let flight = RelayedFlight {
            client,
            server: SERVER.into(),
            segment: &segment,
            key: relayed.reply,
            seen_as: None,
        };
        self.server.handle_relayed(self.now, flight);
    }

    /// The server verifies signatures, reads requests and answers.
    fn serve(&mut self) {
        let mut random = ChaCha20Rng::from_seed([9; 32]);
        while let Some(flights) = self.server.poll_verifications() {
            let verdicts = flights.verify(&mut random);
            self.server.handle_verified(flights, &verdicts, self.now);
        }
        while let Some(id) = self.server.accept(self.listener) {
            self.open.insert(id, (Vec::new(), self.size));
        }
        while self.server.poll_event().is_some() {}
        let now = self.now;
        for (id, (request, left)) in &mut self.open {
            let mut buffer = [0; 256];
            while let Ok(len @ 1..) = self.server.read(*id, &mut buffer, now) {
                request.extend_from_slice(&buffer[..len]);
                self.executed += u32::from(request.ends_with(b"\r\n\r\n"));
            }
            if request.ends_with(b"\r\n\r\n") && *left > 0 {
                let body = vec![b'.'; *left];
                *left -= self.server.write(*id, &body, now).unwrap_or_default();
                if *left == 0 {
                    let _ = self.server.shutdown(*id, now);
                }
            }
        }
    }

    fn flush(&mut self) {
        let one_way = self.distances.server / 2;
        let mut out = std::mem::take(&mut self.out);
        while let Some(len) = self.client.poll_transmit(self.now, &mut out) {
            self.later(one_way, Arrival::Server(out[..len].to_vec()));
        }
        while let Some(len) = self.server.poll_transmit(self.now, &mut out) {
            self.later(one_way, Arrival::Client(out[..len].to_vec()));
        }
        self.out = out;
    }
}
