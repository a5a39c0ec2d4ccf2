//! How many first flights of a listener may wait for the client's ACK (RFC 7413 §5.1, the paper's §3.4.1).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

/// A listener's bound on connections that run before their handshake is complete. Shared by all shards
/// of the listener; the limit may change while it runs.
///
/// Only numbers are shared, no data is published through them: relaxed ordering is enough.
#[derive(Debug)]
pub struct PendingLimit {
    count: AtomicU32,
    limit: AtomicU32,
}

impl PendingLimit {
    /// At most `limit` at a time; 0 switches Fast Open off.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self { count: AtomicU32::new(0), limit: AtomicU32::new(limit) }
    }

    /// Connections that hold a place.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// The bound.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the bound. Places given out stay valid, even if they are more than it allows.
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Whether a place is free at this moment; another shard may take it in the next.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.pending() < self.limit()
    }

    /// Takes a place, or `None` at the limit.
    #[must_use]
    pub fn try_reserve(self: &Arc<Self>) -> Option<Place> {
        let limit = self.limit();
        self.count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                // Below the limit, so adding one cannot overflow.
                (count < limit).then(|| count + 1)
            })
            .ok()?;
        Some(Place { of: Arc::clone(self) })
    }
}

/// A place among the pending first flights. Given back exactly once: when dropped, or earlier by
/// [`Place::release`].
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub struct Place {
    of: Arc<PendingLimit>,
}

impl Place {
    /// Gives it back: the client's ACK came, or the connection ended.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Each place was counted once and is dropped once, so this cannot pass zero.
        self.of.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use std::thread;

    #[test]
    fn limit_zero_gives_no_place() {
        let limit = Arc::new(PendingLimit::new(0));
        assert!(!limit.has_room());
        assert!(limit.try_reserve().is_none());
        assert_eq!(limit.pending(), 0);
    }

    #[test]
    fn a_place_is_given_back_by_drop_and_by_release() {
        let limit = Arc::new(PendingLimit::new(2));
        let first = limit.try_reserve().unwrap();
        let second = limit.try_reserve().unwrap();
        assert!(limit.try_reserve().is_none());
        first.release();
        assert_eq!(limit.pending(), 1);
        drop(second);
        assert_eq!(limit.pending(), 0);
    }

    #[test]
    fn a_lowered_limit_waits_for_the_places_given_out() {
        let limit = Arc::new(PendingLimit::new(3));
        let mut places: Vec<_> = (0..3).filter_map(|_| limit.try_reserve()).collect();
        limit.set_limit(2);
        places.pop();
        assert!(!limit.has_room() && limit.try_reserve().is_none());
        places.pop();
        assert!(limit.try_reserve().is_some());
    }

    #[test]
    fn threads_never_pass_the_limit_and_give_all_back() {
        let limit = Arc::new(PendingLimit::new(5));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..20_000 {
                        let places: Vec<_> = (0..3).filter_map(|_| limit.try_reserve()).collect();
                        assert!(limit.pending() <= 5 && limit.pending() >= places.len() as u32);
                        if round % 2 == 0 {
                            places.into_iter().for_each(Place::release);
                        }
                    }
                });
            }
        });
        assert_eq!(limit.pending(), 0);
        assert_eq!((0..9).map_while(|_| limit.try_reserve()).collect::<Vec<_>>().len(), 5);
    }

    proptest! {
        #[test]
        fn the_count_is_that_of_the_living_places(steps in proptest::collection::vec((0u8..3, 0u32..6), 1..80)) {
            let limit = Arc::new(PendingLimit::new(3));
            let mut places = Vec::new();
            for (step, argument) in steps {
                match step {
                    0 => {
                        let room = (places.len() as u32) < limit.limit();
                        let place = limit.try_reserve();
                        prop_assert_eq!(place.is_some(), room);
                        places.extend(place);
                    }
                    1 => drop(places.pop()),
                    _ => limit.set_limit(argument),
                }
                prop_assert_eq!(limit.pending() as usize, places.len());
            }
        }
    }
}
