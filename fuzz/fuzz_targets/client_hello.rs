#![no_main]

#[path = "../src/client_hello.rs"]
mod client_hello;

libfuzzer_sys::fuzz_target!(|data: &[u8]| client_hello::run(data));
