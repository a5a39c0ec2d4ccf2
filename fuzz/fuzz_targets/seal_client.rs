#![no_main]

#[path = "../src/seal_client.rs"]
mod seal_client;

libfuzzer_sys::fuzz_target!(|data: &[u8]| seal_client::run(data));
