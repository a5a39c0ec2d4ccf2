//! Decides when an acknowledgement is sent without delay: at the start of what a peer sends, as in Linux.
//!
//! A sender in slow start needs acknowledgements to grow its window, so the first segments are acknowledged one
//! by one. So are the first segments after a pause that made the sender start again. Once answers follow data,
//! the answers carry the acknowledgements. A request is no answer to the handshake: whether it waited for the SYN-ACK
//! or left in the SYN, the response's first segments are acknowledged at once. Its sender has a small window, and a
//! sender that writes head and body apart holds the body back until the head is acknowledged (Nagle's algorithm).

use core::time::Duration;
use firstflight_wire::Instant;

/// Smallest number of acknowledgements without delay, for a window of any size.
const FEWEST: u32 = 2;

/// State that decides whether acknowledgements wait.
#[derive(Debug)]
pub(crate) struct QuickAck {
    /// Acknowledgements still to be sent without delay.
    left: u32,
    /// When data last arrived; [`Instant::FAR_FUTURE`] before the first data.
    heard: Instant,
    /// Our data has followed the peer's data as an answer.
    interactive: bool,
}

impl Default for QuickAck {
    #[inline]
    fn default() -> Self {
        Self { left: 0, heard: Instant::FAR_FUTURE, interactive: false }
    }
}

/// Number of acknowledgements to send without delay for a window of `segments` full segments, at most `most`.
fn quick(segments: u32, most: u32) -> u32 {
    (segments / 2).max(FEWEST).min(most)
}

impl QuickAck {
    /// Data arrived. After a pause longer than `rto` nanoseconds its sender has started again in slow start.
    /// `segments` gives the number of full segments that fit into the offered window. At most `most`
    /// acknowledgements are sent without delay.
    #[inline]
    pub(crate) fn data(&mut self, now: Instant, rto: u64, segments: impl FnOnce() -> u32, most: u32) {
        let anew = self.heard == Instant::FAR_FUTURE || now.nanos_since(self.heard) > rto;
        self.heard = now;
        if anew {
            self.left = self.left.max(quick(segments(), most));
        }
    }

    /// A segment arrived out of order or twice: its sender may be losing segments.
    pub(crate) fn trouble(&mut self, segments: u32, most: u32) {
        self.left = self.left.max(quick(segments, most));
        self.interactive = false;
    }

    /// Data leaves. If it leaves within `delay` after data arrived, it probably answers that data.
    pub(crate) fn answered(&mut self, now: Instant, delay: Duration) {
        self.interactive |= self.heard != Instant::FAR_FUTURE && now < self.heard + delay;
    }

    /// An acknowledgement was delayed, and no data left in that time to carry it.
    pub(crate) fn waited_in_vain(&mut self) {
        self.interactive = false;
    }

    /// An acknowledgement leaves.
    pub(crate) fn acked(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Whether acknowledgements are sent without delay now.
    #[must_use]
    pub(crate) fn is_quick(&self) -> bool {
        self.left > 0 && !self.interactive
    }
}

#[cfg(test)]
mod tests;
