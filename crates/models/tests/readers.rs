//! What strangers' bytes can do to the readers of `wire`: every short input, and every input at a distance of one from a valid one.
//!
//! The checks are those of the fuzz targets: no panic, nothing read beyond the input, and what was read is written and read
//! again. `cargo test -p firstflight-models --test readers -- --nocapture` prints the table of
//! [docs/proved.md](../../../docs/proved.md). `FIRSTFLIGHT_READERS=all` takes three bytes where two are the rule, and all of
//! the corpus.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]
#![allow(unreachable_pub, reason = "public in the library of the fuzz targets")]

#[path = "../../../fuzz/src/asap_parse.rs"]
mod asap_parse;
#[path = "../../../fuzz/src/wire_parse.rs"]
mod wire_parse;

use std::path::Path;

/// A reader: the name of its target, what it is checked with, how long the inputs are that are all tried, and how many of the
/// corpus are changed.
struct Reader {
    name: &'static str,
    run: fn(&[u8]),
    short: usize,
    samples: usize,
}

fn all() -> bool {
    std::env::var_os("FIRSTFLIGHT_READERS").is_some()
}

/// Every input of up to `most` bytes. Returns how many.
fn short(run: fn(&[u8]), most: usize) -> u64 {
    let mut count = 0;
    for len in 0..=most {
        let mut bytes = vec![0; len];
        loop {
            run(&bytes);
            count += 1;
            // The next number.
            let Some(at) = bytes.iter().rposition(|byte| *byte != 0xff) else { break };
            bytes[at] += 1;
            bytes[at + 1..].fill(0);
        }
    }
    count
}

/// Every input that is cut, and every input with another byte somewhere. Returns how many.
fn changed(run: fn(&[u8]), sample: &[u8]) -> u64 {
    let mut count = 0;
    for end in 0..sample.len() {
        run(&sample[..end]);
        count += 1;
    }
    let mut bytes = sample.to_vec();
    for at in 0..bytes.len() {
        for other in 1..=255 {
            bytes[at] ^= other;
            run(&bytes);
            bytes[at] ^= other;
            count += 1;
        }
    }
    count
}

/// Inputs of the corpus, the shorter ones first, which reach as much of a reader as the longer ones of the same kind.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut inputs: Vec<_> =
        folder.read_dir().unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    inputs.sort_by_key(|input| (input.len(), input.clone()));
    inputs
}

impl Reader {
    fn check(&self) {
        let most = self.short + usize::from(all());
        let few = short(self.run, most);
        let inputs = corpus(self.name);
        // Evenly over all lengths.
        let step = if all() { 1 } else { (inputs.len() / self.samples).max(1) };
        let samples: Vec<_> = inputs.iter().step_by(step).filter(|input| input.len() <= 400).collect();
        let longest = samples.iter().map(|sample| sample.len()).max().unwrap();
        let near: u64 = samples.iter().map(|sample| changed(self.run, sample)).sum();
        println!(
            "| `{}` | all {few} of up to {most} bytes | all {near} at a distance of one from {} of up to {longest} bytes |",
            self.name,
            samples.len()
        );
        assert!(few > 256 && near > 10_000, "{few} and {near} inputs only");
    }
}

#[test]
fn packets_and_options() {
    Reader { name: "wire_parse", run: wire_parse::run, short: 2, samples: 24 }.check();
}

#[test]
fn objects_of_asap() {
    Reader { name: "asap_parse", run: asap_parse::run, short: 2, samples: 12 }.check();
}

/// Every list of five bytes of those that mean something, alone and repeated to fill a header.
#[test]
fn lists_of_options() {
    const BYTES: [u8; 12] = [0, 1, 2, 3, 4, 5, 8, 10, 30, 34, 253, 254];
    let mut count = 0_u64;
    for number in 0..12_u32.pow(5) {
        let list: Vec<u8> = (0..5).map(|place| BYTES[(number / 12_u32.pow(place) % 12) as usize]).collect();
        for syn in [false, true] {
            for repeated in [1, 8] {
                let raw = list.repeat(repeated);
                let options = firstflight_wire::tcp::Options::parse(&raw, syn);
                // It ends, and nothing is read beyond the list.
                assert!(options.iter().count() <= raw.len());
                assert!(options.window_scale.is_none_or(|shift| shift <= 14));
                assert!(syn || (options.mss.is_none() && options.fast_open().is_none()));
                count += 1;
            }
        }
    }
    println!(
        "| TCP options | all {count} lists of five bytes of {} kinds and lengths, alone and eight times | |",
        BYTES.len()
    );
}
