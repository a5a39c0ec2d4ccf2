//! What became of a first flight inside a lookup.

use firstflight_dns::{MessageError, Restraint, SealError};
use firstflight_stack::ConnectError;
use firstflight_wire::ParseError;
use std::fmt;
use std::io;

/// How a connection came about.
#[derive(Debug)]
pub struct Report {
    /// Which way was the first.
    pub way: Way,
    /// Why nothing went by the lookup, if nothing did.
    pub held_back: Option<HeldBack>,
    /// Names that were asked for, beside the server's own.
    pub names: usize,
}

/// The way that a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Inside the lookup: the server answered before it was contacted, or took that copy before the direct one.
    Lookup,
    /// Both ways, and the direct one was first or the other one led to nothing.
    Direct,
    /// The direct way only.
    Ordinary,
}

impl Way {
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

/// Why a first flight does not go by the lookup.
#[derive(Debug)]
#[non_exhaustive]
pub enum HeldBack {
    /// The server is not known to take them.
    NoCarriage,
    /// The request may not be executed twice, or there is none.
    NotReplayable,
    /// There is no certificate to show.
    NoCertificate,
    /// Nobody has found within the last hour that strangers can answer here.
    NotProved,
    /// The certificate is for another address than strangers reach.
    OtherAddress,
    /// It has more bytes than eight names carry.
    TooLong,
    /// There were many lately, or the resolver refuses, changes or loses their names.
    Manners(Restraint),
    /// Four first flights in a row that were sealed to what the server publishes were overdue: they should have been at
    /// the server before their direct copies, and were not.
    Lost,
    /// What the server publishes cannot be sealed to.
    Seal(SealError),
    /// There is no port or room for another connection.
    Local(ConnectError),
    /// The system has no clock, randomness or socket for it.
    Io(io::Error),
    /// A SYN that cannot be written down; never.
    Segment(ParseError),
    /// A question that cannot be written; never.
    Message(MessageError),
}

impl HeldBack {
    /// Its label in kebab-case.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NoCarriage => "no-carriage",
            Self::NotReplayable => "not-replayable",
            Self::NoCertificate => "no-certificate",
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
            Self::NoCarriage => f.write_str("the server is not known to take first flights by lookups"),
            Self::NotReplayable => f.write_str("the request may not be executed twice"),
            Self::NoCertificate => f.write_str("there is no certificate to show"),
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
