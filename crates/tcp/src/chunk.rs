//! What is to leave next.

use firstflight_wire::SeqNum;

/// A piece of the stream to send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Number of its first byte.
    pub seq: SeqNum,
    /// Bytes of data.
    pub len: u32,
    /// What else it is.
    pub kind: Kind,
}

/// What a [`Chunk`] is. As wide as its neighbours: a chunk is copied in words, and a word that was written in parts
/// is not there for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Never sent before.
    Fresh,
    /// The same with our FIN behind it.
    FreshFin,
    /// It was sent before.
    Again,
    /// The same with our FIN behind it.
    AgainFin,
}

impl Chunk {
    /// It ends with our FIN.
    #[inline]
    #[must_use]
    pub const fn fin(&self) -> bool {
        matches!(self.kind, Kind::FreshFin | Kind::AgainFin)
    }

    /// It was sent before.
    #[inline]
    #[must_use]
    pub const fn again(&self) -> bool {
        matches!(self.kind, Kind::Again | Kind::AgainFin)
    }
}

/// Whether less than a full segment may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Small {
    /// At once.
    Leave,
    /// By Nagle's algorithm (RFC 9293 §3.7.4).
    Nagle,
    /// Not: there is more to come.
    Wait,
}

impl Small {
    /// With Nagle's algorithm off, or on.
    #[inline]
    #[must_use]
    pub const fn of(nodelay: bool) -> Self {
        if nodelay { Self::Leave } else { Self::Nagle }
    }
}
