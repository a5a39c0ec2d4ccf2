//! Replays the seed corpus of the fuzz targets without a fuzzer, so that fixed bugs stay fixed.
//!
//! The targets have the same bodies as those that the fuzzer runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::targets;
use std::path::Path;

/// Runs `target` on each file of its corpus. A panic names the file.
fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 20, "{} has only {} files", folder.display(), files.len());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        if let Err(panic) = std::panic::catch_unwind(|| target(&bytes)) {
            eprintln!("the file is {}", file.display());
            std::panic::resume_unwind(panic);
        }
    }
}

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
