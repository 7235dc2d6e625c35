//! Every map decoder; what decodes is encoded again for old and new peers.
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
        0 => one::<maps::OsdMap>(data),
        1 => one::<maps::Incremental>(data),
        2 => one::<maps::MonMap>(data),
        3 => one::<maps::MgrMap>(data),
        4 => one::<maps::FsMap>(data),
        5 => one::<maps::MdsMap>(data),
        6 => one::<maps::ServiceMap>(data),
        7 => one::<maps::PgPool>(data),
        8 => one::<maps::PoolStat>(data),
        9 => one::<maps::OsdStat>(data),
        10 => one::<maps::PgStat>(data),
        11 => one::<types::HObject>(data),
        12 => one::<types::ObjectLocator>(data),
        13 => one::<types::AddrVec>(data),
        14 => one::<types::EntityAddr>(data),
        _ => one::<types::EntityName>(data),
    }
});
