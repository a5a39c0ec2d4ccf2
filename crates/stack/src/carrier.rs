//! TCP in UDP: what belongs to two UDP ports rather than to one connection.
//!
//! Keep-alives hold the mapping of an address translator between two UDP ports for all connections between them.
//! The side that opened a connection sends them: a translator is in front of a client. Nothing runs for a
//! packet but one store of its time.
//!
//! A keep-alive for ports without a connection is answered with a reset of the carrier. It can be forged by who
//! guesses two ports, so it ends nothing: it makes connections send a probe, and what the peer's TCP answers to
//! that is judged as ever (RFC 5961). One reset is believed for each keep-alive that was sent.

use crate::config::CarrierConfig;
use crate::egress::Reply;
use crate::event::Drop;
use crate::flow::{FlowKey, FlowTable};
use crate::slab::Slab;
use crate::stack::Stack;
use crate::wheel::TimerWheel;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::carrier::{Carried, Control};
use firstflight_wire::tcp::Segment;
use firstflight_wire::{Instant, udp};

/// Retransmissions of a SYN-ACK to a client whose address nothing proves: with two in all it gets less than
/// three times what it sent, because a SYN-ACK is at most 20 bytes longer than its SYN (RFC 9000 §8.1 has the
/// same limit).
pub(crate) const SYN_ACK_RETRIES: u8 = 1;

/// Connections that one reset of the carrier makes ask.
const PROBES: usize = 16;

/// A connection's place in its pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// The pair (index).
    pair: u32,
    /// Place in [`Pair::opened`]; [`Seat::CHILD`] if the peer opened it.
    place: u32,
}

impl Seat {
    const CHILD: u32 = u32::MAX;
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
    keep_alive: Option<Duration>,
    keep_alive_for: Duration,
    pairs: Slab<Pair>,
    table: FlowTable,
    wheel: TimerWheel,
    /// Pairs (index and generation) whose keep-alive waits to be sent.
    due: VecDeque<(u32, u32)>,
}

/// Two UDP ports with connections between them.
#[derive(Debug)]
struct Pair {
    /// Without inner ports.
    key: FlowKey,
    hash: u64,
    connections: usize,
    /// Those of them that were opened here (index).
    opened: Vec<u32>,
    /// When the last segment left.
    used_at: Instant,
    /// When anything last left.
    kept_at: Instant,
    /// The wheel will call it.
    armed: bool,
    /// A keep-alive was sent, and no reset believed since.
    asked: bool,
    /// Which of `opened` to probe first.
    next: usize,
}

impl Carrier {
    /// `None` without a port.
    pub fn new(config: &CarrierConfig, now: Instant) -> Option<Self> {
        (config.port != 0).then(|| Self {
            port: config.port,
            from_socket: config.from_socket,
            datagram: config.datagram,
            keep_alive: config.keep_alive.filter(|every| !every.is_zero()),
            keep_alive_for: config.keep_alive_for,
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
    fn join(&mut self, key: FlowKey, hash: u64, index: u32, opened: bool, now: Instant) -> Seat {
        let pair = self.find(hash, &key).unwrap_or_else(|| {
            let (pair, _) = self.pairs.insert(Pair {
                key,
                hash,
                connections: 0,
                opened: Vec::new(),
                used_at: now,
                kept_at: now,
                armed: false,
                asked: false,
                next: 0,
            });
            let pairs = &self.pairs;
            self.table.insert(hash, pair, |i| pairs.get(i).map_or(0, |pair| pair.hash));
            pair
        });
        let mut seat = Seat { pair, place: Seat::CHILD };
        if let Some(entry) = self.pairs.get_mut(pair) {
            entry.connections += 1;
            if opened {
                seat.place = entry.opened.len() as u32;
                entry.opened.push(index);
            }
        }
        self.sent(seat, now);
        seat
    }

    /// Takes a connection out. The one (index) that has its seat now, if another had to move.
    fn leave(&mut self, seat: Seat) -> Option<u32> {
        let pair = self.pairs.get_mut(seat.pair)?;
        pair.connections = pair.connections.saturating_sub(1);
        let place = seat.place as usize;
        let mut moved = None;
        if seat.place != Seat::CHILD && place < pair.opened.len() {
            pair.opened.swap_remove(place);
            moved = pair.opened.get(place).copied();
        }
        if pair.connections == 0 {
            let hash = pair.hash;
            self.table.remove(hash, seat.pair);
            self.wheel.cancel(seat.pair);
            self.pairs.remove(seat.pair);
        }
        moved
    }

    /// A segment of a connection with this seat leaves.
    #[inline]
    pub fn sent(&mut self, seat: Seat, now: Instant) {
        let Some(pair) = self.pairs.get_mut(seat.pair) else { return };
        (pair.used_at, pair.kept_at) = (now, now);
        if !pair.armed
            && !pair.opened.is_empty()
            && let Some(every) = self.keep_alive
        {
            pair.armed = true;
            self.wheel.schedule(seat.pair, now + every);
        }
    }

    /// Marks the keep-alives that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.wheel.pop_expired(now) {
            let generation = self.pairs.generation(index);
            let (Some(pair), Some(every)) = (self.pairs.get_mut(index), self.keep_alive) else { continue };
            pair.armed = false;
            // The next segment begins anew.
            if pair.opened.is_empty() || now - pair.used_at > self.keep_alive_for {
                continue;
            }
            if now - pair.kept_at >= every {
                (pair.kept_at, pair.asked) = (now, true);
                self.due.push_back((index, generation));
            }
            pair.armed = true;
            let next = pair.kept_at + every;
            self.wheel.schedule(index, next);
        }
    }

    /// When [`Carrier::handle_timeout`] wants to be called.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.wheel.next_deadline()
    }

    /// The ports between which a keep-alive is to be sent.
    pub fn poll_keep_alive(&mut self) -> Option<FlowKey> {
        loop {
            let (index, generation) = self.due.pop_front()?;
            if let Some(pair) = self.pairs.get_live(index, generation) {
                return Some(pair.key);
            }
        }
    }

    /// The connections (index) to probe because the peer says that it has none between these ports.
    fn reset(&mut self, index: u32) -> Vec<u32> {
        let Some(pair) = self.pairs.get_mut(index).filter(|pair| pair.asked) else { return Vec::new() };
        pair.asked = false;
        let first = pair.next % pair.opened.len().max(1);
        pair.next = first + PROBES;
        let turn = pair.opened.iter().cycle().skip(first);
        turn.take(PROBES.min(pair.opened.len())).copied().collect()
    }
}

impl Stack {
    /// A UDP datagram has come, and there is a carrier. `#[inline(never)]` keeps it out of raw TCP's way.
    #[inline(never)]
    pub(crate) fn handle_udp(&mut self, src: IpAddr, dst: IpAddr, bytes: &[u8], now: Instant) {
        let Some(carrier) = &self.carrier else { return };
        let (port, trusted) = (carrier.port, carrier.from_socket);
        let datagram =
            if trusted { udp::Datagram::parse(bytes) } else { udp::Datagram::parse_checked(bytes, src, dst) };
        let Ok(datagram) = datagram else { return self.drop_packet(Drop::BadUdp) };
        let carried = Carried::parse(datagram.payload).ok().filter(|_| datagram.dst_port == port);
        let Some(carried) = carried else {
            if self.concerns_us(src, dst) {
                self.drop_packet(Drop::NotCarried);
            }
            return;
        };
        match carried {
            Carried::Segment(bytes) => {
                let Ok(segment) = Segment::parse(bytes) else { return self.drop_packet(Drop::BadTcp) };
                let key = FlowKey::of(dst, segment.dst_port, src, segment.src_port)
                    .carried(port, datagram.src_port);
                let hash = self.hasher.hash(&key);
                match self.find_hashed(hash, &key) {
                    Some(index) => self.deliver(index, &segment, now),
                    None if self.comes_from_another(&key) => self.handle_stray(&key, hash, &segment, now),
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

    /// Whether a datagram of no connection is for us, and from somebody who can be answered; counted if not.
    fn comes_from_another(&mut self, key: &FlowKey) -> bool {
        let (src, dst) = (key.remote_ip(), key.local_ip());
        let trusted = self.carrier.as_ref().is_some_and(|carrier| carrier.from_socket);
        if !trusted && !self.is_ours(dst) {
            self.drop_packet(Drop::NotForUs);
            return false;
        }
        // On the same host another program may have another port.
        let ourselves = key.outer_local() == key.outer_remote() && (src == dst || self.is_ours(src));
        if ourselves || key.outer_remote() == 0 || !crate::ingress::possible_source(src) {
            self.drop_packet(Drop::BadSource);
            return false;
        }
        true
    }

    fn handle_control(&mut self, key: FlowKey, control: Control, now: Instant) {
        let hash = self.hasher.hash(&key);
        let Some(carrier) = &mut self.carrier else { return };
        match (control, carrier.find(hash, &key)) {
            (Control::KeepAlive, None) => {
                self.counters.carrier_resets_sent += 1;
                self.reply(Reply::Control(key, Control::Reset));
            }
            (Control::Reset, Some(pair)) => {
                let suspects = carrier.reset(pair);
                self.counters.carrier_resets_believed += u64::from(!suspects.is_empty());
                for index in suspects {
                    if let Some(slot) = self.slots.get_mut(index) {
                        slot.conn.probe();
                        self.touched(index, now);
                    }
                }
            }
            (Control::KeepAlive, Some(_)) | (Control::Reset, None) => {}
        }
    }

    /// Connection `index` in UDP begins; we opened it, or the peer did.
    pub(crate) fn join_pair(&mut self, key: &FlowKey, index: u32, opened: bool, now: Instant) {
        let outer = key.outer();
        let hash = self.hasher.hash(&outer);
        let Some(carrier) = &mut self.carrier else { return };
        let seat = carrier.join(outer, hash, index, opened, now);
        if let Some(slot) = self.slots.get_mut(index) {
            slot.seat = Some(seat);
        }
    }

    /// A connection in UDP is over.
    pub(crate) fn leave_pair(&mut self, seat: Seat) {
        let Some(carrier) = &mut self.carrier else { return };
        if let Some(moved) = carrier.leave(seat)
            && let Some(slot) = self.slots.get_mut(moved)
        {
            slot.seat = Some(seat);
        }
    }
}
