//! First flights that were accepted, and whose connections ended before their client's ACK.
//!
//! The client of such a connection may have got neither the SYN-ACK nor the RST. It then sends its SYN again, and an
//! eavesdropper can send one like it. If that SYN opened a connection, the client would send its data there, and the data
//! would run a second time. So a RST answers it ([`Limits::early_ends`](crate::config::Limits::early_ends)).

use crate::flow::FlowKey;
use alloc::collections::VecDeque;
use core::time::Duration;
use firstflight_wire::hint::unlikely;
use firstflight_wire::{Instant, SeqNum};
use hashbrown::HashTable;

/// How long an end is remembered. Clients give up earlier: with six retransmissions, as Linux and this stack have them, 127
/// s after the first SYN.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(240);

/// Parts of the memory. A client's ends are in one of them, so a client can push out only those of its part.
const PARTS: usize = 64;

/// A connection that ended.
#[derive(Debug, Clone, Copy)]
struct End {
    key: FlowKey,
    /// The keyed hash of its four-tuple.
    hash: u64,
    /// The number of its client's SYN.
    isn: SeqNum,
    /// Whether the flow is still noted for the stacks of the group because of this end.
    claims: bool,
}

/// A bounded memory of these ends.
#[derive(Debug)]
pub(crate) struct EarlyEnds {
    known: HashTable<End>,
    /// When each is over, in the order of time, with hash and number.
    order: [VecDeque<(Instant, u64, SeqNum)>; PARTS],
    /// When the first of all is over, or earlier.
    next: Option<Instant>,
    part_limit: usize,
}

impl EarlyEnds {
    /// At most `limit` ends are remembered, but at least one for each part. The oldest of a part are forgotten.
    pub(crate) fn new(limit: usize) -> Self {
        let order = [const { VecDeque::new() }; PARTS];
        Self { known: HashTable::new(), order, next: None, part_limit: (limit / PARTS).max(1) }
    }

    /// Whether nothing is remembered.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Notes that a connection has ended before its client's ACK. `flow` is its four-tuple with the keyed hash, `isn` the number of its SYN,
    /// and `client` a keyed hash of the client. Returns the flow of an end that is forgotten for it, if it was noted for the group.
    pub(crate) fn note(
        &mut self,
        flow: (FlowKey, u64),
        isn: SeqNum,
        client: u64,
        now: Instant,
    ) -> Option<u64> {
        let (key, hash) = flow;
        if self.knows(hash, isn) {
            return None;
        }
        let part = self.order.get_mut(client as usize % PARTS)?;
        let oldest = if part.len() >= self.part_limit { part.pop_front() } else { None };
        let over = now + REMEMBERED;
        part.push_back((over, hash, isn));
        self.next = Some(self.next.map_or(over, |next| next.min(over)));
        let forgotten = oldest.and_then(|(_, hash, isn)| self.forget(hash, isn));
        self.known.insert_unique(hash, End { key, hash, isn, claims: true }, |end| end.hash);
        forgotten
    }

    /// Whether a SYN of this flow with the number `isn` comes after such an end.
    pub(crate) fn knows(&self, hash: u64, isn: SeqNum) -> bool {
        self.known.find(hash, |end| (end.hash, end.isn) == (hash, isn)).is_some()
    }

    /// The flows of the ends that are remembered. One may come several times.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowKey> + '_ {
        self.known.iter().map(|end| end.key)
    }

    /// Whether an end of this flow is remembered, whatever the number of its SYN.
    pub(crate) fn has(&self, hash: u64) -> bool {
        self.known.find(hash, |end| end.hash == hash).is_some()
    }

    /// Whether the flow is noted for the group because of an end.
    #[inline]
    pub(crate) fn claims(&self, hash: u64) -> bool {
        !self.is_empty() && self.known.find(hash, |end| end.hash == hash && end.claims).is_some()
    }

    /// Something else notes the flow for the group from now on, and says when that is over.
    #[inline]
    pub(crate) fn give_up_claim(&mut self, hash: u64) {
        if unlikely(!self.is_empty()) {
            self.give_up_claims(hash);
        }
    }

    #[inline(never)]
    fn give_up_claims(&mut self, hash: u64) {
        while let Some(end) = self.known.find_mut(hash, |end| end.hash == hash && end.claims) {
            end.claims = false;
        }
    }

    /// Forgets the next end that is over at `now`: `Some` with its flow, if it was noted for the group. `None` if there is no
    /// other one.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Option<Option<u64>> {
        if self.next.is_none_or(|next| now < next) {
            return None;
        }
        let over =
            |part: &&mut VecDeque<(Instant, u64, SeqNum)>| part.front().is_some_and(|end| end.0 <= now);
        if let Some((_, hash, isn)) = self.order.iter_mut().find(over).and_then(VecDeque::pop_front) {
            return Some(self.forget(hash, isn));
        }
        self.next = self.order.iter().filter_map(|part| part.front()).map(|end| end.0).min();
        None
    }

    fn forget(&mut self, hash: u64, isn: SeqNum) -> Option<u64> {
        let entry = self.known.find_entry(hash, |end| (end.hash, end.isn) == (hash, isn)).ok()?;
        let (end, _) = entry.remove();
        (end.claims && !self.claims(hash)).then_some(hash)
    }

    /// When [`Self::take_expired`] may have something.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.next
    }
}
