//! Segments that a connection owes the peer.

/// Segments to send although neither data nor an acknowledgement is due. The values are bits of one set, so
/// that one test shows that nothing is owed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct DueSegments(u8);

impl DueSegments {
    /// An acknowledgement for a segment that was not accepted (RFC 5961).
    pub(super) const CHALLENGE: Self = Self(1);
    /// A probe of one number below UNA (closed window, keepalive).
    pub(super) const PROBE: Self = Self(2);
    pub(super) const RESET: Self = Self(4);
    /// The ACK of the peer's SYN, in front of a reset.
    pub(super) const PROOF: Self = Self(64);
    /// A chunk held back by silly-window avoidance.
    pub(super) const SMALL: Self = Self(8);
    /// A tail loss probe (RFC 8985 §7.3).
    pub(super) const TAIL: Self = Self(16);
    /// The first segment that is not acknowledged, to be sent again regardless of congestion control.
    pub(super) const FIRST: Self = Self(32);

    #[inline]
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(super) const fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }

    #[inline]
    pub(super) fn set(&mut self, one: Self) {
        self.0 |= one.0;
    }

    #[inline]
    pub(super) fn clear(&mut self, one: Self) {
        self.0 &= !one.0;
    }

    /// Removes `one`; returns whether it was there.
    #[inline]
    pub(super) fn take(&mut self, one: Self) -> bool {
        if !self.has(one) {
            return false;
        }
        self.clear(one);
        true
    }
}
