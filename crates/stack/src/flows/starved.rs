//! Connections whose application could not write because the stack's memory was used up
//! ([`crate::Limits::buffer_bytes`]). They become writable when other connections give memory back. No event of
//! their own would show that, because they have nothing in flight.

use crate::event::ConnId;
use crate::flows::slab::Places;
use crate::flows::slot::Slot;
use crate::journal::Journal;
use alloc::vec::Vec;
use firstflight_tcp::Readiness;

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
    pub(crate) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds a connection to which a write was refused while `taken` bytes were in use.
    pub(crate) fn add(&mut self, id: ConnId, taken: usize, slots: &mut Places<Slot>) {
        self.taken = taken;
        let Some(slot) = slots.get_live(id.index, id.generation) else { return };
        if core::mem::replace(&mut slot.starved, true) {
            return;
        }
        if self.waiting.len() > slots.len() {
            // Some of the waiting connections no longer exist.
            self.waiting.retain(|id| slots.get_live(id.index, id.generation).is_some());
        }
        self.waiting.push(id);
    }

    /// Makes the waiting connections writable if there is more memory than when they were refused: `taken` bytes are in use.
    #[cold]
    pub(crate) fn feed(&mut self, taken: usize, slots: &mut Places<Slot>, journal: &mut Journal) {
        if taken >= self.taken {
            return;
        }
        for id in core::mem::take(&mut self.waiting) {
            if let Some(slot) = slots.get_live(id.index, id.generation) {
                slot.starved = false;
                slot.ready |= Readiness::WRITABLE;
                slot.announce(id.index, id.generation, journal);
            }
        }
    }
}
