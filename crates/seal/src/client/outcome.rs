//! What became of a contact (7.7).

use core::fmt;

/// What became of a contact with a server for which seals were considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The request ran early, and its answer came after one round trip.
    OneRoundTrip,
    /// The server did not open the flight. Ordinary TLS followed.
    StaleKey,
    /// There was no key, or none from a trusted source.
    NoKey,
    /// There was a key, and policy, size or memory decided for ordinary TLS.
    Declined,
    /// The flight was taken, but not in the first flight of the transport, or the request ran only after Finished.
    TransportRefused,
    /// Whether the request was executed is not known, and it does not go again by itself.
    Unknown,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::OneRoundTrip,
        Self::StaleKey,
        Self::NoKey,
        Self::Declined,
        Self::TransportRefused,
        Self::Unknown,
    ];

    /// Its name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneRoundTrip => "one-round-trip",
            Self::StaleKey => "stale-key",
            Self::NoKey => "no-key",
            Self::Declined => "declined",
            Self::TransportRefused => "transport-refused",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
