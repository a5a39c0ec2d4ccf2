//! No request is executed twice, whichever way its copies arrive. Runs the world of the fuzz target `once` with
//! random actions.
//!
//! `FIRSTFLIGHT_SEEDS=n` runs n seeds instead of the default, `FIRSTFLIGHT_SEED=n` one of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[allow(unreachable_pub, reason = "public in the library of the fuzz targets")]
#[path = "../../../fuzz/src/once/mod.rs"]
mod target;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const SEEDS: u64 = 1_500;

/// Random input, as from a fuzzer.
fn bytes(seed: u64) -> Vec<u8> {
    let mut random = ChaCha20Rng::seed_from_u64(seed);
    let mut bytes = vec![0; 100 + random.next_u32() as usize % 700];
    random.fill_bytes(&mut bytes);
    bytes
}

/// Inputs that once failed. A failure names the file.
#[test]
fn the_corpus_of_the_fuzz_target() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/once");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 20, "{} has only {} files", folder.display(), files.len());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        if let Err(panic) = std::panic::catch_unwind(|| target::run(&bytes)) {
            eprintln!("the file is {}", file.display());
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn no_request_is_executed_twice_whichever_ways_it_comes() {
    let one = std::env::var("FIRSTFLIGHT_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("FIRSTFLIGHT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    let (mut early, mut ordinary) = (0, 0);
    for seed in seeds.clone() {
        match std::panic::catch_unwind(|| target::run(&bytes(seed))) {
            Ok(executed) => (early, ordinary) = (early + executed.0, ordinary + executed.1),
            Err(panic) => {
                eprintln!("the seed is {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{} seeds, executed {early} early and {ordinary} by a handshake, none twice", seeds.count());
    assert!(one.is_some() || early > 0 && ordinary > 0, "nothing happened");
}
