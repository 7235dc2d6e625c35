//! Numbers of PGs on their way to what was asked for: placement step by step, as much as may
//! be misplaced; fewer PGs one by one, each when OSDs say that it is at rest.
//!
//! ```text
//!   pg_num_target < pg_num
//!     pgp_num ──▶ pgp_num_target    so that the PG that goes lies where its objects will
//!     pg_num_pending = pg_num - 1   when both PGs are clean, on the same OSDs
//!     PgReadyToMerge: ready         pg_num = pg_num_pending, and the next one
//!                     not ready     pg_num_pending = pg_num, and again later
//! ```
//!
//! Source: the peer's `DaemonServer::adjust_pgs`, `OSDMonitor::prepare_pg_ready_to_merge`.

use conf::key;
use maps::{Incremental, ObjectStatSum, OsdMapFlags, PgMergeMeta, PgPool, PgState, PoolFlags};
use messages::{LogPriority, PgReadyToMerge};
use types::{OsdId, PgId, PoolId};

use super::Monitor;
use crate::{Mutation, autoscale, poolops};

/// After a merge that could not be, the pool's PGs serve at least this long.
const PUT_OFF_MS: u64 = 5_000;

/// The PG that gets the objects of the pool's PG `ps` when that is its last and goes.
fn target_of(pool: PoolId, ps: u32) -> PgId {
    PgId { pool, ps: types::stable_mod(ps, ps) }
}

impl Monitor {
    /// The most of all copies that may be misplaced for a step.
    pub(super) fn misplaced_max(&self) -> f64 {
        self.option(key::TARGET_MAX_MISPLACED_RATIO).clamp(0.0, 1.0)
    }

    /// Pools whose numbers of PGs are not yet what they should be.
    pub(super) fn pg_num_round(&mut self) {
        if self.is_young() {
            return;
        }
        let mut inc = self.state.osd_change();
        let ids: Vec<PoolId> = self.state.osdmap.pools.keys().copied().collect();
        for id in ids {
            let Some(pool) = self.state.osdmap.pool(id) else { continue };
            if pool.pgp_num != pool.pgp_num_target.min(pool.pg_num) {
                self.step_placement(id, &mut inc);
            }
            let Some(pool) = self.state.osdmap.pool(id) else { continue };
            if pool.pg_num_pending == pool.pg_num
                && pool.pg_num_target < pool.pg_num
                && !inc.new_pools.contains_key(&id)
            {
                self.announce_merge(id, None, &mut inc);
            }
        }
        let stay = inc.old_pg_upmap.is_empty()
            && inc.old_pg_upmap_items.is_empty()
            && inc.old_pg_upmap_primary.is_empty()
            && inc.new_primary_temp.is_empty();
        if !inc.new_pools.is_empty() || !stay {
            self.propose(Mutation::Osd(Box::new(inc)));
        }
    }

    pub(super) fn autoscale_bounds(&self) -> autoscale::Bounds {
        autoscale::Bounds {
            per_osd: self.option(key::MON_TARGET_PG_PER_OSD) as f64,
            threshold: autoscale::threshold(&self.state.config),
        }
    }

    /// Once a minute: pools that are left to the autoscaler get the PGs they should have.
    pub(super) fn autoscale_round(&mut self) {
        const EVERY_MS: u64 = 60_000;
        let ms = self.now.mono_ms();
        let v = &mut self.volatile;
        if v.autoscaled_ms == 0 {
            v.autoscaled_ms = ms; // statistics come in first
        }
        if ms < v.autoscaled_ms + EVERY_MS || self.is_young() {
            return;
        }
        self.volatile.autoscaled_ms = ms;
        let (map, pgmap) = (&self.state.osdmap, &self.volatile.pgmap);
        if map.has_flag(OsdMapFlags::NOAUTOSCALE) {
            return;
        }
        let known = |id: PoolId| {
            let of =
                pgmap.pgs.range(PgId { pool: id, ps: 0 }..).take_while(|(pg, _)| pg.pool == id);
            of.into_iter().all(|(_, stat)| stat.state.0 != 0)
        };
        let most = self.option(key::MON_MAX_PG_PER_OSD) as u32;
        let mut inc = self.state.osd_change();
        let mut lines = Vec::new();
        for plan in autoscale::plan(map, pgmap, &self.autoscale_bounds()) {
            let Some(pool) = map.pool(plan.id).filter(|_| plan.adjust && known(plan.id)) else {
                continue;
            };
            let name = map.pool_name(plan.id).unwrap_or_default();
            if pool.has_flag(PoolFlags::NOPGCHANGE) {
                continue;
            }
            let fits =
                poolops::check_pg_num(&self.state, Some(plan.id), plan.last, pool.size, most);
            if let Err(e) = fits {
                let line = format!("pool '{name}' does not get {} PGs: {}", plan.last, e.text);
                lines.push((LogPriority::WARN, line));
                continue;
            }
            let line = format!("pool '{name}' goes from {} to {} PGs", plan.now, plan.last);
            lines.push((LogPriority::INFO, line));
            let mut pool = pool.clone();
            poolops::aim_pg_num(&mut pool, plan.last);
            pool.last_change = inc.epoch;
            inc.new_pools.insert(plan.id, pool);
        }
        for (prio, line) in lines {
            self.log(prio, line);
        }
        if !inc.new_pools.is_empty() {
            self.propose(Mutation::Osd(Box::new(inc)));
        }
    }

    /// Moves `pgp_num` as far as may be misplaced at once.
    fn step_placement(&self, id: PoolId, inc: &mut Incremental) {
        let Some(pool) = self.state.osdmap.pool(id) else { return };
        let pgmap = &self.volatile.pgmap;
        let mut sum = ObjectStatSum::default();
        pgmap.pools.values().for_each(|p| sum.add(&p.stats.sum));
        let target = pool.pgp_num_target.min(pool.pg_num);
        let mut next = target;
        if sum.num_object_copies > 0 {
            // What the last step moved must show in the statistics.
            let known = |ps: u32| {
                let pg = PgId { pool: id, ps };
                let (Some(stat), Some(sets)) = (pgmap.pgs.get(&pg), self.volatile.mapping.get(pg))
                else {
                    return false;
                };
                stat.state.has(PgState::ACTIVE)
                    && (&stat.up, &stat.acting) == (&sets.up, &sets.acting)
            };
            if sum.num_objects_degraded > 0 || !(0..pool.pg_num).all(known) {
                return;
            }
            let misplaced =
                sum.num_objects_misplaced.max(0) as f64 / sum.num_object_copies.max(1) as f64;
            let room = self.misplaced_max() - misplaced;
            if room <= 0.0 {
                return;
            }
            let most = (f64::from(pool.pg_num) * room).max(1.0) as u32;
            next = target.clamp(pool.pgp_num.saturating_sub(most), pool.pgp_num + most);
        }
        let epoch = inc.epoch;
        if let Some(pool) = inc.pool_mut(&self.state.osdmap, id) {
            pool.pgp_num = next.max(1);
            pool.last_change = epoch;
        }
    }

    /// Begins the merge of the pool's last PG, if both PGs are ready for it by all that is
    /// known. `busy` was just merged into.
    fn announce_merge(&self, id: PoolId, busy: Option<PgId>, inc: &mut Incremental) {
        let map = &self.state.osdmap;
        let pool = inc.new_pools.get(&id).or_else(|| map.pool(id));
        let Some(pool) = pool.filter(|p| p.pg_num_target < p.pg_num && p.pg_num > 1) else {
            return;
        };
        let last = pool.pg_num - 1;
        let (source, target) = (PgId { pool: id, ps: last }, target_of(id, last));
        let until = self.volatile.merges_put_off.get(&id).copied().unwrap_or(0);
        if pool.pgp_num > last
            || self.now.mono_ms() < until
            || [source, target].iter().any(|pg| busy == Some(*pg))
        {
            return;
        }
        let clean = |pg: PgId| {
            self.volatile.pgmap.pgs.get(&pg).is_some_and(|stat| {
                stat.state.has(PgState::ACTIVE)
                    && stat.state.has(PgState::CLEAN)
                    && !stat.state.has(PgState::STALE)
            })
        };
        if !clean(source) || !clean(target) {
            return;
        }
        // Exceptions to placement keep them apart.
        let mut apart = false;
        for pg in [source, target] {
            if map.pg_upmap.contains_key(&pg) {
                apart |= inc.old_pg_upmap.insert(pg);
            }
            if map.pg_upmap_items.contains_key(&pg) {
                apart |= inc.old_pg_upmap_items.insert(pg);
            }
            if map.pg_upmap_primaries.contains_key(&pg) {
                apart |= inc.old_pg_upmap_primary.insert(pg);
            }
            if map.primary_temp.contains_key(&pg) {
                apart |= inc.new_primary_temp.insert(pg, OsdId(-1)).is_none();
            }
        }
        let sets = |pg: PgId| self.volatile.mapping.get(pg);
        if apart || sets(source).is_none() || sets(source) != sets(target) {
            return;
        }
        let epoch = inc.epoch;
        if let Some(pool) = inc.pool_mut(map, id) {
            pool.pg_num_pending = last;
            pool.last_change = epoch;
            // Older clients know no such intervals.
            pool.last_force_op_resend_prenautilus = epoch;
        }
    }

    /// Two PGs can be merged, or cannot.
    pub(super) fn on_ready_to_merge(&mut self, msg: &PgReadyToMerge) {
        let map = &self.state.osdmap;
        let id = msg.source.pool;
        let Some(pool) = map.pool(id) else { return };
        // Said by the newest map, so that nothing has changed since; else it is said again.
        if !map.is_up(msg.osd)
            || msg.epoch != self.state.osd_history.last
            || msg.source.ps != pool.pg_num_pending
            || msg.source.ps + 1 != pool.pg_num
        {
            return;
        }
        let mut pool: PgPool = pool.clone();
        let mut inc = self.state.osd_change();
        pool.last_change = inc.epoch;
        pool.last_force_op_resend_prenautilus = inc.epoch;
        let target = target_of(id, msg.source.ps);
        if !msg.ready {
            tracing::info!(source = %msg.source, %target, "cannot be merged now");
            pool.pg_num_pending = pool.pg_num;
            inc.new_pools.insert(id, pool);
            self.volatile.merges_put_off.insert(id, self.now.mono_ms() + PUT_OFF_MS);
            return self.propose(Mutation::Osd(Box::new(inc)));
        }
        pool.pg_num = pool.pg_num_pending;
        pool.pgp_num = pool.pgp_num.min(pool.pg_num);
        pool.last_pg_merge_meta = PgMergeMeta {
            source: msg.source,
            ready_epoch: msg.epoch,
            last_epoch_started: msg.last_epoch_started,
            last_epoch_clean: msg.last_epoch_clean,
            source_version: msg.source_version,
            target_version: msg.target_version,
        };
        inc.new_pools.insert(id, pool);
        self.announce_merge(id, Some(target), &mut inc);
        self.propose(Mutation::Osd(Box::new(inc)));
    }

    /// Whether what a PG says of snapshots it has trimmed is known to be said of all its
    /// objects: one that others are merged into may have said it before.
    pub(super) fn has_trimmed_all(&self, pool: &PgPool, pg: PgId) -> bool {
        let meta = &pool.last_pg_merge_meta;
        let Some(stat) = self.volatile.pgmap.pgs.get(&pg) else { return false };
        meta.source.ps == 0
            || pg != target_of(pg.pool, meta.source.ps)
            || stat.reported_epoch > meta.ready_epoch
    }
}
