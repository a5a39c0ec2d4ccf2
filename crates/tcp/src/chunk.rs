//! The next piece of the stream to send.

use firstflight_wire::SeqNum;

/// A piece of the stream to send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Number of its first byte.
    pub seq: SeqNum,
    /// Bytes of data.
    pub len: u32,
    /// Whether it was sent before, and whether our FIN ends it.
    pub kind: Kind,
}

/// What a [`Chunk`] is. It is as wide as its neighbours because a chunk is copied in words, and reading a word
/// that was just written in parts stalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// Never sent before.
    Fresh,
    /// Never sent before, and our FIN is behind it.
    FreshFin,
    /// Sent before.
    Again,
    /// Sent before, and our FIN is behind it.
    AgainFin,
}

impl Chunk {
    /// Whether it ends with our FIN.
    #[inline]
    #[must_use]
    pub(crate) const fn fin(&self) -> bool {
        matches!(self.kind, Kind::FreshFin | Kind::AgainFin)
    }

    /// Whether it was sent before.
    #[inline]
    #[must_use]
    pub(crate) const fn again(&self) -> bool {
        matches!(self.kind, Kind::Again | Kind::AgainFin)
    }
}

/// Whether a segment that is less than full may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Small {
    /// It may leave at once.
    Leave,
    /// Nagle's algorithm decides (RFC 9293 §3.7.4).
    Nagle,
    /// It must wait, because more data will follow.
    Wait,
}

impl Small {
    /// The rule with Nagle's algorithm off (`nodelay`) or on.
    #[inline]
    #[must_use]
    pub(crate) const fn of(nodelay: bool) -> Self {
        if nodelay { Self::Leave } else { Self::Nagle }
    }
}
