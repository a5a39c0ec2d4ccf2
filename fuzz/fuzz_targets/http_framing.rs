#![no_main]

#[path = "../src/http_framing/mod.rs"]
mod http_framing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http_framing::run(data));
