//! The compiler of the CRUSH map's text.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| crush::fuzz::compile(data));
