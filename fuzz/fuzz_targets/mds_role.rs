//! A metadata server that holds a rank, and whatever clients with a session may say to it.
//!
//! Input: choices, see `messages::fuzz`. The world is that of the server's tests.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| mds::fuzz_proved(data));
