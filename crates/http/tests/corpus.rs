//! Replays the seed corpora of the fuzz targets of this crate without a fuzzer, so that fixed errors stay fixed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::duplicate_mod, reason = "each fuzz target is complete in itself")]

#[allow(unreachable_pub, reason = "public in the fuzz target")]
#[path = "../../../fuzz/src/client_hello.rs"]
mod client_hello;

#[allow(unreachable_pub, reason = "public in the fuzz target")]
#[path = "../../../fuzz/src/http_framing/mod.rs"]
mod http_framing;

#[allow(unreachable_pub, reason = "public in the fuzz target")]
#[path = "../../../fuzz/src/http_heads/mod.rs"]
mod http_heads;

#[allow(unreachable_pub, reason = "public in the fuzz target")]
#[path = "../../../fuzz/src/proxy_header.rs"]
mod proxy_header;

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
fn http_framing() {
    replay("http_framing", http_framing::run);
}

#[test]
fn http_heads() {
    replay("http_heads", http_heads::run);
}

#[test]
fn client_hello() {
    replay("client_hello", client_hello::run);
}

#[test]
fn proxy_header() {
    replay("proxy_header", proxy_header::run);
}
