//! What first flights would save of a visit, from what was measured of it. docs/papers-traffic.md derives the formulas.

use super::visit::{Parts, Visit};
use std::time::Duration;

/// What a visit would be shorter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savings {
    /// Fast Open with a cookie, or ASAP: the request, or TLS's ClientHello, is in the SYN.
    pub first_flight: Duration,
    /// ASAP inside the lookup. `None` if there is no lookup.
    pub in_lookup: Option<Duration>,
    /// A sealed flight: ClientHello and request together in the SYN. `None` without TLS.
    pub sealed: Option<Duration>,
}

impl Savings {
    /// Of a visit. `round_trip` is the site's, so that a lost SYN, which no way of opening a connection avoids, is not
    /// taken for a saving.
    #[must_use]
    pub fn of(parts: &Parts, round_trip: Duration) -> Self {
        let one = round_trip.min(parts.handshake);
        let in_lookup = parts.lookup.map(|lookup| one + lookup.min(one));
        // What is left of TLS is computation.
        let tls = parts.tls.map(|tls| tls.min(one));
        Self { first_flight: one, in_lookup, sealed: tls.map(|tls| one + tls) }
    }
}

/// The round trip to the site of these visits: the median of their handshakes.
#[must_use]
pub fn round_trip(visits: &[Visit]) -> Duration {
    let mut all: Vec<Duration> = visits.iter().map(|visit| visit.round_trip).collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}
