//! One client, its resolver, a name server and a server, and the messages between them.

use super::client::Client;
use super::names::{Handed, NameServer, Resolved, Resolver, asked};
use super::rough::{Rough, RoughHop};
use super::{Distances, MeasuredPage, RequestWay, ResolverCase, Resolving};
use crate::certified;
use firstflight_credential::asap::AsapPolicy;
use firstflight_credential::{
    CookieKey, FastOpenPolicy, GuardKey, KeyRing, PendingLimit, ReplayTable, Scheme, Window,
};
use firstflight_dns::{DnsPathKey, OpenBuffer, RelayKey, RelayReceiver};
use firstflight_stack::{
    Config, ConnId, EncapsulationConfig, ListenConfig, ListenerId, RelayedFlight, Stack,
};
use firstflight_tcp::congestion::InitialWindow;
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 80);
pub const PORT: u16 = 80;
/// UDP ports of the encapsulation.
pub const CLIENT_UDP: u16 = 5000;
pub const SERVER_UDP: u16 = 4433;
pub const REQUEST: &[u8] = b"GET /object\r\n\r\n";
/// The first line of a request that is too long for the names of a lookup, and its other lines.
pub const FIRST_LINE: &[u8] = b"GET /object HTTP/1.1\r\n";
pub const REST: [u8; 600] = {
    let mut rest = [b'h'; 600];
    [rest[596], rest[597], rest[598], rest[599]] = *b"\r\n\r\n";
    rest
};
/// When the resolver asks the name server again (BIND 9: 800 ms), and how often it asks in all.
const AGAIN: Duration = Duration::from_millis(800);
const TRIES: u32 = 4;
/// When UDT repeats the message before its handshake.
const GREETING_EVERY: Duration = Duration::from_millis(250);
/// The initial window of UDT's congestion control, packets (draft-gg-udt-03, 6.1).
const UDT_WINDOW: u16 = 16;
/// The wall clock when an experiment begins, Unix seconds.
const UNIX_S: u64 = 1_800_000_000;
/// The maximum time for a page. A page that takes longer never arrives.
const PATIENCE: Duration = Duration::from_secs(60);

/// Something that arrives.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LookupArrival {
    Client(Vec<u8>),
    Server(Vec<u8>),
    /// A question at the resolver, and an answer at the client.
    Question(Vec<u8>),
    Answer(Vec<u8>),
    /// The resolver's question at the name server.
    Asked(Vec<u8>),
    /// The resolver has waited for the answer to this question, this many times.
    Again(Vec<u8>, u32),
    /// A message before UDT's handshake at the server, its answer at the client, and the client's wait for that.
    Greeting,
    Greeted,
    GreetAgain,
    /// A relay datagram at the server.
    Relay(Vec<u8>),
    /// A SYN in the thesis' form at the server, from the name server.
    Syn(Vec<u8>),
}

/// What is tried.
pub struct Setting {
    pub case: ResolverCase,
    pub distances: Distances,
    /// Size of the page, bytes.
    pub size: usize,
    pub way: RequestWay,
    pub resolving: Resolving,
    /// Initial window of both ends; [`RequestWay::UdtLike`] has its own.
    pub window: InitialWindow,
    /// Losses and extra delays.
    pub rough: Option<Rough>,
}

impl Setting {
    /// Nothing is lost, and the resolver is honest.
    pub const fn new(case: ResolverCase, distances: Distances, size: usize, way: RequestWay) -> Self {
        let (resolving, window) = (Resolving::Honest, InitialWindow::Standard);
        Self { case, distances, size, way, resolving, window, rough: None }
    }
}

/// A request at the server.
struct Request {
    received: Vec<u8>,
    begun: bool,
    /// Bytes of the page that are not written yet.
    left: usize,
}

/// The experiment.
pub struct World {
    pub now: Instant,
    pub client: Client,
    /// Whole requests that the server has received.
    pub complete: u32,
    server: Stack,
    listener: ListenerId,
    open: BTreeMap<ConnId, Request>,
    resolver: Resolver,
    names: NameServer,
    relays: RelayReceiver,
    setting: Setting,
    executed: u32,
    /// Whether the copy inside the lookup reached the server first.
    by_lookup: Option<bool>,
    /// Ids of the resolver's questions that were answered.
    answered: BTreeSet<u16>,
    events: BinaryHeap<Reverse<(Instant, u64, LookupArrival)>>,
    count: u64,
    out: Vec<u8>,
}

pub fn clock(now: Instant) -> Clock {
    let unix_ms = UNIX_S * 1000 + now.as_millis();
    Clock { mono: now, unix_ms, uncertainty: Duration::ZERO }
}

/// A stack at `ip` with TCP in UDP at `port`.
pub fn stack(ip: IpAddr, port: u16, secret: u8, window: InitialWindow) -> Stack {
    let mut config = Config::new(vec![ip], [secret; 32]);
    config.encapsulation = Some(EncapsulationConfig::new(port).probe(false));
    config.tcp.set_nodelay(true);
    config.tcp.set_initial_window(window);
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
    pub fn new(mut setting: Setting) -> Self {
        let mut random = ChaCha20Rng::from_seed([21; 32]);
        let (relay, dns_path) = (RelayKey::generate(&mut random), DnsPathKey::generate(&mut random));
        let published = dns_path.public();
        let window = match setting.way {
            RequestWay::UdtLike => InitialWindow::segments(UDT_WINDOW).unwrap_or_default(),
            _ => setting.window,
        };
        let mut server = stack(SERVER.into(), SERVER_UDP, 2, window);
        let keys = Arc::new(KeyRing::new(Scheme::default(), CookieKey::from_bytes([5; 16])));
        let mut listen = ListenConfig::new(SocketAddr::new(SERVER.into(), PORT));
        listen.fast_open = Some(FastOpenPolicy::new(keys, Arc::new(PendingLimit::new(64))));
        listen.asap = policy();
        let listener = server.listen(listen).unwrap_or_else(|_| unreachable!("nobody else listens"));
        let mut relays = RelayReceiver::new();
        relays.set_key(1, &relay);
        let names = NameServer::new(SERVER, &relay, dns_path, UNIX_S as u32)
            .unwrap_or_else(|| unreachable!("zones and keys are constants"));
        if setting.way == RequestWay::Sdns {
            // The resolver knows the server as the name server of the host's name.
            (setting.distances.front, setting.distances.relay) = (setting.distances.server, Duration::ZERO);
        }
        let resolver = Resolver {
            case: setting.case,
            resolving: setting.resolving,
            label_by_label: if let RequestWay::Thesis(rounds) = setting.way { rounds } else { 0 },
            zone_by_zone: u32::from(setting.way == RequestWay::NewZone),
            server: SERVER,
        };
        let rough = setting.rough.take();
        let mut world = Self {
            now: Instant::ZERO,
            client: Client::new(published, UNIX_S, setting.window),
            complete: 0,
            server,
            listener,
            open: BTreeMap::new(),
            resolver,
            names,
            relays,
            setting,
            executed: 0,
            by_lookup: None,
            answered: BTreeSet::new(),
            events: BinaryHeap::new(),
            count: 0,
            out: vec![0; 2048],
        };
        world.visit_before();
        world.setting.rough = rough;
        world
    }

    /// An earlier visit, which gets the cookie.
    fn visit_before(&mut self) {
        self.client.begin(RequestWay::Today, self.now, true);
        self.client.resolved(self.now);
        self.run(false);
        (self.executed, self.by_lookup, self.complete) = (0, None, 0);
        self.client.forget();
        self.now += Duration::from_secs(1);
    }

    pub fn fetch(&mut self) -> Option<MeasuredPage> {
        let began = self.now;
        for question in self.client.begin(self.setting.way, self.now, false) {
            self.later(self.setting.distances.resolver / 2, LookupArrival::Question(question));
        }
        self.run(true);
        Some(MeasuredPage {
            way: self.setting.way,
            first_byte: self.client.first_byte()? - began,
            total: self.client.whole()? - began,
            by_lookup: self.by_lookup.unwrap_or_default(),
            executed: self.executed,
        })
    }

    fn later(&mut self, after: Duration, arrival: LookupArrival) {
        self.count += 1;
        self.events.push(Reverse((self.now + after, self.count, arrival)));
    }

    /// Like `later`, on a path that may lose it or bring it later.
    fn send(&mut self, hop: RoughHop, time: Duration, arrival: LookupArrival) {
        let now = self.now;
        let at = match &mut self.setting.rough {
            Some(rough) => rough.arrival(hop, now, time),
            None => Some(now + time),
        };
        if let Some(at) = at {
            self.later(at - now, arrival);
        }
    }

    /// Lets the client's applications receive what comes after the page, for this time.
    #[cfg(test)]
    pub fn go_on(&mut self) {
        self.run(false);
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

    fn arrive(&mut self, arrival: LookupArrival) {
        let Distances { resolver, front, relay, server } = self.setting.distances;
        match arrival {
            LookupArrival::Client(packet) => self.client.handle_packet(self.now, &packet),
            LookupArrival::Server(packet) => {
                self.by_lookup.get_or_insert(false);
                self.server.handle_packet(self.now, &packet);
            }
            LookupArrival::Syn(packet) => {
                self.by_lookup.get_or_insert(true);
                self.server.handle_packet(self.now, &packet);
            }
            LookupArrival::Question(mut query) => match self.resolver.handle(&mut query) {
                Some(Resolved::Answer(answer)) => self.later(resolver / 2, LookupArrival::Answer(answer)),
                Some(Resolved::Ask(rounds)) => {
                    // Questions for the parent names are not lost here.
                    self.later(front * rounds, LookupArrival::Again(query, 0));
                }
                None => {}
            },
            LookupArrival::Again(query, tries) => {
                let answered = asked(&query).is_none_or(|(id, _)| self.answered.contains(&id));
                if tries < TRIES && !answered {
                    self.send(RoughHop::ToFront, front / 2, LookupArrival::Asked(query.clone()));
                    if self.setting.rough.is_some() {
                        self.later(AGAIN, LookupArrival::Again(query, tries + 1));
                    }
                }
            }
            LookupArrival::Asked(query) => {
                let (answer, handed) = self.names.handle(self.now, &clock(self.now), &query);
                if let Some(answer) = answer {
                    self.send(RoughHop::FromFront, front / 2 + resolver / 2, LookupArrival::Answer(answer));
                }
                for handed in handed {
                    let arrival = match handed {
                        Handed::Relay(datagram) => LookupArrival::Relay(datagram),
                        Handed::Syn(packet) => LookupArrival::Syn(packet),
                    };
                    self.send(RoughHop::Relay, relay / 2, arrival);
                }
            }
            LookupArrival::Answer(answer) => {
                self.answered.extend(asked(&answer).map(|(id, _)| id));
                self.client.handle_answer(self.now, &answer);
                if self.client.greets() {
                    self.later(Duration::ZERO, LookupArrival::GreetAgain);
                }
            }
            LookupArrival::GreetAgain => {
                if self.client.greets() {
                    self.send(RoughHop::ToServer, server / 2, LookupArrival::Greeting);
                    self.later(GREETING_EVERY, LookupArrival::GreetAgain);
                }
            }
            LookupArrival::Greeting => self.send(RoughHop::ToClient, server / 2, LookupArrival::Greeted),
            LookupArrival::Greeted => self.client.greeted(self.now),
            LookupArrival::Relay(datagram) => {
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
            let request = Request { received: Vec::new(), begun: false, left: self.setting.size };
            self.open.insert(id, request);
        }
        while self.server.poll_event().is_some() {}
        let now = self.now;
        // The server acts on the first line, or on the empty line behind the last one.
        let enough: &[u8] = if self.setting.way == RequestWay::FirstLine { b"\r\n" } else { b"\r\n\r\n" };
        for (id, request) in &mut self.open {
            let mut buffer = [0; 256];
            while let Ok(len @ 1..) = self.server.read(*id, &mut buffer, now) {
                request.received.extend_from_slice(&buffer[..len]);
                self.complete += u32::from(request.received.ends_with(b"\r\n\r\n"));
                let begins =
                    !request.begun && request.received.windows(enough.len()).any(|part| part == enough);
                request.begun |= begins;
                self.executed += u32::from(begins);
            }
            if request.begun && request.left > 0 {
                let body = vec![b'.'; request.left];
                request.left -= self.server.write(*id, &body, now).unwrap_or_default();
                if request.left == 0 {
                    let _ = self.server.shutdown(*id, now);
                }
            }
        }
    }

    fn flush(&mut self) {
        let one_way = self.setting.distances.server / 2;
        let mut out = std::mem::take(&mut self.out);
        while let Some(len) = self.client.poll_transmit(self.now, &mut out) {
            self.send(RoughHop::ToServer, one_way, LookupArrival::Server(out[..len].to_vec()));
        }
        while let Some(len) = self.server.poll_transmit(self.now, &mut out) {
            self.send(RoughHop::ToClient, one_way, LookupArrival::Client(out[..len].to_vec()));
        }
        self.out = out;
    }
}
