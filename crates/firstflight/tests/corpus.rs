//! The fuzz target `client` without a fuzzer: on its corpus, and on random bytes.

#[allow(unreachable_pub, reason = "public in the fuzz target")]
#[path = "../../../fuzz/src/client.rs"]
mod client;

use crate::queues::Dice;
use std::path::Path;

fn run(bytes: &[u8], name: &str) {
    if let Err(panic) = std::panic::catch_unwind(|| client::run(bytes)) {
        eprintln!("this was {name}: {bytes:?}");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn client_on_its_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/client");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 20, "{} has only {} files", folder.display(), files.len());
    for file in files {
        run(&std::fs::read(&file).unwrap(), &file.display().to_string());
    }
}

/// `FIRSTFLIGHT_SEEDS=n` runs n seeds.
#[test]
fn client_on_random_bytes() {
    let seeds = std::env::var("FIRSTFLIGHT_SEEDS").map_or(40, |text| text.parse().unwrap());
    for seed in 0..seeds {
        let mut dice = Dice(seed);
        let bytes: Vec<u8> = (0..3 * dice.roll(40)).map(|_| dice.roll(256) as u8).collect();
        run(&bytes, &format!("seed {seed}"));
    }
}
