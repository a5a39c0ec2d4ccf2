//! Several stacks that share their addresses, one for each queue of a link: which of them a flow belongs to, and the
//! packets that came to another one.
//!
//! The owner of a flow follows from its two TCP ports and a seed that all stacks of the group have, unless the group notes its flows
//! ([`crate::FlowOwners`]). Addresses and UDP
//! ports do not count, so a client keeps its owner when an address translator moves it, and a connect whose server is
//! not known yet has one already. With a steered queue ([`crate::Config::comes_here`]) a connect chooses a port whose answers come to it. Both ends of a flow compute the same number: two groups with one seed agree.

use crate::event::PacketDrop;
use crate::flow::FlowKey;
use crate::journal::Journal;
use crate::owners::{Claims, FlowHolder};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use firstflight_credential::Claim;
use firstflight_wire::Instant;
use firstflight_wire::encapsulation::Control;

/// Bytes of packets for other shards that a stack keeps until they are polled. A driver polls after each burst of
/// received packets.
const MOST_BYTES: usize = 512 << 10;

/// The place of a stack among several that share their addresses. `Debug` does not show the seed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShardConfig {
    index: u16,
    count: u16,
    seed: [u64; 2],
}

impl fmt::Debug for ShardConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShardConfig({} of {})", self.index, self.count)
    }
}

impl ShardConfig {
    /// The most stacks of one group.
    pub const MOST: usize = 256;

    /// Number `index` of `count` stacks. All of a group have one `seed`, which must be unpredictable: who knows it can
    /// direct all connections to one stack. `None` if there is no such place, or there are more than
    /// [`ShardConfig::MOST`].
    #[must_use]
    pub fn new(index: usize, count: usize, seed: [u8; 16]) -> Option<Self> {
        if index >= count || count > Self::MOST {
            return None;
        }
        let number = u128::from_le_bytes(seed);
        let seed = [number as u64, (number >> 64) as u64 | 1];
        Some(Self { index: index as u16, count: count as u16, seed })
    }

    /// The number of this stack.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index.into()
    }

    /// The number of stacks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.into()
    }

    /// The stack that has the flows between these two TCP ports, in either order.
    #[inline]
    #[must_use]
    pub fn owner(&self, a: u16, b: u16) -> usize {
        self.of(u64::from(a.max(b)) << 16 | u64::from(a.min(b)))
    }

    #[inline]
    fn of(&self, what: u64) -> usize {
        let [add, multiply] = self.seed;
        let wide = u128::from(what ^ add) * u128::from(multiply);
        let mixed = ((wide >> 64) as u64 ^ wide as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (((mixed >> 32) * u64::from(self.count)) >> 32) as usize
    }

    #[inline]
    fn owner_of(&self, key: &FlowKey) -> usize {
        self.owner(key.local_port(), key.remote_port())
    }

    /// The stack that puts the packets between two addresses together from fragments: most fragments have no ports.
    fn reassembles(&self, src: IpAddr, dst: IpAddr) -> usize {
        let fold = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 ^ ip.to_bits() as u64,
        };
        self.of(fold(src).rotate_left(32) ^ fold(dst))
    }
}

/// How far a packet came that goes round all stacks of a group. It travels with the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Visits {
    /// Stacks that had the packet; more than there are if it goes round twice.
    pub count: u16,
    /// Whether one of them has connections between its UDP ports.
    pub known: bool,
    /// When a SYN left its owner, by the owner's clock.
    pub left: Instant,
}

/// A packet for another stack of the group.
#[derive(Debug, Clone, Copy)]
pub struct Misdirected<'a> {
    /// The number of that stack.
    pub shard: usize,
    /// Give it to [`Stack::handle_misdirected`](crate::Stack::handle_misdirected) with the packet.
    pub visits: Visits,
    /// The whole IP packet.
    pub packet: &'a [u8],
}

/// How often SYNs may go round, so that an attacker cannot keep all stacks busy with a few packets: in each of these
/// times, all stacks of a group together handle this many SYNs that go round.
const ROUNDS_WITHIN: Duration = Duration::from_millis(10);
const MOST_HOPS: usize = 1000;
/// The most data of a SYN that goes round, bytes. Only first flights in jumbo frames or fragments have more.
const LONGEST_ROUND: usize = 2048;
/// How long a SYN may be on its way round. It is less than the time after which a client sends its data in another way
/// ([`DetectConfig`](crate::DetectConfig)); later, its data could run twice.
const MOST_AWAY: Duration = Duration::from_millis(40);

/// Whether packets from the first address and port to the second one come by a queue.
pub type ComesHere = Arc<dyn Fn(SocketAddr, SocketAddr) -> bool + Send + Sync>;

/// Which packets come to the queue of the stack.
struct Steered(ComesHere);

impl fmt::Debug for Steered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steered")
    }
}

/// A stack's place in its group, and the packets that it has for the others.
#[derive(Debug)]
struct Shard {
    config: ShardConfig,
    /// Of the packet that is handled now.
    visits: Visits,
    /// Where the stacks of the group note their flows, if they do.
    claims: Option<Claims>,
    steered: Option<Steered>,
    /// It goes round all stacks.
    goes_round: bool,
    /// Rounds that began since then.
    rounds: usize,
    rounds_since: Instant,
    bytes: Vec<u8>,
    waiting: VecDeque<(u16, Visits, usize)>,
    /// Bytes of `bytes` that were polled.
    taken: usize,
}

impl Shard {
    fn new(config: ShardConfig) -> Self {
        Self {
            config,
            visits: Visits::default(),
            claims: None,
            steered: None,
            goes_round: false,
            rounds: 0,
            rounds_since: Instant::ZERO,
            bytes: Vec::new(),
            waiting: VecDeque::new(),
            taken: 0,
        }
    }

    fn poll(&mut self) -> Option<Misdirected<'_>> {
        let Some((shard, visits, len)) = self.waiting.pop_front() else {
            self.bytes.clear();
            self.taken = 0;
            return None;
        };
        let packet = self.bytes.get(self.taken..self.taken + len)?;
        self.taken += len;
        Some(Misdirected { shard: shard.into(), visits, packet })
    }

    /// The next stack on a packet's way round, and its visits there.
    const fn next(&self) -> (usize, Visits) {
        let Visits { count, known, left } = self.visits;
        let next = (self.config.index + 1) % self.config.count;
        (next as usize, Visits { count: count.saturating_add(1), known, left })
    }

    /// Whether another packet may go round all stacks twice.
    fn has_round(&mut self, now: Instant) -> bool {
        let hops = 2 * self.config.count() * self.config.count();
        // Each of many stacks has one round in a longer time.
        let within = ROUNDS_WITHIN * (hops / MOST_HOPS).max(1) as u32;
        if now - self.rounds_since >= within {
            (self.rounds, self.rounds_since) = (0, now);
        }
        self.config.count() > 1 && self.rounds < (MOST_HOPS / hops).max(1)
    }

    /// Sends a packet whose flow may have no place among the noted ones round all stacks. It is lost if too many go round: a RST
    /// could end the connection. Returns true.
    fn send_round_without_flow(&mut self, packet: &[u8], now: Instant, journal: &mut Journal) -> bool {
        if !self.has_round(now) {
            journal.drop_packet(PacketDrop::ShardQueueFull);
            return true;
        }
        self.rounds += 1;
        let (next, visits) = self.next();
        self.hand_to(next, visits, packet, journal)
    }

    /// Keeps a packet for another stack. It is lost if there is no room. Returns true.
    fn hand_to(&mut self, owner: usize, visits: Visits, packet: &[u8], journal: &mut Journal) -> bool {
        if self.push(owner, visits, packet) {
            journal.counters.handed_over += 1;
        } else {
            journal.drop_packet(PacketDrop::ShardQueueFull);
        }
        true
    }

    /// Keeps a packet for `shard`. False if there is no room.
    fn push(&mut self, shard: usize, visits: Visits, packet: &[u8]) -> bool {
        let fits = self.bytes.len() + packet.len() <= MOST_BYTES;
        if fits {
            self.bytes.extend_from_slice(packet);
            self.waiting.push_back((shard as u16, visits, packet.len()));
        }
        fits
    }
}

/// A stack's place among several, if there are several.
#[derive(Debug)]
pub(crate) struct Membership(Option<Box<Shard>>);

impl Membership {
    /// Whether there are several.
    #[inline]
    pub(crate) fn is_in_group(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn new(
        config: Option<ShardConfig>,
        claims: Option<Claims>,
        comes_here: Option<ComesHere>,
    ) -> Self {
        let steered = comes_here.filter(|_| claims.is_some()).map(Steered);
        Self(config.map(|config| Box::new(Shard { claims, steered, ..Shard::new(config) })))
    }

    /// Whether connections with this key may be here.
    #[inline]
    pub(crate) fn owns(&self, key: &FlowKey) -> bool {
        self.0.as_ref().is_none_or(|shard| shard.config.owner_of(key) == shard.config.index())
    }

    /// Whether it is known which packets come to this stack's queue, for a flow like this one.
    pub(crate) fn is_steered(&self, key: &FlowKey) -> bool {
        self.0.as_ref().is_some_and(|shard| shard.steered.is_some() && !key.is_carried())
    }

    /// Whether a connect from here may choose this key: its answers come here, or else it belongs here.
    #[inline]
    pub(crate) fn suits(&self, key: &FlowKey) -> bool {
        match self.0.as_ref().and_then(|shard| shard.steered.as_ref()) {
            Some(Steered(comes_here)) if !key.is_carried() => comes_here(key.remote(), key.local()),
            _ => self.owns(key),
        }
    }

    /// Whether another stack has noted the flow with this hash. It may have chosen a key that belongs here.
    #[inline]
    pub(crate) fn is_noted_elsewhere(&self, hash: u64) -> bool {
        self.is_in_group() && self.group_has(hash)
    }

    #[inline(never)]
    fn group_has(&self, hash: u64) -> bool {
        let claims = self.0.as_ref().filter(|shard| shard.steered.is_some());
        let holder = claims.and_then(|shard| shard.claims.as_ref()).map(|claims| claims.holder(hash));
        matches!(holder, Some(FlowHolder::There(_)))
    }

    /// The packet that is handled next comes from another stack, with these visits; by default it does not.
    pub(crate) fn set_visits(&mut self, visits: Visits) {
        if let Some(shard) = &mut self.0 {
            shard.visits = visits;
        }
    }

    /// The next packet for another stack.
    pub(crate) fn poll(&mut self) -> Option<Misdirected<'_>> {
        self.0.as_mut()?.poll()
    }

    /// Passes a packet of no connection on to the stack that owns its flow, and one that goes round to the next stack. False
    /// if this stack has to handle it.
    #[inline]
    pub(crate) fn pass_on(&mut self, key: &FlowKey, packet: &[u8], journal: &mut Journal) -> bool {
        let Some(shard) = &mut self.0 else { return false };
        let count = usize::from(shard.visits.count);
        if count == 0 {
            let owner = shard.config.owner_of(key);
            return owner != shard.config.index() && shard.hand_to(owner, Visits::default(), packet, journal);
        }
        let (next, visits) = shard.next();
        count < 2 * shard.config.count() && shard.hand_to(next, visits, packet, journal)
    }

    /// Like [`Self::pass_on`], if the stacks note their flows: passes the packet on to the stack that has its flow. A SYN whose flow
    /// nobody has stays here (`opens`).
    #[inline]
    pub(crate) fn pass_on_to_holder(
        &mut self,
        key: &FlowKey,
        hash: u64,
        opens: bool,
        packet: &[u8],
        now: Instant,
        journal: &mut Journal,
    ) -> bool {
        let Some(shard) = &mut self.0 else { return false };
        let holder = match &shard.claims {
            Some(claims) if shard.visits.count == 0 && !key.is_carried() => claims.holder(hash),
            _ => return self.pass_on(key, packet, journal),
        };
        match holder {
            FlowHolder::Here => false,
            FlowHolder::There(owner) => shard.hand_to(owner, Visits::default(), packet, journal),
            FlowHolder::Unknown => !opens && shard.send_round_without_flow(packet, now, journal),
        }
    }

    /// A client may show a one-time cookie as soon as it has acknowledged the handshake in which it got it. If that ACK
    /// waits in the queue of another stack, the SYN overtakes it. Then the SYN goes round all stacks, twice, and is judged
    /// again: each stack handles what it received before, and what the others hand to it, so an ACK that came earlier than
    /// the SYN, at any queue, is handled within two rounds. Returns whether the SYN that is handled now does, with the hash
    /// of its flow and so many bytes of data.
    pub(crate) fn begins_round(&mut self, hash: u64, data: usize, now: Instant) -> bool {
        let Some(shard) = &mut self.0 else { return false };
        let goes = shard.visits.count == 0 && data <= LONGEST_ROUND && shard.has_round(now);
        shard.rounds += usize::from(goes);
        shard.goes_round = goes;
        if let Some(claims) = shard.claims.as_ref().filter(|_| goes) {
            claims.claim(hash);
        }
        goes
    }

    /// Sends the packet that was handled now round, if its SYN [begins a round](Self::begins_round).
    #[inline]
    pub(crate) fn send_round(&mut self, packet: &[u8], now: Instant, journal: &mut Journal) {
        if let Some(shard) = &mut self.0
            && core::mem::take(&mut shard.goes_round)
        {
            let (next, visits) = shard.next();
            shard.hand_to(next, Visits { left: now, ..visits }, packet, journal);
        }
    }

    /// Whether the packet that is handled now is back from its way round, and flows are noted.
    #[inline]
    pub(crate) fn is_back(&self) -> bool {
        self.0.as_ref().is_some_and(|shard| shard.claims.is_some() && shard.visits.count > 0)
    }

    /// Whether the SYN that is handled now is back from its way round, and in time.
    #[inline]
    pub(crate) fn claim(&self, now: Instant) -> Claim {
        match &self.0 {
            Some(shard) if shard.visits.count > 0 => {
                if now - shard.visits.left <= MOST_AWAY {
                    Claim::Held
                } else {
                    Claim::Lapsed
                }
            }
            _ => Claim::None,
        }
    }

    /// Passes a fragment on to the stack that puts its packet together. False if that is this one.
    pub(crate) fn pass_on_fragment(
        &mut self,
        src: IpAddr,
        dst: IpAddr,
        packet: &[u8],
        journal: &mut Journal,
    ) -> bool {
        let Some(shard) = &mut self.0 else { return false };
        let owner = shard.config.reassembles(src, dst);
        owner != shard.config.index() && shard.hand_to(owner, Visits::default(), packet, journal)
    }

    /// Passes a control message of the encapsulation on. A check of a path goes to the owner of its connection.
    /// Keep-alives and their resets concern all stacks with connections between the two UDP ports, so each stack passes
    /// them to the next one; the last one answers if none of them knew the ports. `ours`: this stack knows them. False
    /// if it has to handle the message, too.
    pub(crate) fn pass_on_control(
        &mut self,
        key: &FlowKey,
        control: Control,
        ours: impl FnOnce() -> bool,
        packet: &[u8],
        journal: &mut Journal,
    ) -> bool {
        let Some(shard) = &mut self.0 else { return false };
        let Visits { count, known, .. } = shard.visits;
        let path = match control {
            Control::PathChallenge(path) | Control::PathResponse(path) => path,
            Control::KeepAlive | Control::Reset => {
                let ours = ours();
                let known = known || ours;
                let last = usize::from(count) + 1 >= shard.config.count();
                if !last {
                    let (next, visits) = shard.next();
                    shard.hand_to(next, Visits { known, ..visits }, packet, journal);
                }
                return !ours && (!last || known);
            }
        };
        self.pass_on(&key.with_inner(path.dst_port, path.src_port), packet, journal)
    }
}

#[cfg(test)]
mod tests;
