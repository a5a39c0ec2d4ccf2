#![no_main]

#[path = "../src/socks.rs"]
mod socks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| socks::run(data));
