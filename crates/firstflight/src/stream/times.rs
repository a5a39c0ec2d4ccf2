//! How long a connect took.

use super::Stream;
use std::time::{Duration, Instant};

/// How long a connect took, apart from the first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectTimes {
    /// Until the addresses were known.
    pub lookup: Duration,
    /// From then until the handshake was complete, or the first flight accepted.
    pub connect: Duration,
    /// When the first SYN had left, in UDP or by the kernel. What comes before it, such as the making of a first flight
    /// ([`MakeFlight::make`](crate::MakeFlight::make)), is work of this machine.
    pub first_syn: Instant,
}

impl Stream {
    /// How long the connect took, of a stream by [`Client::connect`](crate::Client::connect).
    #[must_use]
    pub const fn times(&self) -> Option<ConnectTimes> {
        self.times
    }
}
