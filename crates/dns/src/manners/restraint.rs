//! Why a first flight does not go by DNS.

use core::fmt;

/// Why a first flight does not go by DNS now, but the direct way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restraint {
    /// The resolver on this network refused, changed or lost names of this zone, or said that they do not
    /// exist, and the pause has not ended. Or it has ended, and the trial first flight has no result yet.
    Stopped,
    /// Three zones are stopped with this resolver on this network.
    Resolver,
    /// The resolver did not answer all names of an earlier first flight within the time that it needed for
    /// the others.
    Unanswered,
    /// Four of this zone in the last minute.
    Zone,
    /// Twenty in the last minute.
    Client,
}

impl fmt::Display for Restraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "the resolver refused, changed or lost names of this zone a short time ago",
            Self::Resolver => "the resolver refused, changed or lost names of three zones a short time ago",
            Self::Unanswered => "the resolver has not answered names of an earlier first flight yet",
            Self::Zone => "four first flights of this zone in the last minute",
            Self::Client => "twenty first flights in the last minute",
        })
    }
}
