#![no_main]

#[path = "../src/dns_parse.rs"]
mod dns_parse;

libfuzzer_sys::fuzz_target!(|data: &[u8]| dns_parse::run(data));
