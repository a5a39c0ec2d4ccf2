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

#[allow(dead_code, reason = "a test uses a part")]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

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
