//! Bytes from live clusters, kept in `vectors/maps/` with where they come from.

use std::fs;
use std::path::{Path, PathBuf};

use denc::{Bytes, Denc, Features};
use maps::*;
use types::*;

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/maps")
}

/// The bytes of a `.hex` file; lines with `#` tell where they come from.
fn hex(path: &Path) -> Bytes {
    let text = fs::read_to_string(path).expect("a vector");
    let digits: String = text.lines().filter(|l| !l.starts_with('#')).collect();
    (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("hex digits"))
        .collect()
}

fn same<T: Denc>(kind: &str, features: Features) -> T {
    let bytes = hex(&vectors().join(kind).join("pacific-0.hex"));
    let value = T::from_bytes(&bytes).expect(kind);
    assert_eq!(value.to_bytes_for(features), bytes, "{kind} comes out as it was");
    value
}

/// Maps as a live 16.2.15 cluster sent them to its clients. Its OSD maps have client
/// section 9: bit 31 had another meaning then.
#[test]
fn live_pacific_maps() {
    let old = Features(SIGNIFICANT_FEATURES_PACIFIC.0 & !(1 << 31));
    let mons: MonMap = same("MonMap", Features::PACIFIC_WORD);
    assert_eq!((mons.ranks.len(), mons.min_mon_release), (1, 16));
    let osds: OsdMap = same("OSDMap", old);
    assert_eq!(osds.osds().count(), 3);
    let _: FsMap = same("FSMap", Features::PACIFIC_WORD);
    let bytes = hex(&vectors().join("OSDMap.Incremental/pacific-0.hex"));
    let delta = Incremental::from_bytes(&bytes).expect("a delta");
    assert_eq!(delta.to_bytes_for(delta.encode_features), bytes);
}

/// Deltas of live clusters, epoch by epoch as their monitors stored them: applied to the
/// first map each leads to the map whose crc it names, and the last to the stored map.
#[test]
fn live_chains() {
    for release in ["16.2.15", "18.2.7", "20.2.4"] {
        let dir = vectors().join(format!("osdmap-chain-{release}"));
        let deltas = Bytes::from(fs::read(dir.join("deltas.bin")).expect("deltas"));
        let first = Bytes::from(fs::read(dir.join("first-full.bin")).expect("the first map"));
        let last = Bytes::from(fs::read(dir.join("last-full.bin")).expect("the last map"));
        let mut map = OsdMap::from_shared(&first).expect("the first map");
        let mut r = Reader::shared(&deltas);
        let mut newest = Bytes::new();
        let mut applied = 0;
        while r.left() > 0 {
            let bytes = r.blob().expect("a delta");
            let inc = Incremental::from_shared(&bytes).expect("a delta");
            // Release 16 writes client section 9, whatever bit 31 says.
            let mask = if release == "16.2.15" { !(1 << 31) } else { !0 };
            let features = Features(inc.encode_features.0 & mask);
            map.apply_incremental(&inc).expect("deltas follow one another");
            let (full, crc) = map.encode_with_crc(features);
            assert_eq!(crc, inc.full_crc, "{release}: the map of epoch {}", inc.epoch);
            newest = full;
            applied += 1;
        }
        assert_eq!(newest, last, "{release}: the last map");
        println!("{release}: {applied} deltas");
        assert!(applied > 40);
    }
}
