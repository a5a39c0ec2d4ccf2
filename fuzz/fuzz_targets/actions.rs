#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| firstflight_fuzz::actions::run(data));
