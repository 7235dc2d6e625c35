//! A pool, as its PGs see it.

use std::sync::Arc;

use maps::{OsdMap, OsdMapFlags, PgPool, PoolFlags, SnapContext};
use types::{Epoch, PgId, SnapId};

use super::tier;
use crate::coding::Coding;

/// What the pool means for its PGs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolView {
    pub size: usize,
    pub min_size: usize,
    pub pg_num: u32,
    /// `pg_num` once the merge that the map announces is done.
    pub pg_num_pending: u32,
    /// The pool's, and `FULL` when the whole cluster is.
    pub flags: u64,
    pub erasure: bool,
    /// How objects are cut and coded, in erasure-coded pools.
    pub coding: Option<Arc<Coding>>,
    /// Only whole stripes are written, one behind the other.
    pub append_only: bool,
    pub last_force_op_resend: Epoch,
    /// The snapshots of the pool itself, which writes keep.
    pub snapc: Option<Arc<SnapContext>>,
    /// Whether the pool ever had a snapshot: heads may stand for clones alone.
    pub had_snaps: bool,
    pub recovery_priority: i64,
    /// What it is a cache of, and how.
    pub cache: Option<Arc<tier::CacheView>>,
}

impl PoolView {
    /// How many copies it takes to read an object.
    pub(crate) fn readable_by(&self) -> usize {
        self.coding.as_ref().map_or(1, |c| c.k)
    }

    /// Whether the map marks it full.
    pub(crate) fn is_full(&self) -> bool {
        PoolFlags(self.flags).has(PoolFlags::FULL)
    }

    /// Whether a pool that becomes `next` lets the PG's interval go on.
    pub(crate) fn same_interval(&self, next: &Self, pg: PgId) -> bool {
        (self.size, self.min_size) == (next.size, next.min_size)
            && !maps::pg_num_matters(pg, self.pg_num, next.pg_num)
            && !maps::pg_num_matters(pg, self.pg_num_pending, next.pg_num_pending)
    }

    /// Whether the PG is about to be merged into another, or another into it: it is at rest.
    pub(crate) fn is_merging(&self, pg: PgId) -> bool {
        self.pg_num_pending < self.pg_num
            && maps::pg_num_matters(pg, self.pg_num, self.pg_num_pending)
    }

    pub(crate) fn of(map: &OsdMap, pool: &PgPool) -> Self {
        // All is full when the whole cluster is.
        let mut flags = pool.flags;
        if map.flags.has(OsdMapFlags::FULL) {
            flags.set(PoolFlags::FULL, true);
        }
        Self {
            size: usize::from(pool.size),
            min_size: usize::from(pool.min_size),
            pg_num: pool.pg_num,
            pg_num_pending: pool.pg_num_pending,
            flags: flags.0,
            erasure: pool.is_erasure(),
            coding: if pool.is_erasure() { Coding::of(map, pool) } else { None },
            append_only: pool.is_erasure()
                && !pool.has_flag(PoolFlags::EC_OVERWRITES)
                && !pool.has_flag(PoolFlags::EC_OPTIMIZATIONS),
            last_force_op_resend: pool.last_force_op_resend,
            snapc: pool.is_pool_snaps_mode().then(|| {
                let snaps = pool.snaps.keys().rev().copied().collect();
                Arc::new(SnapContext { seq: pool.snap_seq, snaps })
            }),
            had_snaps: pool.snap_seq > SnapId(0),
            recovery_priority: match pool.opts.get("recovery_priority") {
                Some(maps::PoolOpt::Int(n)) => *n,
                _ => 0,
            },
            cache: tier::CacheView::of(map, pool),
        }
    }
}
