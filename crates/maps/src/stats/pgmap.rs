//! All PGs' and OSDs' reports together, and the digest of them that monitors get.

use std::collections::BTreeMap;

use types::{DecodeError, Denc, Epoch, OsdId, PgId, PoolId, Reader, UTime, Writer};

use super::{OsdStat, PgCount, PgStat, PgState, PoolStat, StoreStatfs};
use crate::wire::{SnapIntervals, record, release};

record! {
    /// Everything reported. The peer's `PGMap`.
    #[derive(Clone, Debug, Default, PartialEq)]
    PgMap "PGMap", compat 8, known 8, |f| 8; {
        /// Counts changes.
        version: u64,
        /// By PG.
        pg_stat: BTreeMap<PgId, PgStat>,
        /// By OSD.
        osd_stat: BTreeMap<OsdId, OsdStat>,
        /// The OSD map all this was held against.
        last_osdmap_epoch: Epoch,
        /// Long without meaning.
        last_pg_scan: Epoch,
        /// When it changed.
        stamp: UTime,
        /// Space by pool and OSD.
        pool_statfs: BTreeMap<(PoolId, OsdId), StoreStatfs>,
    }
}

/// The sums of a [`PgMap`]. The peer's `PGMapDigest`.
///
/// Wire: compat 1; v5 for peers of release 20, else v4. The peer keeps some of these maps
/// unordered; here they are written in key order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PgMapDigest {
    /// PGs.
    pub num_pg: i64,
    /// PGs that serve.
    pub num_pg_active: i64,
    /// PGs never reported.
    pub num_pg_unknown: i64,
    /// OSDs.
    pub num_osd: i64,
    /// By pool.
    pub pg_pool_sum: BTreeMap<i32, PoolStat>,
    /// All pools.
    pub pg_sum: PoolStat,
    /// All OSDs.
    pub osd_sum: OsdStat,
    /// PGs by state.
    pub num_pg_by_state: BTreeMap<PgState, i32>,
    /// PGs by OSD.
    pub num_pg_by_osd: BTreeMap<OsdId, PgCount>,
    /// PGs by pool.
    pub num_pg_by_pool: BTreeMap<PoolId, i64>,
    /// The newest report of each OSD.
    pub osd_last_seq: Vec<u64>,
    /// Change by pool, and over which time.
    pub per_pool_sum_delta: BTreeMap<i64, (PoolStat, UTime)>,
    /// When each pool's change was counted.
    pub per_pool_sum_deltas_stamps: BTreeMap<i64, UTime>,
    /// Change of all pools.
    pub pg_sum_delta: PoolStat,
    /// Over which time.
    pub stamp_delta: UTime,
    /// Space left by CRUSH rule.
    pub avail_space_by_rule: BTreeMap<i32, i64>,
    /// Snapshots trimmed, by pool.
    pub purged_snaps: BTreeMap<PoolId, SnapIntervals>,
    /// OSDs by device class.
    pub osd_sum_by_class: BTreeMap<String, OsdStat>,
    /// PGs that do not serve, by pool (v5).
    pub unavailable_pgs: BTreeMap<PoolId, Vec<PgId>>,
}

impl Denc for PgMapDigest {
    fn encode(&self, w: &mut Writer) {
        let v = if release(w.features()) >= 20 { 5 } else { 4 };
        w.framed(v, 1, |w| {
            w.i64(self.num_pg);
            w.i64(self.num_pg_active);
            w.i64(self.num_pg_unknown);
            w.i64(self.num_osd);
            self.pg_pool_sum.encode(w);
            self.pg_sum.encode(w);
            self.osd_sum.encode(w);
            self.num_pg_by_state.encode(w);
            self.num_pg_by_osd.encode(w);
            self.num_pg_by_pool.encode(w);
            self.osd_last_seq.encode(w);
            self.per_pool_sum_delta.encode(w);
            self.per_pool_sum_deltas_stamps.encode(w);
            self.pg_sum_delta.encode(w);
            self.stamp_delta.encode(w);
            self.avail_space_by_rule.encode(w);
            self.purged_snaps.encode(w);
            self.osd_sum_by_class.encode(w);
            if v >= 5 {
                self.unavailable_pgs.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("PGMapDigest", 5, |r, v| {
            r.require(v >= 4, "digests are read from version 4 on")?;
            Ok(Self {
                num_pg: r.i64()?,
                num_pg_active: r.i64()?,
                num_pg_unknown: r.i64()?,
                num_osd: r.i64()?,
                pg_pool_sum: Denc::decode(r)?,
                pg_sum: Denc::decode(r)?,
                osd_sum: Denc::decode(r)?,
                num_pg_by_state: Denc::decode(r)?,
                num_pg_by_osd: Denc::decode(r)?,
                num_pg_by_pool: Denc::decode(r)?,
                osd_last_seq: Denc::decode(r)?,
                per_pool_sum_delta: Denc::decode(r)?,
                per_pool_sum_deltas_stamps: Denc::decode(r)?,
                pg_sum_delta: Denc::decode(r)?,
                stamp_delta: Denc::decode(r)?,
                avail_space_by_rule: Denc::decode(r)?,
                purged_snaps: Denc::decode(r)?,
                osd_sum_by_class: Denc::decode(r)?,
                unavailable_pgs: if v >= 5 { Denc::decode(r)? } else { BTreeMap::new() },
            })
        })
    }
}
