//! HyStart++ (RFC 9406): ends slow start when round trips take longer, before the queue overflows.

use super::AckSample;

/// Number of round-trip times needed for the minimum of a round (N_RTT_SAMPLE).
const SAMPLES: u8 = 8;
/// A rise by an eighth of the round-trip time means a queue (MIN_RTT_DIVISOR).
const DIVISOR: u16 = 8;
/// Limits of that rise: at least 4 ms, at most 16 ms (MIN_RTT_THRESH, MAX_RTT_THRESH).
const LEAST: u16 = 4_000 / UNIT_US as u16;
const MOST: u16 = 16_000 / UNIT_US as u16;
/// Number of rounds of conservative slow start (CSS_ROUNDS).
const ROUNDS: u8 = 5;
/// Conservative slow start grows by this part of slow start's growth (CSS_GROWTH_DIVISOR).
const GROWTH_DIVISOR: u32 = 4;

/// Unit of the stored round-trip times, microseconds: 16 bits reach up to 4 s. Longer ones never seem to rise.
const UNIT_US: u32 = 64;
/// The value for no round-trip time.
const NONE: u16 = u16::MAX;

/// State of the rounds of a slow start.
#[derive(Debug, Clone, Copy)]
pub(super) struct HyStart {
    /// Bytes that were under way when the round began and are not acknowledged yet.
    left: u32,
    /// The smallest round-trip time of this round (currentRoundMinRTT).
    now: u16,
    /// The smallest round-trip time of the last round (lastRoundMinRTT).
    last: u16,
    /// The smallest round-trip time when conservative slow start began (cssBaselineMinRtt); `NONE` outside it.
    baseline: u16,
    /// Number of round-trip times in this round.
    samples: u8,
    /// Number of rounds of conservative slow start.
    rounds: u8,
}

impl HyStart {
    pub(super) const NEW: Self =
        Self { left: 0, now: NONE, last: NONE, baseline: NONE, samples: 0, rounds: 0 };

    /// Growth of the window for what `ack` acknowledges; `None` if slow start is over.
    pub(super) fn growth(&mut self, ack: &AckSample) -> Option<u32> {
        if let Some(rtt) = ack.rtt {
            self.now = self.now.min(units(rtt));
            self.samples = self.samples.saturating_add(1);
            if self.samples >= SAMPLES {
                self.judge();
            }
        }
        self.left = self.left.min(ack.in_flight).saturating_sub(ack.acked);
        if self.left == 0 {
            self.left = ack.in_flight.saturating_sub(ack.acked);
            (self.last, self.now, self.samples) = (self.now, NONE, 0);
            self.rounds += u8::from(self.is_conservative());
            if self.rounds >= ROUNDS {
                return None;
            }
        }
        Some(if self.is_conservative() { ack.acked / GROWTH_DIVISOR } else { ack.acked })
    }

    fn is_conservative(&self) -> bool {
        self.baseline != NONE
    }

    /// Checks whether round trips take longer, or no longer do.
    fn judge(&mut self) {
        if self.is_conservative() {
            if self.now < self.baseline {
                // There was no queue: slow start continues.
                (self.baseline, self.rounds) = (NONE, 0);
            }
        } else if self.last != NONE {
            let rise = (self.last / DIVISOR).clamp(LEAST, MOST);
            if self.now >= self.last.saturating_add(rise) {
                self.baseline = self.now;
            }
        }
    }
}

/// Converts nanoseconds to units; never `NONE`.
fn units(nanos: u64) -> u16 {
    let units = nanos / 1000 / u64::from(UNIT_US);
    units.min(u64::from(NONE) - 1) as u16
}

#[cfg(test)]
mod tests;
