//! When an acknowledgement does not wait: at the start of what a peer sends, as in Linux.
//!
//! A sender in slow start lives on acknowledgements, so the first segments are acknowledged one by one, and
//! again those after a pause that made the sender start anew. Once answers follow data, acknowledgements travel with
//! them.

use core::time::Duration;
use firstflight_wire::Instant;

/// Fewest acknowledgements that do not wait, however small the window is.
const FEWEST: u32 = 2;

/// Whether acknowledgements wait.
#[derive(Debug)]
pub struct QuickAck {
    /// Acknowledgements left that do not wait.
    left: u32,
    /// When data last arrived; [`Instant::FAR_FUTURE`] before.
    heard: Instant,
    /// When our handshake was complete; [`Instant::FAR_FUTURE`] before.
    opened: Instant,
    /// Answers have followed data.
    interactive: bool,
}

impl Default for QuickAck {
    #[inline]
    fn default() -> Self {
        Self { left: 0, heard: Instant::FAR_FUTURE, opened: Instant::FAR_FUTURE, interactive: false }
    }
}

/// How many do not wait, of a window of so many full segments.
fn quick(segments: u32, most: u32) -> u32 {
    (segments / 2).max(FEWEST).min(most)
}

impl QuickAck {
    /// Data arrived; `rto` is the timeout in nanoseconds after which its sender would have started anew, and `segments` as many
    /// full segments as fit into the window that was offered; at most `most` do not wait.
    #[inline(always)]
    pub fn data(&mut self, now: Instant, rto: u64, segments: impl FnOnce() -> u32, most: u32) {
        let anew = self.heard == Instant::FAR_FUTURE || now.nanos_since(self.heard) > rto;
        self.heard = now;
        if anew {
            self.left = self.left.max(quick(segments(), most));
        }
    }

    /// Something came out of order, or twice: its sender is in trouble.
    pub fn trouble(&mut self, segments: u32, most: u32) {
        self.left = self.left.max(quick(segments, most));
        self.interactive = false;
    }

    /// The handshake is complete.
    pub fn opened(&mut self, now: Instant) {
        self.opened = now;
    }

    /// Data leaves; so soon after what came that it answers it, perhaps.
    pub fn answered(&mut self, now: Instant, delay: Duration) {
        // What waited for the handshake answers it.
        self.interactive |=
            (self.heard != Instant::FAR_FUTURE && now < self.heard + delay) || self.opened == now;
    }

    /// An acknowledgement waited, and no answer took it along.
    pub fn waited_in_vain(&mut self) {
        self.interactive = false;
    }

    /// An acknowledgement leaves.
    pub fn acked(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Whether acknowledgements do not wait now.
    #[must_use]
    pub fn is_quick(&self) -> bool {
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
