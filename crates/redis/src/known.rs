//! What a member knows of the store's memory by itself. A repeat of a first flight that the store has answered is refused
//! without a question: `docs/farm-limits.md` has what else would be safe, and what would not.

use firstflight::credential::JobRequest;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// The most ids and cookies kept for one memory.
const MOST: usize = 65_536;

/// The most for each of many memories.
pub(crate) const MOST_OF_MANY: usize = 256;

/// An id of a guard, or the serial of a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Id([u8; 16]),
    Cookie(u64),
}

/// `None` for a question that uses nothing up.
const fn name(request: &JobRequest) -> Option<Name> {
    match request {
        JobRequest::GuardSet { key, .. } => Some(Name::Id(*key)),
        JobRequest::Redeem { serial, .. } => Some(Name::Cookie(serial.get())),
        _ => None,
    }
}

/// Ids and cookies that are used up in the memory of one connection. Bounded: the oldest ones make room.
#[derive(Debug)]
pub(crate) struct Known {
    most: usize,
    /// The number of the connection.
    of: u64,
    /// Until when the memory keeps each.
    names: HashMap<Name, Instant>,
    /// The same names, in the order in which they came.
    order: VecDeque<Name>,
}

impl Default for Known {
    fn default() -> Self {
        Self::with_room(MOST)
    }
}

impl Known {
    /// Keeps at most this many.
    pub(crate) fn with_room(most: usize) -> Self {
        Self { most, of: 0, names: HashMap::new(), order: VecDeque::new() }
    }

    /// At `now`, the memory of connection `of` has `request`'s id or cookie, used up, and keeps it for `lasts`. What was known
    /// of another connection's memory is forgotten.
    pub(crate) fn add(&mut self, of: u64, request: &JobRequest, now: Instant, lasts: Duration) {
        let Some(name) = name(request) else { return };
        if self.of != of {
            *self = Self { of, ..Self::with_room(self.most) };
        }
        while let Some(oldest) = self.order.front()
            && (self.order.len() >= self.most || self.names.get(oldest).is_none_or(|until| *until <= now))
        {
            self.names.remove(oldest);
            self.order.pop_front();
        }
        if self.names.insert(name, now + lasts).is_none() {
            self.order.push_back(name);
        }
    }

    /// Whether the memory of connection `of` would refuse `request` at `now`, because its id or cookie is used up.
    pub(crate) fn holds(&self, of: u64, request: &JobRequest, now: Instant) -> bool {
        let until = name(request).filter(|_| self.of == of).and_then(|name| self.names.get(&name));
        until.is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use firstflight::credential::Serial;

    fn redeem(counter: u64) -> JobRequest {
        JobRequest::Redeem { serial: Serial::new(1, counter).unwrap(), flight: None }
    }

    const fn guard(id: u8) -> JobRequest {
        JobRequest::GuardSet { key: [id; 16], keep_ms: 1, ahead_ms: 0, reach_ms: 0, unix_ms: None }
    }

    #[test]
    fn for_as_long_as_the_store_keeps_it_and_in_its_memory_only() {
        let start = Instant::now();
        let (at, lasts) = (|s| start + Duration::from_secs(s), Duration::from_secs);
        let mut known = Known::with_room(8);
        known.add(1, &redeem(1), start, lasts(100));
        known.add(1, &guard(1), start, lasts(10));
        known.add(1, &JobRequest::Activate { serial: Serial::new(1, 2).unwrap() }, start, lasts(100));
        assert!(known.holds(1, &redeem(1), at(99)) && known.holds(1, &guard(1), at(9)));
        assert!(!known.holds(1, &guard(1), at(10)), "behind one that lasts longer");
        assert!(!known.holds(1, &redeem(2), at(0)) && !known.holds(1, &guard(2), at(0)));
        assert!(!known.holds(2, &redeem(1), at(50)), "another memory");
        known.add(1, &guard(1), at(20), lasts(10));
        assert!(known.holds(1, &guard(1), at(29)), "set again");
        known.add(2, &redeem(3), at(29), lasts(71));
        assert!(!known.holds(1, &redeem(1), at(50)) && known.holds(2, &redeem(3), at(50)));
    }

    #[test]
    fn memory_is_bounded() {
        let start = Instant::now();
        let mut known = Known::with_room(4);
        for counter in 1..=100 {
            known.add(1, &redeem(counter), start, Duration::from_secs(9));
            assert!(known.names.len() <= 4 && known.order.len() <= 4);
        }
        assert!(known.holds(1, &redeem(100), start) && !known.holds(1, &redeem(96), start));
    }
}
