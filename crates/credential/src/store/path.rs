//! The memory of the path to a server: its round-trip time and its largest segment.

use core::time::Duration;
use firstflight_wire::Instant;

/// The greatest age of a round-trip time that still sets a SYN's timeout.
const RTT_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// Bounds of a SYN's first timeout. The upper one is the initial RTO of RFC 6298 §2.1.
pub(super) const SYN_TIMEOUT_MIN: Duration = Duration::from_millis(50);
pub(super) const SYN_TIMEOUT_MAX: Duration = Duration::from_secs(1);
/// How long a reduced path MTU is believed (RFC 8201 §5.3, RFC 1191 §6.3).
const MTU_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Round-trip times of the connections to one server.
// Times are in nanoseconds and capped at an hour: no round trip is longer. Arithmetic on one number is
// cheaper than on seconds and nanoseconds, and eight times the cap cannot overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathRtt {
    srtt: u64,
    rttvar: u64,
    at: Instant,
}

impl PathRtt {
    /// A round-trip time, its variation, and when it was measured. Times of more than an hour count as an
    /// hour.
    #[must_use]
    pub fn new(srtt: Duration, rttvar: Duration, at: Instant) -> Self {
        Self { srtt: nanos(srtt), rttvar: nanos(rttvar), at }
    }

    /// The round-trip time, smoothed over the connections.
    #[must_use]
    pub const fn srtt(&self) -> Duration {
        Duration::from_nanos(self.srtt)
    }

    /// The variation of the round-trip time among the connections.
    #[must_use]
    pub const fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.rttvar)
    }

    /// When the last round-trip time was measured.
    #[must_use]
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// A connection ended. Its smoothed round-trip time is one sample of RFC 6298 §2.3, so that the variation
    /// converges on a stable path, however short the connections are. Values older than an hour are ignored.
    pub(super) fn next(before: Option<Self>, srtt: Duration, rttvar: Duration, now: Instant) -> Self {
        let Some(b) = before.filter(|b| b.is_current(now)) else { return Self::new(srtt, rttvar, now) };
        let (old, new) = (b.srtt, nanos(srtt));
        Self { srtt: old / 8 * 7 + new / 8, rttvar: b.rttvar / 4 * 3 + old.abs_diff(new) / 4, at: now }
    }

    pub(super) fn is_current(&self, now: Instant) -> bool {
        now.nanos_since(self.at) <= nanos(RTT_LIFETIME)
    }

    /// max(1.5·SRTT, SRTT + 4·RTTVAR) between 50 ms and 1 s; `None` if the measurement is too old.
    pub(super) fn syn_timeout(&self, now: Instant) -> Option<Duration> {
        const BOUNDS: [u64; 2] = [nanos(SYN_TIMEOUT_MIN), nanos(SYN_TIMEOUT_MAX)];
        let timeout = self.srtt + (self.srtt / 2).max(self.rttvar * 4);
        self.is_current(now).then(|| Duration::from_nanos(timeout.clamp(BOUNDS[0], BOUNDS[1])))
    }
}

/// The duration in nanoseconds, capped at an hour.
#[inline]
const fn nanos(duration: Duration) -> u64 {
    const LONGEST: u64 = RTT_LIFETIME.as_secs();
    if duration.as_secs() >= LONGEST {
        return LONGEST * 1_000_000_000;
    }
    duration.as_secs() * 1_000_000_000 + duration.subsec_nanos() as u64
}

/// The largest segment that the path passes, learnt from a packet-too-big message or from the loss of larger
/// segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMss {
    mss: u16,
    at: Instant,
}

impl PathMss {
    /// The path passes segments of `mss` bytes, as was learnt at `at`.
    #[must_use]
    pub const fn new(mss: u16, at: Instant) -> Self {
        Self { mss, at }
    }

    /// The segment size, bytes.
    #[must_use]
    pub const fn mss(&self) -> u16 {
        self.mss
    }

    /// When it was learnt.
    #[must_use]
    pub const fn at(&self) -> Instant {
        self.at
    }

    pub(super) fn current(&self, now: Instant) -> Option<u16> {
        (now.saturating_since(self.at) <= MTU_LIFETIME).then_some(self.mss)
    }
}
