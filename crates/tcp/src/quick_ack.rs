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
mod tests {
    use super::*;

    const QUICK: u32 = 16;
    const DELAY: Duration = Duration::from_millis(40);
    const RTO: u64 = 200_000_000;

    #[test]
    fn the_first_acknowledgements_do_not_wait() {
        let mut quick = QuickAck::default();
        for _ in 0..QUICK {
            quick.data(Instant::from_millis(1), RTO, || 44, QUICK);
            assert!(quick.is_quick());
            quick.acked();
        }
        quick.data(Instant::from_millis(1), RTO, || 44, QUICK);
        assert!(!quick.is_quick());
    }

    #[test]
    fn a_small_window_is_acknowledged_quickly_at_least_twice() {
        let mut quick = QuickAck::default();
        quick.data(Instant::ZERO, RTO, || 1, QUICK);
        quick.acked();
        assert!(quick.is_quick());
        quick.acked();
        assert!(!quick.is_quick());
    }

    #[test]
    fn they_begin_again_after_a_pause() {
        let mut quick = QuickAck::default();
        quick.data(Instant::ZERO, RTO, || 4, QUICK);
        (0..2).for_each(|_| quick.acked());
        quick.data(Instant::from_millis(200), RTO, || 4, QUICK);
        assert!(!quick.is_quick());
        quick.data(Instant::from_millis(401), RTO, || 4, QUICK);
        assert!(quick.is_quick());
    }

    #[test]
    fn a_request_is_no_answer_to_the_handshake() {
        let at = Instant::from_millis;
        let mut quick = QuickAck::default();
        // The request waited for the SYN-ACK, or left in the SYN: no data has come yet.
        quick.answered(at(20), DELAY);
        quick.data(at(40), RTO, || 44, QUICK);
        assert!(quick.is_quick(), "the response's first segments are acknowledged at once");
    }

    #[test]
    fn answers_take_acknowledgements_along() {
        let mut quick = QuickAck::default();
        quick.data(Instant::ZERO, RTO, || 44, QUICK);
        quick.answered(Instant::from_millis(40), DELAY);
        assert!(quick.is_quick());
        quick.answered(Instant::from_millis(39), DELAY);
        assert!(!quick.is_quick());
        quick.trouble(44, QUICK);
        assert!(quick.is_quick());
    }
}
