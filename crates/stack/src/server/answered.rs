//! The last SYN cookies that were sent without SYN pressure, in answer to wrong credential blocks.

use alloc::collections::VecDeque;
use core::time::Duration;
use firstflight_wire::{Instant, SeqNum};

/// Most cookies remembered. More wrong blocks within a cookie's lifetime are a flood.
const MOST: usize = 64;

/// Longest lifetime of a cookie: two periods of its clock (`crate::server::syn_cookie`).
pub(crate) const LIFE: Duration = Duration::from_secs(128);

/// Which flow got which cookie. A wrong block costs its sender nothing, so one wrong block must not make the listener
/// check every ACK for a cookie, of which sixteen in 2^32 are valid for a flow. A flow that got a cookie has to return
/// exactly that one.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    sent: VecDeque<(u64, SeqNum, Instant)>,
}

impl Answered {
    /// Remembers the cookie that was sent to the flow with this hash. False if that removed one that is still valid.
    pub(crate) fn note(&mut self, hash: u64, cookie: SeqNum, now: Instant) -> bool {
        while self.sent.front().is_some_and(|(_, _, at)| now - *at >= LIFE) {
            self.sent.pop_front();
        }
        let full = self.sent.len() >= MOST;
        if full {
            self.sent.pop_front();
        }
        self.sent.push_back((hash, cookie, now));
        !full
    }

    /// Whether this cookie was sent to this flow, and is still valid.
    pub(crate) fn has(&self, hash: u64, cookie: SeqNum, now: Instant) -> bool {
        self.sent.iter().any(|(to, what, at)| *to == hash && *what == cookie && now - *at < LIFE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_last_ones_as_long_as_they_live() {
        let mut answered = Answered::default();
        let at = |s| Instant::from_secs(s);
        for n in 0..MOST as u64 {
            assert!(answered.note(n, SeqNum::new(n as u32), at(n)));
        }
        assert!(answered.has(0, SeqNum::new(0), at(127)));
        assert!(!answered.has(0, SeqNum::new(1), at(127)), "another cookie");
        assert!(!answered.has(1, SeqNum::new(0), at(127)), "another flow");
        assert!(!answered.has(0, SeqNum::new(0), at(128)), "too old");
        assert!(!answered.note(99, SeqNum::new(99), at(100)), "one that lives made way");
        assert!(!answered.has(0, SeqNum::new(0), at(100)));
        assert!(answered.has(99, SeqNum::new(99), at(100)));
        assert!(answered.note(100, SeqNum::new(100), at(1000)), "those that made way were over");
        assert_eq!(answered.sent.len(), 1);
    }
}
