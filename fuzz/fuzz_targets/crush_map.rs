//! The binary CRUSH map: what decodes is encoded and decoded the same, decompiled, and
//! mapped with.
#![no_main]
use denc::Denc;
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    crush::fuzz::decode(data);
    if let Ok(map) = crush::CrushMap::from_bytes(data) {
        let _ = crush::text::decompile(&map);
        for x in 0..4 {
            let _ = map.do_rule(0, x, 3, &[0x10000; 16], None);
        }
    }
});
