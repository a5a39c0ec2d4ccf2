//! When chosen bytes of the stream left, and when the peer acknowledged them.

use alloc::collections::VecDeque;
use firstflight_wire::Instant;

/// Most bytes that are watched at a time, with those whose times were not taken yet.
const MOST: usize = 64;

/// What happened to a byte of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Milestone {
    /// A segment with it left for the first time.
    Sent,
    /// The peer acknowledged it, and with it all bytes before it.
    Acknowledged,
}

/// When something happened to a byte that [`Connection::stamp`](crate::Connection::stamp) chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stamp {
    /// Number of the stream's bytes up to and with this one, as `stamp` returned it.
    pub offset: u64,
    /// What happened.
    pub milestone: Milestone,
    /// When: the time given to the call in which it happened.
    pub at: Instant,
}

#[derive(Debug, Clone, Copy)]
struct WatchedStamp {
    offset: u64,
    sent: bool,
}

/// The bytes that are watched, and the times not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    watched: VecDeque<WatchedStamp>,
    stamps: VecDeque<Stamp>,
}

impl Stamps {
    /// Watches the byte that ends at `offset`; false if there are too many. The same byte is watched once.
    pub(crate) fn watch(&mut self, offset: u64) -> bool {
        if self.watched.back().is_some_and(|last| last.offset == offset) {
            return true;
        }
        // Each byte has at most two milestones.
        let room = 2 * self.watched.len() + self.stamps.len() + 2 <= 2 * MOST;
        if room {
            self.watched.push_back(WatchedStamp { offset, sent: false });
        }
        room
    }

    /// The first `offset` bytes have left, the last of them at `at`, if that is known. Returns whether that was unknown.
    pub(crate) fn sent(&mut self, offset: u64, at: Option<Instant>) -> bool {
        let before = self.stamps.len();
        for byte in self.watched.iter_mut().filter(|byte| !byte.sent && byte.offset <= offset) {
            byte.sent = true;
            let stamp = |at| Stamp { offset: byte.offset, milestone: Milestone::Sent, at };
            self.stamps.extend(at.map(stamp));
        }
        self.stamps.len() > before
    }

    /// The first `offset` bytes are acknowledged. Returns whether that was unknown.
    pub(crate) fn acknowledged(&mut self, offset: u64, at: Instant) -> bool {
        let before = self.stamps.len();
        while let Some(WatchedStamp { offset, .. }) = self.watched.pop_front_if(|byte| byte.offset <= offset)
        {
            self.stamps.push_back(Stamp { offset, milestone: Milestone::Acknowledged, at });
        }
        self.stamps.len() > before
    }

    /// The next time not taken yet, oldest first.
    pub(crate) fn take(&mut self) -> Option<Stamp> {
        self.stamps.pop_front()
    }
}

#[cfg(test)]
mod tests;
