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

use firstflight_models::readers::Reader;

#[test]
fn packets_and_options() {
    Reader { name: "wire_parse", run: wire_parse::run, short: 2, samples: 24, longest: 400 }.check();
}

#[test]
fn objects_of_asap() {
    Reader { name: "asap_parse", run: asap_parse::run, short: 2, samples: 12, longest: 400 }.check();
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
