//! Replays the seed corpus of the fuzz target of SOCKS without a fuzzer, so that fixed errors stay fixed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(unreachable_pub, reason = "public in the fuzz target")]
#[path = "../../../fuzz/src/socks.rs"]
mod socks;

use std::path::Path;

/// Runs the target on each file of its corpus. A panic names the file.
#[test]
fn socks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/socks");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 20, "{} has only {} files", folder.display(), files.len());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        if let Err(panic) = std::panic::catch_unwind(|| socks::run(&bytes)) {
            eprintln!("the file is {}", file.display());
            std::panic::resume_unwind(panic);
        }
    }
}
