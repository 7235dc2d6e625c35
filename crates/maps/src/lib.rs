//! Cluster maps, their deltas, and the statistics that daemons report, with the exact
//! bytes of releases 16.2, 18.2 and 20.2.
//!
//! Invariants: a map is a plain value, without I/O or clock; clones share their big parts;
//! what a peer's bytes cannot hold up to (counts, crc, lengths by OSD) is refused when
//! read. Versions are chosen by the reader's features: where the peer itself never made a
//! type depend on features, the form of the release that the features show is written.
//!
//! Source: the peer's `src/mon/{MonMap,MgrMap,PGMap}.h`, `src/osd/{OSDMap.cc,osd_types.cc}`,
//! `src/mds/{MDSMap,FSMap}.cc`; proof against the object corpus of four releases and
//! `osdmaptool` in `tests/`.

mod features;
mod health;
mod log;
mod mds;
mod mgr;
mod mon;
mod osdmap;
mod pglog;
mod pool;
mod snap;
mod stats;
mod wire;

pub use features::{CompatSet, FeatureBits, FeatureSet};
pub use health::{HealthCheck, HealthChecks, HealthMute, HealthStatus};
pub use log::{LogEntry, LogEntryKey, LogPrio, LogSummary};
pub use mds::{
    Filesystem, FsInfo, FsMap, FsMapUser, MdsInfo, MdsMap, MdsState, MirrorCluster, MirrorInfo,
    MirrorPeer,
};
pub use mgr::{MgrMap, MgrStandby, ModuleInfo, ModuleOption, Service, ServiceDaemon, ServiceMap};
pub use mon::{MonFeatures, MonInfo, MonMap, MonMapAuth};
pub use osdmap::{
    ApplyError, CrushPart, Incremental, OsdInfo, OsdMap, OsdMapFlags, OsdState, OsdXInfo,
    PgMapping, PgSets, SIGNIFICANT_FEATURES, SIGNIFICANT_FEATURES_PACIFIC, SealedEpoch, Stretch,
    WEIGHT_ONE, is_new_interval, peek_epoch,
};
pub use pglog::{CleanRegions, LogOp, ModDesc, OpReturn, PgLogDup, PgLogEntry};
pub use pool::{
    HitSetParams, PeeringCrush, PgMergeMeta, PgPool, PoolFlags, PoolKind, PoolOpt, PoolOptKind,
    PoolOpts, PoolSnapInfo, ShardSet,
};
pub use snap::{SnapContext, SnapInfo, SnapSet};
pub use stats::{
    HeartbeatTimes, HitSetHistory, HitSetInfo, ObjectStatCollection, ObjectStatSum, OsdStat,
    PgCount, PgHistory, PgInfo, PgMap, PgMapDigest, PgShard, PgStat, PgState, PingTimes, PoolStat,
    Pow2Hist, ScrubSchedule, StorePerf, StoreStatfs,
};
pub use wire::SnapIntervals;
