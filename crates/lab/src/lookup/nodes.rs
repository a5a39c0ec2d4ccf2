//! The locations of clients, servers and name servers: as in the thesis' section 7.1, 18 nodes on one continent and 6
//! outside it, with round-trip times from 3 to 440 ms.

use super::{Case, Distances};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::time::Duration;

const NEAR: usize = 18;
const FAR: usize = 6;
/// Round-trip time between two machines of one site.
const SITE: Duration = Duration::from_millis(1);
/// Shortest and longest round-trip time between nodes, ms.
const RTTS: (f64, f64) = (3.0, 440.0);

/// Nodes on a plane, so that round-trip times nearly obey the triangle inequality.
#[derive(Debug)]
pub struct Nodes {
    places: Vec<(f64, f64)>,
    shortest: f64,
    longest: f64,
}

fn uniform(random: &mut ChaCha20Rng) -> f64 {
    f64::from(random.next_u32()) / f64::from(u32::MAX)
}

fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
    (a.0 - b.0).hypot(a.1 - b.1)
}

impl Nodes {
    /// Chooses 24 nodes.
    pub fn new(seed: u64) -> Self {
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
        Self { places, shortest, longest }
    }

    /// Round-trip time between two nodes.
    fn rtt(&self, a: usize, b: usize) -> Duration {
        let (Some(a), Some(b)) = (self.places.get(a), self.places.get(b)) else { return SITE };
        let share = (distance(*a, *b) - self.shortest) / (self.longest - self.shortest);
        Duration::from_secs_f64((RTTS.0 + share.max(0.0) * (RTTS.1 - RTTS.0)) / 1e3)
    }

    /// Every node as a client of every other node.
    pub fn pairs(&self, case: Case, seed: u64) -> Vec<Distances> {
        let mut random = ChaCha20Rng::seed_from_u64(seed ^ 0xd15);
        let count = self.places.len();
        let mut all = Vec::new();
        for client in 0..count {
            for server in (0..count).filter(|server| *server != client) {
                let rtt = self.rtt(client, server);
                let (front, relay) = match case {
                    Case::Cached | Case::Near => (rtt, SITE),
                    Case::Far => {
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
