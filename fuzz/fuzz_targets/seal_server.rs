#![no_main]

#[path = "../src/seal_server.rs"]
mod seal_server;

libfuzzer_sys::fuzz_target!(|data: &[u8]| seal_server::run(data));
