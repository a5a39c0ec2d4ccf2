//! A hierarchical timer wheel (Varghese and Lauck, scheme 7): one timer for each connection slot.
//!
//! Eight levels of 64 slots count ticks of 2¹⁹ ns (0.52 ms). Level 0 holds timers that are due within the current
//! 64 ticks. Level *l* holds timers whose tick first differs from the current tick in the *l*-th group of six bits.
//! Eight levels hold every [`Instant`], so no timer is beyond the horizon. A timer moves down one level at a time,
//! at most seven times, and most timers are cancelled before.

use alloc::vec::Vec;
use firstflight_wire::Instant;

/// A tick is 2¹⁹ ns: a shift instead of a division.
const TICK_SHIFT: u32 = 19;
/// Bits of the tick that one level resolves.
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// 8 · 6 bits hold ⌈2⁶⁴/2¹⁹⌉.
const LEVELS: usize = 8;
/// The list of timers that are due.
const DUE: usize = LEVELS * SLOTS;
const LISTS: usize = DUE + 1;
/// No entry.
const NIL: u32 = u32::MAX;

/// Timers keyed by the index of a connection slot, at most one for each.
///
/// [`TimerWheel::schedule`] and [`TimerWheel::cancel`] are O(1); [`TimerWheel::next_deadline`] is
/// O(levels); [`TimerWheel::pop_expired`] looks at occupied slots only, however far time jumps.
/// Memory: 16 bytes for each index up to the largest that was scheduled, and 2 KiB.
#[derive(Debug, Clone)]
pub(crate) struct TimerWheel {
    /// No timer in the levels is due at this tick or before.
    current: u64,
    /// One bit for each occupied slot of a level.
    occupied: [u64; LEVELS],
    /// First entry of each list.
    heads: [u32; LISTS],
    nodes: Vec<Node>,
    len: usize,
}

/// An entry of a circular doubly linked list (the head's `prev` is the tail).
#[derive(Debug, Clone, Copy)]
struct Node {
    prev: u32,
    next: u32,
    /// Tick, and the list (16 bits) it is in; [`Node::IDLE`] in none.
    place: u64,
}

impl Node {
    /// Not scheduled: a list number that no list has, and later than every tick.
    const IDLE: Self = Self { prev: NIL, next: NIL, place: u64::MAX };

    fn tick(self) -> u64 {
        self.place >> 16
    }

    fn list(self) -> Option<usize> {
        let list = (self.place & 0xffff) as usize;
        (list < LISTS).then_some(list)
    }
}

impl TimerWheel {
    /// A wheel without timers, at time `now`.
    #[must_use]
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            current: now.as_nanos() >> TICK_SHIFT,
            occupied: [0; LEVELS],
            heads: [NIL; LISTS],
            nodes: Vec::new(),
            len: 0,
        }
    }

    /// Number of timers that are scheduled.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer is scheduled.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Schedules the timer of `id` for `at`, rounded up to a tick: at most 0.53 ms late, never early. A timer that
    /// `id` had before is replaced.
    ///
    /// Memory grows to `id` entries: `id` is meant to be the index into a slab. `u32::MAX` is not
    /// an index and is ignored.
    pub(crate) fn schedule(&mut self, id: u32, at: Instant) {
        if id == NIL {
            return;
        }
        let tick = at.as_nanos().div_ceil(1 << TICK_SHIFT);
        match self.nodes.get(id as usize) {
            // Every segment may move a timer, often within a tick.
            Some(node) if node.list().is_some() && node.tick() == tick => return,
            Some(_) => self.unlink(id),
            None => self.nodes.resize(id as usize + 1, Node::IDLE),
        }
        self.link(id, tick);
    }

    /// Schedules the timer of `id` for `at` or earlier: a timer that is scheduled for an earlier tick stays.
    #[inline]
    pub(crate) fn expedite(&mut self, id: u32, at: Instant) {
        let tick = at.as_nanos().div_ceil(1 << TICK_SHIFT);
        if self.nodes.get(id as usize).is_none_or(|node| node.tick() > tick) {
            self.schedule(id, at);
        }
    }

    /// Removes the timer of `id`, if it has one.
    pub(crate) fn cancel(&mut self, id: u32) {
        self.unlink(id);
    }

    /// Removes a timer that is due at `now` and returns its id; `None` if none is due. Timers come in the order of
    /// their ticks. Timers of one tick come in the order in which they were scheduled or reached level 0.
    ///
    /// A caller that schedules a timer in the past between two calls gets it in the same loop.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<u32> {
        let target = now.as_nanos() >> TICK_SHIFT;
        loop {
            let due = self.head(DUE);
            if due != NIL {
                self.unlink(due);
                return Some(due);
            }
            match self.next_slot() {
                Some((list, start)) if start <= target => {
                    self.current = start;
                    self.cascade(list);
                }
                _ => {
                    self.current = self.current.max(target);
                    return None;
                }
            }
        }
    }

    /// When to call [`TimerWheel::pop_expired`] next: never later than the next timer (rounded up to its tick),
    /// possibly earlier, if a slot of a higher level must be distributed.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let tick = if self.head(DUE) == NIL { self.next_slot()?.1 } else { self.current };
        Some(Instant::from_nanos(tick.saturating_mul(1 << TICK_SHIFT)))
    }

    /// The first occupied slot, and the tick at which it begins.
    ///
    /// A slot of a lower level lies within the current slot of every higher level, so the lowest occupied level
    /// holds the first slot. Within a level all occupied slots are ahead of the current tick.
    fn next_slot(&self) -> Option<(usize, u64)> {
        let (level, bits) = self.occupied.iter().enumerate().find(|(_, bits)| **bits != 0)?;
        let slot = bits.trailing_zeros() as usize;
        let shift = LEVEL_BITS * level as u32;
        let above = self.current >> (shift + LEVEL_BITS) << (shift + LEVEL_BITS);
        Some((level * SLOTS + slot, above | (slot as u64) << shift))
    }

    /// Moves every entry of `list`, which has just been reached, to its new list, at least one level lower.
    fn cascade(&mut self, list: usize) {
        loop {
            let id = self.head(list);
            let Some(node) = self.nodes.get(id as usize) else {
                return;
            };
            let tick = node.tick();
            self.unlink(id);
            self.link(id, tick);
        }
    }

    /// The list for `tick`, relative to the current tick.
    fn list_for(&self, tick: u64) -> usize {
        if tick <= self.current {
            return DUE;
        }
        let highest = (tick ^ self.current).ilog2();
        let level = (highest / LEVEL_BITS).min(LEVELS as u32 - 1);
        let slot = (tick >> (level * LEVEL_BITS)) as usize % SLOTS;
        level as usize * SLOTS + slot
    }

    fn head(&self, list: usize) -> u32 {
        self.heads.get(list).copied().unwrap_or(NIL)
    }

    fn set_head(&mut self, list: usize, id: u32) {
        if let Some(head) = self.heads.get_mut(list) {
            *head = id;
        }
        if let Some(bits) = self.occupied.get_mut(list / SLOTS) {
            let bit = 1 << (list % SLOTS);
            *bits = if id == NIL { *bits & !bit } else { *bits | bit };
        }
    }

    /// Appends `id`, which is in no list, to the list for `tick`.
    fn link(&mut self, id: u32, tick: u64) {
        let list = self.list_for(tick);
        let head = self.head(list);
        let (prev, next) = match self.nodes.get(head as usize) {
            Some(first) => (first.prev, head),
            None => (id, id),
        };
        if let Some(node) = self.nodes.get_mut(id as usize) {
            *node = Node { prev, next, place: tick << 16 | list as u64 };
            self.len += 1;
        }
        if head == NIL {
            self.set_head(list, id);
        } else {
            self.join(prev, id);
            self.join(id, next);
        }
    }

    /// Takes `id` out of its list, if it is in one.
    fn unlink(&mut self, id: u32) {
        let Some(node) = self.nodes.get_mut(id as usize) else {
            return;
        };
        let Some(list) = node.list() else { return };
        let Node { prev, next, .. } = core::mem::replace(node, Node::IDLE);
        self.len -= 1;
        if next == id {
            self.set_head(list, NIL);
            return;
        }
        self.join(prev, next);
        if self.head(list) == id {
            self.set_head(list, next);
        }
    }

    fn join(&mut self, first: u32, second: u32) {
        if let Some(node) = self.nodes.get_mut(first as usize) {
            node.next = second;
        }
        if let Some(node) = self.nodes.get_mut(second as usize) {
            node.prev = first;
        }
    }
}

#[cfg(test)]
#[path = "wheel_tests.rs"]
mod tests;
