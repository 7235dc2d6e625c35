//! The keyring parser: what it reads, it prints so that it reads the same.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(keyring) = auth::Keyring::parse(text) {
        let printed = keyring.to_string();
        assert_eq!(auth::Keyring::parse(&printed), Ok(keyring), "printed {printed:?}");
    }
});
