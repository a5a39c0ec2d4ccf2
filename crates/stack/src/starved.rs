//! Connections whose application could not write because the stack's memory was used up
//! ([`crate::Limits::buffer_bytes`]). They become writable when other connections give memory back. No event of
//! their own would show that, because they have nothing in flight.

use crate::event::ConnId;
use crate::stack::Stack;
use alloc::vec::Vec;
use firstflight_tcp::Readiness;
use firstflight_wire::Instant;

/// The waiting connections, each once.
#[derive(Debug, Default)]
pub(crate) struct Starved {
    waiting: Vec<ConnId>,
    /// Bytes in use when the last of them was refused. With fewer in use, it is worth trying again.
    taken: usize,
}

impl Starved {
    /// Whether any connection waits.
    #[inline]
    pub fn any(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Stack {
    /// A write to `id` was refused. If its own buffer has room, the reason was the memory.
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
            // Some of the waiting connections no longer exist.
            starved.waiting.retain(|id| slots.get_live(id.index, id.generation).is_some());
        }
        starved.waiting.push(id);
    }

    /// Makes the waiting connections writable if there is more memory than when they were refused.
    #[cold]
    pub(crate) fn feed(&mut self) {
        if self.pool.outstanding() >= self.starved.taken {
            return;
        }
        for id in core::mem::take(&mut self.starved.waiting) {
            if let Some(slot) = self.slots.get_live(id.index, id.generation) {
                slot.starved = false;
                slot.ready |= Readiness::WRITABLE;
                slot.announce(id.index, id.generation, &mut self.journal);
            }
        }
    }
}
