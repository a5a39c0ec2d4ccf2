//! Runs a fuzz target without a fuzzer, for the tests of the crates.

use std::path::Path;

/// Runs `target` on each file of its corpus, which has more than 10. A panic names the file.
pub(crate) fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "{} has only {} files", folder.display(), files.len());
    for file in files {
        run(target, &std::fs::read(&file).unwrap(), format_args!("the file {}", file.display()));
    }
}

/// Runs `target` on these bytes. A panic says what they were.
pub(crate) fn run(target: fn(&[u8]), bytes: &[u8], what: std::fmt::Arguments<'_>) {
    if let Err(panic) = std::panic::catch_unwind(|| target(bytes)) {
        eprintln!("this was {what}");
        std::panic::resume_unwind(panic);
    }
}
