//! Questions that could not be asked, to be made up for.
//!
//! Their first flights were refused, and what they carried went by the ordinary handshake. A recorded copy of
//! such a SYN must find nothing good when the store is back, so the store is told of it before it is asked
//! anything else.

use firstflight::credential::JobRequest;

/// More, and the memory is begun anew instead: then nothing of before is good.
const MOST: usize = 16_384;

/// What the store was not told, bounded.
#[derive(Debug, Default, Clone)]
pub(crate) struct Owed {
    requests: Vec<JobRequest>,
    /// How many were made up for, or dropped, before the first of them.
    settled: u64,
    /// How often there were too many, and they were dropped.
    dropped: u64,
    /// How many of these times a memory was begun anew for.
    begun: u64,
}

impl Owed {
    /// Remembers a question, if it has to be made up for.
    pub fn add(&mut self, request: JobRequest) {
        if !matches!(request, JobRequest::GuardSet { .. } | JobRequest::Redeem { .. }) {
            return;
        }
        if self.requests.len() >= MOST {
            self.settled += self.requests.len() as u64;
            self.requests.clear();
            self.dropped += 1;
        }
        // Also when there were too many: the memory that is begun anew may not know of this one.
        self.requests.push(request);
    }

    /// They are more than were kept.
    pub const fn is_too_many(&self) -> bool {
        self.dropped > self.begun
    }

    /// Nothing is to be made up for.
    pub const fn is_empty(&self) -> bool {
        self.requests.is_empty() && !self.is_too_many()
    }

    /// Whether `request` asks for an id or a cookie that is still to be reported as used.
    pub fn holds(&self, request: &JobRequest) -> bool {
        let used_up = matches!(request, JobRequest::GuardSet { .. } | JobRequest::Redeem { .. });
        used_up && (self.is_too_many() || self.requests.iter().any(|owed| is_same(owed, request)))
    }

    pub fn requests(&self) -> &[JobRequest] {
        &self.requests
    }

    /// What `told` was when it was looked at has been made up for, and a memory begun anew if they were too many.
    pub fn settle(&mut self, told: &Self) {
        self.begun = self.begun.max(told.dropped);
        // Some may have been dropped meanwhile, or another task has reported the same ones.
        let end = told.settled + told.requests.len() as u64;
        let told = end.saturating_sub(self.settled).min(self.requests.len() as u64);
        self.requests.drain(..told as usize);
        self.settled += told;
    }
}

/// Whether both ask for the same id or cookie, at any times.
fn is_same(one: &JobRequest, two: &JobRequest) -> bool {
    match (one, two) {
        (JobRequest::GuardSet { key: one, .. }, JobRequest::GuardSet { key: two, .. }) => one == two,
        (JobRequest::Redeem { serial: one }, JobRequest::Redeem { serial: two }) => one == two,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use firstflight::credential::Serial;

    fn redeem(counter: u64) -> JobRequest {
        JobRequest::Redeem { serial: Serial::new(1, counter).unwrap() }
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
        // Whoever made up for the same ones takes nothing more away.
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
        // Too many since they were looked at: the next time tells.
        let told = owed.clone();
        (0..=MOST as u64).for_each(|counter| owed.add(redeem(counter + 1)));
        owed.settle(&told);
        assert!(owed.is_too_many());
    }

    /// The memory was begun anew, and what was refused after that is not good in the new one either.
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
