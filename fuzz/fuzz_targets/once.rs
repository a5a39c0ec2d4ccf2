#![no_main]

#[path = "../src/once/mod.rs"]
mod once;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    once::run(data);
});
