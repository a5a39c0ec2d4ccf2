//! Why a credential block is refused, and what the SYN-ACK says about it.

use crate::outcome::Reason;
use firstflight_wire::asap::{Hint, Reply, Status};

/// The refusal of a block, as the SYN-ACK reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Its status.
    pub status: Status,
    /// The request's tag. Zero if the block could not be parsed.
    pub tag: [u8; 2],
    /// Further information, for clients that accept a long reply.
    pub hint: Hint,
    /// The reason for the outcome, which may be more precise than the status.
    pub reason: Reason,
}

impl Refused {
    /// A refusal with this status, and the reason that belongs to it.
    #[must_use]
    pub const fn new(status: Status, tag: [u8; 2]) -> Self {
        Self { status, tag, hint: Hint::None, reason: reason(status) }
    }

    /// The refusal of a request of which the store of the farm cannot be told: another member may accept a copy
    /// (`docs/spec/asap.md` §7.4). So data that must not be executed twice is not sent again.
    #[must_use]
    pub const fn unreported(self) -> Self {
        if self.is_forged() { self } else { Self { status: Status::Replayed, hint: Hint::None, ..self } }
    }

    /// The refusal of a request that the guard remembers ([`AsapPolicy::remembers`](super::AsapPolicy::remembers)): a copy of
    /// it may have been accepted (`docs/spec/asap.md` §7.4).
    #[must_use]
    pub const fn seen(self) -> Self {
        if self.is_forged() { self } else { Self::new(Status::Replayed, self.tag) }
    }

    /// What is said of this refusal if the guard had `seen` the request before, or the store could not be `told` of it.
    #[must_use]
    pub const fn knowing(self, seen: bool, told: bool) -> Self {
        match (seen, told) {
            (true, _) => self.seen(),
            (false, true) => self,
            (false, false) => self.unreported(),
        }
    }

    /// Whether the store of the farm was not told: [`Refused::unreported`].
    #[must_use]
    pub const fn is_unreported(&self) -> bool {
        matches!(self.status, Status::Replayed) && !matches!(self.reason, Reason::Replay)
    }

    /// Replaces the reason.
    pub(crate) const fn because(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }

    /// Whether a signature is wrong, or the encoding is one that no honest client sends. Then the server
    /// keeps no state for the SYN. After any other refusal it treats the SYN as an ordinary one.
    #[must_use]
    pub const fn is_forged(&self) -> bool {
        matches!(self.status, Status::BadSignature | Status::Malformed)
    }

    /// The reply for the SYN-ACK. `long`: the client accepts a reply of 16 bytes.
    #[must_use]
    pub const fn reply(&self, long: bool) -> Reply {
        Reply { status: self.status, tag: self.tag, hint: if long { self.hint } else { Hint::None } }
    }
}

/// The reason that belongs to a status, for outcomes.
#[must_use]
pub const fn reason(status: Status) -> Reason {
    match status {
        Status::Disabled | Status::Policy => Reason::Policy,
        Status::Overloaded => Reason::Overloaded,
        Status::UnknownVerifier => Reason::UntrustedVerifier,
        Status::Expired => Reason::Expired,
        Status::NotYetValid | Status::OutsideWindow => Reason::ClockSkew,
        Status::AddressMismatch => Reason::AddressMismatch,
        Status::BadSignature => Reason::BadSignature,
        Status::Replayed => Reason::Replay,
        Status::WrongIdentity => Reason::WrongIdentity,
        Status::Malformed => Reason::Malformed,
        Status::GuardFloor => Reason::GuardFloor,
        Status::Barred => Reason::Barred,
        _ => Reason::CapabilityUnknown,
    }
}
