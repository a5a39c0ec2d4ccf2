//! What a member knows of the store's memory by itself. A repeat of a first flight that the store has answered is refused
//! without a question: `docs/farm-limits.md` has what else would be safe, and what would not.

use firstflight::credential::{FlightId, JobRequest, JobResult, Reason};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// The most ids and cookies kept for one memory.
const MOST: usize = 65_536;

/// The most for each of many memories.
pub(crate) const MOST_OF_MANY: usize = 256;

/// An id of a guard, or the serial of a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    Id([u8; 16]),
    Cookie(u64),
}

/// `None` for a question that uses nothing up.
pub(crate) const fn name(request: &JobRequest) -> Option<Name> {
    match request {
        JobRequest::GuardSet { key, .. } => Some(Name::Id(*key)),
        JobRequest::Redeem { serial, .. } => Some(Name::Cookie(serial.get())),
        _ => None,
    }
}

/// Ids and cookies that are used up in the memory of one connection. Bounded: the oldest ones make room.
#[derive(Debug)]
pub(crate) struct LocalReplays {
    most: usize,
    /// The number of the connection.
    of: u64,
    /// Until when the memory keeps each, and the first flight that used a cookie.
    names: HashMap<Name, (Instant, Option<FlightId>)>,
    /// The same names, in the order in which they came.
    order: VecDeque<Name>,
}

impl Default for LocalReplays {
    fn default() -> Self {
        Self::with_room(MOST)
    }
}

impl LocalReplays {
    /// Keeps at most this many.
    pub(crate) fn with_room(most: usize) -> Self {
        Self { most, of: 0, names: HashMap::new(), order: VecDeque::new() }
    }

    /// At `now`, the memory of connection `of` has `request`'s id or cookie, used up `by` a first flight, and keeps it for
    /// `lasts`. What was known of another connection's memory is forgotten.
    pub(crate) fn add(
        &mut self,
        of: u64,
        request: &JobRequest,
        by: Option<FlightId>,
        now: Instant,
        lasts: Duration,
    ) {
        let Some(name) = name(request) else { return };
        if self.of != of {
            *self = Self { of, ..Self::with_room(self.most) };
        }
        while let Some(oldest) = self.order.front()
            && (self.order.len() >= self.most
                || self.names.get(oldest).is_none_or(|(until, _)| *until <= now))
        {
            self.names.remove(oldest);
            self.order.pop_front();
        }
        if self.names.insert(name, (now + lasts, by)).is_none() {
            self.order.push_back(name);
        }
    }

    /// The answer of the memory of connection `of` to `request` at `now`, if its id or cookie is used up.
    pub(crate) fn answer(&self, of: u64, request: &JobRequest, now: Instant) -> Option<JobResult> {
        let kept = name(request).filter(|_| self.of == of).and_then(|name| self.names.get(&name));
        let (_, by) = kept.filter(|(until, _)| now < *until)?;
        Some(match request {
            JobRequest::Redeem { flight, .. } if flight.is_none() || flight != by => {
                JobResult::Refuse(Reason::Replay)
            }
            _ => JobResult::Repeat,
        })
    }
}

#[cfg(test)]
mod tests;
