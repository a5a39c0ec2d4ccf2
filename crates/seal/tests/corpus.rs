//! Replays the seed corpus of the fuzz targets without a fuzzer, so that fixed errors stay fixed; and random inputs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(unreachable_pub, reason = "public in the library of the fuzz targets")]
#[path = "../../../fuzz/src/seal_client.rs"]
mod seal_client;
#[allow(unreachable_pub, reason = "public in the library of the fuzz targets")]
#[path = "../../../fuzz/src/seal_server.rs"]
mod seal_server;

#[path = "../../../fuzz/replay.rs"]
mod replay;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use replay::replay;

/// Random inputs. `FIRSTFLIGHT_SEEDS` says how many; a failure prints the seed.
fn random(run: fn(&[u8])) {
    let seeds = std::env::var("FIRSTFLIGHT_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2000);
    for seed in 0..seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bytes = vec![0; (rng.next_u32() % 1500) as usize];
        rng.fill_bytes(&mut bytes);
        replay::run(run, &bytes, format_args!("seed {seed}"));
    }
}

#[test]
fn seal_server() {
    replay("seal_server", seal_server::run);
}

#[test]
fn seal_client() {
    replay("seal_client", seal_client::run);
}

#[test]
fn seal_server_random() {
    random(seal_server::run);
}

#[test]
fn seal_client_random() {
    random(seal_client::run);
}
