//! Frames and handshakes of messenger v2.1, as a listening daemon meets them.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| msgr::fuzz_frames(data));
