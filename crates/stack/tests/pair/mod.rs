//! Two stacks joined by an emulated path, in virtual time: nothing sleeps, and one seed decides everything.
#![allow(dead_code, reason = "each test file uses its part")]

use firstflight_credential::{CookieKey, FastOpenPolicy, KeyRing, PendingLimit, Scheme};
use firstflight_link::path::{Duplex, PathConfig};
use firstflight_stack::{
    Config, ConnId, ConnectConfig, EncapsulationConfig, Event, ListenConfig, ListenerId, Readiness, Stack,
};
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const PORT: u16 = 80;

/// One end of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

/// A client stack, a server stack and the wire between them.
pub(crate) struct Pair {
    pub client: Stack,
    pub server: Stack,
    pub wire: Duplex,
    pub now: Instant,
    pub client_events: VecDeque<Event>,
    pub server_events: VecDeque<Event>,
    /// Packets that were sent, with the time and the end that sent them.
    pub log: Vec<(Instant, End, Vec<u8>)>,
    pub keep_log: bool,
    /// Sees every packet that an end sends, may change it, and decides whether it passes.
    pub middlebox: Option<Middlebox>,
    /// Like the former, for packets that arrive at the client.
    pub at_client: Option<Middlebox>,
    /// Verifies first flights as soon as they come, as a driver does.
    pub verifies: bool,
    /// The server's UDP port to which connections go; `None`: raw IP.
    pub encapsulation: Option<u16>,
    out: Vec<u8>,
}

pub(crate) type Middlebox = Box<dyn FnMut(End, &mut [u8]) -> bool>;

pub(crate) fn key(n: u8) -> CookieKey {
    CookieKey::from_bytes([n; 16])
}

pub(crate) fn policy(key: CookieKey, pending: u32) -> FastOpenPolicy {
    FastOpenPolicy::new(Arc::new(KeyRing::new(Scheme::Linux, key)), Arc::new(PendingLimit::new(pending)))
}

pub(crate) fn addresses(v6: bool) -> (IpAddr, IpAddr) {
    if v6 {
        ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())
    } else {
        ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())
    }
}

/// The UDP ports of a pair that [`Pair::in_udp`] makes.
pub(crate) const CLIENT_UDP: u16 = 5000;
pub(crate) const SERVER_UDP: u16 = 4433;

impl Pair {
    /// A pair whose connections use UDP.
    pub(crate) fn in_udp(path: PathConfig, seed: u64, v6: bool) -> Self {
        let mut pair = Self::new(path, seed, v6, |config, end| {
            let port = if end == End::Client { CLIENT_UDP } else { SERVER_UDP };
            config.encapsulation = Some(EncapsulationConfig::new(port));
        });
        pair.encapsulation = Some(SERVER_UDP);
        pair
    }

    /// A pair with `tune` applied to both configurations.
    pub(crate) fn new(path: PathConfig, seed: u64, v6: bool, tune: impl Fn(&mut Config, End)) -> Self {
        let (a, b) = addresses(v6);
        let make = |ip: IpAddr, end: End| {
            let mut secret = [0; 32];
            secret[..8].copy_from_slice(&seed.to_le_bytes());
            secret[8] = end as u8;
            let mut config = Config::new(vec![ip], secret);
            config.mtu = path.mtu;
            config.limits.trace = 64;
            tune(&mut config, end);
            let mut stack = Stack::new(config, Instant::ZERO);
            stack.handle_clock(Clock {
                mono: Instant::ZERO,
                unix_ms: 1_800_000_000_000,
                uncertainty: Duration::ZERO,
            });
            stack
        };
        Self {
            client: make(a, End::Client),
            server: make(b, End::Server),
            wire: Duplex::symmetric(path, seed).unwrap(),
            now: Instant::ZERO,
            client_events: VecDeque::new(),
            server_events: VecDeque::new(),
            log: Vec::new(),
            keep_log: false,
            middlebox: None,
            at_client: None,
            verifies: true,
            encapsulation: None,
            out: vec![0; 65_536],
        }
    }

    /// A pair on a perfect path of this one-way delay.
    pub(crate) fn perfect(delay: Duration) -> Self {
        Self::new(PathConfig::with_delay(delay), 1, false, |_, _| {})
    }

    pub(crate) fn server_addr(&self) -> SocketAddr {
        SocketAddr::new(self.server.config().addresses[0], PORT)
    }

    pub(crate) fn listen(&mut self, fast_open: Option<FastOpenPolicy>) -> ListenerId {
        self.listen_with(|config| config.fast_open = fast_open)
    }

    pub(crate) fn listen_with(&mut self, tune: impl FnOnce(&mut ListenConfig)) -> ListenerId {
        let mut config = ListenConfig::new(self.server_addr());
        tune(&mut config);
        self.server.listen(config).unwrap()
    }

    pub(crate) fn connect(&mut self, data: &[u8], fast_open: bool) -> ConnId {
        let config = ConnectConfig::default().fast_open(fast_open).encapsulation(self.encapsulation);
        let (id, taken) = self.client.connect(self.server_addr(), data, &config, self.now).unwrap();
        assert_eq!(taken, data.len());
        id
    }

    /// Collects events, then sends what both stacks have to send.
    pub(crate) fn flush(&mut self) {
        self.client_events.extend(std::iter::from_fn(|| self.client.poll_event()));
        self.server_events.extend(std::iter::from_fn(|| self.server.poll_event()));
        while let Some(len) = self.client.poll_transmit(self.now, &mut self.out) {
            if self.keep_log {
                self.log.push((self.now, End::Client, self.out[..len].to_vec()));
            }
            if self.middlebox.as_mut().is_none_or(|passes| passes(End::Client, &mut self.out[..len])) {
                self.wire.a_to_b.send(self.now, &self.out[..len]);
            }
        }
        while let Some(len) = self.server.poll_transmit(self.now, &mut self.out) {
            if self.keep_log {
                self.log.push((self.now, End::Server, self.out[..len].to_vec()));
            }
            if self.middlebox.as_mut().is_none_or(|passes| passes(End::Server, &mut self.out[..len])) {
                self.wire.b_to_a.send(self.now, &self.out[..len]);
            }
        }
        self.client_events.extend(std::iter::from_fn(|| self.client.poll_event()));
        self.server_events.extend(std::iter::from_fn(|| self.server.poll_event()));
    }

    /// When the next thing happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        [self.client.poll_timeout(), self.server.poll_timeout(), self.wire.next_arrival()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Flushes, then advances time to the next event and handles it. False if there is none.
    pub(crate) fn step(&mut self) -> bool {
        self.flush();
        let Some(next) = self.next() else { return false };
        self.advance(next.max(self.now));
        true
    }

    /// Advances time to `to` and handles what is due then.
    pub(crate) fn advance(&mut self, to: Instant) {
        self.now = to;
        while let Some(packet) = self.wire.a_to_b.poll_deliver(to) {
            self.server.handle_packet(to, &packet);
            self.wire.a_to_b.recycle(packet);
        }
        while let Some(mut packet) = self.wire.b_to_a.poll_deliver(to) {
            if self.at_client.as_mut().is_none_or(|passes| passes(End::Client, &mut packet)) {
                self.client.handle_packet(to, &packet);
            }
            self.wire.b_to_a.recycle(packet);
        }
        if self.verifies {
            self.verify();
        }
        self.client.handle_timeout(to);
        self.server.handle_timeout(to);
    }

    /// Verifies what waits at the server. Returns the number of first flights.
    pub(crate) fn verify(&mut self) -> usize {
        let mut random = ChaCha20Rng::from_seed([9; 32]);
        let mut count = 0;
        while let Some(flights) = self.server.poll_verifications() {
            count += flights.len();
            let verdicts = flights.verify(&mut random);
            self.server.handle_verified(flights, &verdicts, self.now);
        }
        count
    }

    /// Steps until `done`, for at most `limit` of virtual time. Panics if it is not done then.
    pub(crate) fn run(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + limit;
        loop {
            self.flush();
            if done(self) {
                return;
            }
            assert!(self.step() && self.now <= end, "not done after {limit:?} of virtual time");
        }
    }

    /// Steps for `time`, whatever happens.
    pub(crate) fn idle(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.flush();
            match self.next() {
                Some(next) if next <= end => self.advance(next.max(self.now)),
                _ => return self.advance(end),
            }
        }
    }

    /// Runs until the server has a connection to accept.
    pub(crate) fn accept(&mut self, listener: ListenerId) -> ConnId {
        let mut got = None;
        self.run(Duration::from_secs(60), |p| {
            got = p.server.accept(listener);
            got.is_some()
        });
        got.unwrap()
    }

    /// Runs until the client's handshake is complete.
    pub(crate) fn connected(&mut self, id: ConnId) {
        self.run(Duration::from_secs(60), |p| p.client.info(id).is_some_and(|i| i.confirmed));
    }

    /// Everything that the client can read now.
    pub(crate) fn client_reads(&mut self, id: ConnId) -> Vec<u8> {
        let now = self.now;
        drain(&mut self.client, id, now)
    }

    /// Everything that the server can read now.
    pub(crate) fn server_reads(&mut self, id: ConnId) -> Vec<u8> {
        let now = self.now;
        drain(&mut self.server, id, now)
    }

    /// Whether an event reported this.
    pub(crate) fn client_saw(&self, id: ConnId, what: Readiness) -> bool {
        self.client_events.iter().any(|e| matches!(e, Event::Ready(i, r) if *i == id && r.contains(what)))
    }
}

fn drain(stack: &mut Stack, id: ConnId, now: Instant) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buf = [0; 4096];
    while let Ok(n @ 1..) = stack.read(id, &mut buf, now) {
        all.extend_from_slice(&buf[..n]);
    }
    all
}
