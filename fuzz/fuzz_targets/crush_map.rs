//! The binary CRUSH map: what decodes is mapped with, and encodes again.
#![no_main]
use denc::Denc;
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(map) = crush::CrushMap::from_bytes(data) {
        let _ = map.to_bytes();
        for x in 0..4 {
            let _ = map.do_rule(0, x, 3, &[0x10000; 16], None);
        }
    }
});
