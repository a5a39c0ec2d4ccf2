//! Forwarding between the fronts of one zone (`docs/spec/dns-path.md`, sections 7.1 and 9.1).
//!
//! A zone has several name servers, and a resolver spreads the fragments of one first flight over them. So each set of
//! fragments has one *owner* among the fronts that are alive, and the others forward its fragments to it.
//! Nothing else depends on the owner: resolvers are answered at once. If two fronts disagree about which
//! fronts are alive, the only effect is that first flights go the direct way.

pub(crate) mod datagram;
pub(crate) mod owner;
mod peers;

pub use datagram::{Forwarded, MAX_FORWARD, MAX_FORWARDED};
pub use peers::{FrontChange, Presence};

use crate::budget::{SharedBudget, network};
use crate::fragment::{Fragment, FragmentId};
use crate::relay::{
    Boot, ClockReport, HEAD, Kind, Relay, RelayCounters, RelayKey, RelayReceiver, RelayRefused, RelaySender,
    TAG,
};
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU32;
use core::time::Duration;
use firstflight_wire::{Clock, Instant};
use peers::{Peers, Said};
use std::collections::VecDeque;

/// The most fragments that wait to be sent. The front is polled after each query, so a few are sufficient.
const WAITING: usize = 64;

/// Sends to the other fronts of the zone, under the key that all of them share. It is not `Clone`, because
/// two senders with the same numbers would use nonces twice.
#[derive(Debug)]
pub struct ForwardSender {
    front: u16,
    inner: RelaySender,
}

impl ForwardSender {
    /// Sends under `key`, which the other fronts know as `key_id`. No other front of the zone has the number `front`.
    #[must_use]
    pub fn new(key: &RelayKey, key_id: u8, front: u16, boot: Boot) -> Self {
        Self { front, inner: RelaySender::new(&key.for_fronts(), key_id, front, boot) }
    }

    /// A datagram with this content, valid or not, for tests of receivers. `None` if it is too long for a
    /// datagram, or all sequence numbers are used. `unix_ms` is the wall clock's time.
    #[must_use]
    pub fn seal(&mut self, content: &[u8], unix_ms: u64) -> Option<Vec<u8>> {
        let mut datagram = vec![0; HEAD + content.len().min(MAX_FORWARD) + TAG];
        let len = self.inner.seal(Kind::Forward, content, unix_ms, &mut datagram).ok()?;
        datagram.truncate(len);
        Some(datagram)
    }
}

/// The configuration of forwarding to the other fronts of the zone.
#[derive(Debug)]
pub struct ForwardConfig {
    /// The addresses at which the others accept fragments. Their datagrams come from the same addresses.
    pub others: Vec<SocketAddr>,
    /// The sender, which uses the first of the keys.
    pub sender: ForwardSender,
    /// The keys of the others' datagrams, with the keys' numbers.
    pub keys: Vec<(u8, RelayKey)>,
    /// The most fragments forwarded in a second, and the most accepted from others.
    pub per_second: NonZeroU32,
}

impl ForwardConfig {
    /// The default: about the number of fragments of a thousand first flights, which is how many are opened
    /// in a second.
    pub const PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(7_999);
}

/// Why a datagram of another front was dropped. There is never an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardRefused {
    /// This front neither forwards nor accepts fragments.
    #[error("nothing is taken from other fronts")]
    Off,
    /// It is not a datagram of another front, or was seen before.
    #[error("{0}")]
    Datagram(RelayRefused),
    /// It is a front's datagram, but this source address is not in [`ForwardConfig::others`].
    #[error("a front sends from {0}, which is not among the addresses of the other fronts")]
    Address(SocketAddr),
    /// Another front has this front's number, or two others have the same number.
    #[error("two fronts have the number {0}: give each its own")]
    SameNumber(u16),
}

/// Counts of the traffic between fronts. All only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ForwardCounters {
    /// Fragments sent to their owner.
    pub forwarded: u64,
    /// Fragments accepted from other fronts.
    pub taken: u64,
    /// Fragments that were not forwarded: too many in this second, or too many from their resolver's network.
    pub over_budget_out: u64,
    /// Fragments from other fronts that were not accepted for the same reason.
    pub over_budget_in: u64,
    /// Fragments that were not forwarded because too many waited, or all sequence numbers are used.
    pub not_sent: u64,
    /// [`ForwardRefused::Address`].
    pub address: u64,
    /// [`ForwardRefused::SameNumber`].
    pub same_number: u64,
    /// Datagrams from other fronts, including those without fragments, and why others were dropped.
    pub datagrams: RelayCounters,
}

/// Forwards fragments to the fronts that own them, and accepts those that this front owns.
pub struct Forwarder {
    peers: Peers,
    sender: ForwardSender,
    receiver: RelayReceiver,
    key_ids: Vec<u8>,
    /// Each with the index of its owner among the peers.
    waiting: VecDeque<(usize, Forwarded)>,
    /// The budgets, shared among the networks of resolvers.
    outgoing: SharedBudget<IpAddr>,
    incoming: SharedBudget<IpAddr>,
    counters: ForwardCounters,
}

impl Forwarder {
    /// The most fronts of a zone, including this one.
    pub const MAX_FRONTS: usize = 16;
    /// How often each front tells the others that it is alive.
    pub const EVERY: Duration = Duration::from_secs(1);
    /// A front that was not heard for this time owns no sets: three of its datagrams were lost.
    pub const SILENCE: Duration = Duration::from_millis(3_500);

    /// A forwarder that has not heard another front yet, so this front owns everything.
    ///
    /// # Errors
    /// [`ForwardError`]: the caller is at fault.
    pub fn new(config: ForwardConfig) -> Result<Self, ForwardError> {
        let ForwardConfig { others, sender, keys, per_second } = config;
        let mut forwarder = Self {
            peers: Peers::new(others)?,
            sender,
            receiver: RelayReceiver::new(),
            key_ids: Vec::new(),
            waiting: VecDeque::new(),
            outgoing: SharedBudget::new(per_second),
            incoming: SharedBudget::new(per_second),
            counters: ForwardCounters::default(),
        };
        forwarder.take_keys(&keys);
        Ok(forwarder)
    }

    /// From now on sends with `sender`, if there is one, and accepts datagrams under `keys`.
    pub fn set_keys(&mut self, sender: Option<ForwardSender>, keys: &[(u8, RelayKey)]) {
        if let Some(sender) = sender {
            self.sender = sender;
        }
        self.take_keys(keys);
    }

    fn take_keys(&mut self, keys: &[(u8, RelayKey)]) {
        for id in self.key_ids.iter().filter(|id| keys.iter().all(|(other, _)| other != *id)) {
            self.receiver.remove_key(*id);
        }
        for (id, key) in keys {
            self.receiver.set_key(*id, &key.for_fronts());
        }
        self.key_ids = keys.iter().map(|(id, _)| *id).collect();
    }

    /// The counts so far.
    #[must_use]
    pub fn counters(&self) -> ForwardCounters {
        ForwardCounters { datagrams: *self.receiver.counters(), ..self.counters }
    }

    /// Fronts of the zone that are alive, including this one.
    #[must_use]
    pub fn alive(&self, now: Instant) -> usize {
        1 + self.peers.alive(now).count()
    }

    /// The index of the front that owns the set with this id. `None` for this front.
    fn owner(&self, id: FragmentId, now: Instant) -> Option<usize> {
        let own = owner::weight(id, self.sender.front);
        let weights = self.peers.alive(now).map(|(place, front)| (owner::weight(id, front), place));
        weights.max().filter(|(weight, _)| *weight > own).map(|(_, place)| place)
    }

    /// Forwards a fragment that came through the resolver at `resolver`, if another front owns it. If that
    /// fails, the fragment is dropped and counted. False if this front owns the fragment and must keep it.
    pub(crate) fn route(&mut self, fragment: &Fragment, resolver: IpAddr, now: Instant) -> bool {
        let Some(place) = self.owner(fragment.id(), now) else { return false };
        if self.waiting.len() >= WAITING {
            self.counters.not_sent += 1;
        } else if self.outgoing.take(network(resolver), now) {
            self.waiting.push_back((place, Forwarded { resolver, fragment: *fragment }));
        } else {
            self.counters.over_budget_out += 1;
        }
        true
    }

    /// Handles a datagram from `from`, and returns the fragments that this front must keep. They are not
    /// forwarded again, whichever front owns them.
    ///
    /// # Errors
    /// Why the datagram was dropped. It is counted.
    pub fn handle_datagram(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        clock: &Clock,
    ) -> Result<Vec<Forwarded>, ForwardRefused> {
        let (front, mut fragments) =
            datagram::open(&mut self.receiver, datagram, clock.unix_ms).map_err(ForwardRefused::Datagram)?;
        let said = if front == self.sender.front {
            Said::SameNumber
        } else {
            self.peers.note(from, front, clock.mono)
        };
        match said {
            Said::Alive => {}
            Said::SameNumber => {
                self.counters.same_number += 1;
                return Err(ForwardRefused::SameNumber(front));
            }
            Said::Nowhere => {
                self.counters.address += 1;
                return Err(ForwardRefused::Address(from));
            }
        }
        fragments.retain(|forwarded| {
            let fits = self.incoming.take(network(forwarded.resolver), clock.mono);
            *if fits { &mut self.counters.taken } else { &mut self.counters.over_budget_in } += 1;
            fits
        });
        Ok(fragments)
    }

    /// The next datagram for another front: with fragments that it owns, or to say that this front is alive.
    pub(crate) fn poll_datagram(&mut self, clock: &Clock) -> Option<Relay> {
        loop {
            let (place, fragments) = match self.waiting.front() {
                Some(&(place, _)) => (place, self.gather(place)),
                None => (self.peers.due(clock.mono)?, Vec::new()),
            };
            let to = self.peers.address(place);
            let datagram = datagram::seal(&mut self.sender.inner, &fragments, clock.unix_ms);
            if let (Some(to), Ok(datagram)) = (to, datagram) {
                self.counters.forwarded += fragments.len() as u64;
                return Some(Relay { to, datagram });
            }
            self.counters.not_sent += fragments.len() as u64;
        }
    }

    /// The fragments that wait for the front with this index, as many as fit into one datagram.
    fn gather(&mut self, place: usize) -> Vec<Forwarded> {
        let mut fragments = Vec::new();
        self.waiting.retain(|(other, forwarded)| {
            let takes = *other == place && fragments.len() < MAX_FORWARDED;
            if takes {
                fragments.push(*forwarded);
            }
            !takes
        });
        fragments
    }

    /// The report on the clock of the last datagram's front, if a message is due.
    pub(crate) const fn poll_clock(&mut self) -> Option<ClockReport> {
        self.receiver.poll_clock()
    }

    /// The latest time at which [`Front::poll_forward`](crate::Front::poll_forward) has a datagram for
    /// others.
    pub(crate) const fn next_timeout(&self) -> Instant {
        self.peers.next_timeout()
    }

    /// The next front that appeared, or that was not heard for [`Forwarder::SILENCE`].
    pub(crate) fn poll_change(&mut self, now: Instant) -> Option<FrontChange> {
        self.peers.poll_change(now)
    }
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder")
            .field("peers", &self.peers)
            .field("sender", &self.sender)
            .field("receiver", &self.receiver)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// A configuration that cannot be used. The caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// No other front, or more than the limit.
    #[error("{} other name servers: give 1 to {}", .0, Forwarder::MAX_FRONTS - 1)]
    Count(usize),
    /// An address occurs twice.
    #[error("the other name server {0} is there twice")]
    Twice(SocketAddr),
}

#[cfg(test)]
mod tests;
