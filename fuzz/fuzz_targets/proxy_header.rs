#![no_main]

#[path = "../src/proxy_header.rs"]
mod proxy_header;

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy_header::run(data));
