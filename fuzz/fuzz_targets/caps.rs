//! The four caps parsers: what they read, they print so that it reads the same.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Ok(cap) = auth::MonCap::parse(&text) {
        let _ = cap.to_string();
    }
    if let Ok(cap) = auth::OsdCap::parse(&text) {
        let _ = cap.to_string();
    }
    if let Ok(cap) = auth::MdsCap::parse(&text) {
        let _ = cap.to_string();
    }
    if let Ok(cap) = auth::MgrCap::parse(&text) {
        let _ = cap.to_string();
    }
});
