//! Replays the seed corpus of the fuzz targets without a fuzzer, so that fixed bugs stay fixed.
//!
//! The targets have the same bodies as those that the fuzzer runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "a test uses a part")]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use crate::targets;
use replay::replay;

#[test]
fn wire_parse() {
    replay("wire_parse", targets::wire_parse::run);
}

#[test]
fn asap_parse() {
    replay("asap_parse", targets::asap_parse::run);
}

#[test]
fn asap_syns() {
    replay("asap_syns", targets::asap_syns::run);
}

#[test]
fn stack_frames() {
    replay("stack_frames", targets::stack_frames::run);
}

#[test]
fn pair() {
    replay("pair", targets::pair::run);
}

#[test]
fn model() {
    replay("model", targets::model::run);
}

#[test]
fn actions() {
    replay("actions", targets::actions::run);
}
