//! TCP in UDP: what belongs to two UDP ports rather than to one connection.
//!
//! Keep-alives hold the mapping of an address translator between two UDP ports for all connections between them.
//! The side that opened a connection sends them, because translators are in front of clients. A packet only stores
//! its time.
//!
//! A keep-alive for ports without a connection is answered with a reset of the encapsulation. An attacker who guesses
//! two ports can forge that reset, so it ends nothing. It makes connections send a probe, and the answer of the peer's
//! TCP to the probe is judged as always (RFC 5961). One reset is accepted for each keep-alive that was sent.

mod connections;
pub(crate) mod pair;
mod paths;
mod rebinding;

use crate::config::EncapsulationConfig;
use crate::encapsulation::pair::PairId;
use crate::encapsulation::paths::Paths;
use crate::flow::{FlowKey, FlowTable};
use crate::flows::slab::{Places, Slab};
use crate::flows::slot::{Owner, Slot};
use crate::flows::wheel::TimerWheel;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use firstflight_wire::Instant;

/// Retransmissions of a SYN-ACK to a client whose address nothing proves. With two SYN-ACKs in all, the client gets
/// less than three times what it sent, because a SYN-ACK is at most 20 bytes longer than its SYN (RFC 9000 §8.1 has
/// the same limit).
pub(crate) const SYN_ACK_RETRIES: u8 = 1;

/// Connections that send a probe after one reset of the encapsulation.
const PROBES: usize = 16;

/// The encapsulation of one stack.
#[derive(Debug)]
pub(crate) struct UdpEncapsulation {
    /// Our UDP port.
    pub port: u16,
    /// See [`EncapsulationConfig::from_socket`].
    pub from_socket: bool,
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

/// A connection that was heard so shortly before another one was opened is probably known at our present port. It is not
/// probed at once.
const HEARD: Duration = Duration::from_millis(250);
/// Least time between probes of the connections beside a new one.
const PROBES_APART: Duration = Duration::from_secs(10);

/// Shortest silence before a keep-alive.
const SHORTEST: Duration = Duration::from_millis(10);

/// When keep-alives leave: see [`EncapsulationConfig::first_keep_alive`].
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
    /// When a connection was last opened here while there were others, or the peer last checked our port for one of them: it
    /// may not know the others at our present port.
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

    /// The next of the connections (index) that were not heard since the peer's knowledge of our port is in doubt. If there
    /// are none, there is no doubt any more.
    fn suspects(&mut self, slots: &Places<Slot>, now: Instant) -> Vec<u32> {
        let Some(doubted) = self.doubted else { return Vec::new() };
        let unheard = |index| slots.get(index).is_some_and(|slot| slot.conn.last_heard() + HEARD < doubted);
        let suspects = self.in_turn(unheard);
        self.doubted = self.doubted.filter(|_| !suspects.is_empty());
        self.probed_at = Some(now);
        suspects
    }

    /// Whether it is time to probe again those that are still not heard: after as long as they have been probed so far.
    fn probes_again(&self, now: Instant) -> bool {
        let (Some(doubted), Some(probed)) = (self.doubted, self.probed_at) else { return true };
        now.saturating_since(probed) >= probed.saturating_since(doubted)
    }

    /// Silence after which the next keep-alive is sent.
    fn interval(&self, times: KeepAlive) -> Duration {
        times.first.saturating_mul(1 << self.unused.min(16)).min(times.every)
    }
}

impl UdpEncapsulation {
    /// `None` if the port is 0. At most `time_waits` ends of connections are remembered.
    pub(crate) fn new(config: &EncapsulationConfig, time_waits: usize, now: Instant) -> Option<Self> {
        (config.port != 0).then(|| Self {
            port: config.port,
            from_socket: config.from_socket,
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

    pub(crate) fn find(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        self.table.find(hash, |i| self.pairs.get(i).is_some_and(|pair| pair.key == *key))
    }

    /// Adds connection `index` to the pair `key`, which has this hash.
    pub(crate) fn join(
        &mut self,
        key: FlowKey,
        hash: u64,
        index: u32,
        opened: bool,
        now: Instant,
    ) -> Option<PairId> {
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
    pub(crate) fn leave(&mut self, id: PairId, index: u32) -> bool {
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
    pub(crate) fn accepted(&mut self, (index, generation): (u32, u32)) -> Option<&BTreeSet<u32>> {
        Some(&self.pairs.get_live(index, generation)?.accepted)
    }

    /// This pair's index and generation, if the peer opened other connections than `index` there.
    pub(crate) fn has_accepted_others(&self, id: PairId, index: u32) -> Option<(u32, u32)> {
        let others = self.pairs.get(id.index())?.accepted.iter().any(|one| *one != index);
        others.then(|| (id.index(), self.pairs.generation(id.index())))
    }

    /// Notes that a segment of a connection of this pair is sent.
    #[inline]
    pub(crate) fn sent(&mut self, id: PairId, now: Instant) {
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
    pub(crate) fn handle_timeout(&mut self, slots: &Places<Slot>, now: Instant) -> Vec<u32> {
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
                if pair.probes_again(now) {
                    suspects.extend(pair.suspects(slots, now));
                }
            }
            pair.armed = true;
            let next = pair.kept_at + pair.interval(times);
            self.wheel.schedule(index, next);
        }
        suspects
    }

    /// When [`UdpEncapsulation::handle_timeout`] must be called next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        [self.wheel.next_deadline(), self.paths.next_deadline()].into_iter().flatten().min()
    }

    /// The ports between which a keep-alive must be sent.
    pub(crate) fn poll_keep_alive(&mut self) -> Option<FlowKey> {
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
    pub(crate) fn opened(&mut self, id: PairId, index: u32, slots: &Places<Slot>, now: Instant) -> Vec<u32> {
        let Some(pair) = self.pairs.get_mut(id.index()) else { return Vec::new() };
        if pair.opened.iter().all(|one| *one == index) {
            return Vec::new();
        }
        pair.doubted = Some(now);
        let rests = pair.probed_at.is_some_and(|at| now - at < PROBES_APART);
        let suspects = if rests { Vec::new() } else { pair.suspects(slots, now) };
        // Those that were heard a moment ago will be heard again, if the peer knows them here.
        pair.doubted = Some(now + HEARD);
        suspects
    }

    /// The peer checks our port for one of the connections between these ports, so it knew that one at another port. It may
    /// still know others there, and the checks of those may be lost. They are probed with the keep-alives.
    pub(crate) fn doubt(&mut self, id: PairId, now: Instant) {
        if let Some(pair) = self.pairs.get_mut(id.index()).filter(|pair| pair.opened.len() > 1) {
            // What was heard just before this may have come to the earlier port.
            pair.doubted = Some(now + HEARD);
        }
    }

    /// The connections (index) to probe, because the peer reports that it has none between these ports.
    pub(crate) fn reset(&mut self, index: u32) -> Vec<u32> {
        let Some(pair) = self.pairs.get_mut(index).filter(|pair| pair.asked) else { return Vec::new() };
        pair.asked = false;
        pair.in_turn(|_| true)
    }
}
