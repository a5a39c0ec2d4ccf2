//! Limits the connections of one client.
//!
//! None of this is on the path of packets. A connection counts when its handshake is complete, since until then the
//! client address may be forged.

use crate::flows::slab::Places;
use crate::flows::slot::{STUCK, Slot, SlotMarks, SlotStage};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use firstflight_credential::pending::prefix;
use firstflight_wire::Instant;

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
    pub(crate) fn new(most: Option<usize>) -> Option<Self> {
        most.map(|most| Self { most: most.max(1), of: BTreeMap::new() })
    }
}

impl Clients {
    /// Counts a child whose handshake is complete among its client's connections. If there are too many, returns the
    /// one to reset: one of these, or the child itself.
    pub(crate) fn join(&mut self, slots: &mut Places<Slot>, index: u32, now: Instant) -> Option<u32> {
        let slot = slots.get_mut(index)?;
        if slot.is_client() || slot.stage == SlotStage::Ended {
            return None;
        }
        let client = self.of.entry(prefix(slot.key.remote_ip())).or_default();
        let mut makes_way = None;
        if client.connections.len() >= self.most {
            let stuck = |i: &u32| Some((slots.get(*i)?.stuck_since()?, *i));
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
                slot.marks.set(SlotMarks::OF_CLIENT);
            }
        }
        makes_way
    }

    /// Stops counting the connection `index` in `slot`, which is over.
    pub(crate) fn leave(&mut self, slot: &mut Slot, index: u32) {
        slot.marks.clear(SlotMarks::OF_CLIENT);
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
