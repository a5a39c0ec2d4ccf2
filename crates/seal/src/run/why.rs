//! The names of [`Why`].

use super::admission::Why;
use core::fmt;

impl Why {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Block,
        Self::Replayable,
        Self::WrongBind,
        Self::UnsignedEnc,
        Self::OtherIdentity,
        Self::Incomplete,
        Self::ClientCertificates,
        Self::NotReplayable,
        Self::SeveralTables,
        Self::OutsideWindow,
        Self::ClockUncertain,
        Self::Floor,
        Self::Full,
        Self::NoTable,
        Self::Seen,
    ];

    /// Its name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Replayable => "replayable",
            Self::WrongBind => "wrong-bind",
            Self::UnsignedEnc => "unsigned-enc",
            Self::OtherIdentity => "other-identity",
            Self::Incomplete => "incomplete",
            Self::ClientCertificates => "client-certificates",
            Self::NotReplayable => "not-replayable",
            Self::SeveralTables => "several-tables",
            Self::OutsideWindow => "outside-window",
            Self::ClockUncertain => "clock-uncertain",
            Self::Floor => "floor",
            Self::Full => "full",
            Self::NoTable => "no-table",
            Self::Seen => "seen",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
