//! Random numbers from a seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What a sequence of random numbers is used for. Sequences for different purposes are independent, so that one more
/// draw for one purpose changes no other sequence.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// The nodes and links of the graph.
    Graph,
    /// The paths from this node.
    Paths(u32),
    /// The positions of verifiers in this placement.
    Placement(u32),
    /// The choice of destinations.
    Destinations,
    /// The choice of sources for TCP's paths.
    Sources,
    /// The positions of an attacker without a plan.
    Attackers,
}

/// Random numbers for one purpose.
#[derive(Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The same seed and purpose give the same numbers.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        let (stream, index) = match purpose {
            Purpose::Graph => (0, 0),
            Purpose::Paths(source) => (1, source),
            Purpose::Placement(placement) => (2, placement),
            Purpose::Destinations => (3, 0),
            Purpose::Sources => (4, 0),
            Purpose::Attackers => (5, 0),
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream << 32 | u64::from(index));
        Self(rng)
    }

    /// A number below `n`, or zero if `n` is zero. The bias is below n / 2³².
    pub fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.0.next_u32()) * n as u64) >> 32) as usize
    }

    /// A number from 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / (f64::from(u32::MAX) + 1.0)
    }

    /// `count` different numbers below `n`, in ascending order; all of them if `count` is at least `n`.
    pub fn sample(&mut self, n: usize, count: usize) -> Vec<u32> {
        if count >= n {
            return (0..n as u32).collect();
        }
        // Floyd's algorithm: one draw for each number, and memory only for the numbers drawn.
        let mut drawn = std::collections::BTreeSet::new();
        for last in n - count..n {
            let pick = self.below(last + 1) as u32;
            if !drawn.insert(pick) {
                drawn.insert(last as u32);
            }
        }
        drawn.into_iter().collect()
    }
}
