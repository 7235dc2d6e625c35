//! Which pools' data the store compresses, and how: the pool's options over the OSD's.
//!
//! Source: the peer's `bluestore_compression_*` options and `pool_opts_t`.

use std::collections::BTreeMap;

use conf::{Key, key};
use denc::Denc;
use maps::{OsdMap, PgPool, PoolOpt};
use messages::Mutation;
use store::{Algorithm, Compressible, Compression};
use types::PoolId;

use crate::object::{INFO_ATTR, ObjectInfo};

/// Alloc hints, `CEPH_OSD_ALLOC_HINT_FLAG_*`.
const COMPRESSIBLE: u32 = 1 << 8;
const INCOMPRESSIBLE: u32 = 1 << 9;

/// What is expected of an object whose changes are these: its record says it, where it is
/// among them.
pub(crate) fn hint(mutations: &[Mutation]) -> Compressible {
    let info = mutations.iter().rev().find_map(|m| match m {
        Mutation::SetAttr(name, value) if name == INFO_ATTR => Some(value),
        _ => None,
    });
    let flags = info.and_then(|raw| ObjectInfo::from_shared(raw).ok()).map(|i| i.alloc_hint_flags);
    match flags.unwrap_or(0) & (COMPRESSIBLE | INCOMPRESSIBLE) {
        COMPRESSIBLE => Compressible::Yes,
        INCOMPRESSIBLE => Compressible::No,
        _ => Compressible::Unknown,
    }
}

/// What each pool of the map asks for; pools that ask for nothing are not there.
pub(crate) fn of_pools(map: &OsdMap, conf: &conf::Config) -> BTreeMap<PoolId, Compression> {
    let of = |(id, pool): (&PoolId, &PgPool)| Some((*id, of_pool(pool, conf)?));
    map.pools.iter().filter_map(of).collect()
}

fn of_pool(pool: &PgPool, conf: &conf::Config) -> Option<Compression> {
    let text = |option: &str, key: Key<key::Str>| match pool.opts.get(option) {
        Some(PoolOpt::Str(s)) => s.clone(),
        _ => conf.get(key),
    };
    let mode = text("compression_mode", key::BLUESTORE_COMPRESSION_MODE);
    if !matches!(mode.as_str(), "passive" | "aggressive" | "force") {
        return None;
    }
    let algorithm =
        Algorithm::from_name(&text("compression_algorithm", key::BLUESTORE_COMPRESSION_ALGORITHM))?;
    let required_ratio = match pool.opts.get("compression_required_ratio") {
        Some(PoolOpt::Double(ratio)) => *ratio,
        _ => conf.get(key::BLUESTORE_COMPRESSION_REQUIRED_RATIO),
    };
    let bytes = |option: &str, key: Key<key::Size>| match pool.opts.get(option) {
        Some(PoolOpt::Int(n)) if *n > 0 => *n as u64,
        _ => conf.get(key),
    };
    Some(Compression {
        algorithm,
        unasked: mode != "passive",
        always: mode == "force",
        required_ratio,
        part: bytes("compression_max_blob_size", key::BLUESTORE_COMPRESSION_MAX_BLOB_SIZE),
        least: bytes("compression_min_blob_size", key::BLUESTORE_COMPRESSION_MIN_BLOB_SIZE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_win_over_options() {
        let file = conf::ConfFile::default();
        let mut conf = conf::Config::new(&file, "osd", "0", "host", 1);
        let mut pool = PgPool::default();
        assert_eq!(of_pool(&pool, &conf), None, "off by default");
        conf.set(conf::Source::Override, "bluestore_compression_mode", "passive").unwrap();
        let snappy = of_pool(&pool, &conf).unwrap();
        assert_eq!(
            snappy,
            Compression {
                algorithm: Algorithm::Snappy,
                unasked: false,
                always: false,
                required_ratio: 0.875,
                part: 64 << 10,
                least: 64 << 10,
            }
        );
        pool.opts.set("compression_mode", PoolOpt::Str("force".into()));
        pool.opts.set("compression_algorithm", PoolOpt::Str("zstd".into()));
        pool.opts.set("compression_required_ratio", PoolOpt::Double(0.5));
        pool.opts.set("compression_max_blob_size", PoolOpt::Int(131_072));
        let own = of_pool(&pool, &conf).unwrap();
        assert_eq!((own.algorithm, own.always, own.unasked), (Algorithm::Zstd, true, true));
        assert_eq!((own.required_ratio, own.part, own.least), (0.5, 131_072, 65_536));
        pool.opts.set("compression_mode", PoolOpt::Str("none".into()));
        assert_eq!(of_pool(&pool, &conf), None, "a pool may say no");
    }

    #[test]
    fn hints_come_with_the_record() {
        let with = |flags| {
            let info = ObjectInfo { alloc_hint_flags: flags, ..ObjectInfo::default() };
            let attr = Mutation::SetAttr(INFO_ATTR.into(), info.to_bytes());
            hint(&[Mutation::Touch, attr])
        };
        assert_eq!(with(COMPRESSIBLE | 1), Compressible::Yes);
        assert_eq!(with(INCOMPRESSIBLE), Compressible::No);
        assert_eq!(with(3), Compressible::Unknown);
        assert_eq!(with(COMPRESSIBLE | INCOMPRESSIBLE), Compressible::Unknown);
        assert_eq!(hint(&[]), Compressible::Unknown);
    }
}
