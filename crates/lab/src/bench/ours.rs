//! Connections per second between two of our stacks.

use super::wire::Batch;
use super::{BenchError, EXCHANGE_US, IN_FLIGHT, REQUEST, RESPONSE, World};
use firstflight_credential::{CookieKey, FastOpenPolicy, KeyRing, PendingLimit, Scheme};
use firstflight_stack::{Config, ConnId, ConnectConfig, Event, IoError, ListenConfig, Readiness, Stack};
use firstflight_wire::{Clock, Instant};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The client's address.
pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// The address that the server listens on.
pub const SERVICE: SocketAddr = SocketAddr::new(SERVER, 80);

/// How connections open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenBy {
    /// With an ordinary handshake, as the reference does.
    Handshake,
    /// With Fast Open; the response follows the SYN-ACK. The default configuration.
    Cookie,
    /// With Fast Open; the response rides in the SYN-ACK.
    CookieAndDataInSynAck,
}

/// A client's and a server's stack, and the packets between them.
pub struct Pair {
    pub client: Stack,
    pub server: Stack,
    /// Packets to the server.
    pub up: Batch,
    /// Packets to the client.
    pub down: Batch,
    /// Virtual time.
    pub now: Instant,
}

impl Pair {
    /// Two stacks with `tcp`, and a listener that accepts at most `pending` first flights at a time.
    pub fn new(tcp: firstflight_tcp::Config, pending: u32) -> Result<Self, BenchError> {
        // Not zero, because nothing in a real stack starts at zero.
        let now = Instant::from_secs(1000);
        let stack = |ip, secret: u8| {
            let mut config = Config::new(vec![ip], [secret; 32]);
            config.tcp = tcp.clone();
            let mut stack = Stack::new(config, now);
            let uncertainty = Duration::from_millis(1);
            stack.handle_clock(Clock { mono: now, unix_ms: 1_700_000_000_000, uncertainty });
            stack
        };
        let mut server = stack(SERVER, 2);
        let keys = KeyRing::new(Scheme::Linux, CookieKey::from_bytes([7; 16]));
        let policy =
            FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::with_clients(pending, u32::MAX)));
        let mut config = ListenConfig::new(SERVICE);
        config.backlog = config.backlog.max(pending as usize);
        config.fast_open = Some(policy);
        server.listen(config).map_err(|e| BenchError::refused("our listen", e))?;
        let (up, down) = (Batch::new(), Batch::new());
        Ok(Self { client: stack(CLIENT, 1), server, up, down, now })
    }

    /// An end handles all packets that arrived, and what its clock requires.
    fn arrive(stack: &mut Stack, from: &mut Batch, now: Instant) {
        while let Some(packet) = from.take() {
            stack.handle_packet(now, packet);
        }
        from.clear();
        if stack.poll_timeout().is_some_and(|at| at <= now) {
            stack.handle_timeout(now);
        }
    }

    /// An end sends what is ready.
    fn depart(stack: &mut Stack, to: &mut Batch, now: Instant) {
        while let Some(out) = to.free() {
            let Some(len) = stack.poll_transmit(now, out) else {
                break;
            };
            to.push(len);
        }
    }

    /// The client handles its packets.
    pub fn client_arrive(&mut self) {
        Self::arrive(&mut self.client, &mut self.down, self.now);
    }

    /// The client sends.
    pub fn client_depart(&mut self) {
        Self::depart(&mut self.client, &mut self.up, self.now);
    }

    /// The server handles its packets.
    pub fn server_arrive(&mut self) {
        Self::arrive(&mut self.server, &mut self.up, self.now);
    }

    /// The server sends, which completes an exchange.
    pub fn server_depart(&mut self) {
        Self::depart(&mut self.server, &mut self.down, self.now);
        self.now += Duration::from_micros(EXCHANGE_US);
    }

    /// Checks that neither end dropped or reset anything, because memory loses no packets.
    pub fn check(&self) -> Result<(), BenchError> {
        for (end, stack) in [("client", &self.client), ("server", &self.server)] {
            let c = stack.counters();
            if c.resets_sent + c.segments_dropped + c.dropped_in_all() > 0 {
                return Err(BenchError::Wrong(format!("our {end} dropped or reset: {c:?}")));
            }
        }
        Ok(())
    }
}

/// 64 connections in flight, each opened, used and closed.
pub struct Connections {
    pair: Pair,
    open: OpenBy,
    connect: ConnectConfig,
    started: u64,
    requests: u64,
    responses: u64,
    closed: [u64; 2],
    idle: u64,
    buffer: Box<[u8; 2048]>,
}

impl Connections {
    /// Both ends, with `idle` established connections in addition, and the cookie known.
    pub fn new(open: OpenBy, idle: usize) -> Result<Self, BenchError> {
        let tcp = firstflight_tcp::Config::default().data_in_syn_ack(open == OpenBy::CookieAndDataInSynAck);
        let mut world = Self {
            pair: Pair::new(tcp, 1024)?,
            open,
            connect: ConnectConfig::default(),
            started: 0,
            requests: 0,
            responses: 0,
            closed: [0; 2],
            idle: 0,
            buffer: Box::new([0; 2048]),
        };
        world.add_idle(idle)?;
        world.connect.fast_open = open != OpenBy::Handshake;
        world.learn_cookie()?;
        Ok(world)
    }

    fn add_idle(&mut self, idle: usize) -> Result<(), BenchError> {
        while self.pair.client.connections() < idle {
            let batch = IN_FLIGHT.min(idle - self.pair.client.connections());
            for _ in 0..batch {
                self.connect(&[])?;
            }
            for _ in 0..3 {
                self.turns(false)?;
            }
        }
        self.idle = idle as u64;
        self.started = 0;
        let established = self.pair.server.counters().established;
        if established != self.idle || self.pair.server.connections() != idle {
            return Err(BenchError::Wrong(format!("{established} idle connections, not {idle}")));
        }
        Ok(())
    }

    /// The first connection requests the cookie. All others use it.
    fn learn_cookie(&mut self) -> Result<(), BenchError> {
        self.connect(&REQUEST)?;
        for _ in 0..16 {
            self.turns(false)?;
        }
        if self.done() != 1 {
            return Err(BenchError::Wrong("our first connection did not finish".into()));
        }
        Ok(())
    }

    fn connect(&mut self, data: &[u8]) -> Result<ConnId, BenchError> {
        let now = self.pair.now;
        let (id, taken) = self
            .pair
            .client
            .connect(SERVICE, data, &self.connect, now)
            .map_err(|e| BenchError::refused("our connect", e))?;
        if taken != data.len() {
            return Err(BenchError::Wrong(format!("our connect took {taken} bytes")));
        }
        self.started += 1;
        Ok(id)
    }

    fn turns(&mut self, refill: bool) -> Result<(), BenchError> {
        self.pair.client_arrive();
        self.client_acts()?;
        if refill {
            while self.started - self.closed[0] < IN_FLIGHT as u64 {
                self.connect(&REQUEST)?;
            }
        }
        self.pair.client_depart();
        self.pair.server_arrive();
        self.server_acts()?;
        self.pair.server_depart();
        Ok(())
    }

    fn client_acts(&mut self) -> Result<(), BenchError> {
        let now = self.pair.now;
        while let Some(event) = self.pair.client.poll_event() {
            let Event::Ready(id, ready) = event else {
                continue;
            };
            if ready.contains(Readiness::READABLE) {
                self.read_response(id)?;
            }
            if ready.contains(Readiness::CLOSED) {
                self.pair.client.release(id, now);
                self.closed[0] += 1;
            }
        }
        Ok(())
    }

    fn read_response(&mut self, id: ConnId) -> Result<(), BenchError> {
        let (now, client) = (self.pair.now, &mut self.pair.client);
        loop {
            match client.read(id, &mut self.buffer[..], now) {
                Ok(0) => {
                    return client.shutdown(id, now).map_err(|e| BenchError::refused("our close", e));
                }
                Ok(n) if self.buffer[..n] == RESPONSE => self.responses += 1,
                Ok(n) => return Err(BenchError::Wrong(format!("{n} bytes are not the response"))),
                Err(IoError::WouldBlock) => return Ok(()),
                Err(error) => return Err(BenchError::refused("our client's read", error)),
            }
        }
    }

    fn server_acts(&mut self) -> Result<(), BenchError> {
        let now = self.pair.now;
        while let Some(event) = self.pair.server.poll_event() {
            match event {
                Event::Acceptable(listener) => while self.pair.server.accept(listener).is_some() {},
                Event::Ready(id, ready) => {
                    if ready.contains(Readiness::READABLE) {
                        self.answer(id)?;
                    }
                    if ready.contains(Readiness::CLOSED) {
                        self.pair.server.release(id, now);
                        self.closed[1] += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn answer(&mut self, id: ConnId) -> Result<(), BenchError> {
        let (now, server) = (self.pair.now, &mut self.pair.server);
        match server.read(id, &mut self.buffer[..], now) {
            // The end of the client's stream, so the client has the response.
            Ok(0) | Err(IoError::WouldBlock) => return Ok(()),
            Ok(n) if self.buffer[..n] == REQUEST => self.requests += 1,
            Ok(n) => return Err(BenchError::Wrong(format!("{n} bytes are not the request"))),
            Err(error) => return Err(BenchError::refused("our server's read", error)),
        }
        match server.write(id, &RESPONSE, now) {
            Ok(n) if n == RESPONSE.len() => {}
            other => return Err(BenchError::refused("our server's write", other)),
        }
        server.shutdown(id, now).map_err(|e| BenchError::refused("our close", e))
    }
}

impl World for Connections {
    fn name(&self) -> &'static str {
        match self.open {
            OpenBy::Handshake => "firstflight, ordinary handshake",
            OpenBy::Cookie => "firstflight, Fast Open",
            OpenBy::CookieAndDataInSynAck => "firstflight, Fast Open with data in the SYN-ACK",
        }
    }

    fn exchange(&mut self) -> Result<(), BenchError> {
        self.turns(true)
    }

    fn done(&self) -> u64 {
        self.closed[0].min(self.closed[1])
    }

    fn packets(&self) -> u64 {
        self.pair.up.carried() + self.pair.down.carried()
    }

    fn check(&self) -> Result<(), BenchError> {
        self.pair.check()?;
        let server = self.pair.server.counters();
        let opened = server.passive_opens - self.idle;
        // The first connection requested the cookie. Each later connection was accepted with it.
        let early = if self.open == OpenBy::Handshake { 0 } else { opened - 1 };
        let taken = self.pair.client.counters().first_flights_taken;
        let flying = IN_FLIGHT as u64;
        let whole = server.first_flights_accepted == early
            && early.abs_diff(taken) <= flying
            && opened.abs_diff(self.requests) <= flying
            && self.requests.abs_diff(self.responses) <= flying
            && self.responses.abs_diff(self.done()) <= flying
            && self.pair.client.connections() as u64 <= self.idle + flying
            && self.pair.server.connections() as u64 >= self.idle;
        if whole {
            return Ok(());
        }
        Err(BenchError::Wrong(format!(
            "{}: {} started, {opened} opened, {} first flights accepted, {taken} taken, {} requests, {} responses, closed {:?}",
            self.name(),
            self.started,
            server.first_flights_accepted,
            self.requests,
            self.responses,
            self.closed
        )))
    }
}
