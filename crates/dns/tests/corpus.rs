//! Replays the seed corpus of the fuzz target without a fuzzer, so that fixed errors stay fixed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(unreachable_pub, reason = "public in the library of the fuzz targets")]
#[path = "../../../fuzz/src/dns_parse.rs"]
mod dns_parse;

#[allow(dead_code, reason = "a test uses a part")]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn dns_parse() {
    replay::replay("dns_parse", dns_parse::run);
}
