//! How much of the congestion window is used. A window that is not fully used is not known to fit the path, so
//! it does not grow, and it shrinks after a while (RFC 7661, RFC 9438 §5.8; the rules are Linux's).

use crate::rtt::MIN_RTO_NANOS;
use firstflight_wire::{Instant, SeqNum};

/// How many bytes were under way recently.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// The window was full in this round trip.
    full: bool,
    /// The most bytes that were under way in this round trip.
    most: u32,
    /// When this number is acknowledged, the next round trip begins.
    end: SeqNum,
    /// The most bytes that were under way since `since`.
    used: u32,
    /// When the window was last full, or `used` was last reported.
    since: Instant,
}

impl Usage {
    /// Nothing was sent yet; the stream begins at `iss`.
    #[inline]
    #[must_use]
    pub(crate) fn new(iss: SeqNum, now: Instant) -> Self {
        Self { full: false, most: 0, end: iss, used: 0, since: now }
    }

    /// A segment left, and `pipe` bytes are now under way. `full` says that one more segment would exceed the
    /// window. If the window was not full for longer than `rto()` nanoseconds, returns the most bytes that were
    /// under way in that time.
    #[inline(always)]
    pub(crate) fn sent(
        &mut self,
        (una, nxt): (SeqNum, SeqNum),
        pipe: u32,
        full: bool,
        rto: impl FnOnce() -> u64,
        now: Instant,
    ) -> Option<u32> {
        if full || una.ge(self.end) || (!self.full && pipe > self.most) {
            self.full = full;
            self.most = pipe;
            self.end = nxt;
        }
        if full {
            (self.used, self.since) = (0, now);
            return None;
        }
        self.used = self.used.max(pipe);
        let since = now.nanos_since(self.since);
        // No timeout is shorter than `MIN_RTO`, and few connections last that long: this avoids calling `rto`.
        if since < MIN_RTO_NANOS || since < rto() {
            return None;
        }
        self.since = now;
        Some(core::mem::take(&mut self.used))
    }

    /// Whether the window was full in this round trip.
    #[inline]
    #[must_use]
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Whether an acknowledgement may grow a window of `window` bytes: the window was full, or in slow start at
    /// least half full.
    #[inline]
    #[must_use]
    pub(crate) fn allows_growth(&self, window: u32, slow_start: bool) -> bool {
        self.full || (slow_start && window < self.most.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests;
