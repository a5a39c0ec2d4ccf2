//! What a receiver does for a peer that waits for its closed window to open.
//!
//! A window update is a bare acknowledgement, so nothing retransmits it. If it is lost, the peer finds the open
//! window with its next probe (RFC 9293 §3.8.6.1), and after a minute with a closed window the next probe may
//! be two minutes away. So the update is repeated after the retransmission timeout with exponential backoff, a
//! few times, until the peer continues.
//!
//! A peer that has sent nothing into the closed window gets one update: it has nothing to send, or the window
//! was closed for so short a time that its first probe is near.

use firstflight_wire::SeqNum;

/// Largest number of repetitions of one update. The last leaves 255 timeouts after the window opened, about when the
/// peer probes after a minute with a closed window. So the update survives an outage that long, at a bounded cost.
const REPETITIONS: u8 = 8;

/// Whether the peer waits for a window update, and how often the update may still be repeated.
#[derive(Debug, Default)]
pub(crate) struct Reopening {
    /// RCV.NXT while the window was closed.
    nxt: SeqNum,
    /// Repetitions left.
    left: u8,
    /// The peer has something to send.
    waits: bool,
}

impl Reopening {
    /// The window opens at RCV.NXT `nxt`.
    pub(crate) fn opened(&mut self, nxt: SeqNum) {
        if nxt != self.nxt {
            *self = Self { nxt, left: REPETITIONS, waits: false };
        }
    }

    /// A segment of the peer was not accepted at RCV.NXT `nxt`: a probe, text that does not fit, or old text. `closed`
    /// says whether the window is closed.
    pub(crate) fn refused(&mut self, nxt: SeqNum, closed: bool) {
        if closed {
            *self = Self { nxt, left: REPETITIONS, waits: true };
        } else {
            self.waits |= nxt == self.nxt && self.left > 0;
        }
    }

    /// Whether the peer may be waiting. A cheap check; [`Reopening::next`] is exact.
    #[inline]
    #[must_use]
    pub(crate) const fn may_wait(&self) -> bool {
        self.waits
    }

    /// An update leaves at RCV.NXT `nxt`. Returns n if it is to be repeated after 2ⁿ timeouts, or `None` if the
    /// peer has continued or the update was repeated often enough.
    pub(crate) fn next(&mut self, nxt: SeqNum) -> Option<u8> {
        self.waits &= nxt == self.nxt && self.left > 0;
        self.waits.then(|| REPETITIONS.saturating_sub(self.left))
    }

    /// The update is repeated now.
    pub(crate) fn repeat(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// The peer has continued. Returns whether it waited.
    #[inline]
    pub(crate) fn end(&mut self) -> bool {
        core::mem::take(&mut self.waits)
    }
}

#[cfg(test)]
mod tests;
