//! Questions that could not be asked and must be reported later.
//!
//! Their first flights were refused, and the data was sent by the ordinary handshake. A recorded copy of such
//! a SYN must not be accepted when the store is back, so the member reports these questions before it asks
//! anything else.

use crate::local_replays::{Name, name};
use firstflight::credential::{JobRequest, RemoteGuard};
use std::collections::{HashSet, VecDeque};

/// The most questions kept. If there are more, a new memory begins instead, in which nothing from before is
/// valid.
const MOST: usize = 16_384;

/// The most for each of many memories.
const MOST_OF_MANY: usize = 256;

/// The most questions of a kind that are reported at once: what a slow store has taken is not reported again.
const PART: usize = 2048;

/// The most of a whole store's unchecked questions that are kept for one of 1,024 memories: their ids are spread evenly.
const MOST_UNCHECKED_OF_MANY: usize = 128;

/// The questions that the store has not received, bounded.
#[derive(Debug, Clone)]
pub(crate) struct UnreportedQuestions {
    checked: List,
    /// Those about first flights whose credentials were not verified. Anybody can cause them, so they begin no new memory.
    /// There is room for all that a member makes while they matter ([`RemoteGuard::MOST_REPORTS`]), and the oldest make room.
    unchecked: List,
    /// How often there were too many and all were dropped.
    dropped: u64,
    /// For how many of these times a new memory has begun.
    begun: u64,
}

/// Questions in the order in which they came, each once.
#[derive(Debug, Clone)]
struct List {
    most: usize,
    requests: VecDeque<JobRequest>,
    names: HashSet<Name>,
    /// How many questions were reported or dropped before the first of `requests`.
    settled: u64,
}

impl List {
    fn with_room(most: usize) -> Self {
        Self { most, requests: VecDeque::new(), names: HashSet::new(), settled: 0 }
    }

    fn is_full(&self) -> bool {
        self.requests.len() >= self.most
    }

    fn holds(&self, name: &Name) -> bool {
        self.names.contains(name)
    }

    fn add(&mut self, name: Name, request: JobRequest) {
        if self.names.insert(name) {
            self.requests.push_back(request);
        }
    }

    /// The first `count` are not owed any more.
    fn forget(&mut self, count: usize) {
        for request in self.requests.drain(..count.min(self.requests.len())) {
            self.settled += 1;
            if let Some(name) = name(&request) {
                self.names.remove(&name);
            }
        }
    }

    /// At most `most` of its questions, after the first `skipped`.
    fn part(&self, skipped: usize, most: usize) -> Self {
        let requests = self.requests.iter().skip(skipped).take(most).copied().collect();
        let settled = self.settled + skipped.min(self.requests.len()) as u64;
        Self { most: self.most, requests, names: HashSet::new(), settled }
    }

    /// The questions in `told`, an earlier copy of this list or a part of it, were reported, and all before them.
    fn settle(&mut self, told: &Self) {
        // Some may have been dropped in the meantime, or another task may have reported the same ones.
        let end = told.settled + told.requests.len() as u64;
        self.forget(end.saturating_sub(self.settled) as usize);
    }
}

impl Default for UnreportedQuestions {
    fn default() -> Self {
        Self::with_rooms(MOST, RemoteGuard::MOST_REPORTS)
    }
}

impl UnreportedQuestions {
    /// For one of many memories.
    pub(crate) fn of_many() -> Self {
        Self::with_rooms(MOST_OF_MANY, MOST_UNCHECKED_OF_MANY)
    }

    fn with_rooms(checked: usize, unchecked: usize) -> Self {
        Self {
            checked: List::with_room(checked),
            unchecked: List::with_room(unchecked),
            dropped: 0,
            begun: 0,
        }
    }

    /// How many are kept at most.
    pub(crate) const fn most(&self) -> usize {
        self.checked.most
    }

    /// Remembers a question, if it must be reported later. The same question is remembered once: an attacker can repeat
    /// what it recorded.
    pub(crate) fn add(&mut self, request: JobRequest) {
        let Some(name) = name(&request) else { return };
        if let JobRequest::GuardSet { checked: false, .. } = request {
            if self.unchecked.is_full() && !self.unchecked.holds(&name) {
                self.unchecked.forget(1);
            }
            return self.unchecked.add(name, request);
        }
        if self.checked.is_full() && !self.checked.holds(&name) {
            self.checked.forget(usize::MAX);
            self.dropped += 1;
        }
        // Keep this one even if there were too many, because the new memory may not know of it.
        self.checked.add(name, request);
    }

    /// Whether there were more than could be kept, and no new memory has begun for that yet.
    pub(crate) const fn is_too_many(&self) -> bool {
        self.dropped > self.begun
    }

    /// Whether nothing must be reported.
    pub(crate) fn is_empty(&self) -> bool {
        self.checked.requests.is_empty() && self.unchecked.requests.is_empty() && !self.is_too_many()
    }

    /// Whether `request` asks for an id or a cookie that is still to be reported as used.
    pub(crate) fn holds(&self, request: &JobRequest) -> bool {
        let is_owed = |name| self.is_too_many() || self.checked.holds(&name) || self.unchecked.holds(&name);
        name(request).is_some_and(is_owed)
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = &JobRequest> {
        self.checked.requests.iter().chain(&self.unchecked.requests)
    }

    /// All that is owed, in parts that are reported and [settled](Self::settle) one after the other. There is at least one.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Self> {
        let longest = self.checked.requests.len().max(self.unchecked.requests.len());
        let part = |skipped| Self {
            checked: self.checked.part(skipped, PART),
            unchecked: self.unchecked.part(skipped, PART),
            ..*self
        };
        (0..longest.max(1)).step_by(PART).map(part)
    }

    /// The questions in `told`, an earlier copy of this value or one of its parts, were reported. If they were too many, a new
    /// memory has begun.
    pub(crate) fn settle(&mut self, told: &Self) {
        self.begun = self.begun.max(told.dropped);
        self.checked.settle(&told.checked);
        self.unchecked.settle(&told.unchecked);
    }
}

#[cfg(test)]
mod tests;
