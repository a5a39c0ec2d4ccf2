//! Cookies that a memory refused, and that another one may accept.

use firstflight::credential::JobRequest;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Cookies that were refused because they were not valid in this memory. If a replica has taken over a moment ago, they may
/// be valid in its memory; but their data was sent by the ordinary handshake. So they are owed to the next memory.
#[derive(Debug, Default)]
pub(crate) struct Doubtful {
    refused: VecDeque<(Instant, JobRequest)>,
}

impl Doubtful {
    /// Adds one that was refused at `now`. Forgets what is older than `overlap`, the time for which two memories can both
    /// answer. More than `most` make the debt too large to be kept, and the next memory begins anew.
    pub(crate) fn add(&mut self, request: JobRequest, now: Instant, overlap: Duration, most: usize) {
        self.refused.push_back((now, request));
        let is_old = |at: Instant| now.saturating_duration_since(at) > overlap;
        while self.refused.len() > most + 1 || self.refused.front().is_some_and(|(at, _)| is_old(*at)) {
            self.refused.pop_front();
        }
    }

    /// All of them, when the memory is lost.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = JobRequest> + use<> {
        std::mem::take(&mut self.refused).into_iter().map(|(_, request)| request)
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
    fn those_of_the_last_seconds_and_one_more_than_can_be_owed() {
        let (start, overlap) = (Instant::now(), Duration::from_secs(3));
        let mut doubtful = Doubtful::default();
        (1..=100).for_each(|counter| doubtful.add(redeem(counter), start, overlap, 4));
        assert_eq!(doubtful.take().count(), 5);
        doubtful.add(redeem(1), start, overlap, 4);
        doubtful.add(redeem(2), start + Duration::from_secs(4), overlap, 4);
        assert_eq!(doubtful.take().collect::<Vec<_>>(), [redeem(2)]);
    }
}
