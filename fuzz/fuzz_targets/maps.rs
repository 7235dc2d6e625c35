//! Every map and statistic decoder; what decodes is encoded again for old and new peers, and
//! OSD maps are mapped with.
#![no_main]
use denc::{Denc, Features};

fn one<T: Denc>(data: &[u8]) {
    if let Ok(value) = T::from_bytes(data) {
        let _ = value.to_bytes();
        let _ = value.to_bytes_for(Features::PACIFIC_WORD);
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    match which % 16 {
        0..5 => maps::fuzz::decode(data),
        5 => maps::fuzz::place(data),
        6 => one::<maps::MdsMap>(data),
        7 => one::<maps::PoolStat>(data),
        8 => one::<maps::StoreStatfs>(data),
        9 => one::<maps::FsMapUser>(data),
        10 => one::<types::HObject>(data),
        11 => one::<types::ObjectLocator>(data),
        12 => one::<types::AddrVec>(data),
        13 => one::<types::EntityAddr>(data),
        14 => one::<types::EntityName>(data),
        _ => one::<maps::SnapContext>(data),
    }
});
