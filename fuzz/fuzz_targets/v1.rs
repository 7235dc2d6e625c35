//! The handshake and the messages of messenger v1, as daemons meet them at their ports for clients.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| msgr::v1::fuzz_v1(data));
