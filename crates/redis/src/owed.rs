//! Questions that could not be asked and must be reported later.
//!
//! Their first flights were refused, and the data was sent by the ordinary handshake. A recorded copy of such
//! a SYN must not be accepted when the store is back, so the member reports these questions before it asks
//! anything else.

use firstflight::credential::JobRequest;

/// The most questions kept. If there are more, a new memory begins instead, in which nothing from before is
/// valid.
const MOST: usize = 16_384;

/// The most for each of many memories.
pub(crate) const MOST_OF_MANY: usize = 256;

/// The questions that the store has not received, bounded.
#[derive(Debug, Clone)]
pub(crate) struct Owed {
    most: usize,
    requests: Vec<JobRequest>,
    /// How many questions were reported or dropped before the first of `requests`.
    settled: u64,
    /// How often there were too many and all were dropped.
    dropped: u64,
    /// For how many of these times a new memory has begun.
    begun: u64,
}

impl Default for Owed {
    fn default() -> Self {
        Self::with_room(MOST)
    }
}

impl Owed {
    /// Keeps at most this many.
    pub(crate) const fn with_room(most: usize) -> Self {
        Self { most, requests: Vec::new(), settled: 0, dropped: 0, begun: 0 }
    }

    /// How many are kept at most.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    /// Remembers a question, if it must be reported later.
    pub(crate) fn add(&mut self, request: JobRequest) {
        if !matches!(request, JobRequest::GuardSet { .. } | JobRequest::Redeem { .. }) {
            return;
        }
        if self.requests.len() >= self.most {
            self.settled += self.requests.len() as u64;
            self.requests.clear();
            self.dropped += 1;
        }
        // Keep this one even if there were too many, because the new memory may not know of it.
        self.requests.push(request);
    }

    /// Whether there were more than could be kept, and no new memory has begun for that yet.
    pub(crate) const fn is_too_many(&self) -> bool {
        self.dropped > self.begun
    }

    /// Whether nothing must be reported.
    pub(crate) const fn is_empty(&self) -> bool {
        self.requests.is_empty() && !self.is_too_many()
    }

    /// Whether `request` asks for an id or a cookie that is still to be reported as used.
    pub(crate) fn holds(&self, request: &JobRequest) -> bool {
        let used_up = matches!(request, JobRequest::GuardSet { .. } | JobRequest::Redeem { .. });
        used_up && (self.is_too_many() || self.requests.iter().any(|owed| is_same(owed, request)))
    }

    pub(crate) fn requests(&self) -> &[JobRequest] {
        &self.requests
    }

    /// The questions in `told`, an earlier copy of this value, were reported. If they were too many, a new
    /// memory has begun.
    pub(crate) fn settle(&mut self, told: &Self) {
        self.begun = self.begun.max(told.dropped);
        // Some may have been dropped in the meantime, or another task may have reported the same ones.
        let end = told.settled + told.requests.len() as u64;
        let told = end.saturating_sub(self.settled).min(self.requests.len() as u64);
        self.requests.drain(..told as usize);
        self.settled += told;
    }
}

/// Whether both ask for the same id or cookie, whatever their times.
fn is_same(one: &JobRequest, two: &JobRequest) -> bool {
    match (one, two) {
        (JobRequest::GuardSet { key: one, .. }, JobRequest::GuardSet { key: two, .. }) => one == two,
        (JobRequest::Redeem { serial: one, .. }, JobRequest::Redeem { serial: two, .. }) => one == two,
        _ => false,
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

    #[test]
    fn what_was_settled_goes_and_what_came_meanwhile_stays() {
        let mut owed = Owed::default();
        owed.add(redeem(1));
        owed.add(JobRequest::Activate { serial: Serial::new(1, 9).unwrap() });
        let told = owed.clone();
        owed.add(redeem(2));
        owed.settle(&told);
        assert_eq!(owed.requests(), [redeem(2)]);
        // A second report of the same questions removes nothing more.
        owed.settle(&told);
        assert_eq!(owed.requests(), [redeem(2)]);
    }

    #[test]
    fn memory_is_bounded_and_too_many_are_not_forgotten() {
        let mut owed = Owed::default();
        for counter in 1..=2 * MOST as u64 {
            owed.add(redeem(counter));
            assert!(owed.requests().len() <= MOST);
        }
        assert!(owed.is_too_many() && owed.holds(&redeem(1)));
        let told = owed.clone();
        owed.settle(&told);
        assert!(owed.is_empty());
        // Too many were added since the copy, so a further report is needed.
        let told = owed.clone();
        (0..=MOST as u64).for_each(|counter| owed.add(redeem(counter + 1)));
        owed.settle(&told);
        assert!(owed.is_too_many());
    }

    /// A first flight that was refused after a new memory began must not be accepted in the new memory
    /// either.
    #[test]
    fn what_came_while_a_memory_was_begun_anew_is_owed_to_the_new_one() {
        let mut owed = Owed::default();
        (0..=MOST as u64).for_each(|counter| owed.add(redeem(counter + 1)));
        let told = owed.clone();
        let late = redeem(1 << 30);
        owed.add(late);
        owed.settle(&told);
        assert!(!owed.is_too_many());
        assert!(owed.holds(&late), "a copy of this one would be accepted");
        assert_eq!(owed.requests(), [late]);
    }
}
