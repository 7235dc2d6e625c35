//! The binary CRUSH map: what decodes is written so that it decodes and is written alike,
//! decompiled, and mapped with.
#![no_main]
use denc::Denc;
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(map) = crush::CrushMap::from_bytes(data) else { return };
    let bytes = map.to_bytes();
    let again = crush::CrushMap::from_bytes(&bytes).expect("what was written is read");
    assert_eq!(again.to_bytes(), bytes);
    let _ = crush::text::decompile(&map);
    for x in 0..4 {
        let _ = map.do_rule(0, x, 3, &[0x10000; 16], None);
    }
});
