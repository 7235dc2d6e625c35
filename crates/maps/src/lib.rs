//! Cluster maps, their deltas, and the statistics that daemons report, with the exact
//! bytes of releases 16.2, 18.2 and 20.2.
//!
//! Invariants: a map is a plain value, without I/O or clock; clones share their big parts;
//! what a peer's bytes cannot hold up to (counts, crc, lengths by OSD) is refused when
//! read. Versions are chosen by the reader's features: where the peer itself never made a
//! type depend on features, the form of the release that the features show is written.
//!
//! Source: the peer's `src/mon/{MonMap,MgrMap,PGMap}.h`, `src/osd/{OSDMap.cc,osd_types.cc}`,
//! `src/mds/{MDSMap,FSMap}.cc`, and what [`fs`] names; proof against the object corpus of four releases and
//! `osdmaptool` in `tests/`.

mod features;
pub mod fs;
mod health;
mod hitset;
mod log;
mod mds;
mod mds_ask;
mod mgr;
mod mon;
mod object_info;
mod osdmap;
mod pglog;
mod pool;
mod snap;
mod stats;
mod tier;
mod wire;

pub use features::{CompatSet, FeatureBits, FeatureSet};
pub use health::{HealthCheck, HealthChecks, HealthMute, HealthStatus};
pub use hitset::{Bloom, HitSet, Used};
pub use log::{LogEntry, LogEntryKey, LogPrio, LogSummary};
pub use mds::{
    Filesystem, FsInfo, FsMap, FsMapUser, MdsInfo, MdsMap, MdsState, MirrorCluster, MirrorInfo,
    MirrorPeer, mds_flag,
};
pub use mgr::{MgrMap, MgrStandby, ModuleInfo, ModuleOption, Service, ServiceDaemon, ServiceMap};
pub use mon::{MonFeatures, MonInfo, MonMap, MonMapAuth};
pub use object_info::{ObjectInfo, ObjectManifest, WatchInfo};
pub use osdmap::{
    ApplyError, CrushPart, Incremental, OsdInfo, OsdMap, OsdMapFlags, OsdState, OsdXInfo,
    PgMapping, PgSets, SIGNIFICANT_FEATURES, SIGNIFICANT_FEATURES_PACIFIC, SealedEpoch, Stretch,
    WEIGHT_ONE, is_new_interval, peek_epoch, pg_num_matters,
};
pub use pglog::{CleanRegions, LogOp, ModDesc, OpReturn, PgLogDup, PgLogEntry};
pub use pool::{
    HitSetParams, PeeringCrush, PgMergeMeta, PgPool, PoolFlags, PoolKind, PoolOpt, PoolOptKind,
    PoolOpts, PoolSnapInfo, ShardSet,
};
pub use snap::{SnapContext, SnapSet};
pub use stats::{
    HeartbeatTimes, HitSetHistory, HitSetInfo, ObjectStatCollection, ObjectStatSum, OsdStat,
    PgCount, PgHistory, PgInfo, PgMap, PgMapDigest, PgShard, PgStat, PgState, PingTimes, PoolStat,
    Pow2Hist, ScrubSchedule, StorePerf, StoreStatfs,
};
pub use tier::{BloomParams, CacheMode};
pub use wire::{SnapIntervals, release};

/// What fuzz targets call: bytes of any kind, read as each type.
pub mod fuzz {
    use denc::{Denc, Features};

    fn one<T: Denc>(bytes: &[u8]) {
        if let Ok(value) = T::from_bytes(bytes) {
            // What was read can be written, for new and old readers.
            let _ = value.to_bytes_for(Features::ALL);
            let _ = value.to_bytes_for(Features::PACIFIC_WORD);
        }
    }

    /// Reads `bytes` as every map and statistic; the first byte chooses which.
    pub fn decode(bytes: &[u8]) {
        const KINDS: &[fn(&[u8])] = &[
            one::<crate::OsdMap>,
            one::<crate::Incremental>,
            one::<crate::PgPool>,
            one::<crate::MonMap>,
            one::<crate::MgrMap>,
            one::<crate::FsMap>,
            one::<crate::ServiceMap>,
            one::<crate::LogEntry>,
            one::<crate::LogSummary>,
            one::<crate::PgStat>,
            one::<crate::OsdStat>,
            one::<crate::PgInfo>,
            one::<crate::PgMap>,
            one::<crate::PgMapDigest>,
            one::<crate::PgLogEntry>,
            one::<crate::SnapSet>,
            one::<crate::ObjectInfo>,
            one::<crate::HealthChecks>,
            one::<crate::HitSet>,
            one::<crate::fs::DentryValue>,
            one::<crate::fs::InodeStore>,
            one::<crate::fs::InodeStoreBare>,
            one::<crate::fs::Fnode>,
            one::<crate::fs::Backtrace>,
            one::<crate::fs::TableObject<crate::fs::InoTable>>,
            one::<crate::fs::SnapTableObject>,
            one::<crate::fs::SystemInode>,
            one::<crate::fs::SnapPayload>,
            one::<crate::fs::SessionInfo>,
            one::<crate::fs::SnapRealm>,
            one::<crate::fs::SnapRealmInfo>,
            one::<crate::fs::SnapRealmInfoNew>,
            one::<crate::fs::OpenFile>,
            one::<crate::fs::OpenFilesHeader>,
            one::<crate::fs::JournalHeader>,
            one::<crate::fs::JournalEntry>,
            one::<crate::fs::LogEvent>,
            one::<crate::fs::PurgeItem>,
            one::<crate::fs::MdsHealth>,
            one::<types::MdsCapAuth>,
            one::<crate::fs::FragTree>,
        ];
        if let Some((kind, rest)) = bytes.split_first() {
            KINDS[usize::from(*kind) % KINDS.len()](rest);
        }
    }

    /// Reads `bytes` as an OSD map whatever crc they hold, and maps all its PGs; then as a
    /// delta, and applies it to an empty map.
    pub fn place(bytes: &[u8]) {
        if let Ok(map) = crate::OsdMap::decode_unchecked(&mut denc::Reader::new(bytes)) {
            for (id, pool) in map.pools.iter() {
                for ps in 0..pool.pg_num.min(64) {
                    let _ = map.pg_to_up_acting(types::PgId { pool: *id, ps });
                }
            }
        }
        if let Ok(mut inc) = crate::Incremental::decode_unchecked(&mut denc::Reader::new(bytes)) {
            let mut map = crate::OsdMap { fsid: inc.fsid, ..crate::OsdMap::default() };
            inc.epoch = types::Epoch(1);
            let _ = map.apply_incremental(&inc);
        }
    }
}
