//! The connections of a stack, and what their packets need: the table that finds them, their timers, what remains of
//! those that are over, and what waits to be sent. [`Server`](crate::server::Server) and
//! [`Client`](crate::client::Client) decide how connections begin and what they show; this part knows neither.

pub(crate) mod carried;
pub(crate) mod carrier;
pub(crate) mod fragments;
pub(crate) mod icmp;
pub(crate) mod isn;
pub(crate) mod pair;
pub(crate) mod paths;
pub(crate) mod rebinding;
pub(crate) mod relief;
pub(crate) mod slab;
pub(crate) mod slot;
pub(crate) mod starved;
pub(crate) mod time_wait;
pub(crate) mod verifier;
pub(crate) mod wheel;

use crate::addresses::possible_on_link;
use crate::config::Config;
use crate::event::{ConnId, Drop, Trace};
use crate::flow::{FlowHasher, FlowKey, FlowTable};
use crate::flows::carrier::Carrier;
use crate::flows::fragments::Fragments;
use crate::flows::isn::{Initial, IsnGenerator};
use crate::flows::relief::Relief;
use crate::flows::slab::Places;
use crate::flows::slot::{Asked, Beginning, Owner, Slot};
use crate::flows::starved::Starved;
use crate::flows::time_wait::TimeWaitTable;
use crate::flows::wheel::TimerWheel;
use crate::journal::Journal;
use crate::output::{Outbox, Reply};
use crate::owners::Claims;
use crate::random::Random;
use crate::shard::Shard;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hint::cold_path;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_credential::Outcome;
use firstflight_tcp::{Disposition, Endpoints, Pool, StateName, TimeWait};
use firstflight_wire::hint::unlikely;
use firstflight_wire::icmp::echo_reply;
use firstflight_wire::tcp::{Flags, Segment};
use firstflight_wire::udp;
use firstflight_wire::{Clock, Instant, SeqNum};

/// Boxes kept for later connections.
const SPARE: usize = 256;

/// See the module.
pub(crate) struct Flows {
    pub config: Config,
    /// The settings of connections that have none of their own.
    pub tcp: Arc<firstflight_tcp::Config>,
    pub pool: Pool,
    pub hasher: FlowHasher,
    pub table: FlowTable,
    pub slots: Places<Slot>,
    pub time_wait: TimeWaitTable,
    /// Connections that the peer closed first, see [`crate::ListenConfig::hold_last_ack`].
    pub held: TimeWaitTable,
    pub wheel: TimerWheel,
    pub outbox: Outbox,
    /// TCP in UDP, if it is in use.
    pub carrier: Option<Box<Carrier>>,
    pub isn: IsnGenerator,
    pub random: Random,
    pub clock: Clock,
    /// Boxes of earlier connections, kept for later ones.
    #[allow(clippy::vec_box, reason = "the boxes themselves are reused")]
    pub spare: Vec<Box<Asked>>,
    pub starved: Starved,
    pub relief: Relief,
    pub fragments: Fragments,
    pub journal: Journal,
    /// The place among several stacks, if there are several.
    pub shard: Option<Box<Shard>>,
    /// Where the stacks of the group note their flows, if they do.
    pub claims: Option<Claims>,
    /// Connections (index) with news that [`Stack`](crate::Stack) has to take.
    news: Vec<u32>,
}

impl Flows {
    /// `hashes` is the key of the table, `numbers` the secret of initial sequence numbers.
    pub(crate) fn new(config: Config, hashes: u64, numbers: [u8; 16], random: Random, now: Instant) -> Self {
        let mut tcp = config.tcp.clone();
        // An IPv6 header is 20 bytes longer than IPv4's. Connections take the smaller of this size and the path's.
        tcp.mss = tcp.mss.min(config.mtu.saturating_sub(40).min(0xffff) as u16);
        let limits = &config.limits;
        let claims = Claims::of(&config);
        let from_socket = config.carrier.as_ref().is_some_and(|carrier| carrier.from_socket);
        Self {
            tcp: Arc::new(tcp),
            pool: Pool::new(limits.buffer_bytes),
            hasher: FlowHasher::new(hashes),
            table: FlowTable::default(),
            slots: Places::default(),
            time_wait: TimeWaitTable::new(limits.time_wait).telling(claims.clone()),
            held: TimeWaitTable::new(limits.held_last_acks).telling(claims.clone()),
            wheel: TimerWheel::new(now),
            outbox: Outbox::new(limits.replies, config.hop_limit.get(), from_socket),
            carrier: (config.carrier.as_ref())
                .and_then(|carrier| Carrier::new(carrier, limits.time_wait, now))
                .map(Box::new),
            isn: IsnGenerator::new(numbers),
            clock: Clock { mono: now, unix_ms: 0, uncertainty: Duration::MAX },
            spare: Vec::new(),
            starved: Starved::default(),
            relief: Relief::default(),
            fragments: Fragments::default(),
            journal: Journal::new(limits.trace),
            shard: config.shard.map(|shard| Box::new(Shard::new(shard))),
            claims,
            news: Vec::new(),
            random,
            config,
        }
    }

    /// Takes the connections that have news, in the order in which they got them. Give the memory back with
    /// [`Self::news_taken`].
    pub(crate) fn take_news(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.news)
    }

    /// The news of all these are taken.
    pub(crate) fn news_taken(&mut self, mut taken: Vec<u32>) {
        if self.news.is_empty() {
            taken.clear();
            self.news = taken;
        }
    }

    /// Whether there are news to take.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Notes that connection `index` has news.
    pub(crate) fn note(&mut self, index: u32) {
        self.news.push(index);
    }

    pub(crate) fn slot(&self, id: ConnId) -> Option<&Slot> {
        let (slot, generation) = self.slots.get_with_generation(id.index)?;
        (generation == id.generation).then_some(slot)
    }

    pub(crate) fn id(&self, index: u32) -> ConnId {
        ConnId { index, generation: self.slots.generation(index) }
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

    /// Whether there are as many connections as are allowed.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.slots.len() >= self.config.limits.connections
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
        self.table.find(hash, |i| self.slots.get(i).is_some_and(|s| s.key == *key))
    }

    /// Whether `ip` is one of ours.
    #[inline]
    pub(crate) fn is_ours(&self, ip: IpAddr) -> bool {
        self.config.addresses.contains(&ip)
    }

    /// Whether `ip` means all hosts of a network of the link.
    pub(crate) fn is_broadcast(&self, ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V4(ip) if self.config.broadcasts.contains(&ip))
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

    /// Payloads, options not counted, that a connection in UDP tries above [`Flows::path_mss`]: the sizes that most
    /// tunnels take, that Ethernet takes, and that the link takes.
    #[inline]
    pub(crate) fn probe_sizes(&self, key: &FlowKey) -> [u16; 3] {
        if unlikely(key.is_carried()) { self.carried_probe_sizes(key) } else { [0; 3] }
    }

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

    pub(crate) fn answer_echo(&mut self, packet: &[u8]) {
        let mut out = alloc::vec![0; packet.len()];
        match echo_reply(packet, &mut out) {
            Some(len) if self.config.answer_echo => {
                out.truncate(len);
                self.outbox.reply(Reply::Packet(out), &mut self.journal);
            }
            _ => self.journal.drop_packet(Drop::BadIcmp),
        }
    }

    /// Whether a packet of no connection is for us and has a valid source. If not, the drop is counted.
    #[inline]
    pub(crate) fn concerns_us(&mut self, src: IpAddr, dst: IpAddr) -> bool {
        //= rfc9293 MUST-57
        if unlikely(!self.is_ours(dst)) {
            self.journal.drop_packet(Drop::NotForUs);
            return false;
        }
        //= rfc9293 MUST-63
        if unlikely(!possible_on_link(src) || self.is_ours(src) || self.is_broadcast(src)) {
            self.journal.drop_packet(Drop::BadSource);
            return false;
        }
        true
    }

    /// What remains of a connection with this hash that is over, and whether the peer closed it first.
    #[inline]
    pub(crate) fn remembered(&self, hash: u64) -> Option<(TimeWait, bool)> {
        if let Some(record) = self.time_wait.find(hash) {
            return Some((record, false));
        }
        if self.held.len() == 0 {
            return None;
        }
        cold_path();
        self.held.find(hash).map(|record| (record, true))
    }

    #[cold]
    pub(crate) fn not_processed(&mut self, index: u32, disposition: Disposition, segment: &Segment<'_>) {
        match disposition {
            Disposition::Processed => {}
            Disposition::Dropped(reason) => {
                self.journal.counters.segments_dropped += 1;
                let id = self.id(index);
                self.journal.trace(Trace::Segment(id, reason));
            }
            Disposition::Reset => {
                if let Some(key) = self.slots.get(index).map(|slot| slot.key) {
                    self.reply_reset(key, segment);
                }
            }
        }
    }

    /// RFC 9293 §3.10.7.1: answers a segment that belongs to nothing with a RST, but never answers a RST.
    pub(crate) fn reply_reset(&mut self, key: FlowKey, segment: &Segment<'_>) {
        self.journal.drop_packet(Drop::NoConnection);
        if segment.flags.contains(Flags::RST) {
            return;
        }
        self.journal.counters.resets_sent += 1;
        self.outbox.reply(Reply::reset(key, segment), &mut self.journal);
    }
    /// Something happened to connection `index`: queues it for transmission, and notes its news.
    pub(crate) fn touched(&mut self, index: u32) {
        if self.touch(index) {
            self.note(index);
        }
    }

    /// Like [`Self::touched`], but returns whether the connection has news instead of noting that.
    #[inline]
    pub(crate) fn touch(&mut self, index: u32) -> bool {
        let tracing = self.journal.is_tracing();
        self.slots.get_mut(index).is_some_and(|slot| slot.touch(index, &mut self.outbox, tracing))
    }

    /// Gives a segment to connection `index`, which is not in SYN-SENT. Returns whether the connection has news.
    #[inline]
    pub(crate) fn deliver(&mut self, index: u32, segment: &Segment<'_>, now: Instant) -> bool {
        let Some(slot) = self.slots.get_mut(index) else { return false };
        let disposition = slot.conn.handle_segment(segment, now, &mut self.pool);
        let news = slot.touch(index, &mut self.outbox, self.journal.is_tracing());
        if unlikely(disposition != Disposition::Processed) {
            self.not_processed(index, disposition, segment);
        }
        news
    }

    /// Resets a connection so that another one has room.
    pub(crate) fn shed(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.conn.abort(&mut self.pool);
            self.touched(index);
        }
    }

    /// Queues the connection for [`Stack::poll_event`].
    pub(crate) fn announce(&mut self, index: u32) {
        if let Some((slot, generation)) = self.slots.get_mut_with_generation(index) {
            slot.announce(index, generation, &mut self.journal);
        }
    }

    /// Frees the slot if the connection is over and nobody owns it.
    #[inline]
    pub(crate) fn reap(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let over = matches!(slot.conn.state(), StateName::Closed | StateName::TimeWait);
        if over && slot.owner == Owner::Nobody && !slot.queued {
            if let Some(asked) = slot.asked.take()
                && self.spare.len() < SPARE
            {
                self.spare.push(asked);
            }
            slot.retire(&mut self.pool);
            self.slots.retire(index);
        }
    }

    /// Inserts a new connection, in CLOSED, into slab and table, and calls `begin` for it. `tcp` are its
    /// settings, if they are not the stack's. They are taken by reference, so that no reference count changes twice.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        tcp: Option<&Arc<firstflight_tcp::Config>>,
        with: Beginning<'_>,
        begin: impl FnOnce(&mut Slot, &mut Pool),
    ) -> u32 {
        let Beginning { key, hash, owner, now, .. } = with;
        let tcp = tcp.unwrap_or(&self.tcp);
        let (index, slot) = self.slots.reserve(Slot::default);
        slot.renew(tcp, with);
        begin(slot, &mut self.pool);
        slot.queued = true;
        self.outbox.queue(index);
        // A connect carried in a lookup has no server yet, so it has no mapping of a translator to keep.
        if unlikely(key.is_carried()) && key.outer_remote() != 0 {
            self.join_pair(key, index, owner == Owner::Application, now);
        }
        if let Some(claims) = &self.claims {
            claims.claim(hash);
        }
        let slots = &self.slots;
        self.table.insert(hash, index, |i| slots.get(i).map_or(0, |s| s.hash));
        index
    }

    #[inline]
    pub(crate) fn endpoints(&self, key: &FlowKey, above: Option<SeqNum>, now: Instant) -> Endpoints {
        let Initial { isn, ts_offset } = self.isn.initial(key, now);
        Endpoints {
            local_port: key.local_port(),
            remote_port: key.remote_port(),
            isn: above.map_or(isn, |a| if isn.gt(a) { isn } else { a + 1 }),
            ts_offset,
            default_mss: key.default_mss(),
            path_mss: self.path_mss(key),
            probe: self.probe_sizes(key),
        }
    }

    /// Gives connection `index` another peer. `opened` says whether this stack opened the connection.
    pub(crate) fn rekey(&mut self, index: u32, key: &FlowKey, opened: bool, now: Instant) {
        self.leave_pair(index);
        let hash = self.hasher.hash(key);
        let Some(slot) = self.slots.get_mut(index) else { return };
        let before = core::mem::replace(&mut slot.hash, hash);
        slot.key = *key;
        self.table.remove(before, index);
        if let Some(claims) = &self.claims {
            claims.release(before);
            claims.claim(hash);
        }
        let slots = &self.slots;
        self.table.insert(hash, index, |i| slots.get(i).map_or(0, |slot| slot.hash));
        if key.is_carried() {
            self.join_pair(key, index, opened, now);
        }
    }
}
