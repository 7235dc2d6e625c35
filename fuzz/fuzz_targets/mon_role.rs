//! A leading monitor, with its state and log, and whatever peers with a key may say to it.
//!
//! Input: choices, see `messages::fuzz`. The world is that of the monitor's tests.
#![no_main]
#[path = "../../crates/mon/tests/alone/mod.rs"]
mod alone;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    alone::proved::run(data);
});
