//! Counters of a front.

use super::Transport;
use crate::zone::FoundKind;

/// Kinds of answers, as they are counted and limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// To a fragment.
    Fragment,
    /// Records of a zone.
    Positive,
    /// The name servers of another zone.
    Referral,
    /// The name exists, but has no records of this type.
    NoData,
    /// The name does not exist.
    NoName,
    /// An error: REFUSED, FORMERR and the like.
    Error,
}

impl Kind {
    /// The number of kinds.
    pub(super) const COUNT: usize = 6;

    /// All kinds.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Fragment, Self::Positive, Self::Referral, Self::NoData, Self::NoName, Self::Error];

    /// The label of the kind.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fragment => "fragment",
            Self::Positive => "records",
            Self::Referral => "referral",
            Self::NoData => "nodata",
            Self::NoName => "nxdomain",
            Self::Error => "error",
        }
    }
}

impl From<FoundKind> for Kind {
    fn from(kind: FoundKind) -> Self {
        match kind {
            FoundKind::Positive => Self::Positive,
            FoundKind::Referral => Self::Referral,
            FoundKind::NoData => Self::NoData,
            FoundKind::NoName => Self::NoName,
        }
    }
}

/// Counts of one front. All only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FrontCounters {
    /// Messages over UDP.
    pub udp: u64,
    /// Messages over TCP.
    pub tcp: u64,
    /// Bytes of all these messages.
    pub bytes_in: u64,
    /// Bytes of all answers.
    pub bytes_out: u64,
    /// Messages that are not queries.
    pub ignored: u64,
    /// Queries for which no answer could be written. There should be none.
    pub unanswered: u64,
    /// Answers that were truncated because they were too long for UDP.
    pub truncated: u64,
    /// Answers above the limit that were sent empty, so that the resolver asks again over TCP.
    pub slipped: u64,
    /// Answers above the limit that were not sent.
    pub limited: u64,
    /// Labels with the marker of fragments that are not valid fragments.
    pub malformed_fragments: u64,
    /// First flights that were not opened because there were too many.
    pub over_budget: u64,
    /// First flights sealed to a key that this front does not have, or no longer has.
    pub unknown_key: u64,
    /// First flights that could not be opened, or whose content was invalid.
    pub not_opened: u64,
    /// First flights that were already handed over within the last 45 s, and were not handed over again.
    pub repeated: u64,
    /// First flights handed to a server.
    pub relayed: u64,
    /// First flights for which no datagram could be written.
    pub relay_failed: u64,
    answers: [u64; Kind::COUNT],
}

impl FrontCounters {
    pub(super) const fn note_query(&mut self, transport: Transport, len: usize) {
        match transport {
            Transport::Udp => self.udp += 1,
            Transport::Tcp => self.tcp += 1,
        }
        self.bytes_in += len as u64;
    }

    pub(super) fn note_answer(&mut self, kind: Kind, len: usize) {
        if let Some(count) = self.answers.get_mut(kind as usize) {
            *count += 1;
        }
        self.bytes_out += len as u64;
    }

    /// Answers of this kind that were sent.
    #[must_use]
    pub fn answers(&self, kind: Kind) -> u64 {
        self.answers.get(kind as usize).copied().unwrap_or(0)
    }

    /// Answers that were sent.
    #[must_use]
    pub fn answers_in_all(&self) -> u64 {
        self.answers.iter().sum()
    }
}
