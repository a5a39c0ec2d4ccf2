//! TCP in UDP: what belongs to two UDP ports rather than to one connection.
//!
//! Keep-alives hold the mapping of an address translator between two UDP ports for all connections between them.
//! The side that opened a connection sends them, because translators are in front of clients. A packet only stores
//! its time.
//!
//! A keep-alive for ports without a connection is answered with a reset of the carrier. An attacker who guesses two
//! ports can forge that reset, so it ends nothing. It makes connections send a probe, and the answer of the peer's
//! TCP to the probe is judged as always (RFC 5961). One reset is accepted for each keep-alive that was sent.

use crate::config::CarrierConfig;
use crate::event::Drop;
use crate::flow::{FlowKey, FlowTable};
use crate::output::Reply;
use crate::rebinding::Paths;
use crate::slab::{Places, Slab};
use crate::slot::{Owner, Slot};
use crate::stack::Stack;
use crate::wheel::TimerWheel;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU32;
use core::time::Duration;
use firstflight_tcp::StateName;
use firstflight_wire::carrier::{Carried, Control};
use firstflight_wire::tcp::Segment;
use firstflight_wire::{Instant, udp};

/// Retransmissions of a SYN-ACK to a client whose address nothing proves. With two SYN-ACKs in all, the client gets
/// less than three times what it sent, because a SYN-ACK is at most 20 bytes longer than its SYN (RFC 9000 §8.1 has
/// the same limit).
pub(crate) const SYN_ACK_RETRIES: u8 = 1;

/// Connections that send a probe after one reset of the carrier.
const PROBES: usize = 16;

/// A pair of UDP ports in the carrier's slab: its index plus one, so that an `Option` of it takes no more space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairId(NonZeroU32);

impl PairId {
    fn of(index: u32) -> Option<Self> {
        NonZeroU32::new(index.wrapping_add(1)).map(Self)
    }

    fn index(self) -> u32 {
        self.0.get() - 1
    }
}

/// The carrier of one stack.
#[derive(Debug)]
pub struct Carrier {
    /// Our UDP port.
    pub port: u16,
    /// See [`CarrierConfig::from_socket`].
    pub from_socket: bool,
    /// Largest UDP payload to send.
    pub datagram: u16,
    /// See [`CarrierConfig::probe`].
    pub probe: bool,
    keep_alive: Option<KeepAlive>,
    keep_alive_for: Option<Duration>,
    /// Connections whose client's UDP port may change.
    pub paths: Paths,
    pairs: Slab<Pair>,
    table: FlowTable,
    wheel: TimerWheel,
    /// Pairs (index and generation) whose keep-alive waits to be sent.
    due: VecDeque<(u32, u32)>,
}

/// A connection that was heard so shortly before another one was opened is known at our present port.
const HEARD: Duration = Duration::from_millis(250);
/// Least time between probes of the connections beside a new one.
const PROBES_APART: Duration = Duration::from_secs(10);

/// Shortest silence before a keep-alive.
const SHORTEST: Duration = Duration::from_millis(10);

/// When keep-alives leave: see [`CarrierConfig::first_keep_alive`].
#[derive(Debug, Clone, Copy)]
struct KeepAlive {
    first: Duration,
    every: Duration,
}

/// Two UDP ports with connections between them.
#[derive(Debug)]
struct Pair {
    /// Without inner ports.
    key: FlowKey,
    hash: u64,
    /// Connections that were opened here (index).
    opened: BTreeSet<u32>,
    /// Connections that the peer opened (index).
    accepted: BTreeSet<u32>,
    /// When the last segment was sent.
    used_at: Instant,
    /// When anything was last sent.
    kept_at: Instant,
    /// Keep-alives since the last segment was sent.
    unused: u8,
    /// The wheel has a timer for it.
    armed: bool,
    /// A keep-alive was sent, and no reset has been accepted since.
    asked: bool,
    /// The connection of `opened` from which to probe next.
    next: u32,
    /// When a connection was last opened here while there were others: the peer may not know the others at our present
    /// port.
    doubted: Option<Instant>,
    /// When others were last probed for that reason.
    probed_at: Option<Instant>,
}

impl Pair {
    /// The next of the opened connections (index) for which `wanted` is true.
    fn in_turn(&mut self, wanted: impl Fn(u32) -> bool) -> Vec<u32> {
        let turn = self.opened.range(self.next..).chain(self.opened.range(..self.next));
        let next: Vec<u32> = turn.copied().filter(|index| wanted(*index)).take(PROBES).collect();
        self.next = next.last().map_or(0, |last| last + 1);
        next
    }

    /// The next of the connections (index) that were not heard since another one was opened. If there are none, there is no
    /// doubt any more.
    fn suspects(&mut self, slots: &Places<Slot>, now: Instant) -> Vec<u32> {
        let Some(doubted) = self.doubted else { return Vec::new() };
        let unheard = |index| slots.get(index).is_some_and(|slot| slot.conn.last_heard() + HEARD < doubted);
        let suspects = self.in_turn(unheard);
        self.doubted = self.doubted.filter(|_| !suspects.is_empty());
        self.probed_at = Some(now);
        suspects
    }

    /// Silence after which the next keep-alive is sent.
    fn interval(&self, times: KeepAlive) -> Duration {
        times.first.saturating_mul(1 << self.unused.min(16)).min(times.every)
    }
}

impl Carrier {
    /// `None` if the port is 0. At most `time_waits` ends of connections are remembered.
    pub fn new(config: &CarrierConfig, time_waits: usize, now: Instant) -> Option<Self> {
        (config.port != 0).then(|| Self {
            port: config.port,
            from_socket: config.from_socket,
            datagram: config.datagram,
            probe: config.probe,
            keep_alive: config
                .keep_alive
                .filter(|every| !every.is_zero())
                .map(|every| KeepAlive { first: config.first_keep_alive.max(SHORTEST), every }),
            keep_alive_for: config.keep_alive_for,
            paths: Paths::new(time_waits),
            pairs: Slab::default(),
            table: FlowTable::default(),
            wheel: TimerWheel::new(now),
            due: VecDeque::new(),
        })
    }

    fn find(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        self.table.find(hash, |i| self.pairs.get(i).is_some_and(|pair| pair.key == *key))
    }

    /// Adds connection `index` to the pair `key`, which has this hash.
    fn join(&mut self, key: FlowKey, hash: u64, index: u32, opened: bool, now: Instant) -> Option<PairId> {
        let pair = self.find(hash, &key).unwrap_or_else(|| {
            let (pair, _) = self.pairs.insert(Pair {
                key,
                hash,
                opened: BTreeSet::new(),
                accepted: BTreeSet::new(),
                used_at: now,
                kept_at: now,
                armed: false,
                unused: 0,
                asked: false,
                next: 0,
                doubted: None,
                probed_at: None,
            });
            let pairs = &self.pairs;
            self.table.insert(hash, pair, |i| pairs.get(i).map_or(0, |pair| pair.hash));
            pair
        });
        if let Some(entry) = self.pairs.get_mut(pair) {
            let connections = if opened { &mut entry.opened } else { &mut entry.accepted };
            connections.insert(index);
        }
        let id = PairId::of(pair)?;
        self.sent(id, now);
        Some(id)
    }

    /// Removes connection `index` from this pair. True if the peer had opened it.
    fn leave(&mut self, id: PairId, index: u32) -> bool {
        let Some(pair) = self.pairs.get_mut(id.index()) else { return false };
        let accepted = pair.accepted.remove(&index);
        pair.opened.remove(&index);
        if pair.opened.is_empty() && pair.accepted.is_empty() {
            self.table.remove(pair.hash, id.index());
            self.wheel.cancel(id.index());
            self.pairs.remove(id.index());
        }
        accepted
    }

    /// The connections that the peer opened between these ports (index and generation).
    pub fn accepted(&mut self, (index, generation): (u32, u32)) -> Option<&BTreeSet<u32>> {
        Some(&self.pairs.get_live(index, generation)?.accepted)
    }

    /// This pair's index and generation, if the peer opened other connections than `index` there.
    pub fn has_accepted_others(&self, id: PairId, index: u32) -> Option<(u32, u32)> {
        let others = self.pairs.get(id.index())?.accepted.iter().any(|one| *one != index);
        others.then(|| (id.index(), self.pairs.generation(id.index())))
    }

    /// Notes that a segment of a connection of this pair is sent.
    #[inline]
    pub fn sent(&mut self, id: PairId, now: Instant) {
        let Some(pair) = self.pairs.get_mut(id.index()) else { return };
        let rested = pair.unused > 0;
        (pair.used_at, pair.kept_at, pair.unused) = (now, now, 0);
        if (rested || !pair.armed)
            && !pair.opened.is_empty()
            && let Some(times) = self.keep_alive
        {
            pair.armed = true;
            self.wheel.expedite(id.index(), now + pair.interval(times));
        }
    }

    /// Marks the keep-alives that are due. Only ports with a connection that an application holds get them. Returns the
    /// connections (index) to probe, because a probe before was not answered.
    pub fn handle_timeout(&mut self, slots: &Places<Slot>, now: Instant) -> Vec<u32> {
        self.paths.expire(now);
        let mut suspects = Vec::new();
        while let Some(index) = self.wheel.pop_expired(now) {
            let generation = self.pairs.generation(index);
            let (Some(pair), Some(times)) = (self.pairs.get_mut(index), self.keep_alive) else { continue };
            pair.armed = false;
            // The next segment sets the timer again.
            let held = |index: &u32| slots.get(*index).is_some_and(|slot| slot.owner == Owner::Application);
            if !pair.opened.iter().any(held)
                || self.keep_alive_for.is_some_and(|most| now - pair.used_at > most)
            {
                continue;
            }
            if now - pair.kept_at >= pair.interval(times) {
                (pair.kept_at, pair.asked) = (now, true);
                pair.unused = pair.unused.saturating_add(1);
                self.due.push_back((index, generation));
                suspects.extend(pair.suspects(slots, now));
            }
            pair.armed = true;
            let next = pair.kept_at + pair.interval(times);
            self.wheel.schedule(index, next);
        }
        suspects
    }

    /// When [`Carrier::handle_timeout`] must be called next.
    pub fn next_deadline(&self) -> Option<Instant> {
        [self.wheel.next_deadline(), self.paths.next_deadline()].into_iter().flatten().min()
    }

    /// The ports between which a keep-alive must be sent.
    pub fn poll_keep_alive(&mut self) -> Option<FlowKey> {
        loop {
            let (index, generation) = self.due.pop_front()?;
            if let Some(pair) = self.pairs.get_live(index, generation) {
                return Some(pair.key);
            }
        }
    }

    /// Connection `index`, which this stack opened between these ports, is established. Returns the connections (index)
    /// to probe: a translator may have changed our port since they were last heard. The peer does not answer our
    /// keep-alives with a reset any more, because it knows the new connection.
    fn opened(&mut self, id: PairId, index: u32, slots: &Places<Slot>, now: Instant) -> Vec<u32> {
        let Some(pair) = self.pairs.get_mut(id.index()) else { return Vec::new() };
        if pair.opened.iter().all(|one| *one == index) {
            return Vec::new();
        }
        pair.doubted = Some(now);
        let rests = pair.probed_at.is_some_and(|at| now - at < PROBES_APART);
        if rests { Vec::new() } else { pair.suspects(slots, now) }
    }

    /// The connections (index) to probe, because the peer reports that it has none between these ports.
    fn reset(&mut self, index: u32) -> Vec<u32> {
        let Some(pair) = self.pairs.get_mut(index).filter(|pair| pair.asked) else { return Vec::new() };
        pair.asked = false;
        pair.in_turn(|_| true)
    }
}

impl Stack {
    /// Handles a UDP datagram. There is a carrier. `#[inline(never)]` keeps this out of raw TCP's path.
    #[inline(never)]
    pub(crate) fn handle_udp(&mut self, src: IpAddr, dst: IpAddr, bytes: &[u8], ce: bool, now: Instant) {
        let Some(carrier) = &self.carrier else { return };
        let (port, trusted) = (carrier.port, carrier.from_socket);
        let datagram =
            if trusted { udp::Datagram::parse(bytes) } else { udp::Datagram::parse_checked(bytes, src, dst) };
        let Ok(datagram) = datagram else { return self.journal.drop_packet(Drop::BadUdp) };
        let carried = Carried::parse(datagram.payload).ok().filter(|_| datagram.dst_port == port);
        let Some(carried) = carried else {
            if self.concerns_us(src, dst) {
                self.journal.drop_packet(Drop::NotCarried);
            }
            return;
        };
        match carried {
            Carried::Segment(bytes) => {
                let Ok(mut segment) = Segment::parse(bytes) else {
                    return self.journal.drop_packet(Drop::BadTcp);
                };
                segment.ce = ce;
                let key = FlowKey::of(dst, segment.dst_port, src, segment.src_port)
                    .carried(port, datagram.src_port);
                let hash = self.hasher.hash(&key);
                match self.find_hashed(hash, &key) {
                    Some(index) => self.deliver(index, &segment, now),
                    None if self.comes_from_another(&key) => self.handle_new(&key, hash, &segment, now),
                    None => {}
                }
            }
            Carried::Control(control) => {
                let key = FlowKey::of(dst, 0, src, 0).carried(port, datagram.src_port);
                if self.comes_from_another(&key) {
                    self.handle_control(key, control, now);
                }
            }
        }
    }

    /// Whether a datagram of no connection is for us and from a peer that can be answered. If not, the drop is
    /// counted.
    pub(crate) fn comes_from_another(&mut self, key: &FlowKey) -> bool {
        let (src, dst) = (key.remote_ip(), key.local_ip());
        let trusted = self.carrier.as_ref().is_some_and(|carrier| carrier.from_socket);
        if !trusted && !self.is_ours(dst) {
            self.journal.drop_packet(Drop::NotForUs);
            return false;
        }
        // Another program on the same host may have another UDP port.
        let ourselves = key.outer_local() == key.outer_remote() && (src == dst || self.is_ours(src));
        if ourselves || key.outer_remote() == 0 || !crate::ingress::possible_source(src) {
            self.journal.drop_packet(Drop::BadSource);
            return false;
        }
        true
    }

    fn handle_control(&mut self, key: FlowKey, control: Control, now: Instant) {
        let hash = self.hasher.hash(&key);
        let Some(carrier) = &mut self.carrier else { return };
        match (control, carrier.find(hash, &key)) {
            (Control::KeepAlive, None) => {
                self.journal.counters.carrier_resets_sent += 1;
                self.outbox.reply(Reply::Control(key, Control::Reset), &mut self.journal);
            }
            (Control::Reset, Some(pair)) => {
                let suspects = carrier.reset(pair);
                self.journal.counters.carrier_resets_believed += u64::from(!suspects.is_empty());
                self.probe_all(&suspects, now);
            }
            (Control::PathChallenge(path), _) => {
                self.path_challenged(&key.with_inner(path.dst_port, path.src_port), path.bits, now);
            }
            (Control::PathResponse(path), _) => {
                self.path_answered(&key.with_inner(path.dst_port, path.src_port), path.bits, now);
            }
            (Control::KeepAlive, Some(_)) | (Control::Reset, None) => {}
        }
    }

    /// Sends a keep-alive to a peer that has no connection with us. It holds a mapping of the address translator in
    /// front of us, through which others reach us. An answer, if one comes, is ignored.
    pub fn keep_alive(&mut self, to: SocketAddr) {
        let same = |ip: &&IpAddr| ip.is_ipv4() == to.is_ipv4();
        let Some(local) = self.config.addresses.iter().find(same).copied() else { return };
        if let Some(carrier) = self.carrier.as_ref().filter(|_| to.port() != 0) {
            let key = FlowKey::of(local, 0, to.ip(), 0).carried(carrier.port, to.port());
            self.outbox.reply(Reply::Control(key, Control::KeepAlive), &mut self.journal);
        }
    }

    /// Adds connection `index` in UDP, which begins. `opened` says whether this stack opened it.
    pub(crate) fn join_pair(&mut self, key: &FlowKey, index: u32, opened: bool, now: Instant) {
        let outer = key.outer();
        let (hash, anywhere) = (self.hasher.hash(&outer), self.hash_anywhere(key));
        let Some(carrier) = &mut self.carrier else { return };
        let pair = carrier.join(outer, hash, index, opened, now);
        if !opened {
            let slots = &self.slots;
            let ours = key.anywhere();
            let alike = |other| slots.get(other).is_some_and(|slot| slot.key.anywhere() == ours);
            // A half-open connection does not replace another one, because its SYN may be forged.
            let open = |index| slots.get(index).is_some_and(|slot| slot.conn.state() != StateName::SynRcvd);
            carrier.paths.add(anywhere, index, alike, |other| open(index) && !open(other));
        }
        if let Some(slot) = self.slots.get_mut(index) {
            slot.pair = pair;
        }
    }

    /// The handshake of child `index` in UDP is complete. From now on the child can be found without the client's
    /// UDP port, even if half-open connections prevented that before.
    #[cold]
    pub(crate) fn carried_opened(&mut self, index: u32, now: Instant) {
        let Some(slot) = self.slots.get(index) else { return };
        let (Some(pair), Some(carrier)) = (slot.pair, &mut self.carrier) else { return };
        if slot.client {
            let suspects = carrier.opened(pair, index, &self.slots, now);
            return self.probe_all(&suspects, now);
        }
        let ours = slot.key.anywhere();
        let (hash, slots) = (self.hasher.hash(&ours), &self.slots);
        let alike = |other| slots.get(other).is_some_and(|slot| slot.key.anywhere() == ours);
        let half_open = |other| slots.get(other).is_some_and(|slot| slot.conn.state() == StateName::SynRcvd);
        carrier.paths.add(hash, index, alike, half_open);
    }

    /// Removes connection `index`, if it is in UDP, from its pair of ports.
    pub(crate) fn leave_pair(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let Some(pair) = slot.pair.take() else { return };
        let anywhere = self.hasher.hash(&slot.key.anywhere());
        if let Some(carrier) = &mut self.carrier
            && carrier.leave(pair, index)
        {
            carrier.paths.remove(anywhere, index);
        }
    }

    /// Connection `index` in UDP is over. If a client opened it, its end can be found without the client's UDP port.
    pub(crate) fn carried_ended(&mut self, index: u32, now: Instant) {
        self.leave_pair(index);
        if let Some(carrier) = &mut self.carrier {
            carrier.paths.forget(index);
        }
        self.note_closed(index, now);
    }

    /// Does what is due for the carrier at `now`.
    pub(crate) fn handle_carrier_timeout(&mut self, now: Instant) {
        if let Some(carrier) = &mut self.carrier {
            let suspects = carrier.handle_timeout(&self.slots, now);
            self.probe_all(&suspects, now);
        }
        self.take_turns(now);
    }

    /// Asks the peers of these connections (index) for an ACK. A peer that knows a connection at another port of ours
    /// checks the new port.
    fn probe_all(&mut self, suspects: &[u32], now: Instant) {
        for index in suspects {
            if let Some(slot) = self.slots.get_mut(*index) {
                slot.conn.probe();
                self.touched(*index, now);
            }
        }
    }
}
