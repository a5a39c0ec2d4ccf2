//! The events between clients, fronts, servers and the store, in virtual time.

use super::client::{Client, FILLER};
use super::fronts::{Handed, NameServer};
use super::ledger::{Ledger, Reached};
use super::packets::Sight;
use super::server::{Guards, HEAD, Server, guard_key, numbered, remote, table};
use super::store::{Store, WITHIN};
use super::{CLIENTS, Executed, FRONTS, Setup, UNIX_MS};
use firstflight_credential::asap::Verified;
use firstflight_credential::{JobRequest, JobResult, Reason, ReplayGuard, Window};
use firstflight_stack::{ConnId, Verifications};
use firstflight_wire::Instant;
use firstflight_wire::asap::BLOCK_LEN;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How many items of each kind the eavesdropper keeps.
const KEPT: usize = 96;
/// The time at which the world begins.
const BEGIN: Instant = Instant::from_secs(1000);
/// How far ASAP's window reaches into the past, milliseconds.
const PAST_MS: u64 = 60_000;
/// How far ASAP's window reaches into the future, and how far in the future a certificate may begin, milliseconds.
const AHEAD_MS: u64 = 10_000;
const BEGINS_AHEAD_MS: u64 = 60_000;

/// Something under way.
pub(super) enum Arrival {
    Packet(Vec<u8>),
    Query(usize, IpAddr, Vec<u8>),
    /// The client knows the server's address.
    Address(usize, ConnId, IpAddr),
    Relay(usize, Vec<u8>),
    /// These four have the server and the number of its start: verdicts, a question at the store, its answer, its
    /// deadline.
    Verdicts(usize, u32, Verifications, Vec<Verified>),
    Question(usize, u32, u64, Option<Duration>),
    Answer(usize, u32, u64, JobResult),
    Late(usize, u32, u64),
}

/// A request inside a lookup: its client, its bytes, its id, and when it was signed.
pub(super) struct Looked {
    pub(super) client: usize,
    pub(super) data: Vec<u8>,
    pub(super) request_id: [u8; 8],
    pub(super) at: Instant,
}

pub struct World {
    pub(super) setup: Setup,
    pub(super) now: Instant,
    pub(super) random: ChaCha20Rng,
    pub(super) servers: Vec<Server>,
    pub(super) fronts: Vec<NameServer>,
    pub(super) clients: Vec<Client>,
    pub(super) store: Store,
    pub(super) ledger: Ledger,
    pub(super) coming: BTreeMap<(Instant, u64), Arrival>,
    pub(super) count: u64,
    /// The items that the eavesdropper has: SYNs with blocks, queries, relay datagrams.
    pub(super) syns: Vec<Vec<u8>>,
    pub(super) queries: Vec<Vec<u8>>,
    pub(super) relays: Vec<(usize, Vec<u8>)>,
    pub(super) looked: Vec<Looked>,
    pub(super) requests: u32,
}

pub(super) fn keep<T>(all: &mut Vec<T>, one: T) {
    if all.len() == KEPT {
        all.remove(0);
    }
    all.push(one);
}

impl World {
    pub fn new(setup: Setup) -> Self {
        let count = 1 + usize::from(setup.two_servers);
        let began = UNIX_MS + BEGIN.as_millis() - 600_000;
        let shared = table(began);
        let guard = |_| match setup.guards {
            Guards::Table => Arc::clone(&shared),
            Guards::Store => remote(),
            Guards::Sites => table(began),
        };
        let mut store = Store::default();
        let mut servers: Vec<_> = (0..count).map(|n| Server::new(n, &setup, guard(n), BEGIN)).collect();
        for server in &mut servers {
            server.driver.connect(&mut store, Instant::ZERO);
            server.tell_time(BEGIN);
        }
        Self {
            now: BEGIN,
            random: ChaCha20Rng::seed_from_u64(setup.seed),
            servers,
            fronts: (0..FRONTS).map(|n| NameServer::new(n, count, setup.here)).collect(),
            clients: (0..CLIENTS).map(|n| Client::new(n as u8, BEGIN)).collect(),
            setup,
            store,
            ledger: Ledger::default(),
            coming: BTreeMap::new(),
            count: 0,
            syns: Vec::new(),
            queries: Vec::new(),
            relays: Vec::new(),
            looked: Vec::new(),
            requests: 0,
        }
    }

    /// The number of a server's guard.
    pub(super) fn guard(&self, server: usize) -> usize {
        if self.setup.guards == Guards::Sites { server } else { 0 }
    }

    pub(super) fn chance(&mut self, of_256: u8) -> bool {
        (self.random.next_u32() as u8) < of_256
    }

    /// When copies of something arrive. There may be none, one or two.
    pub(super) fn fates(&mut self) -> Vec<Duration> {
        if self.chance(self.setup.loss / 2) {
            return Vec::new();
        }
        let copies = 1 + usize::from(self.chance(12));
        let delay = |world: &mut Self| {
            let chance = u64::from(world.random.next_u32());
            let late = if world.chance(8) { chance % 3_000_000 } else { 0 };
            Duration::from_micros(5000 + chance % 20_000 + late)
        };
        (0..copies).map(|_| delay(self)).collect()
    }

    pub(super) fn later(&mut self, after: Duration, arrival: Arrival) {
        self.count += 1;
        self.coming.insert((self.now + after, self.count), arrival);
    }

    pub(super) fn send(&mut self, packet: Vec<u8>) {
        for after in self.fates() {
            self.later(after, Arrival::Packet(packet.clone()));
        }
    }

    /// The eavesdropper keeps SYNs with blocks, and the ledger records what a client signed.
    pub(super) fn overhear(&mut self, packet: &[u8]) {
        let Some((sight, block)) =
            Sight::of(packet).and_then(|sight| sight.block().map(|block| (sight, block)))
        else {
            return;
        };
        if let Some((number, _)) = sight.segment.payload.get(BLOCK_LEN..).and_then(numbered) {
            self.ledger.signed(number, block.request.request_id, block.request.requested_ms);
        }
        if !self.syns.iter().any(|kept| kept == packet) {
            keep(&mut self.syns, packet.to_vec());
        }
    }

    /// Runs until `end`.
    pub(super) fn run(&mut self, end: Instant) {
        self.settle();
        for steps in 0.. {
            assert!(steps < 200_000, "it does not end");
            let mut timers: Vec<_> =
                self.clients.iter().filter_map(|client| client.stack.poll_timeout()).collect();
            for server in &self.servers {
                match server.down_until {
                    Some(until) => timers.push(until),
                    None => {
                        timers.extend(server.stack.poll_timeout().into_iter().chain(server.driver.retry_at))
                    }
                }
            }
            timers.extend(self.coming.keys().next().map(|(at, _)| *at));
            let Some(next) = timers.into_iter().min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            while let Some(entry) = self.coming.first_entry()
                && entry.key().0 <= self.now
            {
                let arrival = entry.remove();
                self.arrive(arrival);
                self.settle();
            }
            self.time_passes();
            self.settle();
        }
        self.now = self.now.max(end);
    }

    fn time_passes(&mut self) {
        let now = self.now;
        for n in 0..self.servers.len() {
            if self.servers[n].down_until.is_some_and(|until| until <= now) {
                self.start_again(n);
            }
            let server = &mut self.servers[n];
            if server.down_until.is_some() {
                continue;
            }
            if server.driver.retry_at.is_some_and(|at| at <= now)
                && server.driver.connect(&mut self.store, now)
            {
                self.ledger.born(0, now, server.unix_ms(now) + AHEAD_MS);
            }
            server.stack.handle_timeout(now);
        }
        self.clients.iter_mut().for_each(|client| client.stack.handle_timeout(now));
    }

    fn start_again(&mut self, n: usize) {
        let now = self.now;
        let unix_ms = self.servers[n].unix_ms(now);
        if self.setup.guards != Guards::Store {
            self.ledger.born(self.guard(n), now, unix_ms + AHEAD_MS);
        }
        match self.setup.guards {
            Guards::Store => {
                self.servers[n].restart(&self.setup, None, now);
                self.servers[n].driver.start_again(&mut self.store, now);
                self.ledger.born(0, now, unix_ms + AHEAD_MS);
            }
            Guards::Sites => self.servers[n].restart(&self.setup, Some(table(unix_ms)), now),
            Guards::Table => {
                let table = table(unix_ms);
                for server in &mut self.servers {
                    server.restart(&self.setup, Some(Arc::clone(&table)), now);
                }
            }
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let now = self.now;
        match arrival {
            Arrival::Packet(packet) => self.deliver(&packet),
            Arrival::Query(front, resolver, query) => {
                for handed in self.fronts[front].handle(now, resolver, &query) {
                    match handed {
                        Handed::Relay(server, datagram) => {
                            keep(&mut self.relays, (server, datagram.clone()));
                            for after in self.fates() {
                                self.later(after, Arrival::Relay(server, datagram.clone()));
                            }
                        }
                        Handed::Here(client, segment, key) if self.servers[0].down_until.is_none() => {
                            self.servers[0].take_opened(client, &segment, key, now);
                        }
                        Handed::Here(..) => {}
                    }
                }
            }
            Arrival::Address(client, id, server) => {
                let _ = self.clients[client].stack.send_direct(id, server, now);
            }
            Arrival::Relay(server, datagram) if self.servers[server].down_until.is_none() => {
                self.servers[server].take_relay(&datagram, now);
            }
            Arrival::Verdicts(n, epoch, flights, verdicts) if self.runs(n, epoch) => {
                self.servers[n].stack.handle_verified(flights, &verdicts, now);
            }
            Arrival::Question(n, epoch, number, back) => self.question(n, epoch, number, back),
            Arrival::Answer(n, epoch, number, result) if self.runs(n, epoch) => {
                if let Some(job) = self.servers[n].driver.close(number, true, now) {
                    self.servers[n].stack.handle_job(job.id, result, now);
                }
            }
            Arrival::Late(n, epoch, number) if self.runs(n, epoch) => {
                if let Some(job) = self.servers[n].driver.close(number, false, now) {
                    let refused = JobResult::Refuse(Reason::StoreUnavailable);
                    self.servers[n].stack.handle_job(job.id, refused, now);
                }
            }
            _ => {}
        }
    }

    fn runs(&self, server: usize, epoch: u32) -> bool {
        self.servers[server].epoch == epoch && self.servers[server].down_until.is_none()
    }

    /// Handles a question that arrives at the store.
    fn question(&mut self, n: usize, epoch: u32, number: u64, back: Option<Duration>) {
        let driver = &self.servers[n].driver;
        let (Some(job), Some(connection)) = (driver.waiting(number), driver.connection) else { return };
        let request = job.request;
        let Some(result) = self.store.answer(request, connection, self.now) else { return };
        if let (JobRequest::GuardSet { key, .. }, JobResult::Accept) = (request, result) {
            self.accepted_by_store(key);
        }
        if let Some(back) = back {
            self.later(back, Arrival::Answer(n, epoch, number, result));
        }
    }

    /// Records a request that the store accepts while a server still owes it to the store.
    fn accepted_by_store(&mut self, key: [u8; 16]) {
        if !self.servers.iter().any(|server| server.driver.owes(&key)) {
            return;
        }
        let guard = firstflight_credential::RemoteGuard::new(guard_key(), Window::REQUESTS);
        for client in &self.clients {
            let public = client.public();
            for request in self.ledger.all() {
                let Some(id) = request.request_id else { continue };
                let bytes = [&public[..], &id[..], super::identity().digest()].concat();
                request.owed |= guard.id_of(client.address, &bytes).id.to_be_bytes() == key;
            }
        }
    }

    fn deliver(&mut self, packet: &[u8]) {
        let Some(sight) = Sight::of(packet) else { return self.deliver_to_client(packet) };
        let Some(n) = self.servers.iter().position(|server| server.address == sight.dst.ip()) else {
            return self.deliver_to_client(packet);
        };
        if self.servers[n].down_until.is_some() {
            return;
        }
        let unix_ms = self.servers[n].unix_ms(self.now);
        if let Some(block) = sight.block() {
            let stamp_ms = block.request.requested_ms;
            let filler = sight.segment.payload.get(BLOCK_LEN + HEAD..).unwrap_or_default();
            let genuine = filler.iter().all(|byte| *byte == FILLER);
            if !genuine {
                self.ledger.forged(&block.request.request_id);
            }
            let certified = self.clients.iter().any(|client| client.address == sight.src.ip());
            let ahead = stamp_ms > unix_ms + AHEAD_MS;
            let begun = u64::from(block.certificate.valid_from) * 1000 <= unix_ms + BEGINS_AHEAD_MS;
            if genuine && certified && !ahead && begun {
                let late = stamp_ms + PAST_MS < unix_ms || block.certificate.ends() * 1000 < unix_ms;
                let only = (late && self.setup.guards == Guards::Store).then_some(n);
                let reached = Reached { guard: self.guard(n), only, at: self.now };
                self.ledger.reached(&block.request.request_id, reached);
            }
        }
        self.servers[n].tell_time(self.now);
        self.servers[n].stack.handle_packet(self.now, packet);
    }

    fn deliver_to_client(&mut self, packet: &[u8]) {
        let Ok(ip) = firstflight_wire::ip::Packet::parse(packet) else { return };
        let to = |address: IpAddr| move |client: &&mut Client| client.address == address;
        if let Some(client) = self.clients.iter_mut().find(to(ip.dst)) {
            client.stack.handle_packet(self.now, packet);
        } else if let Some(server) = self.servers.iter_mut().find(|server| server.address == ip.dst)
            && server.down_until.is_none()
        {
            server.stack.handle_packet(self.now, packet);
        }
    }

    /// Lets everything act that has something to do now.
    pub(super) fn settle(&mut self) {
        for n in 0..self.servers.len() {
            if self.servers[n].down_until.is_none() {
                self.serve(n);
            }
        }
        let mut sent = Vec::new();
        let mut out = [0; 2048];
        for client in &mut self.clients {
            client.read(self.now);
            while let Some(len) = client.stack.poll_transmit(self.now, &mut out) {
                sent.push(out[..len].to_vec());
            }
        }
        for packet in sent {
            self.overhear(&packet);
            self.send(packet);
        }
    }

    fn serve(&mut self, n: usize) {
        let (now, guard) = (self.now, self.guard(n));
        self.servers[n].tell_time(now);
        let epoch = self.servers[n].epoch;
        while let Some(flights) = self.servers[n].stack.poll_verifications() {
            let verdicts = flights.verify(&mut self.random);
            let after = match (self.setup.late_verdicts.0, self.random.next_u32() % 8) {
                (true, 0) => continue,
                (true, 1) => Duration::from_millis(u64::from(self.random.next_u32()) % 60),
                (true, _) => Duration::from_micros(u64::from(self.random.next_u32()) % 10_000),
                (false, _) => Duration::from_micros(100),
            };
            self.later(after, Arrival::Verdicts(n, epoch, flights, verdicts));
        }
        while let Some(job) = self.servers[n].stack.poll_job() {
            let id = job.id;
            match self.servers[n].driver.ask(job) {
                Some(number) => {
                    let there = Duration::from_micros(u64::from(self.random.next_u32()) % 3000);
                    let back = match self.random.next_u32() % 32 {
                        0 => None,
                        1 => Some(Duration::from_millis(u64::from(self.random.next_u32()) % 40)),
                        _ => Some(there),
                    };
                    // Sometimes the question itself is lost.
                    if !self.chance(4) {
                        self.later(there, Arrival::Question(n, epoch, number, back));
                    }
                    self.later(WITHIN, Arrival::Late(n, epoch, number));
                }
                None => {
                    let refused = JobResult::Refuse(Reason::StoreUnavailable);
                    self.servers[n].stack.handle_job(id, refused, now);
                    self.servers[n].driver.retry_at.get_or_insert(now + Duration::from_millis(100));
                }
            }
        }
        for (number, done) in self.servers[n].serve(guard, now) {
            self.ledger.executed(number, done);
        }
        let mut out = [0; 2048];
        for packets in 0.. {
            assert!(packets < 2000, "packets without end");
            let Some(len) = self.servers[n].stack.poll_transmit(now, &mut out) else { break };
            self.send(out[..len].to_vec());
        }
        self.servers[n].check();
    }

    /// Ends all faults, closes everything, lets time pass, and checks that nothing is left.
    pub fn end(mut self) -> Executed {
        self.setup.loss = 0;
        self.store.down_until = None;
        self.servers.iter_mut().for_each(|server| server.accepting = true);
        self.run(self.now + Duration::from_secs(20));
        let now = self.now;
        self.clients.iter_mut().for_each(|client| client.give_up(now));
        self.run(self.now + Duration::from_secs(5));
        self.servers.iter_mut().for_each(|server| server.give_up(now));
        self.run(self.now + Duration::from_secs(4 * 3600));
        self.servers.iter().for_each(Server::end);
        self.clients.iter().for_each(Client::end);
        (self.ledger.early, self.ledger.ordinary)
    }
}
