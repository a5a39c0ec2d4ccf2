//! The stack itself: its fields, its getters, its clock.

pub(crate) mod egress;
pub(crate) mod gauges;
pub(crate) mod ingress;
pub(crate) mod lifecycle;
mod shortage;
pub(crate) mod socket;

use crate::client::Client;
use crate::config::Config;
use crate::event::{ConnId, ConnectionInfo, Event, Job, JobId, PacketDrop, Trace};
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::flows::slot::{InQueue, Owner, ShownCertificate};
use crate::flows::table::Table;
use crate::fragments::Fragments;
use crate::journal::Subject;
use crate::journal::counters::Counters;
use crate::random::Random;
use crate::server::Server;
use crate::shard::{Misdirected, Visits};
use crate::stack::gauges::Gauges;
use crate::stack::shortage::Shortage;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use firstflight_credential::{CredentialStore, Entry, JobResult, LearntOfServer, NetworkId};
use firstflight_tcp::{CloseReason, Variables};
use firstflight_wire::hint::unlikely;
use firstflight_wire::{Clock, Instant};

/// Most addresses that [`Stack::prefer_address`] keeps.
const MAX_ADDRESSES: usize = 64;
/// The most answers to one packet.
const MOST_ANSWERS: usize = 4;

/// Many TCP connections over one link. Owned by one thread; more cores mean more stacks.
///
/// It does no input or output. Packets, the time and commands go in; packets, events and questions come out.
///
/// | what | methods |
/// |---|---|
/// | goes in | [`handle_packet`](Self::handle_packet), [`handle_timeout`](Self::handle_timeout), [`handle_clock`](Self::handle_clock), [`handle_job`](Self::handle_job), [`handle_verified`](Self::handle_verified), [`handle_relayed`](Self::handle_relayed) |
/// | commands for listeners | [`listen`](Self::listen), [`accept`](Self::accept), [`unlisten`](Self::unlisten), `set_…` |
/// | commands for connections | [`connect`](Self::connect), [`write`](Self::write), [`read`](Self::read), [`stamp`](Self::stamp), [`shutdown`](Self::shutdown), [`abort`](Self::abort), [`release`](Self::release) |
/// | comes out | [`poll_event`](Self::poll_event), [`poll_job`](Self::poll_job), [`poll_verifications`](Self::poll_verifications), [`poll_transmit`](Self::poll_transmit), [`poll_timeout`](Self::poll_timeout), [`poll_stamp`](Self::poll_stamp) |
/// | shows | [`info`](Self::info), [`counters`](Self::counters), [`gauges`](Self::gauges), [`poll_trace`](Self::poll_trace) |
///
/// After anything that goes in and after a command, poll in this order: the events, and let the application handle
/// them; the jobs and the verifications; the packets, until there are none; then when the next timeout is due. Events
/// come before packets so that the application's answer rides with the acknowledgement.
///
/// `Debug` shows counts: nothing that a stream carried, and no secret.
///
/// # Example
///
/// A request and its response, between two stacks on a perfect link:
///
/// ```
/// use firstflight_stack::{Config, ConnectConfig, Event, ListenConfig, Stack};
/// use firstflight_wire::Instant;
///
/// /// Sends everything that waits in one stack to the other.
/// fn transmit(from: &mut Stack, to: &mut Stack, now: Instant) {
///     let mut packet = [0; 1500];
///     while let Some(len) = from.poll_transmit(now, &mut packet) {
///         to.handle_packet(now, &packet[..len]);
///     }
/// }
///
/// // A real program takes secrets from the system's generator and the time from a monotonic clock.
/// let now = Instant::from_secs(1);
/// let mut client = Stack::new(Config::new(vec!["192.0.2.1".parse()?], [1; 32]), now);
/// let mut server = Stack::new(Config::new(vec!["192.0.2.2".parse()?], [2; 32]), now);
///
/// let listener = server.listen(ListenConfig::new("192.0.2.2:80".parse()?))?;
/// let (id, _) = client.connect("192.0.2.2:80".parse()?, b"question", &ConnectConfig::default(), now)?;
/// for _ in 0..2 {
///     transmit(&mut client, &mut server, now);
///     transmit(&mut server, &mut client, now);
/// }
///
/// assert_eq!(server.poll_event(), Some(Event::Acceptable(listener)));
/// let child = server.accept(listener).ok_or("nothing to accept")?;
/// let mut request = [0; 100];
/// let len = server.read(child, &mut request, now)?;
/// assert_eq!(&request[..len], b"question");
///
/// server.write(child, b"answer", now)?;
/// transmit(&mut server, &mut client, now);
/// while let Some(event) = client.poll_event() {
///     if let Event::Ready(ready, what) = event {
///         println!("{ready:?}: {what:?}");
///     }
/// }
/// let mut response = [0; 100];
/// let len = client.read(id, &mut response, now)?;
/// assert_eq!(&response[..len], b"answer");
/// println!("the outcome: {:?}", client.info(id).map(|info| info.outcome));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Stack {
    pub(crate) flows: Flows,
    pub(crate) server: Server,
    pub(crate) client: Client,
    fragments: Fragments,
    shortage: Shortage,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("addresses", &self.flows.env.config.addresses)
            .field("connections", &self.connections())
            .field("time_waits", &self.time_waits())
            .field("buffer_bytes", &self.buffer_bytes())
            .field("next_timeout", &self.poll_timeout())
            .field("to_send", &self.flows.env.outbox.waiting())
            .field("counters", &self.flows.env.journal.counters)
            .finish_non_exhaustive()
    }
}

impl Stack {
    /// An empty stack.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let mut random = Random::new(&config.secret);
        let mut hashes = random.next_u64();
        let [ports, numbers, mut cookies] = [(); 3].map(|()| random.secret());
        if let Some(owners) = &config.owners {
            (hashes, cookies) = owners.secrets();
        }
        Self {
            server: Server::new(&config.limits, cookies, config.claims()),
            client: Client::new(&config, ports),
            flows: Flows::new(config, hashes, numbers, random, now),
            fragments: Fragments::default(),
            shortage: Shortage::default(),
        }
    }

    // --- getters -------------------------------------------------------------------------------

    /// Its settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.flows.env.config
    }

    /// Its counts.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.flows.env.journal.counters
    }

    /// Connections it holds, TIME-WAIT not counted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.flows.table.slots.len()
    }

    /// Both ends, ours first, of each connection over IP, and of each first flight that ran and whose connection has ended before its
    /// client's ACK: another server must not open a connection for it. TIME-WAIT is not counted. Iterates over all.
    pub fn four_tuples(&self) -> impl Iterator<Item = (SocketAddr, SocketAddr)> + '_ {
        let Table { slots, early_ends, .. } = &self.flows.table;
        let keys = slots.indices().filter_map(|index| slots.get(index)).map(|slot| slot.key);
        let keys = keys.chain(early_ends.flows()).filter(|key| !key.is_carried());
        keys.map(|key| (key.local(), key.remote()))
    }

    /// Whether [`Stack::four_tuples`] has these ends.
    #[must_use]
    pub fn has_four_tuple(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let (key, table) = (FlowKey::new(local, remote), &self.flows.table);
        let hash = table.hasher.hash(&key);
        table.find_hashed(hash, &key).is_some() || table.early_ends.has(hash)
    }

    /// Connections in TIME-WAIT.
    #[must_use]
    pub fn time_waits(&self) -> usize {
        self.flows.table.time_wait.len()
    }

    /// Bytes that send and receive buffers hold now.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.flows.env.pool.outstanding()
    }

    /// The values that go up and down. Iterates over the listeners.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let mut gauges = Gauges {
            connections: self.connections(),
            time_waits: self.time_waits(),
            buffer_bytes: self.buffer_bytes(),
            fragmented: self.fragments.packets(),
            fragment_bytes: self.fragments.bytes(),
            ..Gauges::default()
        };
        self.server.add_gauges(&mut gauges);
        gauges
    }

    /// What the client remembers of servers.
    #[must_use]
    pub fn credentials(&self) -> &CredentialStore {
        self.client.credentials()
    }

    /// Forgets every cookie and round-trip time. Call it when the host moved to another network.
    pub fn forget_credentials(&mut self) {
        self.client.forget();
    }

    /// Sets the network to which the host moved. Nothing that was learnt on another network is used from now on.
    /// What was learnt on an unknown network is forgotten.
    pub fn set_network(&mut self, network: NetworkId) {
        if network != self.flows.env.config.network && !self.flows.env.config.network.is_known() {
            self.client.forget();
        }
        self.flows.env.config.network = network;
    }

    /// Makes `ip` one of this stack's addresses, and the source of connects in its family from now on. At most 64
    /// addresses are kept.
    pub fn prefer_address(&mut self, ip: IpAddr) {
        let addresses = &mut self.flows.env.config.addresses;
        if addresses.iter().find(|own| own.is_ipv4() == ip.is_ipv4()) == Some(&ip) {
            return;
        }
        addresses.retain(|own| *own != ip);
        addresses.insert(0, ip);
        addresses.truncate(MAX_ADDRESSES);
    }

    /// Restores what was saved about a server on `network`.
    pub fn restore_credential(&mut self, network: NetworkId, server: IpAddr, entry: Entry) {
        self.client.restore(network, server, entry);
    }

    /// What is known of a connection; `None` if it is gone.
    #[must_use]
    pub fn info(&self, id: ConnId) -> Option<ConnectionInfo> {
        let slot = self.flows.table.slot(id)?;
        let rtt = slot.conn.rtt();
        Some(ConnectionInfo {
            state: slot.conn.state(),
            local: slot.key.local(),
            remote: slot.key.remote(),
            outcome: slot.outcome,
            confirmed: slot.conn.is_confirmed(),
            rtt: rtt.map(|r| r.0),
            rtt_var: rtt.map(|r| r.1),
            cwnd: slot.conn.cwnd(),
            rto: slot.conn.rto(),
            timeouts: slot.conn.timeouts(),
            unacknowledged: slot.conn.unacknowledged(),
            mss: slot.conn.mss(),
            nodelay: slot.conn.nodelay(),
            handshake_retransmits: (slot.pending.as_ref())
                .map_or(0, |pending| pending.fallback.syns)
                .saturating_add(slot.conn.handshake_retransmits()),
            network_error: slot.network_error,
            certificate: slot.shown != ShownCertificate::Nothing,
            relayed: slot.shown == ShownCertificate::ByFront,
            cookie_age: slot.pending.as_ref().and_then(|pending| pending.cookie_age),
            totals: slot.conn.totals(),
            encapsulation: slot.key.is_carried().then(|| slot.key.outer_remote()),
        })
    }

    /// The peer's address; `None` if the connection is gone.
    #[must_use]
    pub fn peer(&self, id: ConnId) -> Option<SocketAddr> {
        self.flows.table.slot(id).map(|slot| slot.key.remote())
    }

    /// Whether the handshake is complete; false also if the connection is gone.
    #[must_use]
    pub fn is_confirmed(&self, id: ConnId) -> bool {
        self.flows.table.slot(id).is_some_and(|slot| slot.conn.is_confirmed())
    }

    /// The state machine of a connection, for inspection; `None` if it is gone.
    #[must_use]
    pub fn connection(&self, id: ConnId) -> Option<&firstflight_tcp::Connection> {
        self.flows.table.slot(id).map(|slot| &slot.conn)
    }

    /// Why a connection is over, once it is; `None` also if it is gone.
    #[must_use]
    pub fn close_reason(&self, id: ConnId) -> Option<CloseReason> {
        self.flows.table.slot(id)?.conn.close_reason()
    }

    /// The sequence variables of a connection, for diagnosis; `None` if it is gone.
    #[must_use]
    pub fn variables(&self, id: ConnId) -> Option<Variables> {
        Some(self.flows.table.slot(id)?.conn.variables())
    }

    // --- handle --------------------------------------------------------------------------------

    /// Sets the wall clock. Credentials need it, TCP does not. Call it at the start and from time to time, so that
    /// the stack learns of a clock that steps.
    pub fn handle_clock(&mut self, clock: Clock) {
        self.flows.env.clock = clock;
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.flows.table.wheel.pop_expired(now) {
            if let Some(slot) = self.flows.table.slots.get_mut(index) {
                slot.conn.handle_timeout(now, &mut self.flows.env.pool);
                let falls_back = slot
                    .pending
                    .as_ref()
                    .is_some_and(|pending| pending.fallback.at.is_some_and(|at| at <= now));
                if self.flows.touch(index) {
                    self.take_notifications(index, now);
                }
                if falls_back {
                    self.client.fall_back(&mut self.flows, index, now);
                    self.settle(now);
                }
            }
        }
        self.flows.table.time_wait.expire(now);
        self.flows.table.last_ack_records.expire(now);
        self.flows.table.expire_early_ends(now);
        self.fragments.expire(now, &mut self.flows.env.journal.counters);
        if unlikely(self.flows.encapsulation.is_some()) {
            self.flows.handle_encapsulation_timeout(now);
        }
        self.server.handle_timeout(&mut self.flows, now);
        self.settle(now);
    }

    /// Takes a packet that came to another shard, from its [`Stack::poll_misdirected`].
    pub fn handle_misdirected(&mut self, now: Instant, visits: Visits, packet: &[u8]) {
        self.flows.env.shard.set_visits(visits);
        self.take_in(now, packet);
        self.flows.env.shard.set_visits(Visits::default());
    }

    /// Whether the answers that wait to be sent ([`Limits::replies`](crate::Limits::replies)) leave no room for those to another packet.
    /// Send first, or they are dropped.
    #[must_use]
    pub fn is_full_of_answers(&self) -> bool {
        let outbox = &self.flows.env.outbox;
        outbox.has_replies() && !outbox.has_room(MOST_ANSWERS)
    }

    /// Counts packets from [`Stack::poll_misdirected`] for which the other shard had no room.
    pub fn count_undelivered(&mut self) {
        self.flows.env.journal.drop_packet(PacketDrop::ShardQueueFull);
    }

    /// Takes what another shard learnt of a server, from its [`Stack::poll_learnt`].
    pub fn handle_learnt(&mut self, learnt: LearntOfServer) {
        self.client.repeat(learnt);
    }

    /// Takes the answer to a job. An answer that comes too late is ignored.
    pub fn handle_job(&mut self, id: JobId, result: JobResult, now: Instant) {
        self.server.handle_job(&mut self.flows, id, result, now);
        self.settle(now);
    }

    // --- poll ----------------------------------------------------------------------------------

    /// The next event for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        if unlikely(self.shortage.any()) {
            self.shortage.feed(
                self.flows.env.pool.outstanding(),
                &mut self.flows.table.slots,
                &mut self.flows.env.journal,
            );
        }
        loop {
            let id = match self.flows.env.journal.poll_event()? {
                Subject::Listener(index) => {
                    if let Some(id) = self.server.announced(index) {
                        return Some(Event::Acceptable(id));
                    }
                    continue;
                }
                Subject::Connection(id) => id,
            };
            let Some(slot) = self.flows.table.slots.get_live(id.index, id.generation) else { continue };
            slot.event = InQueue::No;
            let ready = core::mem::take(&mut slot.ready);
            if slot.owner == Owner::Application && !ready.is_empty() {
                return Some(Event::Ready(id, ready));
            }
        }
    }

    /// The next packet that belongs to another shard ([`Config::shard`]). Poll until there is none after each burst of
    /// received packets.
    pub fn poll_misdirected(&mut self) -> Option<Misdirected<'_>> {
        self.flows.env.shard.poll()
    }

    /// The next thing that the other shards must know of a server ([`Config::shard`]).
    pub fn poll_learnt(&mut self) -> Option<LearntOfServer> {
        self.client.poll_learnt()
    }

    /// The next question to another party, which [`Stack::handle_job`] answers.
    pub fn poll_job(&mut self) -> Option<Job> {
        self.server.poll_job()
    }

    /// The next trace record, if [`crate::Limits::trace`] keeps any.
    pub fn poll_trace(&mut self) -> Option<Trace> {
        self.flows.env.journal.poll_trace()
    }

    /// When [`Stack::handle_timeout`] must be called next: never later than something is due, sometimes earlier.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let Table { time_wait, last_ack_records, early_ends, .. } = &self.flows.table;
        let tables =
            [time_wait.next_deadline(), last_ack_records.next_deadline(), early_ends.next_deadline()];
        let encapsulation =
            self.flows.encapsulation.as_ref().and_then(|encapsulation| encapsulation.next_deadline());
        // The wheel may still have timers of connections that are gone.
        let timers =
            if self.flows.table.slots.len() == 0 { None } else { self.flows.table.wheel.next_deadline() };
        let fragments = self.fragments.next_deadline();
        let rest = [timers, self.server.next_deadline(), encapsulation, fragments];
        rest.into_iter().chain(tables).flatten().min()
    }
}
