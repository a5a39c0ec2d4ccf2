//! Limits the connections of one client, and resets connections when memory is short, first those whose peers accept
//! nothing.
//!
//! None of this is on the path of packets. A connection counts when its handshake is complete, since until then the
//! client address may be forged.

use crate::slab::Places;
use crate::slot::Slot;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use firstflight_credential::pending::prefix;
use firstflight_wire::Instant;

/// A connection may be reset in favour of another one when its peer has accepted nothing for this time.
const STUCK: Duration = Duration::from_secs(5);
/// Least time between two walks over all connections for memory.
const PAUSE: Duration = Duration::from_secs(1);
/// Least time between two walks over one client's connections, if the first finds none to reset.
const CLIENTS_PAUSE: Duration = Duration::from_millis(250);

/// The connections of each client: an IPv4 address, an IPv6 /64.
#[derive(Debug)]
pub(crate) struct Clients {
    most: usize,
    of: BTreeMap<u64, Client>,
}

#[derive(Debug, Default)]
struct Client {
    connections: Vec<u32>,
    /// When to look again for a connection to reset.
    look_at: Option<Instant>,
}

impl Clients {
    /// Allows `most` connections of one client, but at least one. `None` is no limit.
    pub fn new(most: Option<usize>) -> Option<Self> {
        most.map(|most| Self { most: most.max(1), of: BTreeMap::new() })
    }
}

/// When data last left for a peer that has not acknowledged everything, or `None`.
fn stuck_since(slot: &Slot) -> Option<Instant> {
    // Data that was written just now does not count as waiting, even if something was sent long ago.
    let waits = slot.conn.waits_for_peer() && slot.conn.close_reason().is_none();
    waits.then(|| slot.conn.last_data())
}

impl Clients {
    /// Counts a child whose handshake is complete among its client's connections. If there are too many, returns the
    /// one to reset: one of these, or the child itself.
    #[inline(never)]
    pub fn join(&mut self, slots: &mut Places<Slot>, index: u32, now: Instant) -> Option<u32> {
        let slot = slots.get_mut(index)?;
        if slot.client || !slot.mapped {
            return None;
        }
        let client = self.of.entry(prefix(slot.key.remote_ip())).or_default();
        let mut makes_way = None;
        if client.connections.len() >= self.most {
            let stuck = |i: &u32| Some((slots.get(*i).and_then(stuck_since)?, *i));
            let looks = client.look_at.is_none_or(|at| now >= at);
            let oldest = client.connections.iter().take_while(|_| looks).filter_map(stuck).min();
            makes_way = oldest.filter(|(since, _)| now - *since >= STUCK).map(|(_, i)| i).or(Some(index));
            if looks {
                client.look_at = (makes_way == Some(index)).then(|| now + CLIENTS_PAUSE);
            }
        }
        if makes_way != Some(index) {
            client.connections.push(index);
            if let Some(slot) = slots.get_mut(index) {
                slot.of_client = true;
            }
        }
        makes_way
    }

    /// Stops counting the connection `index` in `slot`, which is over.
    #[cold]
    pub fn leave(&mut self, slot: &mut Slot, index: u32) {
        slot.of_client = false;
        let prefix = prefix(slot.key.remote_ip());
        let Some(client) = self.of.get_mut(&prefix) else { return };
        if let Some(at) = client.connections.iter().position(|i| *i == index) {
            client.connections.swap_remove(at);
        }
        if client.connections.is_empty() {
            self.of.remove(&prefix);
        }
    }
}

/// Which connections to reset so that memory becomes free.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    /// When connections were last chosen.
    last: Option<Instant>,
}

impl Relief {
    /// A sixteenth of the connections whose peers accept nothing, those that have been stuck for longest. None if the last
    /// choice was a moment ago.
    #[cold]
    pub fn choose(&mut self, slots: &Places<Slot>, now: Instant) -> Vec<u32> {
        if self.last.is_some_and(|at| now - at < PAUSE) {
            return Vec::new();
        }
        self.last = Some(now);
        let stuck = |i: u32| Some((stuck_since(slots.get(i)?)?, i));
        let mut all: Vec<(Instant, u32)> = slots.indices().filter_map(stuck).collect();
        all.retain(|(since, _)| now - *since >= STUCK);
        let count = all.len().div_ceil(16);
        if count < all.len() {
            all.select_nth_unstable(count);
        }
        all.into_iter().take(count).map(|(_, index)| index).collect()
    }
}
