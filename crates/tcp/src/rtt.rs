//! The round-trip time and the retransmission timeout made of it (RFC 6298).

use core::time::Duration;
use firstflight_wire::Instant;

/// The timeout before the first measurement (RFC 6298 §2.1).
//= rfc6298 2.1-a
pub const INITIAL_RTO: Duration = Duration::from_secs(1);

/// The smallest timeout, as in Linux.
///
/// RFC 6298 §2.4 says that it SHOULD be 1 s. With 1 s, a loss at the tail of a short answer costs many round
/// trips on today's paths. Another rule protects against spurious timeouts here: 200 ms is the floor of the
/// variance term, so it is *added to* the smoothed round-trip time and leaves room for the peer's delayed
/// acknowledgement.
//= rfc6298 2.4-a
pub const MIN_RTO: Duration = Duration::from_millis(200);
/// [`MIN_RTO`] in nanoseconds.
pub(crate) const MIN_RTO_NANOS: u64 = MIN_RTO.as_nanos() as u64;

/// The largest timeout, backed off or not (RFC 6298 §2.5 allows a maximum of at least 60 s).
pub const MAX_RTO: Duration = Duration::from_secs(120);

const MIN_US: u32 = 200_000;
const MAX_US: u32 = 120_000_000;
const INITIAL_US: u32 = 1_000_000;
/// `min_rtt` before the first sample.
const UNKNOWN: u32 = u32::MAX;
/// Length of a stretch in units of 2³⁰ ns, about 150 s. The smallest round-trip time is taken over the current
/// stretch and the one before. Older samples (Linux: 5 min) say nothing about the path any more.
const STRETCH: u16 = 140;

/// Smoothed round-trip time, its variation and the retransmission timeout of one connection.
///
/// The caller applies Karn's algorithm (RFC 6298 §3): it must not pass samples of segments that were sent
/// twice, unless a timestamp says which copy was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RttEstimator {
    /// 8 · SRTT in µs: the scale keeps the fraction that the gain 1/8 would lose. Before the first sample: that of
    /// [`RttEstimator::sample_for_now`], or zero.
    srtt_8: u32,
    /// 4 · RTTVAR in µs. Before the first sample: what SRTT lacks to the timeout without backoff.
    rttvar_4: u32,
    /// Smallest sample of the current stretch in µs, or `UNKNOWN`.
    min_us: u32,
    /// Smallest sample of the stretch before in µs, or `UNKNOWN`.
    min_before_us: u32,
    /// When RTTVAR last fell, in µs, wrapping.
    fell: u32,
    /// When the stretch began, in units of 2³⁰ ns, wrapping.
    stretch: u16,
    /// Number of times the timeout was doubled.
    backoffs: u8,
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self::new()
    }
}

impl RttEstimator {
    /// An estimator without samples: the timeout is [`INITIAL_RTO`].
    #[must_use]
    pub const fn new() -> Self {
        Self {
            srtt_8: 0,
            rttvar_4: INITIAL_US,
            min_us: UNKNOWN,
            min_before_us: UNKNOWN,
            fell: 0,
            stretch: 0,
            backoffs: 0,
        }
    }

    /// An estimator without samples, with this timeout, within [`MIN_RTO`] to [`MAX_RTO`].
    #[inline]
    #[must_use]
    pub fn starting(rto: Duration) -> Self {
        let mut rtt = Self::new();
        if rto != INITIAL_RTO {
            rtt.set_initial(rto);
        }
        rtt
    }

    /// Takes a measurement made at `now` (RFC 6298 §2.2, §2.3). A sample above [`MAX_RTO`] counts as [`MAX_RTO`].
    ///
    /// The weights of RFC 6298 are made for one sample in a round trip. More samples must not shorten the
    /// history, so RTTVAR rises at any sample but falls only once in a round trip; Linux keeps the largest
    /// sample of each round trip. SRTT follows all samples, as in Linux, because loss detection needs the
    /// current path.
    ///
    /// Ends an earlier [`RttEstimator::backoff`] (the "collapsing" at the end of §5).
    //= rfc9293 MUST-18
    pub fn sample(&mut self, rtt: Duration, now: Instant) {
        self.sample_us(micros(rtt), now);
    }

    /// Like [`RttEstimator::sample`], for the time from `sent` to `now`.
    #[inline]
    pub fn sample_between(&mut self, sent: Instant, now: Instant) {
        self.sample_us(micros_between(sent, now), now);
    }

    #[inline]
    fn sample_us(&mut self, us: u32, now: Instant) {
        let at = now.as_micros() as u32;
        if self.min_us == UNKNOWN {
            //= rfc6298 2.2-a
            self.srtt_8 = us * 8;
            self.rttvar_4 = us * 2;
            self.fell = at;
        } else {
            //= rfc6298 2.3-a 2.3-b 2.3-c
            // Update RTTVAR first: it is measured against the old SRTT (§2.3).
            let srtt = self.srtt_8 / 8;
            let rttvar_4 = self.rttvar_4 - self.rttvar_4 / 4 + srtt.abs_diff(us);
            //= rfc7323 4.2-a
            if rttvar_4 > self.rttvar_4 {
                self.rttvar_4 = rttvar_4;
            } else if at.wrapping_sub(self.fell) >= srtt {
                self.rttvar_4 = rttvar_4;
                self.fell = at;
            }
            self.srtt_8 = self.srtt_8 - self.srtt_8 / 8 + us;
        }
        self.lower_min(us, now);
        self.backoffs = 0;
    }

    /// Takes a measurement that may be too long. It decides about the timeout until the next sample, which replaces it, or
    /// until it is [confirmed](Self::confirm).
    pub fn sample_for_now(&mut self, rtt: Duration) {
        if self.min_us == UNKNOWN {
            let us = micros(rtt);
            (self.srtt_8, self.rttvar_4) = (us * 8, us * 2);
        }
    }

    /// Whether a [`RttEstimator::sample_for_now`] decides about the timeout.
    #[inline]
    #[must_use]
    pub(crate) fn is_for_now(&self) -> bool {
        self.min_us == UNKNOWN && self.srtt_8 > 0
    }

    /// The last [`RttEstimator::sample_for_now`], if no sample came since, was not too long.
    pub fn confirm(&mut self, now: Instant) {
        if self.is_for_now() {
            self.sample_us(self.srtt_8 / 8, now);
        }
    }

    /// Takes a measurement for the minimum only. It belongs to the last of several segments that one
    /// acknowledgement covers: the peer did not delay this segment's acknowledgement.
    #[inline]
    pub fn note_min_between(&mut self, sent: Instant, now: Instant) {
        if self.min_us != UNKNOWN {
            self.lower_min(micros_between(sent, now), now);
        }
    }

    //= rfc8985 6.2-a
    #[inline]
    fn lower_min(&mut self, us: u32, now: Instant) {
        let tick = (now.as_nanos() >> 30) as u16;
        let age = tick.wrapping_sub(self.stretch);
        if self.min_us == UNKNOWN || age >= STRETCH {
            self.min_before_us = if age < 2 * STRETCH { self.min_us } else { UNKNOWN };
            (self.min_us, self.stretch) = (us, tick);
        }
        self.min_us = self.min_us.min(us);
    }

    /// The retransmission timeout with backoff, between [`MIN_RTO`] and [`MAX_RTO`].
    //= rfc6298 1-a
    #[must_use]
    pub fn rto(&self) -> Duration {
        Duration::from_nanos(self.rto_nanos())
    }

    /// Like [`RttEstimator::rto`], in nanoseconds.
    #[inline]
    #[must_use]
    pub fn rto_nanos(&self) -> u64 {
        //= rfc6298 2.3-d 4-a
        // max(G, 4·RTTVAR): the floor is far above the clock granularity G = 1 ms.
        let base_us = (self.srtt_8 / 8 + self.rttvar_4.max(MIN_US)).min(MAX_US);
        let us = u64::from(base_us) << self.backoffs.min(31);
        us.min(u64::from(MAX_US)) * 1000
    }

    /// SRTT in nanoseconds, if anything was measured.
    #[inline]
    #[must_use]
    pub fn srtt_nanos(&self) -> Option<u64> {
        (self.min_us != UNKNOWN).then(|| u64::from(self.srtt_8 / 8) * 1000)
    }

    /// The smallest sample in nanoseconds, if anything was measured.
    #[inline]
    #[must_use]
    pub fn min_nanos(&self) -> Option<u64> {
        let us = self.min_us.min(self.min_before_us);
        (us != UNKNOWN).then(|| u64::from(us) * 1000)
    }

    /// SRTT, if anything was measured.
    #[must_use]
    pub fn srtt(&self) -> Option<Duration> {
        (self.min_us != UNKNOWN).then(|| Duration::from_micros(u64::from(self.srtt_8 / 8)))
    }

    /// RTTVAR; zero before the first measurement.
    #[must_use]
    pub fn rttvar(&self) -> Duration {
        let rttvar_4 = if self.min_us == UNKNOWN { 0 } else { self.rttvar_4 };
        Duration::from_micros(u64::from(rttvar_4 / 4))
    }

    /// The smallest sample of the last two stretches with samples (a few minutes), or `None` without a sample.
    #[must_use]
    pub fn min_rtt(&self) -> Option<Duration> {
        let us = self.min_us.min(self.min_before_us);
        (us != UNKNOWN).then(|| Duration::from_micros(u64::from(us)))
    }

    /// Upper bound of the bytes that the path can hold: four of its shortest round trips at 10 Gbit/s;
    /// `u32::MAX` before the first sample.
    #[inline]
    #[must_use]
    pub fn most_under_way(&self) -> u32 {
        const BYTES_PER_US: u32 = 4 * 1250;
        self.min_us.min(self.min_before_us).saturating_mul(BYTES_PER_US)
    }

    /// Doubles the timeout (RFC 6298 §5.5), up to [`MAX_RTO`].
    //= rfc6298 5.5-a
    //= rfc9293 MUST-19
    pub fn backoff(&mut self) {
        if self.rto() < MAX_RTO {
            self.backoffs = self.backoffs.saturating_add(1);
        }
    }

    /// Sets the number of times the timeout is doubled.
    pub fn back_off_to(&mut self, doublings: u8) {
        self.backoffs = doublings;
    }

    /// Undoes every doubling: new data was acknowledged.
    pub fn reset_backoff(&mut self) {
        self.backoffs = 0;
    }

    /// Sets the timeout that holds until the first sample, within [`MIN_RTO`] to [`MAX_RTO`]. It comes from an
    /// old measurement of the path, or is 3 s after a lost SYN (RFC 6298 §5.7). Ends any backoff.
    ///
    /// After the first sample it only ends the backoff.
    pub fn set_initial(&mut self, rto: Duration) {
        if self.min_us == UNKNOWN {
            (self.srtt_8, self.rttvar_4) = (0, micros(rto).max(MIN_US));
        }
        self.backoffs = 0;
    }
}

/// Whole microseconds from `sent` to `now`, at most `MAX_US`.
#[inline]
fn micros_between(sent: Instant, now: Instant) -> u32 {
    (now.nanos_since(sent) / 1000).min(u64::from(MAX_US)) as u32
}

/// Whole microseconds, at most `MAX_US` (eight times that fits 32 bits).
fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(MAX_US).min(MAX_US)
}

#[cfg(test)]
mod tests;
