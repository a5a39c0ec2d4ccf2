//! Replays the seed corpus of the fuzz target of SOCKS without a fuzzer, so that fixed errors stay fixed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(unreachable_pub, reason = "public in the fuzz target")]
#[path = "../../../fuzz/src/socks.rs"]
mod socks;

#[allow(dead_code, reason = "a test uses a part")]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn socks() {
    replay::replay("socks", socks::run);
}
