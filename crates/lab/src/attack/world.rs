//! A small Internet in virtual time: stacks connected with a fixed delay, and addresses that only count what reaches
//! them.

use firstflight_credential::asap::BudgetConfig;
use firstflight_credential::{FlightId, JobRequest, JobResult, Reason, RemoteGuard, Serial};
use firstflight_stack::{Config, ConnId, ConnectConfig, Event, ListenConfig, ListenerId, Readiness, Stack};
use firstflight_wire::ip::{Ecn, Header as IpHeader, Packet, Protocol};
use firstflight_wire::tcp::{Flags, Header, OptionsBuf, Segment, fill_checksum};
use firstflight_wire::{Clock, Instant, SeqNum};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// One-way delay between any two addresses.
pub const DELAY: Duration = Duration::from_millis(50);
/// Round-trip time.
pub const RTT: Duration = Duration::from_millis(100);
/// Bytes of a request. Its first 16 bytes distinguish requests.
pub const REQUEST: usize = 100;
/// The port that servers listen on.
pub const PORT: u16 = 80;
/// How long a shared store takes to answer.
const STORE: Duration = Duration::from_millis(1);

/// An address whose owner sent no request.
#[derive(Debug, Default, Clone, Copy)]
pub struct Victim {
    /// It has a TCP, which answers an unexpected SYN-ACK with a RST.
    pub resets: bool,
    /// IP bytes that reached it.
    pub bytes: u64,
}

/// A server: a stack, and an application that executes and answers every complete request.
pub struct Server {
    pub stack: Stack,
    pub listener: ListenerId,
    /// How often each request was executed.
    pub executed: BTreeMap<[u8; 16], u32>,
    /// Bytes of a response.
    pub response: usize,
    /// How long the application takes to accept.
    pub accepts_after: Duration,
    /// Connections whose request or response is not complete.
    open: BTreeMap<ConnId, (Vec<u8>, usize)>,
    /// For each connection that waits to be accepted, the time since when it waits.
    waiting: VecDeque<Instant>,
}

/// One request of an honest client.
#[derive(Debug, Clone, Copy)]
pub struct Visit {
    pub client: usize,
    pub id: ConnId,
    pub began: Instant,
    pub first_byte: Option<Instant>,
    pub accepted: bool,
    /// Bytes of the response that have not arrived yet.
    pub left: usize,
}

/// What the members of a farm share: which one-time cookies are valid, and which first flights were seen. Its clock
/// is correct.
#[derive(Debug, Default)]
pub struct SharedStore {
    active: BTreeSet<Serial>,
    /// The first flights that used them.
    used: BTreeMap<Serial, FlightId>,
    /// Until when each id is kept.
    seen: BTreeMap<[u8; 16], Instant>,
    /// When its memory began.
    since: Instant,
    /// Whether the store answers nothing.
    pub down: bool,
}

impl SharedStore {
    /// A store whose memory begins at `now`.
    pub fn empty(now: Instant) -> Self {
        Self { since: now, ..Self::default() }
    }

    fn answer(&mut self, request: JobRequest, now: Instant) -> JobResult {
        match request {
            JobRequest::GuardSet { key, keep_ms, ahead_ms, reach_ms, unix_ms, .. } => {
                let clock = clock_at(now).unix_ms;
                let keep_ms = unix_ms.map_or(keep_ms, |asked| (asked + keep_ms).saturating_sub(clock));
                let until = self.seen.entry(key).or_insert(Instant::ZERO);
                let new = *until <= now;
                if new {
                    *until = now + Duration::from_millis(keep_ms);
                }
                if !new {
                    return JobResult::Repeat;
                }
                let apart = RemoteGuard::CLOCKS_APART.as_millis() as u64;
                if unix_ms.is_some_and(|asked| asked.abs_diff(clock) > apart) {
                    return JobResult::Refuse(Reason::ClockSkew);
                }
                let age_ms = (now - self.since).as_millis() as i64;
                if age_ms + ahead_ms <= reach_ms as i64 {
                    return JobResult::Refuse(Reason::GuardFloor);
                }
                JobResult::Accept
            }
            JobRequest::Redeem { serial, flight } if self.active.remove(&serial) => {
                self.used.extend(flight.map(|flight| (serial, flight)));
                JobResult::Accept
            }
            JobRequest::Redeem { serial, flight: Some(flight) }
                if self.used.get(&serial) == Some(&flight) =>
            {
                JobResult::Repeat
            }
            JobRequest::Activate { serial } => {
                self.active.insert(serial);
                JobResult::Accept
            }
            _ => JobResult::Refuse(Reason::Replay),
        }
    }
}

/// Servers, clients, victims and the packets between them.
pub struct World {
    pub now: Instant,
    pub servers: BTreeMap<IpAddr, Server>,
    pub clients: Vec<(IpAddr, Stack)>,
    pub victims: BTreeMap<IpAddr, Victim>,
    pub visits: Vec<Visit>,
    pub store: SharedStore,
    /// The last SYN packet of each client, as an attacker on the path sees it.
    pub overheard: BTreeMap<IpAddr, Vec<u8>>,
    /// Signature budget of servers that start from now on.
    pub budget: BudgetConfig,
    /// Randomness for everything except the stacks' own numbers.
    pub random: ChaCha20Rng,
    wire: BTreeMap<(Instant, u64), Vec<u8>>,
    jobs: BTreeMap<(Instant, u64), (IpAddr, firstflight_stack::Job)>,
    sent: u64,
    out: Vec<u8>,
}

/// The wall clock at virtual time `now`.
pub fn clock_at(now: Instant) -> Clock {
    Clock { mono: now, unix_ms: 1_800_000_000_000 + now.as_millis(), uncertainty: Duration::from_millis(1) }
}

/// A stack with one address.
fn stack(ip: IpAddr, budget: BudgetConfig, now: Instant) -> Stack {
    let mut secret = [0; 32];
    if let IpAddr::V4(ip) = ip {
        secret[..4].copy_from_slice(&ip.octets());
    }
    secret[4] = (now.as_millis() / 1000) as u8;
    let mut config = Config::new(vec![ip], secret);
    config.limits.asap = budget;
    let mut stack = Stack::new(config, now);
    stack.handle_clock(clock_at(now));
    stack
}

impl World {
    pub fn new() -> Self {
        Self::seeded(1)
    }

    /// A world whose random numbers are derived from `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self {
            now: Instant::from_secs(1000),
            servers: BTreeMap::new(),
            clients: Vec::new(),
            victims: BTreeMap::new(),
            visits: Vec::new(),
            store: SharedStore::default(),
            overheard: BTreeMap::new(),
            budget: BudgetConfig::default(),
            random: ChaCha20Rng::seed_from_u64(seed),
            wire: BTreeMap::new(),
            jobs: BTreeMap::new(),
            sent: 0,
            out: vec![0; 2048],
        }
    }

    /// Starts a server at `ip`. It replaces a server that is there: its connections are lost, and the record of what
    /// it executed is kept.
    pub fn serve(&mut self, ip: IpAddr, response: usize, tune: impl FnOnce(&mut ListenConfig)) {
        let mut config = ListenConfig::new(SocketAddr::new(ip, PORT));
        tune(&mut config);
        let mut stack = stack(ip, self.budget, self.now);
        let Ok(listener) = stack.listen(config) else { return };
        let executed = self.servers.remove(&ip).map(|old| old.executed).unwrap_or_default();
        let accepts_after = Duration::ZERO;
        let open = BTreeMap::new();
        let waiting = VecDeque::new();
        let server = Server { stack, listener, executed, response, accepts_after, open, waiting };
        self.servers.insert(ip, server);
    }

    /// Adds an honest client. Returns its number.
    pub fn client(&mut self, ip: IpAddr) -> usize {
        self.clients.push((ip, stack(ip, BudgetConfig::default(), self.now)));
        self.clients.len() - 1
    }

    /// An honest client sends a request, identified by `name`.
    pub fn visit(&mut self, client: usize, server: IpAddr, name: u128) -> bool {
        let config = ConnectConfig::default().fast_open(true);
        self.visit_with(client, server, name, &config)
    }

    /// Like `visit`, with another credential.
    pub fn visit_with(&mut self, client: usize, server: IpAddr, name: u128, config: &ConnectConfig) -> bool {
        let mut request = [0; REQUEST];
        request[..16].copy_from_slice(&name.to_be_bytes());
        let Some((_, stack)) = self.clients.get_mut(client) else { return false };
        let Ok((id, _)) = stack.connect(SocketAddr::new(server, PORT), &request, config, self.now) else {
            return false;
        };
        let began = self.now;
        let left = self.servers.get(&server).map_or(0, |s| s.response);
        self.visits.push(Visit { client, id, began, first_byte: None, accepted: false, left });
        true
    }

    /// Sends a packet of any sender.
    pub fn inject(&mut self, packet: Vec<u8>) {
        self.sent += 1;
        self.wire.insert((self.now + DELAY, self.sent), packet);
    }

    /// Loses all packets that are under way.
    pub fn lose(&mut self) {
        self.wire.clear();
    }

    /// Runs until `end`.
    pub fn run(&mut self, end: Instant) {
        loop {
            self.work();
            let next = self.next().filter(|next| *next <= end);
            let Some(next) = next else {
                self.now = end;
                return;
            };
            self.now = next.max(self.now);
            self.arrive();
        }
    }

    fn next(&self) -> Option<Instant> {
        let stacks = self.servers.values().map(|s| &s.stack).chain(self.clients.iter().map(|c| &c.1));
        let timers = stacks.filter_map(Stack::poll_timeout);
        let queued = [self.wire.first_key_value().map(|e| e.0.0), self.jobs.first_key_value().map(|e| e.0.0)];
        let accepts = self.servers.values().filter_map(|s| Some(*s.waiting.front()? + s.accepts_after));
        timers.chain(queued.into_iter().flatten()).chain(accepts).min()
    }

    fn arrive(&mut self) {
        while let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= self.now
        {
            let packet = entry.remove();
            self.deliver(&packet);
        }
        while let Some(entry) = self.jobs.first_entry()
            && entry.key().0 <= self.now
        {
            let (ip, job) = entry.remove();
            let result = self.store.answer(job.request, self.now);
            if let Some(server) = self.servers.get_mut(&ip) {
                server.stack.handle_job(job.id, result, self.now);
            }
        }
        for server in self.servers.values_mut() {
            server.stack.handle_timeout(self.now);
        }
        for (_, stack) in &mut self.clients {
            stack.handle_timeout(self.now);
        }
    }

    fn deliver(&mut self, bytes: &[u8]) {
        let Ok(ip) = Packet::parse(bytes) else { return };
        if let Some(server) = self.servers.get_mut(&ip.dst) {
            return server.stack.handle_packet(self.now, bytes);
        }
        if let Some((_, stack)) = self.clients.iter_mut().find(|c| c.0 == ip.dst) {
            return stack.handle_packet(self.now, bytes);
        }
        if let Some(victim) = self.victims.get_mut(&ip.dst) {
            victim.bytes += bytes.len() as u64;
            let resets = victim.resets;
            if let (true, Ok(segment)) = (resets, Segment::parse(ip.payload))
                && segment.flags.contains(Flags::SYN)
            {
                self.inject(reset(ip.dst, ip.src, &segment));
            }
        }
    }

    /// Lets every stack and application act until nothing more is sent.
    fn work(&mut self) {
        for server in self.servers.values_mut() {
            server.work(self.now, &mut self.random);
        }
        self.clients_read();
        let mut leaving: Vec<Vec<u8>> = Vec::new();
        for (ip, server) in &mut self.servers {
            while let Some(job) = server.stack.poll_job() {
                if !self.store.down {
                    self.sent += 1;
                    self.jobs.insert((self.now + STORE, self.sent), (*ip, job));
                }
            }
            while let Some(len) = server.stack.poll_transmit(self.now, &mut self.out) {
                leaving.push(self.out[..len].to_vec());
            }
        }
        for (ip, stack) in &mut self.clients {
            while let Some(len) = stack.poll_transmit(self.now, &mut self.out) {
                let packet = self.out[..len].to_vec();
                // The flags of a TCP segment after an IPv4 header without options.
                if packet.get(33).is_some_and(|flags| flags & 0x12 == 0x02) {
                    self.overheard.insert(*ip, packet.clone());
                }
                leaving.push(packet);
            }
        }
        for packet in leaving {
            self.inject(packet);
        }
    }

    fn clients_read(&mut self) {
        let mut ready: Vec<(usize, ConnId)> = Vec::new();
        for (client, (_, stack)) in self.clients.iter_mut().enumerate() {
            while let Some(event) = stack.poll_event() {
                if let Event::Ready(id, what) = event
                    && (what.contains(Readiness::READABLE) || what.contains(Readiness::CLOSED))
                {
                    ready.push((client, id));
                }
            }
        }
        let mut bytes = [0; 4096];
        for (client, id) in ready {
            let Some((_, stack)) = self.clients.get_mut(client) else { continue };
            let visit = self.visits.iter_mut().rev().find(|v| v.client == client && v.id == id);
            let Some(visit) = visit else { continue };
            visit.accepted = stack.info(id).is_some_and(|info| info.outcome.is_accepted());
            loop {
                match stack.read(id, &mut bytes, self.now) {
                    Ok(n @ 1..) => {
                        visit.first_byte = visit.first_byte.or(Some(self.now));
                        visit.left = visit.left.saturating_sub(n);
                        // The client closes first, so that the server has no TIME-WAIT.
                        if visit.left == 0 {
                            let _ = stack.shutdown(id, self.now);
                        }
                    }
                    Ok(0) => {
                        stack.release(id, self.now);
                        break;
                    }
                    Err(_) => break,
                }
            }
        }
    }
}

impl Server {
    fn work(&mut self, now: Instant, random: &mut ChaCha20Rng) {
        while let Some(flights) = self.stack.poll_verifications() {
            let verdicts = flights.verify(random);
            self.stack.handle_verified(flights, &verdicts, now);
        }
        let mut ready = Vec::new();
        while let Some(event) = self.stack.poll_event() {
            if let Event::Ready(id, _) = event {
                ready.push(id);
            }
        }
        let queued = self.stack.queues(self.listener).map_or(0, |(accept, _)| accept);
        self.waiting.resize(queued, now);
        while self.waiting.front().is_some_and(|since| *since + self.accepts_after <= now) {
            self.waiting.pop_front();
            if let Some(id) = self.stack.accept(self.listener) {
                self.open.insert(id, (Vec::new(), 0));
                ready.push(id);
            }
        }
        for id in ready {
            self.attend(id, now);
        }
    }

    /// Reads the received data, executes a complete request, and writes as much of the response as fits.
    fn attend(&mut self, id: ConnId, now: Instant) {
        let Some((request, written)) = self.open.get_mut(&id) else { return };
        let mut bytes = [0; 2048];
        while let Ok(n @ 1..) = self.stack.read(id, &mut bytes, now) {
            request.extend_from_slice(&bytes[..n]);
            if request.len() >= REQUEST && request.len() - n < REQUEST {
                let mut name = [0; 16];
                name.copy_from_slice(&request[..16]);
                *self.executed.entry(name).or_default() += 1;
            }
        }
        if request.len() >= REQUEST {
            let filler = [b'r'; 4096];
            while *written < self.response {
                let part = filler.len().min(self.response - *written);
                match self.stack.write(id, &filler[..part], now) {
                    Ok(n @ 1..) => *written += n,
                    _ => break,
                }
            }
        }
        let ended = matches!(self.stack.read(id, &mut bytes, now), Ok(0));
        let over = self.stack.info(id).is_none() || self.stack.close_reason(id).is_some();
        if over || ended {
            self.open.remove(&id);
            let _ = self.stack.shutdown(id, now);
            self.stack.release(id, now);
        }
    }
}

/// An address in 10.0.0.0/8.
pub fn address(n: u32) -> IpAddr {
    Ipv4Addr::from_bits(10 << 24 | n).into()
}

/// A SYN with `options` and `data`, from any address.
pub fn spoof(from: SocketAddr, to: IpAddr, isn: u32, options: &mut OptionsBuf, data: &[u8]) -> Vec<u8> {
    let header = Header {
        src_port: from.port(),
        dst_port: PORT,
        seq: SeqNum::new(isn),
        ack: SeqNum::new(0),
        flags: Flags::SYN,
        window: 0xffff,
        urgent: 0,
    };
    packet(from.ip(), to, &header, options.finish(), data)
}

/// The RST that a TCP sends for a SYN-ACK of an unknown connection (RFC 9293 §3.10.7.1).
fn reset(from: IpAddr, to: IpAddr, about: &Segment<'_>) -> Vec<u8> {
    let header = Header {
        src_port: about.dst_port,
        dst_port: about.src_port,
        seq: about.ack,
        ack: SeqNum::new(0),
        flags: Flags::RST,
        window: 0,
        urgent: 0,
    };
    packet(from, to, &header, &[], &[])
}

pub fn packet(src: IpAddr, dst: IpAddr, header: &Header, options: &[u8], data: &[u8]) -> Vec<u8> {
    let mut tcp = vec![0; 60 + data.len()];
    let at = header.emit(options, &mut tcp).unwrap_or_default();
    tcp.truncate(at + data.len());
    tcp[at..].copy_from_slice(data);
    fill_checksum(&mut tcp, src, dst);
    let header = IpHeader {
        src,
        dst,
        protocol: Protocol::Tcp,
        hop_limit: 60,
        ecn: Ecn::default(),
        dont_fragment: true,
        identification: 1,
    };
    let mut out = vec![0; 40 + tcp.len()];
    let at = header.emit(tcp.len(), &mut out).unwrap_or_default();
    out.truncate(at + tcp.len());
    out[at..].copy_from_slice(&tcp);
    out
}
