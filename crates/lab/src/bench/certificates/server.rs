//! A server's complete work for a first flight: SYN in, SYN-ACK and early data out.

use super::super::ours::SERVICE;
use super::super::{BenchError, EXCHANGE_US, REQUEST, cpu_time};
use super::VerifiedBefore;
use super::signatures::{NOW, NOW_MS, client, clock, guard, unlimited};
use crate::attack::world::spoof;
use crate::certified::{LASTS, certificate, identity, key, policy, syn_with};
use firstflight_credential::{CookieKey, FastOpenPolicy, Flow, KeyRing, PendingLimit, Scheme};
use firstflight_stack::{Config, Event, ListenConfig, ListenerId, Stack};
use firstflight_wire::Instant;
use firstflight_wire::asap::Encapsulation;
use firstflight_wire::tcp::{FastOpen, FastOpenForm, OptionsBuf, Timestamps};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Number of clients. Each has a certificate and two requests.
pub const CLIENTS: usize = 2048;

/// The credential in the SYNs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// A certificate and a request.
    Certificate(VerifiedBefore),
    /// A Fast Open cookie, for comparison.
    Cookie,
}

/// SYNs that were made in advance. Each round starts a new server.
pub struct Accepting {
    /// The first SYN of each client, with a certificate or a cookie, and a second SYN with the same certificate.
    first: Vec<Vec<u8>>,
    again: Vec<Vec<u8>>,
    cookies: Vec<Vec<u8>>,
    random: ChaCha20Rng,
    out: Vec<u8>,
}

impl Accepting {
    /// Makes the SYNs.
    pub fn new(seed: u64) -> Result<Self, BenchError> {
        let mut all = Self {
            first: Vec::new(),
            again: Vec::new(),
            cookies: Vec::new(),
            random: ChaCha20Rng::seed_from_u64(seed),
            out: vec![0; 1500],
        };
        let identity = identity();
        for n in 0..CLIENTS {
            let key = key(&mut all.random);
            let certificate = certificate(key, client(n), (NOW, NOW_MS / 1000), (LASTS, 1))
                .ok_or(BenchError::Wrong("a certificate for the bench".into()))?;
            for (packets, port) in [(&mut all.first, 4000), (&mut all.again, 4001)] {
                let id = all.random.next_u64().to_be_bytes();
                let block = certificate.request(Encapsulation::Ip, &identity, &REQUEST, id, NOW).to_bytes();
                let from = SocketAddr::new(client(n), port);
                packets.push(syn_with(options()?, from, SERVICE.ip(), n as u32, &block, &REQUEST));
            }
            let cookie = keys().grant(&Flow { client: client(n), server: SERVICE.ip() });
            let mut with = options()?;
            if !with.fast_open(&FastOpen::Cookie(FastOpenForm::Standard, cookie)) {
                return Err(BenchError::Wrong("a cookie does not fit".into()));
            }
            let from = SocketAddr::new(client(n), 4000);
            all.cookies.push(spoof(from, SERVICE.ip(), n as u32, &mut with, &REQUEST));
        }
        Ok(all)
    }

    /// A new server accepts all SYNs, in bursts of `burst`. Returns their number and the CPU time.
    pub fn round(&mut self, credential: Credential, burst: usize) -> Result<(u64, Duration), BenchError> {
        let mut server = Server::new()?;
        let (random, out) = (&mut self.random, &mut self.out);
        let took = match credential {
            Credential::Certificate(VerifiedBefore::New) => server.take(&self.first, burst, random, out)?,
            Credential::Certificate(VerifiedBefore::Cached) => {
                server.take(&self.first, burst, random, out)?;
                server.take(&self.again, burst, random, out)?
            }
            Credential::Cookie => server.take(&self.cookies, burst, random, out)?,
        };
        server.check(credential)?;
        Ok((CLIENTS as u64, took))
    }
}

impl Accepting {
    /// The CPU time that a new server needs for each of these SYNs, one by one, from the SYN to the SYN-ACK. It has seen each
    /// certificate before, or none.
    pub fn each(&mut self, credential: Credential) -> Result<Vec<Duration>, BenchError> {
        let mut server = Server::new()?;
        let (random, out) = (&mut self.random, &mut self.out);
        let packets = match credential {
            Credential::Certificate(VerifiedBefore::New) => &self.first,
            Credential::Certificate(VerifiedBefore::Cached) => {
                server.take(&self.first, 1, random, out)?;
                &self.again
            }
            Credential::Cookie => &self.cookies,
        };
        let mut all = Vec::with_capacity(packets.len());
        for packet in packets {
            all.push(server.take(std::slice::from_ref(packet), 1, random, out)?);
        }
        server.check(credential)?;
        Ok(all)
    }
}

/// The options of our SYNs: MSS, SACK permitted, timestamps, window scale.
fn options() -> Result<OptionsBuf, BenchError> {
    let mut options = OptionsBuf::new();
    let fits = options.mss(1460)
        && options.sack_permitted()
        && options.timestamps(Timestamps { value: 1, echo: 0 })
        && options.nop()
        && options.window_scale(7);
    if fits { Ok(options) } else { Err(BenchError::Wrong("20 bytes of options do not fit".into())) }
}

fn keys() -> KeyRing {
    KeyRing::new(Scheme::Linux, CookieKey::from_bytes([7; 16]))
}

struct Server {
    stack: Stack,
    listener: ListenerId,
    now: Instant,
    executed: u64,
    answers: u64,
}

impl Server {
    fn new() -> Result<Self, BenchError> {
        let mut config = Config::new(vec![SERVICE.ip()], [2; 32]);
        config.limits.asap = unlimited();
        let mut stack = Stack::new(config, NOW);
        stack.handle_clock(clock());
        let pending = Arc::new(PendingLimit::with_clients(4 * CLIENTS as u32, u32::MAX));
        let mut config = ListenConfig::new(SERVICE);
        config.backlog = 4 * CLIENTS;
        config.asap = policy(true, guard(), &pending);
        config.fast_open = Some(FastOpenPolicy::new(Arc::new(keys()), pending));
        let listener = stack.listen(config).map_err(|e| BenchError::refused("our listen", e))?;
        Ok(Self { stack, listener, now: NOW, executed: 0, answers: 0 })
    }

    /// The CPU time for `packets`. Like the driver: receives a burst, verifies its signatures together, lets the
    /// application read, and sends what is ready.
    fn take(
        &mut self,
        packets: &[Vec<u8>],
        burst: usize,
        random: &mut ChaCha20Rng,
        out: &mut [u8],
    ) -> Result<Duration, BenchError> {
        let mut request = [0; 2 * REQUEST.len()];
        let start = cpu_time()?;
        for burst in packets.chunks(burst) {
            for packet in burst {
                self.stack.handle_packet(self.now, packet);
            }
            while let Some(flights) = self.stack.poll_verifications() {
                let verdicts = flights.verify(random);
                self.stack.handle_verified(flights, &verdicts, self.now);
            }
            while let Some(event) = self.stack.poll_event() {
                if !matches!(event, Event::Acceptable(_)) {
                    continue;
                }
                while let Some(id) = self.stack.accept(self.listener) {
                    let read = self.stack.read(id, &mut request, self.now);
                    self.executed += u64::from(read.is_ok_and(|n| request[..n] == REQUEST));
                }
            }
            while self.stack.poll_transmit(self.now, out).is_some() {
                self.answers += 1;
            }
            self.now += Duration::from_micros(EXCHANGE_US * burst.len() as u64);
        }
        Ok(cpu_time()?.saturating_sub(start))
    }

    /// Checks that every request was accepted, executed and answered, with the expected number of signatures.
    fn check(&self, credential: Credential) -> Result<(), BenchError> {
        let counters = self.stack.counters();
        let clients = CLIENTS as u64;
        let (requests, signatures) = match credential {
            Credential::Certificate(VerifiedBefore::New) => (clients, 2 * clients),
            Credential::Certificate(VerifiedBefore::Cached) => (2 * clients, 3 * clients),
            Credential::Cookie => (clients, 0),
        };
        let whole = counters.first_flights_accepted == requests
            && self.executed == requests
            && self.answers == requests
            && counters.signatures_verified == signatures;
        if whole {
            return Ok(());
        }
        let (executed, answers) = (self.executed, self.answers);
        Err(BenchError::Wrong(format!(
            "{credential:?}: {executed} executed, {answers} answers, {counters:?}"
        )))
    }
}
