//! Why a contact had its outcome (7.7).

use super::outcome::Outcome;
use core::fmt;

/// Why a contact had its [`Outcome`], as the client knows it. [`Outcome::OneRoundTrip`] has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// No key: nobody gave one, and the server publishes none.
    NoRecord,
    /// No key: the DNS did not answer, or not in time.
    LookupFailed,
    /// No key: nobody vouches for the one that the DNS has (8.3).
    Untrusted,
    /// No key: the record has none that may be used now (8.2).
    NotUsable,
    /// Declined: there is no request, no protocol, or no host name.
    NoRequest,
    /// Declined: it does not fit into a flight here (7.6).
    TooLong,
    /// Declined: flights to this server, or on this network, failed (7.4).
    FailureMemory,
    /// Declined: another attempt, without a seal, made the connection.
    OtherAttempt,
    /// Declined: the name is to be hidden, and is the public name of its own key.
    NothingToHide,
    /// Stale key: the server sent REJECT, or somebody on the path.
    Rejected,
    /// Transport refused: the flight followed the handshake of the transport.
    AfterHandshake,
    /// Transport refused: the request ran after Finished only, as it must not run twice and had no block.
    AfterFinished,
    /// Transport refused: the flight was not answered as it should, and the request went again.
    FlightFailed,
    /// Unknown: the flight could run, and no valid Finished of the server answered it.
    Unanswered,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::NoRecord,
        Self::LookupFailed,
        Self::Untrusted,
        Self::NotUsable,
        Self::NoRequest,
        Self::TooLong,
        Self::FailureMemory,
        Self::OtherAttempt,
        Self::NothingToHide,
        Self::Rejected,
        Self::AfterHandshake,
        Self::AfterFinished,
        Self::FlightFailed,
        Self::Unanswered,
    ];

    /// Its name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoRecord => "no-record",
            Self::LookupFailed => "lookup-failed",
            Self::Untrusted => "untrusted",
            Self::NotUsable => "not-usable",
            Self::NoRequest => "no-request",
            Self::TooLong => "too-long",
            Self::FailureMemory => "failure-memory",
            Self::OtherAttempt => "other-attempt",
            Self::NothingToHide => "nothing-to-hide",
            Self::Rejected => "rejected",
            Self::AfterHandshake => "after-handshake",
            Self::AfterFinished => "after-finished",
            Self::FlightFailed => "flight-failed",
            Self::Unanswered => "unanswered",
        }
    }

    /// The outcome that it is a reason of.
    #[must_use]
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::NoRecord | Self::LookupFailed | Self::Untrusted | Self::NotUsable => Outcome::NoKey,
            Self::NoRequest
            | Self::TooLong
            | Self::FailureMemory
            | Self::OtherAttempt
            | Self::NothingToHide => Outcome::Declined,
            Self::Rejected => Outcome::StaleKey,
            Self::AfterHandshake | Self::AfterFinished | Self::FlightFailed => Outcome::TransportRefused,
            Self::Unanswered => Outcome::Unknown,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRecord => "no key of the server is known",
            Self::LookupFailed => "the DNS did not say whether there is a key",
            Self::Untrusted => "nobody vouches for the key that the DNS has",
            Self::NotUsable => "no key of the server may be used now",
            Self::NoRequest => "there was no whole request to seal",
            Self::TooLong => "the request does not fit into a sealed first flight",
            Self::FailureMemory => "sealed first flights failed here before",
            Self::OtherAttempt => "another attempt made the connection",
            Self::NothingToHide => "the name is the public name of its own key",
            Self::Rejected => "the server has another key by now",
            Self::AfterHandshake => "the flight followed the handshake of the transport",
            Self::AfterFinished => "the request waited for the end of the TLS handshake",
            Self::FlightFailed => "the flight failed, and the request went again",
            Self::Unanswered => "no valid answer to the flight came",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_outcome_but_one_has_a_reason_and_names_differ() {
        let names: HashSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        let outcomes: HashSet<_> = Reason::ALL.iter().map(|reason| reason.outcome()).collect();
        for outcome in Outcome::ALL {
            assert_eq!(outcomes.contains(&outcome), outcome != Outcome::OneRoundTrip, "{outcome}");
        }
    }
}
