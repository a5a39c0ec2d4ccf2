//! What a connection owes the peer.

/// What is to leave though neither data nor an acknowledgement asks for it; bits add up, so that one look says that
/// there is nothing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owed(u8);

impl Owed {
    /// An acknowledgement for a segment that was not accepted (RFC 5961).
    pub const CHALLENGE: Self = Self(1);
    /// A probe of one number below UNA (closed window, keepalive).
    pub const PROBE: Self = Self(2);
    /// A reset.
    pub const RESET: Self = Self(4);
    /// A chunk held back by silly-window avoidance.
    pub const SMALL: Self = Self(8);
    /// A tail loss probe (RFC 8985 §7.3).
    pub const TAIL: Self = Self(16);
    /// The first segment that is not acknowledged, once more, whatever congestion control says.
    pub const FIRST: Self = Self(32);

    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub const fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }

    #[inline]
    pub fn set(&mut self, one: Self) {
        self.0 |= one.0;
    }

    #[inline]
    pub fn clear(&mut self, one: Self) {
        self.0 &= !one.0;
    }

    /// Whether it has `one`, which it no longer has then.
    #[inline]
    pub fn take(&mut self, one: Self) -> bool {
        if !self.has(one) {
            return false;
        }
        self.clear(one);
        true
    }
}
