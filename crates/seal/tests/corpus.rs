//! Replays the seed corpus of the fuzz targets without a fuzzer, so that fixed errors stay fixed; and random inputs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(unreachable_pub, reason = "public in the library of the fuzz targets")]
#[path = "../../../fuzz/src/seal_client.rs"]
mod seal_client;
#[allow(unreachable_pub, reason = "public in the library of the fuzz targets")]
#[path = "../../../fuzz/src/seal_server.rs"]
mod seal_server;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::path::Path;

/// Runs a target on each file of its corpus. A panic names the file.
fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "{} has only {} files", folder.display(), files.len());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        if let Err(panic) = std::panic::catch_unwind(|| run(&bytes)) {
            eprintln!("the file is {}", file.display());
            std::panic::resume_unwind(panic);
        }
    }
}

/// Random inputs. `FIRSTFLIGHT_SEEDS` says how many; a failure prints the seed.
fn random(run: fn(&[u8])) {
    let seeds = std::env::var("FIRSTFLIGHT_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2000);
    for seed in 0..seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bytes = vec![0; (rng.next_u32() % 1500) as usize];
        rng.fill_bytes(&mut bytes);
        if let Err(panic) = std::panic::catch_unwind(|| run(&bytes)) {
            eprintln!("the seed is {seed}");
            std::panic::resume_unwind(panic);
        }
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
