//! Paths that lose packets and bring them late.
//!
//! Extra delays are exponential, which describes delays of single paths over short times (Sukhov and Kuznetsova,
//! arXiv:1003.0190), with a mean of 1 ms by default: the times between the quartiles of SLAC's pings to CERN (150 ms)
//! are 1 ms apart (PingER). Order is kept, as in a queue. Losses are 0.42 % by default and come in bursts: after a lost
//! packet the next one is lost with 70 % if it follows closely (Andersen, Snoeren and Balakrishnan, "Best-path vs.
//! multi-path overlay routing", IMC 2003).

use firstflight_wire::Instant;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;

/// Probability that the packet after a lost one is lost, too.
const AGAIN: f64 = 0.7;
/// How long a burst of losses lasts at most.
const BURST: Duration = Duration::from_millis(20);

/// Between whom a packet travels, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RoughHop {
    ToServer,
    ToClient,
    ToFront,
    FromFront,
    Relay,
}

/// The state of all paths.
#[derive(Debug)]
pub struct Rough {
    random: ChaCha20Rng,
    jitter: f64,
    loss: f64,
    lost: BTreeMap<RoughHop, Instant>,
    last: BTreeMap<RoughHop, Instant>,
}

impl Rough {
    /// Paths with this mean extra delay, and this share of lost packets.
    pub fn new(seed: u64, jitter: Duration, loss: f64) -> Self {
        let random = ChaCha20Rng::seed_from_u64(seed);
        Self { random, jitter: jitter.as_secs_f64(), loss, lost: BTreeMap::new(), last: BTreeMap::new() }
    }

    fn uniform(&mut self) -> f64 {
        (f64::from(self.random.next_u32()) + 0.5) / (f64::from(u32::MAX) + 1.0)
    }

    /// When a packet arrives that leaves at `now` and travels for `time` at least. `None` if it is lost.
    pub fn arrival(&mut self, hop: RoughHop, now: Instant, time: Duration) -> Option<Instant> {
        let burst = self.lost.get(&hop).is_some_and(|at| now < *at + BURST);
        // Bursts add to the single losses, whose share is less by as much.
        let share = if burst { AGAIN } else { self.loss * (1.0 - AGAIN) / (1.0 - self.loss) };
        let lost = self.uniform() < share;
        let extra = Duration::from_secs_f64(-self.uniform().ln() * self.jitter);
        if lost {
            self.lost.insert(hop, now);
            return None;
        }
        self.lost.remove(&hop);
        let last = self.last.entry(hop).or_insert(Instant::ZERO);
        *last = (now + time + extra).max(*last);
        Some(*last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_have_their_share_and_come_in_bursts() {
        let mut rough = Rough::new(1, Duration::from_millis(1), 0.01);
        let every = Duration::from_micros(100);
        let fate: Vec<Option<Instant>> = (0..400_000)
            .map(|n| rough.arrival(RoughHop::ToServer, Instant::ZERO + every * n, Duration::from_millis(50)))
            .collect();
        let lost = |range: &[Option<Instant>]| range.iter().filter(|at| at.is_none()).count() as f64;
        let share = lost(&fate) / fate.len() as f64;
        assert!((0.008..0.012).contains(&share), "{share}");
        let pairs = fate.windows(2).filter(|two| two[0].is_none());
        let again = pairs.clone().filter(|two| two[1].is_none()).count() as f64 / pairs.count() as f64;
        assert!((0.6..0.8).contains(&again), "{again}");
        assert!(fate.iter().flatten().is_sorted(), "order is kept");
    }
}
