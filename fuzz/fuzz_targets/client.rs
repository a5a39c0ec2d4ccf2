#![no_main]

#[path = "../src/client.rs"]
mod client;

libfuzzer_sys::fuzz_target!(|data: &[u8]| client::run(data));
