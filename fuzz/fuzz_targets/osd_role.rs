//! OSDs with real stores, of which one lies to those that lead and to those that follow, and
//! clients with all rights.
//!
//! Input: choices, see `messages::fuzz`. The world is that of the OSD's tests.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| osd::fuzz_proved(data));
