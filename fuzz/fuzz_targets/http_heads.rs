#![no_main]

#[path = "../src/http_heads/mod.rs"]
mod http_heads;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_heads::run(data));
