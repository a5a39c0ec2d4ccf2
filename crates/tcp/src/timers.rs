//! The timers of one connection.

use firstflight_wire::Instant;

/// What a timer of a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Timer {
    /// The tail of a flight is not acknowledged (RFC 8985 §7), or a segment may be late rather than lost (§6.2
    /// step 5).
    Probe,
    /// A SYN, SYN-ACK, data or FIN is not acknowledged (RFC 6298).
    Retransmit,
    /// The window is closed, or a small segment was held back too long (RFC 9293 §3.8.6.1).
    Persist,
    /// An acknowledgement was delayed (RFC 9293 §3.8.6.3), or a window update is to be repeated.
    DelayedAck,
    /// An open connection is silent (RFC 9293 §3.8.4).
    Keepalive,
    /// The oldest unacknowledged data is older than the application allows (RFC 9293 §3.9.1).
    User,
    /// A closed socket waits for the peer's FIN.
    FinWait2,
    /// A segment that pacing held back may leave.
    Pacing,
}

impl Timer {
    const ALL: [Self; 8] = [
        Self::Probe,
        Self::Retransmit,
        Self::Persist,
        Self::DelayedAck,
        Self::Keepalive,
        Self::User,
        Self::FinWait2,
        Self::Pacing,
    ];
}

/// When each timer fires.
#[derive(Debug)]
pub struct Timers([Instant; 8]);

impl Default for Timers {
    fn default() -> Self {
        Self([Instant::FAR_FUTURE; 8])
    }
}

impl Timers {
    /// Sets a timer and replaces its earlier deadline.
    #[inline]
    pub fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    /// Stops a timer.
    #[inline]
    pub fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = Instant::FAR_FUTURE;
    }

    /// Stops all timers.
    pub fn stop_all(&mut self) {
        *self = Self::default();
    }

    /// Whether a timer runs.
    #[inline]
    #[must_use]
    pub fn runs(&self, timer: Timer) -> bool {
        self.0[timer as usize] != Instant::FAR_FUTURE
    }

    /// When a timer fires.
    #[inline]
    #[must_use]
    pub fn at(&self, timer: Timer) -> Instant {
        self.0[timer as usize]
    }

    /// The earliest deadline.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let at = self.0.iter().copied().fold(Instant::FAR_FUTURE, Ord::min);
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    /// Stops one timer that is due and returns it.
    pub fn take_expired(&mut self, now: Instant) -> Option<Timer> {
        let timer = Timer::ALL.into_iter().find(|t| self.0[*t as usize] <= now)?;
        self.stop(timer);
        Some(timer)
    }
}
