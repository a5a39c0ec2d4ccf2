//! Replays the seed corpus of the fuzz target without a fuzzer, so that fixed errors stay fixed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(unreachable_pub, reason = "public in the library of the fuzz targets")]
#[path = "../../../fuzz/src/dns_parse.rs"]
mod dns_parse;

use std::path::Path;

/// Runs the target on each file of its corpus. A panic names the file.
#[test]
fn dns_parse() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/dns_parse");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 20, "{} has only {} files", folder.display(), files.len());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        if let Err(panic) = std::panic::catch_unwind(|| dns_parse::run(&bytes)) {
            eprintln!("the file is {}", file.display());
            std::panic::resume_unwind(panic);
        }
    }
}
