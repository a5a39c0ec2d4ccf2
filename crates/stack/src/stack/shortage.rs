//! What happens when the stack's memory is used up ([`crate::Limits::buffer_bytes`]). None of this is on the path of
//! packets.
//!
//! Connections are reset, first those whose peers accept nothing. Connections whose application could not write become
//! writable when others give memory back. No event of their own would show that, because they have nothing in flight.

use crate::event::ConnId;
use crate::flows::slab::Places;
use crate::flows::slot::{STUCK, Slot, SlotMarks};
use crate::journal::Journal;
use alloc::vec::Vec;
use core::time::Duration;
use firstflight_tcp::Readiness;
use firstflight_wire::Instant;

/// Least time between two walks over all connections.
const PAUSE: Duration = Duration::from_secs(1);

/// The connections that wait for memory, and when others were last reset for it.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// The waiting connections, each once.
    waiting: Vec<ConnId>,
    /// The most bytes that were in use when one of them was refused. With fewer in use, it is worth trying again.
    taken: usize,
    /// When connections to reset were last chosen.
    chosen: Option<Instant>,
}

impl Shortage {
    /// Whether any connection waits.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds a connection to which a write was refused while `taken` bytes were in use.
    pub(crate) fn add(&mut self, id: ConnId, taken: usize, slots: &mut Places<Slot>) {
        let Some(slot) = slots.get_live(id.index, id.generation) else { return };
        if slot.marks.has(SlotMarks::STARVED) {
            return;
        }
        slot.marks.set(SlotMarks::STARVED);
        // Who asks for little is refused at a higher level than who asks for much, and waits for less.
        self.taken = if self.waiting.is_empty() { taken } else { self.taken.max(taken) };
        if self.waiting.len() > slots.len() {
            // Some of the waiting connections no longer exist.
            self.waiting.retain(|id| slots.get_live(id.index, id.generation).is_some());
        }
        self.waiting.push(id);
    }

    /// Makes the waiting connections writable if there is more memory than when they were refused: `taken` bytes are in use.
    pub(crate) fn feed(&mut self, taken: usize, slots: &mut Places<Slot>, journal: &mut Journal) {
        if taken >= self.taken {
            return;
        }
        for id in core::mem::take(&mut self.waiting) {
            if let Some(slot) = slots.get_live(id.index, id.generation) {
                slot.marks.clear(SlotMarks::STARVED);
                slot.ready |= Readiness::WRITABLE;
                slot.announce(id.index, id.generation, journal);
            }
        }
    }

    /// A sixteenth of the connections whose peers accept nothing, those that have been stuck for longest. None if the last
    /// choice was a moment ago.
    pub(crate) fn choose(&mut self, slots: &Places<Slot>, now: Instant) -> Vec<u32> {
        if self.chosen.is_some_and(|at| now - at < PAUSE) {
            return Vec::new();
        }
        self.chosen = Some(now);
        let stuck = |i: u32| Some((slots.get(i)?.stuck_since()?, i));
        let mut all: Vec<(Instant, u32)> = slots.indices().filter_map(stuck).collect();
        all.retain(|(since, _)| now - *since >= STUCK);
        let count = all.len().div_ceil(16);
        if count < all.len() {
            all.select_nth_unstable(count);
        }
        all.into_iter().take(count).map(|(_, index)| index).collect()
    }
}
