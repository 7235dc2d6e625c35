//! The four caps parsers. What they print of what they read, they read again and print
//! alike.
#![no_main]
use std::fmt::{Debug, Display};

fn one<C: Display, E: Debug>(text: &str, parse: impl Fn(&str) -> Result<C, E>) {
    if let Ok(cap) = parse(text) {
        let printed = cap.to_string();
        match parse(&printed) {
            Ok(again) => assert_eq!(again.to_string(), printed, "read from {text:?}"),
            Err(e) => panic!("{printed:?}, printed of {text:?}, is not read: {e:?}"),
        }
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    one(text, auth::MonCap::parse);
    one(text, auth::OsdCap::parse);
    one(text, auth::MdsCap::parse);
    one(text, auth::MgrCap::parse);
});
