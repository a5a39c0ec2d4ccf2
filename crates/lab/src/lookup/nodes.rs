//! The locations of clients, servers and name servers: as in the thesis' section 7.1, 18 nodes on one continent and 6
//! outside it, with round-trip times from 3 to 440 ms.

use super::{Distances, Model, ResolverCase};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::time::Duration;

const NEAR: usize = 18;
const FAR: usize = 6;
/// Round-trip time between two machines of one site.
const SITE: Duration = Duration::from_millis(1);
/// Shortest and longest round-trip time between nodes, ms.
const RTTS: (f64, f64) = (3.0, 440.0);

/// How much longer paths are than their distance says, with [`Model::Internet`]: the standard deviation of the logarithm.
///
/// It is chosen so that a detour over a third node is shorter by a fifth or more as often as measured: for 10 % of the
/// pairs (Tang and Crovella) to 22 % (MIT King). Any shorter detour exists for 68 % of PlanetLab's pairs (Ledlie, Gardner
/// and Seltzer, "Network coordinates in the wild", NSDI 2007, 3.3), which had more nodes to choose from; 24 nodes with
/// the same long detours come to about 57 %.
const INFLATION: f64 = 0.14;

/// Nodes on a plane. With [`Model::Plane`] round-trip times nearly obey the triangle inequality.
#[derive(Debug)]
pub struct Nodes {
    places: Vec<(f64, f64)>,
    shortest: f64,
    longest: f64,
    /// By what each path is longer, for each pair with the smaller number first.
    inflation: Vec<f64>,
    /// Measured round-trip times in place of all that, ms, row by row; and of how many nodes.
    measured: Vec<f64>,
    count: usize,
}

fn uniform(random: &mut ChaCha20Rng) -> f64 {
    f64::from(random.next_u32()) / f64::from(u32::MAX)
}

/// A number of the normal distribution (Box and Muller).
fn normal(random: &mut ChaCha20Rng) -> f64 {
    let (radius, angle) = ((1.0 - uniform(random)).max(1e-12), uniform(random) * std::f64::consts::TAU);
    (-2.0 * radius.ln()).sqrt() * angle.cos()
}

fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
    (a.0 - b.0).hypot(a.1 - b.1)
}

impl Nodes {
    /// Chooses 24 nodes.
    pub fn new(seed: u64, model: Model) -> Self {
        let mut random = ChaCha20Rng::seed_from_u64(seed);
        let mut places: Vec<(f64, f64)> =
            (0..NEAR).map(|_| (uniform(&mut random), uniform(&mut random) * 0.6)).collect();
        for _ in 0..FAR {
            let (angle, far) =
                (uniform(&mut random) * std::f64::consts::TAU, 1.5 + uniform(&mut random) * 2.5);
            places.push((0.5 + far * angle.cos(), 0.3 + far * angle.sin()));
        }
        let all = |places: &[(f64, f64)]| -> Vec<f64> {
            let pairs = places.iter().enumerate();
            pairs
                .flat_map(|(n, a)| places.iter().skip(n + 1).map(|b| distance(*a, *b)).collect::<Vec<_>>())
                .collect()
        };
        let distances = all(&places);
        let shortest = distances.iter().copied().fold(f64::MAX, f64::min);
        let longest = distances.iter().copied().fold(0.0, f64::max);
        let inflation = match model {
            Model::Plane => Vec::new(),
            Model::Internet => {
                (0..places.len() * places.len()).map(|_| (INFLATION * normal(&mut random)).exp()).collect()
            }
        };
        let count = places.len();
        Self { places, shortest, longest, inflation, measured: Vec::new(), count }
    }

    /// Nodes with measured round-trip times, ms, row by row.
    pub fn measured(count: usize, rtts: Vec<f64>) -> Self {
        let (places, inflation) = (Vec::new(), Vec::new());
        Self { places, shortest: 0.0, longest: 0.0, inflation, measured: rtts, count }
    }

    /// Number of nodes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Shortest and longest round-trip time, ms: the bounds of the model, or what was measured.
    pub fn range(&self) -> (f64, f64) {
        if self.measured.is_empty() {
            return RTTS;
        }
        let between = self.measured.iter().copied().filter(|rtt| *rtt > 0.0);
        between.fold((f64::MAX, 0.0), |(least, most), rtt| (rtt.min(least), rtt.max(most)))
    }

    /// The share of the pairs with a detour over a third node that is shorter than the direct path, and the share with a
    /// detour that is shorter by a fifth or more.
    pub fn detours(&self) -> (f64, f64) {
        let count = self.count;
        let mut shares = (0.0, 0.0);
        let mut pairs = 0.0;
        for a in 0..count {
            for b in a + 1..count {
                let over = |c: usize| self.rtt(a, c) + self.rtt(c, b);
                let best = (0..count).filter(|c| *c != a && *c != b).map(over).min().unwrap_or(Duration::MAX);
                let ratio = best.div_duration_f64(self.rtt(a, b));
                pairs += 1.0;
                shares.0 += f64::from(u8::from(ratio < 1.0));
                shares.1 += f64::from(u8::from(ratio <= 0.8));
            }
        }
        (shares.0 / pairs, shares.1 / pairs)
    }

    /// Round-trip time between two nodes.
    fn rtt(&self, a: usize, b: usize) -> Duration {
        if let Some(ms) = self.measured.get(a * self.count + b) {
            return Duration::from_secs_f64(ms / 1e3);
        }
        let pair = a.min(b) * self.places.len() + a.max(b);
        let inflation = self.inflation.get(pair).copied().unwrap_or(1.0);
        let (Some(a), Some(b)) = (self.places.get(a), self.places.get(b)) else { return SITE };
        let share = (distance(*a, *b) - self.shortest) / (self.longest - self.shortest);
        let ms = RTTS.0 + share.max(0.0) * (RTTS.1 - RTTS.0);
        Duration::from_secs_f64((ms * inflation).clamp(RTTS.0, RTTS.1) / 1e3)
    }

    /// Every node as a client of every other node.
    pub fn pairs(&self, case: ResolverCase, seed: u64) -> Vec<Distances> {
        let mut random = ChaCha20Rng::seed_from_u64(seed ^ 0xd15);
        let count = self.count;
        let mut all = Vec::new();
        for client in 0..count {
            for server in (0..count).filter(|server| *server != client) {
                let rtt = self.rtt(client, server);
                let (front, relay) = match case {
                    ResolverCase::Cached | ResolverCase::Near => (rtt, SITE),
                    ResolverCase::Far => {
                        let name_server = random.next_u32() as usize % count;
                        let to = |node| if node == name_server { SITE } else { self.rtt(node, name_server) };
                        (to(client), to(server))
                    }
                };
                all.push(Distances { server: rtt, resolver: SITE, front, relay });
            }
        }
        all
    }
}
