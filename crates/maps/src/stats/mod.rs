//! What PGs, pools and OSDs count.

mod objects;
mod osd;
mod pg;
mod pgmap;

pub use objects::{ObjectStatCollection, ObjectStatSum, PoolStat, StoreStatfs};
pub use osd::{HeartbeatTimes, OsdStat, PingTimes, Pow2Hist, StorePerf};
pub use pg::{
    HitSetHistory, HitSetInfo, PgCount, PgHistory, PgInfo, PgShard, PgStat, PgState, ScrubSchedule,
};
pub use pgmap::{PgMap, PgMapDigest};
