//! What became of seals, for logs and metrics (`docs/spec/sealed.md` 7.7).

use crate::error::{AcceptError, ConnectError, HiddenError};
use crate::sealed::SealedInfo;
use firstflight_seal::{OpenError, Outcome, Reason, Why};
use std::fmt;

/// What became of a contact for which a seal was considered, and why. For clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SealReport {
    /// What became of it.
    pub outcome: Outcome,
    /// Why. `None` for [`Outcome::OneRoundTrip`].
    pub reason: Option<Reason>,
}

impl SealReport {
    /// The request ran early.
    pub(crate) const ONE_ROUND_TRIP: Self = Self { outcome: Outcome::OneRoundTrip, reason: None };

    /// Of a contact that has failed, for which a request was sealed.
    pub(crate) fn failed(error: &ConnectError) -> Option<Self> {
        match error {
            ConnectError::MaybeDelivered(_) => Some(Reason::Unanswered.into()),
            ConnectError::Hidden(error) => Some(error.reason().into()),
            _ => None,
        }
    }
}

impl From<Reason> for SealReport {
    fn from(reason: Reason) -> Self {
        Self { outcome: reason.outcome(), reason: Some(reason) }
    }
}

impl fmt::Display for SealReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.outcome)?;
        self.reason.map_or(Ok(()), |reason| write!(f, " ({})", reason.name()))
    }
}

impl HiddenError {
    const fn reason(self) -> Reason {
        match self {
            Self::NoKey => Reason::NoRecord,
            Self::PublicName => Reason::NothingToHide,
            Self::Request => Reason::TooLong,
            Self::Stopped => Reason::FailureMemory,
            Self::Rejected => Reason::Rejected,
        }
    }
}

/// Why a server rejected a flight. For logs and metrics: it must not be visible on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rejection {
    /// No key has its number, or the key has ended.
    UnknownKey,
    /// Too many flights without an accepted block (6.10).
    TooMany,
    /// It was not sealed to this key for this public name and port, or was changed.
    NotOpened,
    /// Its plaintext breaks a rule (3.3).
    Malformed,
    /// Its ClientHello breaks a rule (4.1).
    BadHello,
    /// Its ClientHello commits to another request (4.3).
    Commitment,
    /// The key does not serve the name in its ClientHello (6.8).
    OtherName,
    /// The server does not speak the protocol.
    OtherProtocol,
    /// TLS would answer with an alert, or ask for another ClientHello.
    Handshake,
    /// It does not belong to the accepted block in front of it (5).
    Block(Why),
}

impl Rejection {
    /// All of them that have a name of their own: without [`Rejection::Block`].
    pub const ALL: [Self; 9] = [
        Self::UnknownKey,
        Self::TooMany,
        Self::NotOpened,
        Self::Malformed,
        Self::BadHello,
        Self::Commitment,
        Self::OtherName,
        Self::OtherProtocol,
        Self::Handshake,
    ];

    /// Its name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownKey => "unknown-key",
            Self::TooMany => "too-many",
            Self::NotOpened => "not-opened",
            Self::Malformed => "malformed",
            Self::BadHello => "bad-hello",
            Self::Commitment => "commitment",
            Self::OtherName => "other-name",
            Self::OtherProtocol => "other-protocol",
            Self::Handshake => "handshake",
            Self::Block(why) => why.name(),
        }
    }
}

impl From<&OpenError> for Rejection {
    fn from(error: &OpenError) -> Self {
        match error {
            OpenError::UnknownKey => Self::UnknownKey,
            OpenError::Malformed(_) => Self::Malformed,
            OpenError::Hello(_) => Self::BadHello,
            OpenError::Digest => Self::Commitment,
            OpenError::Name => Self::OtherName,
            _ => Self::NotOpened,
        }
    }
}

/// What became of a sealed flight at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ServedSeal {
    /// [`Outcome::OneRoundTrip`], [`Outcome::TransportRefused`] (the flight did not come in the first flight of the
    /// transport, or the request ran after Finished), [`Outcome::StaleKey`] (it was rejected) or [`Outcome::Unknown`] (the connection was closed without a response).
    pub outcome: Outcome,
    /// Why: the name of a [`Why`], a [`Rejection`] or [`Reason::AfterHandshake`].
    pub reason: &'static str,
}

impl ServedSeal {
    pub(crate) const fn taken(info: &SealedInfo) -> Self {
        match (info.ran_early, info.in_first_flight) {
            (true, true) => Self { outcome: Outcome::OneRoundTrip, reason: info.why.name() },
            (true, false) => {
                Self { outcome: Outcome::TransportRefused, reason: Reason::AfterHandshake.name() }
            }
            (false, _) => Self { outcome: Outcome::TransportRefused, reason: info.why.name() },
        }
    }

    pub(crate) const fn rejected(rejection: Rejection) -> Self {
        Self { outcome: Outcome::StaleKey, reason: rejection.name() }
    }

    /// Of an accept that has failed. `None` if no sealed request was stopped.
    #[must_use]
    pub const fn failed(error: &AcceptError) -> Option<Self> {
        match error {
            AcceptError::NotRun(why) => Some(Self { outcome: Outcome::Unknown, reason: why.name() }),
            _ => None,
        }
    }
}
