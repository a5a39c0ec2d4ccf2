//! The stack itself: its fields, its getters, its clock.

use crate::armed::Armed;
use crate::asap::Vouched;
use crate::carrier::Carrier;
use crate::challenged::Challenged;
use crate::clients::{Clients, Relief};
use crate::config::Config;
use crate::counters::Counters;
use crate::event::{ConnId, ConnectionInfo, Event, Job, JobId, ListenerId, Trace};
use crate::flow::{FlowHasher, FlowKey, FlowTable};
use crate::fragments::Fragments;
use crate::gauges::Gauges;
use crate::isn::IsnGenerator;
use crate::journal::{Journal, Subject};
use crate::listeners::Listeners;
use crate::output::Outbox;
use crate::parked::ParkingLot;
use crate::ports::PortSelector;
use crate::random::Random;
use crate::slab::Places;
use crate::slot::{Asked, Owner, Slot};
use crate::starved::Starved;
use crate::syn_cookie::SynCookies;
use crate::time_wait::TimeWaitTable;
use crate::wheel::TimerWheel;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_credential::asap::{AsapShard, reason};
use firstflight_credential::{CredentialStore, Entry, JobResult, NetworkId, Outcome, Place, Reason, Serial};
use firstflight_tcp::{CloseReason, Pool, Variables};
use firstflight_wire::hint::unlikely;
use firstflight_wire::{Clock, Instant, udp};

/// Most addresses that [`Stack::prefer_address`] keeps.
const MAX_ADDRESSES: usize = 64;

/// Many TCP connections over one link. Owned by one thread; more cores mean more stacks.
///
/// `Debug` shows counts: nothing that a stream carried, and no secret.
pub struct Stack {
    pub(crate) config: Config,
    pub(crate) tcp: Arc<firstflight_tcp::Config>,
    pub(crate) pool: Pool,
    pub(crate) hasher: FlowHasher,
    pub(crate) flows: FlowTable,
    pub(crate) slots: Places<Slot>,
    pub(crate) time_wait: TimeWaitTable,
    /// Connections that the peer closed first, see [`crate::ListenConfig::hold_last_ack`].
    pub(crate) held: TimeWaitTable,
    pub(crate) challenged: Challenged,
    pub(crate) listeners: Listeners,
    pub(crate) parked: ParkingLot,
    pub(crate) wheel: TimerWheel,
    /// TCP in UDP, if it is in use.
    pub(crate) carrier: Option<Box<Carrier>>,
    pub(crate) ports: PortSelector,
    pub(crate) isn: IsnGenerator,
    pub(crate) cookies: SynCookies,
    pub(crate) random: Random,
    pub(crate) credentials: CredentialStore,
    pub(crate) clock: Clock,
    /// What is known of certificates and of the clients that show them.
    pub(crate) asap: AsapShard,
    /// Children (by index) that a certificate vouches for until their client's ACK.
    pub(crate) certified: BTreeMap<u32, Vouched>,
    /// Places of first flights that a RST ended after the application had them, and until when the places stay
    /// taken.
    pub(crate) quarantine: VecDeque<(Instant, Place)>,
    /// One-time cookies granted to connections (by index) that have not acknowledged.
    pub(crate) grants: BTreeMap<u32, (ListenerId, Serial)>,
    /// Connects carried in a lookup that no server has answered.
    pub(crate) armed: BTreeMap<FlowKey, Armed>,
    pub(crate) outbox: Outbox,
    /// Boxes of earlier connections, kept for later ones.
    #[allow(clippy::vec_box, reason = "the boxes themselves are reused")]
    pub(crate) spare: Vec<Box<Asked>>,
    pub(crate) starved: Starved,
    pub(crate) fragments: Fragments,
    /// The connections of each client, if their number is limited.
    pub(crate) clients: Option<Clients>,
    pub(crate) relief: Relief,
    pub(crate) journal: Journal,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("addresses", &self.config.addresses)
            .field("connections", &self.connections())
            .field("time_waits", &self.time_waits())
            .field("buffer_bytes", &self.buffer_bytes())
            .field("next_timeout", &self.poll_timeout())
            .field("to_send", &self.outbox.waiting())
            .field("counters", &self.journal.counters)
            .finish_non_exhaustive()
    }
}

impl Stack {
    /// An empty stack.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let mut random = Random::new(&config.secret);
        let mut tcp = config.tcp.clone();
        // An IPv6 header is 20 bytes longer than IPv4's. Connections take the smaller of this size and the path's.
        tcp.mss = tcp.mss.min(config.mtu.saturating_sub(40).min(0xffff) as u16);
        let limits = &config.limits;
        Self {
            tcp: Arc::new(tcp),
            pool: Pool::new(limits.buffer_bytes),
            hasher: FlowHasher::new(random.next_u64()),
            flows: FlowTable::default(),
            slots: Places::default(),
            time_wait: TimeWaitTable::new(limits.time_wait),
            held: TimeWaitTable::new(limits.held_last_acks),
            challenged: Challenged::default(),
            listeners: Listeners::default(),
            parked: ParkingLot::new(limits.parked, limits.parked_bytes, limits.parked_for),
            wheel: TimerWheel::new(now),
            carrier: (config.carrier.as_ref())
                .and_then(|carrier| Carrier::new(carrier, limits.time_wait, now))
                .map(Box::new),
            ports: PortSelector::new(random.secret(), crate::ports::DEFAULT_RANGE),
            isn: IsnGenerator::new(random.secret()),
            cookies: SynCookies::new(random.secret()),
            credentials: CredentialStore::new(limits.credentials).simple(config.simple_credentials),
            clock: Clock { mono: now, unix_ms: 0, uncertainty: Duration::MAX },
            asap: AsapShard::new(limits.asap),
            certified: BTreeMap::new(),
            quarantine: VecDeque::new(),
            grants: BTreeMap::new(),
            armed: BTreeMap::new(),
            outbox: Outbox::new(
                limits.replies,
                config.hop_limit.get(),
                config.carrier.as_ref().is_some_and(|carrier| carrier.from_socket),
            ),
            spare: Vec::new(),
            starved: Starved::default(),
            fragments: Fragments::default(),
            clients: Clients::new(limits.connections_per_client),
            relief: Relief::default(),
            journal: Journal::new(limits.trace),
            random,
            config,
        }
    }

    // --- getters -------------------------------------------------------------------------------

    /// Its settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its counts.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.journal.counters
    }

    /// Connections it holds, TIME-WAIT not counted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slots.len()
    }

    /// Connections in TIME-WAIT.
    #[must_use]
    pub fn time_waits(&self) -> usize {
        self.time_wait.len()
    }

    /// Bytes that send and receive buffers hold now.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.pool.outstanding()
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
            parked: self.parked.len(),
            quarantined: self.quarantine.len(),
            ..Gauges::default()
        };
        gauges.add_listeners(&self.listeners);
        gauges
    }

    /// What the client remembers of servers.
    #[must_use]
    pub fn credentials(&self) -> &CredentialStore {
        &self.credentials
    }

    /// Forgets every cookie and round-trip time. Call it when the host moved to another network.
    pub fn forget_credentials(&mut self) {
        self.credentials.flush();
    }

    /// Sets the network to which the host moved. Nothing that was learnt on another network is used from now on.
    /// What was learnt on an unknown network is forgotten.
    pub fn set_network(&mut self, network: NetworkId) {
        if network != self.config.network && !self.config.network.is_known() {
            self.credentials.flush();
        }
        self.config.network = network;
    }

    /// Makes `ip` one of this stack's addresses, and the source of connects in its family from now on. At most 64
    /// addresses are kept.
    pub fn prefer_address(&mut self, ip: IpAddr) {
        let addresses = &mut self.config.addresses;
        if addresses.iter().find(|own| own.is_ipv4() == ip.is_ipv4()) == Some(&ip) {
            return;
        }
        addresses.retain(|own| *own != ip);
        addresses.insert(0, ip);
        addresses.truncate(MAX_ADDRESSES);
    }

    /// Restores what was saved about a server on `network`.
    pub fn restore_credential(&mut self, network: NetworkId, server: IpAddr, entry: Entry) {
        self.credentials.restore(network, server, entry);
    }

    /// What is known of a connection; `None` if it is gone.
    #[must_use]
    pub fn info(&self, id: ConnId) -> Option<ConnectionInfo> {
        let slot = self.slot(id)?;
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
            handshake_retransmits: (slot.asked.as_ref())
                .map_or(0, |a| a.ladder.syns)
                .saturating_add(slot.conn.handshake_retransmits()),
            network_error: slot.network_error,
            certificate: slot.certificate,
            relayed: slot.relayed,
            cookie_age: slot.asked.as_ref().and_then(|a| a.cookie_age),
            totals: slot.conn.totals(),
            carrier: slot.key.is_carried().then(|| slot.key.outer_remote()),
        })
    }

    /// The state machine of a connection, for inspection; `None` if it is gone.
    #[must_use]
    pub fn connection(&self, id: ConnId) -> Option<&firstflight_tcp::Connection> {
        self.slot(id).map(|slot| &slot.conn)
    }

    /// Why a connection is over, once it is; `None` also if it is gone.
    #[must_use]
    pub fn close_reason(&self, id: ConnId) -> Option<CloseReason> {
        self.slot(id)?.conn.close_reason()
    }

    /// The sequence variables of a connection, for diagnosis; `None` if it is gone.
    #[must_use]
    pub fn variables(&self, id: ConnId) -> Option<Variables> {
        Some(self.slot(id)?.conn.variables())
    }

    pub(crate) fn slot(&self, id: ConnId) -> Option<&Slot> {
        let (slot, generation) = self.slots.get_with_generation(id.index)?;
        (generation == id.generation).then_some(slot)
    }

    pub(crate) fn id(&self, index: u32) -> ConnId {
        ConnId { index, generation: self.slots.generation(index) }
    }

    // --- handle --------------------------------------------------------------------------------

    /// Sets the wall clock. Credentials need it, TCP does not. Call it at the start and from time to time, so that
    /// the stack learns of a clock that steps.
    pub fn handle_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    /// The wall clock at `now`, computed from the last one that was set.
    pub(crate) fn clock_at(&self, now: Instant) -> Clock {
        let passed = now - self.clock.mono;
        Clock {
            mono: now,
            unix_ms: self.clock.unix_ms.saturating_add(passed.as_millis() as u64),
            uncertainty: self.clock.uncertainty,
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.wheel.pop_expired(now) {
            if let Some(slot) = self.slots.get_mut(index) {
                slot.conn.handle_timeout(now, &mut self.pool);
                let climbs = slot.asked.as_ref().is_some_and(|a| a.ladder.at.is_some_and(|at| at <= now));
                self.touched(index, now);
                if climbs {
                    self.climb(index, now);
                }
            }
        }
        self.time_wait.expire(now);
        self.held.expire(now);
        self.fragments.expire(now, &mut self.journal.counters);
        while self.quarantine.front().is_some_and(|(until, _)| *until <= now) {
            self.quarantine.pop_front();
        }
        if unlikely(self.carrier.is_some()) {
            self.handle_carrier_timeout(now);
        }
        while let Some(parked) = self.parked.take_expired(now) {
            self.spoil_parked(&parked, now);
            self.resume(parked, JobResult::Refuse(Reason::ParkedTooLong), now);
        }
    }

    /// Takes the answer to a job. An answer that comes too late is ignored.
    pub fn handle_job(&mut self, id: JobId, result: JobResult, now: Instant) {
        let Some(parked) = self.parked.take(id) else { return };
        if result == JobResult::Accept
            && let Some(candidate) = &parked.candidate
            && let Err(refused) = candidate.stands(&self.asap, &self.clock_at(now))
        {
            let result = JobResult::Refuse(reason(refused.status));
            return self.resume_with(parked, result, Some(refused), now);
        }
        self.resume(parked, result, now);
    }

    // --- poll ----------------------------------------------------------------------------------

    /// The next event for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        if unlikely(self.starved.any()) {
            self.starved.feed(self.pool.outstanding(), &mut self.slots, &mut self.journal);
        }
        loop {
            let id = match self.journal.poll_event()? {
                Subject::Listener(index) => {
                    if let Some(id) = self.listeners.announced(index) {
                        return Some(Event::Acceptable(id));
                    }
                    continue;
                }
                Subject::Connection(id) => id,
            };
            let Some(slot) = self.slots.get_live(id.index, id.generation) else { continue };
            slot.announced = false;
            let ready = core::mem::take(&mut slot.ready);
            if slot.owner == Owner::Application && !ready.is_empty() {
                return Some(Event::Ready(id, ready));
            }
        }
    }

    /// The next verification to hand out.
    pub fn poll_job(&mut self) -> Option<Job> {
        self.parked.poll_job().map(|(id, request)| Job { id, request })
    }

    /// The next trace record, if [`crate::Limits::trace`] keeps any.
    pub fn poll_trace(&mut self) -> Option<Trace> {
        self.journal.poll_trace()
    }

    /// When [`Stack::handle_timeout`] must be called next: never later than something is due, sometimes earlier.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let quarantine = self.quarantine.front().map(|(until, _)| *until);
        let tables = [self.time_wait.next_deadline(), self.held.next_deadline()];
        let carrier = self.carrier.as_ref().and_then(|carrier| carrier.next_deadline());
        // The wheel may still have timers of connections that are gone.
        let timers = if self.slots.len() == 0 { None } else { self.wheel.next_deadline() };
        let fragments = self.fragments.next_deadline();
        let rest = [timers, self.parked.next_deadline(), quarantine, carrier, fragments];
        rest.into_iter().chain(tables).flatten().min()
    }

    // --- finding ---------------------------------------------------------------------------------

    /// The connection with this four-tuple.
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey) -> Option<u32> {
        self.find_hashed(self.hasher.hash(key), key)
    }

    /// Like [`Self::find`], if the hash is known already.
    #[inline]
    pub(crate) fn find_hashed(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        self.flows.find(hash, |i| self.slots.get(i).is_some_and(|s| s.key == *key))
    }

    /// Whether `ip` is one of ours.
    #[inline]
    pub(crate) fn is_ours(&self, ip: IpAddr) -> bool {
        self.config.addresses.contains(&ip)
    }

    /// Largest payload of a flow's segment that the link takes, options not counted. In UDP it is what fits into a
    /// datagram of the size that every path takes.
    #[inline]
    pub(crate) fn path_mss(&self, key: &FlowKey) -> u16 {
        let mut packet = self.config.mtu;
        if let Some(carrier) = self.carrier.as_ref().filter(|_| key.is_carried()) {
            packet = packet.min(key.ip_header_len() + udp::HEADER + usize::from(carrier.datagram));
        }
        packet.saturating_sub(key.headers_len() + 20).clamp(48, 0xffff) as u16
    }

    /// Payloads, options not counted, that a connection in UDP tries above [`Stack::path_mss`]: the sizes that most
    /// tunnels take, that Ethernet takes, and that the link takes.
    #[inline]
    pub(crate) fn probe_sizes(&self, key: &FlowKey) -> [u16; 3] {
        if unlikely(key.is_carried()) { self.carried_probe_sizes(key) } else { [0; 3] }
    }

    #[inline(never)]
    fn carried_probe_sizes(&self, key: &FlowKey) -> [u16; 3] {
        if self.carrier.as_ref().is_none_or(|carrier| !carrier.probe) {
            return [0; 3];
        }
        let base = self.path_mss(key);
        let size = |packet: usize| {
            let payload = packet.min(self.config.mtu).saturating_sub(key.headers_len() + 20);
            payload.min(0xffff) as u16
        };
        let [tunnel, ethernet, link] = [1428, 1500, self.config.mtu].map(size);
        if link > base { [tunnel, ethernet, link] } else { [0; 3] }
    }

    // --- trace ---------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn trace_outcome(&mut self, index: u32, outcome: Outcome) {
        if unlikely(self.journal.is_tracing()) {
            let id = self.id(index);
            self.journal.trace(Trace::Outcome(id, outcome));
        }
    }

    pub(crate) fn trace_transitions(&mut self, index: u32) {
        let id = self.id(index);
        while let Some(t) = self.slots.get_mut(index).and_then(|s| s.conn.poll_transition()) {
            self.journal.trace(Trace::Transition(id, t));
        }
    }
}
