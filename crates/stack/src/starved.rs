//! Connections whose application could not write because the stack's memory was all taken
//! ([`crate::Limits::buffer_bytes`]): they hear when others gave some back. Nothing of their own would tell them, as
//! nothing of them is under way.

use crate::event::ConnId;
use crate::stack::Stack;
use alloc::vec::Vec;
use firstflight_tcp::Readiness;
use firstflight_wire::Instant;

/// Who waits; each connection once.
#[derive(Debug, Default)]
pub(crate) struct Starved {
    waiting: Vec<ConnId>,
    /// Bytes that were taken when the last of them was refused: with fewer it is worth trying again.
    taken: usize,
}

impl Starved {
    /// Whether anybody waits.
    #[inline]
    pub fn any(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Stack {
    /// A write to `id` was refused: because of the memory, if its own buffer has room.
    #[cold]
    pub(crate) fn starve(&mut self, id: ConnId, now: Instant) {
        let Some(slot) = self.slots.get_live(id.index, id.generation) else { return };
        if slot.conn.unacknowledged() >= slot.conn.send_limit() as usize {
            return;
        }
        self.starved.taken = self.pool.outstanding();
        self.relieve(now);
        let Some(slot) = self.slots.get_live(id.index, id.generation) else { return };
        if core::mem::replace(&mut slot.starved, true) {
            return;
        }
        let Self { starved, slots, .. } = self;
        if starved.waiting.len() > slots.len() {
            // Some of them have gone meanwhile.
            starved.waiting.retain(|id| slots.get_live(id.index, id.generation).is_some());
        }
        starved.waiting.push(id);
    }

    /// Tells those who wait for memory if there is more than when they were refused.
    #[cold]
    pub(crate) fn feed(&mut self) {
        if self.pool.outstanding() >= self.starved.taken {
            return;
        }
        for id in core::mem::take(&mut self.starved.waiting) {
            if let Some(slot) = self.slots.get_live(id.index, id.generation) {
                slot.starved = false;
                slot.ready |= Readiness::WRITABLE;
                slot.announce(id.index, id.generation, &mut self.events);
            }
        }
    }
}
