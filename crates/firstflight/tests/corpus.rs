//! The fuzz target `client` without a fuzzer: on its corpus, and on random bytes.

#[allow(unreachable_pub, reason = "public in the fuzz target")]
#[path = "../../../fuzz/src/client.rs"]
mod client;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use crate::queues::Dice;

#[test]
fn client_on_its_corpus() {
    replay::replay("client", client::run);
}

/// `FIRSTFLIGHT_SEEDS=n` runs n seeds.
#[test]
fn client_on_random_bytes() {
    let seeds = std::env::var("FIRSTFLIGHT_SEEDS").map_or(40, |text| text.parse().unwrap());
    for seed in 0..seeds {
        let mut dice = Dice(seed);
        let bytes: Vec<u8> = (0..3 * dice.roll(40)).map(|_| dice.roll(256) as u8).collect();
        replay::run(client::run, &bytes, format_args!("seed {seed}"));
    }
}
