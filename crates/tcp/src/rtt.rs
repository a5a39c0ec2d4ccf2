//! The round-trip time and the retransmission timeout made of it (RFC 6298).

use core::time::Duration;
use firstflight_wire::Instant;

/// The timeout before anything was measured (RFC 6298 §2.1).
//= rfc6298 2.1-a
pub const INITIAL_RTO: Duration = Duration::from_secs(1);

/// The smallest timeout, as in Linux.
///
/// RFC 6298 §2.4 says that it SHOULD be 1 s. With that, a loss at the tail of a short answer costs
/// many round trips on today's paths. What protects against spurious timeouts here instead: the
/// 200 ms are the floor of the variance term, so they come *on top of* the smoothed round-trip time
/// and leave room for the peer's delayed acknowledgement.
//= rfc6298 2.4-a
pub const MIN_RTO: Duration = Duration::from_millis(200);

/// The largest timeout, backed off or not (RFC 6298 §2.5 allows a maximum of at least 60 s).
pub const MAX_RTO: Duration = Duration::from_secs(120);

const MIN_US: u32 = 200_000;
const MAX_US: u32 = 120_000_000;
const INITIAL_US: u32 = 1_000_000;
/// `min_rtt` before the first sample.
const UNKNOWN: u32 = u32::MAX;

/// Smoothed round-trip time, its variation and the retransmission timeout of one connection.
///
/// Karn's algorithm (RFC 6298 §3) is the caller's: it must not give samples of segments that were
/// sent twice, unless a timestamp says which of them was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RttEstimator {
    /// 8 · SRTT in µs: the scale keeps the fraction that the gain 1/8 would lose.
    srtt_8: u32,
    /// 4 · RTTVAR in µs.
    rttvar_4: u32,
    /// Smallest sample in µs, or `UNKNOWN`.
    min_us: u32,
    /// Timeout in µs, not backed off.
    base_us: u32,
    /// How often the timeout was doubled.
    backoffs: u8,
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self::new()
    }
}

impl RttEstimator {
    /// Nothing measured: the timeout is [`INITIAL_RTO`].
    #[must_use]
    pub const fn new() -> Self {
        Self { srtt_8: 0, rttvar_4: 0, min_us: UNKNOWN, base_us: INITIAL_US, backoffs: 0 }
    }

    /// Takes a measurement (RFC 6298 §2.2, §2.3). A sample above [`MAX_RTO`] counts as [`MAX_RTO`].
    ///
    /// The timeout is computed anew, so an earlier [`RttEstimator::backoff`] is over (the
    /// "collapsing" at the end of §5).
    //= rfc9293 MUST-18
    pub fn sample(&mut self, rtt: Duration) {
        self.sample_us(micros(rtt));
    }

    /// The same for the time between two instants.
    #[inline]
    pub fn sample_between(&mut self, sent: Instant, now: Instant) {
        self.sample_us(micros_between(sent, now));
    }

    fn sample_us(&mut self, us: u32) {
        if self.min_us == UNKNOWN {
            //= rfc6298 2.2-a
            self.srtt_8 = us * 8;
            self.rttvar_4 = us * 2;
        } else {
            //= rfc6298 2.3-a 2.3-b 2.3-c
            // The variation first: it is measured against the old SRTT (§2.3).
            let deviation = (self.srtt_8 / 8).abs_diff(us);
            self.rttvar_4 = self.rttvar_4 - self.rttvar_4 / 4 + deviation;
            self.srtt_8 = self.srtt_8 - self.srtt_8 / 8 + us;
        }
        self.min_us = self.min_us.min(us);
        //= rfc6298 2.3-d 4-a
        // max(G, 4·RTTVAR) with the floor far above the clock granularity G = 1 ms.
        self.base_us = (self.srtt_8 / 8 + self.rttvar_4.max(MIN_US)).min(MAX_US);
        self.backoffs = 0;
    }

    /// Takes a measurement for the smallest only: of the last of several segments that one acknowledgement covers,
    /// which did not wait for the others.
    #[inline]
    pub fn note_min_between(&mut self, sent: Instant, now: Instant) {
        if self.min_us != UNKNOWN {
            self.min_us = self.min_us.min(micros_between(sent, now));
        }
    }

    /// The retransmission timeout, backed off; between [`MIN_RTO`] and [`MAX_RTO`].
    //= rfc6298 1-a
    #[must_use]
    pub fn rto(&self) -> Duration {
        Duration::from_nanos(self.rto_nanos())
    }

    /// The same in nanoseconds.
    #[inline]
    #[must_use]
    pub fn rto_nanos(&self) -> u64 {
        let us = u64::from(self.base_us) << self.backoffs.min(31);
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
        (self.min_us != UNKNOWN).then(|| u64::from(self.min_us) * 1000)
    }

    /// SRTT, if anything was measured.
    #[must_use]
    pub fn srtt(&self) -> Option<Duration> {
        (self.min_us != UNKNOWN).then(|| Duration::from_micros(u64::from(self.srtt_8 / 8)))
    }

    /// RTTVAR; zero before the first measurement.
    #[must_use]
    pub fn rttvar(&self) -> Duration {
        Duration::from_micros(u64::from(self.rttvar_4 / 4))
    }

    /// The smallest sample of the connection's life, if anything was measured.
    #[must_use]
    pub fn min_rtt(&self) -> Option<Duration> {
        (self.min_us != UNKNOWN).then(|| Duration::from_micros(u64::from(self.min_us)))
    }

    /// Doubles the timeout (RFC 6298 §5.5), up to [`MAX_RTO`].
    //= rfc6298 5.5-a
    //= rfc9293 MUST-19
    pub fn backoff(&mut self) {
        if self.rto() < MAX_RTO {
            self.backoffs = self.backoffs.saturating_add(1);
        }
    }

    /// Undoes every doubling: new data was acknowledged.
    pub fn reset_backoff(&mut self) {
        self.backoffs = 0;
    }

    /// Sets the timeout until the first sample, within [`MIN_RTO`] to [`MAX_RTO`]: from an old
    /// measurement of the path, or 3 s after a lost SYN (RFC 6298 §5.7). Ends any backoff.
    ///
    /// Without effect on the timeout itself once something was measured.
    pub fn set_initial(&mut self, rto: Duration) {
        if self.min_us == UNKNOWN {
            self.base_us = micros(rto).max(MIN_US);
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn stays_small_and_constants_agree() {
        assert!(size_of::<RttEstimator>() <= 24);
        assert_eq!(micros(MIN_RTO), MIN_US);
        assert_eq!(micros(MAX_RTO), MAX_US);
        assert_eq!(micros(INITIAL_RTO), INITIAL_US);
    }

    //= rfc6298 2.1-a test
    #[test]
    fn begins_with_one_second() {
        let rtt = RttEstimator::new();
        assert_eq!((rtt.rto(), rtt.srtt(), rtt.min_rtt()), (ms(1000), None, None));
    }

    /// RFC 6298 §2.2, §2.3 by hand.
    //= rfc6298 2.2-a 2.3-a 2.3-b 2.3-c 2.3-d test
    #[test]
    fn first_and_second_sample() {
        let mut rtt = RttEstimator::new();
        rtt.sample(ms(400));
        assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(ms(400)), ms(200)));
        assert_eq!(rtt.rto(), ms(400 + 4 * 200));
        rtt.sample(ms(240));
        assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(ms(380)), ms(190)));
        assert_eq!(rtt.rto(), ms(380 + 4 * 190));
        assert_eq!(rtt.min_rtt(), Some(ms(240)));
    }

    //= rfc6298 2.4-a 4-a test
    #[test]
    fn a_steady_path_keeps_the_floor_above_its_round_trip() {
        let mut rtt = RttEstimator::new();
        for _ in 0..200 {
            rtt.sample(ms(190));
        }
        let rto = rtt.rto();
        assert!(rto >= ms(389) && rto <= ms(391), "{rto:?}");
        assert!(rtt.rttvar() < ms(1));
    }

    //= rfc6298 5.5-a test
    #[test]
    fn backs_off_to_the_maximum_and_back() {
        let mut rtt = RttEstimator::new();
        let mut seen = std::vec::Vec::new();
        for _ in 0..300 {
            seen.push(rtt.rto().as_secs());
            rtt.backoff();
        }
        assert_eq!(seen[..9], [1, 2, 4, 8, 16, 32, 64, 120, 120]);
        assert_eq!(rtt.rto(), MAX_RTO);
        rtt.reset_backoff();
        assert_eq!(rtt.rto(), ms(1000));
        rtt.backoff();
        rtt.sample(ms(100));
        assert_eq!(rtt.rto(), ms(300), "a sample ends the backoff");
    }

    #[test]
    fn initial_timeout_is_clamped_and_yields_to_a_sample() {
        let mut rtt = RttEstimator::new();
        rtt.set_initial(ms(3000));
        rtt.backoff();
        assert_eq!(rtt.rto(), ms(6000));
        rtt.set_initial(ms(1));
        assert_eq!(rtt.rto(), MIN_RTO);
        rtt.set_initial(Duration::MAX);
        assert_eq!(rtt.rto(), MAX_RTO);
        rtt.sample(Duration::ZERO);
        rtt.set_initial(ms(3000));
        assert_eq!((rtt.rto(), rtt.srtt()), (MIN_RTO, Some(Duration::ZERO)));
    }

    proptest! {
        /// Whatever is measured, the timeout lies within its bounds and above the smoothed time,
        /// and SRTT follows the exact recurrence to a few microseconds.
        //= rfc6298 1-a test
        #[test]
        fn any_samples(samples in prop::collection::vec(0u64..200_000_000, 1..60)) {
            let mut rtt = RttEstimator::new();
            let mut exact: Option<f64> = None;
            for us in samples {
                rtt.sample(Duration::from_micros(us));
                let us = us.min(120_000_000) as f64;
                let e = exact.map_or(us, |e| e * 7.0 / 8.0 + us / 8.0);
                exact = Some(e);
                let srtt = rtt.srtt().unwrap();
                prop_assert!((srtt.as_micros() as f64 - e).abs() <= 2.0);
                prop_assert!(rtt.rto() >= MIN_RTO && rtt.rto() <= MAX_RTO);
                prop_assert!(rtt.rto() >= srtt);
                prop_assert!(rtt.min_rtt().unwrap() <= srtt + Duration::from_micros(1));
            }
        }
    }
}
