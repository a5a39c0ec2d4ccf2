//! When memory is short, connections are reset, first those whose peers accept nothing. None of this is on the path of
//! packets.

use crate::flows::slab::Places;
use crate::flows::slot::{STUCK, Slot};
use alloc::vec::Vec;
use core::time::Duration;
use firstflight_wire::Instant;

/// Least time between two walks over all connections.
const PAUSE: Duration = Duration::from_secs(1);

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
    pub(crate) fn choose(&mut self, slots: &Places<Slot>, now: Instant) -> Vec<u32> {
        if self.last.is_some_and(|at| now - at < PAUSE) {
            return Vec::new();
        }
        self.last = Some(now);
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
