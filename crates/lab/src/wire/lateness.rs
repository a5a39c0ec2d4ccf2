//! How late packets were.

use std::time::Duration;

/// Microseconds that are counted individually.
const FINE: usize = 2000;

/// Counts of delays in whole microseconds, of fixed size. Delays above two milliseconds are counted as two
/// milliseconds, except for the longest one, which is kept.
#[derive(Clone, Debug)]
pub struct Lateness {
    counts: Vec<u64>,
    total: u64,
    longest: Duration,
}

impl Lateness {
    pub fn new() -> Self {
        Self { counts: vec![0; FINE + 1], total: 0, longest: Duration::ZERO }
    }

    pub fn add(&mut self, late: Duration) {
        let bucket = usize::try_from(late.as_micros()).unwrap_or(FINE).min(FINE);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.total += 1;
        self.longest = self.longest.max(late);
    }

    /// The smallest number of whole microseconds that the fraction `share` (0 to 1) of all delays does not exceed; 0
    /// if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (share.clamp(0.0, 1.0) * self.total as f64).ceil() as u64;
        let mut seen = 0;
        for (micros, count) in (0u64..).zip(&self.counts) {
            seen += count;
            if seen >= wanted {
                return micros;
            }
        }
        FINE as u64
    }

    /// The longest delay.
    pub fn longest(&self) -> Duration {
        self.longest
    }
}
