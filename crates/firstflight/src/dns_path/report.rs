//! The outcome of a first flight inside a lookup.

use firstflight_dns::{MessageError, Restraint, SealError};
use firstflight_stack::ConnectError;
use firstflight_wire::ParseError;
use std::fmt;
use std::io;

/// How a connection was established.
#[derive(Debug)]
pub struct Report {
    /// The way that was first.
    pub way: LookupWay,
    /// Why nothing was sent in the lookup, if nothing was.
    pub held_back: Option<HeldBack>,
    /// The number of names that were queried, without the server's own name.
    pub names: usize,
    /// Bytes of the request in these names: all, or its beginning ([`FirstFlight::beginning`](crate::FirstFlight::beginning)).
    pub bytes: usize,
}

impl Report {
    /// Nothing was sent in the lookup, for this reason.
    pub(crate) const fn held_back(reason: HeldBack) -> Self {
        Self { way: LookupWay::Ordinary, held_back: Some(reason), names: 0, bytes: 0 }
    }
}

/// The way that a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupWay {
    /// Inside the lookup: the server answered before the client contacted it, or took that copy before the direct
    /// one.
    Lookup,
    /// Both ways were used. The direct copy was first, or the copy in the lookup had no effect.
    Direct,
    /// The direct way only.
    Ordinary,
}

impl LookupWay {
    /// Its name in kebab-case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Direct => "direct",
            Self::Ordinary => "ordinary",
        }
    }
}

/// Why a first flight is not sent in the lookup.
#[derive(Debug)]
#[non_exhaustive]
pub enum HeldBack {
    /// The server is not known to accept first flights by lookups.
    NoDnsPath,
    /// The request may not be executed twice, or there is no request.
    NotReplayable,
    /// The request is made for each attempt, as by TLS, and is bound to the attempt's way.
    Made,
    /// The client has no certificate.
    NoCertificate,
    /// UDP does not work on this network, or lost races lately.
    Udp,
    /// No verifier has confirmed within the last hour that an unknown server can reach this client.
    NotProved,
    /// The certificate is for an address other than the one at which unknown servers reach this client.
    OtherAddress,
    /// The request does not fit into eight names.
    TooLong,
    /// There were too many first flights recently, or the resolver refuses, changes or loses their names.
    Manners(Restraint),
    /// Four first flights in a row that were sealed to the published parameter were overdue: they should have reached
    /// the server before their direct copies, and did not.
    Lost,
    /// The parameter that the server publishes cannot be used for sealing.
    Seal(SealError),
    /// There is no port or no capacity for another connection.
    Local(ConnectError),
    /// The system provides no clock, randomness or socket.
    Io(io::Error),
    /// The SYN cannot be encoded. This does not happen.
    Segment(ParseError),
    /// A question cannot be encoded. This does not happen.
    Message(MessageError),
}

impl HeldBack {
    /// Its label in kebab-case.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NoDnsPath => "no-dns-path",
            Self::NotReplayable => "not-replayable",
            Self::Made => "made",
            Self::NoCertificate => "no-certificate",
            Self::Udp => "udp-paused",
            Self::NotProved => "not-proved",
            Self::OtherAddress => "other-address",
            Self::TooLong => "too-long",
            Self::Manners(Restraint::Stopped) => "zone-stopped",
            Self::Manners(Restraint::Resolver) => "resolver-stopped",
            Self::Manners(Restraint::Unanswered) => "names-unanswered",
            Self::Manners(_) => "too-many",
            Self::Lost => "lost",
            Self::Seal(_) => "bad-parameter",
            Self::Local(_) | Self::Io(_) => "local",
            Self::Segment(_) | Self::Message(_) => "internal",
        }
    }
}

impl From<Restraint> for HeldBack {
    fn from(restraint: Restraint) -> Self {
        Self::Manners(restraint)
    }
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDnsPath => f.write_str("the server is not known to take first flights by lookups"),
            Self::NotReplayable => f.write_str("the request may not be executed twice"),
            Self::Made => f.write_str("the request is made for each attempt"),
            Self::NoCertificate => f.write_str("there is no certificate to show"),
            Self::Udp => f.write_str("UDP lost races on this network lately"),
            Self::NotProved => f.write_str("nobody has found that strangers can answer on this network"),
            Self::OtherAddress => f.write_str("the certificate is for another address than strangers reach"),
            Self::TooLong => f.write_str("the request is too long for a lookup"),
            Self::Manners(restraint) => restraint.fmt(f),
            Self::Lost => f.write_str("the last first flights by lookups were overdue at the server"),
            Self::Seal(error) => error.fmt(f),
            Self::Local(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Segment(error) => error.fmt(f),
            Self::Message(error) => error.fmt(f),
        }
    }
}
