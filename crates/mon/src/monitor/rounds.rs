//! Periodic work that is not about single OSDs: pools' flags, snapshots that are gone,
//! clients that are let in again, health.

use std::collections::BTreeSet;

use conf::key;
use maps::{OsdMap, OsdState, PoolFlags, SnapIntervals};
use messages::LogPriority;
use types::{OsdId, PgId, PoolId};

use super::Monitor;
use crate::balancer::{self, Mode, Options};
use crate::health::{self, HealthOptions, ScrubAges};
use crate::health_codes::MapBounds;
use crate::{Mutation, crushops, health_reports, vitals};

/// Whether PGs may be placed differently by two maps.
fn placement_changed(a: &OsdMap, b: &OsdMap) -> bool {
    use std::sync::Arc;
    let same = Arc::ptr_eq(&a.osd_state, &b.osd_state)
        && Arc::ptr_eq(&a.osd_weight, &b.osd_weight)
        && Arc::ptr_eq(&a.pg_temp, &b.pg_temp)
        && Arc::ptr_eq(&a.primary_temp, &b.primary_temp)
        && Arc::ptr_eq(&a.primary_affinity, &b.primary_affinity)
        && Arc::ptr_eq(&a.pg_upmap, &b.pg_upmap)
        && Arc::ptr_eq(&a.pg_upmap_items, &b.pg_upmap_items)
        && Arc::ptr_eq(&a.pg_upmap_primaries, &b.pg_upmap_primaries)
        && Arc::ptr_eq(a.crush.map(), b.crush.map());
    if !same {
        return true;
    }
    let shape = |m: &OsdMap, id: &PoolId| {
        m.pool(*id).map(|p| (p.pg_num, p.pgp_num, p.size, p.min_size, p.crush_rule, p.kind))
    };
    !Arc::ptr_eq(&a.pools, &b.pools)
        && a.pools.keys().chain(b.pools.keys()).any(|id| shape(a, id) != shape(b, id))
}

impl Monitor {
    /// PG statistics follow the newest OSD map.
    pub(super) fn pgmap_follows(&mut self) {
        let map = &self.state.osdmap;
        if self.mapped.as_ref().is_none_or(|m| placement_changed(m, map)) {
            self.volatile.mapping = self.volatile.mapping.next(map);
        }
        self.mapped = Some(map.clone());
        self.volatile.pgmap.follow(map, &self.volatile.mapping, self.now.mono_ms());
        self.health_stale = true;
    }

    /// Pools: quotas, space, snapshots; and the blocklist's ends.
    pub(super) fn pool_round(&mut self) {
        self.volatile.pgmap.compute_rates(self.now.mono_ms());
        self.volatile.progress.update(&self.volatile.pgmap, self.now);
        self.pool_flags();
        self.purged_snaps();
        let now = self.wall();
        let map = &self.state.osdmap;
        let over: Vec<_> = map.blocklist.iter().filter(|b| *b.1 <= now).map(|b| *b.0).collect();
        let ranges: Vec<_> =
            map.range_blocklist.iter().filter(|b| *b.1 <= now).map(|b| *b.0).collect();
        if !over.is_empty() || !ranges.is_empty() {
            let mut inc = self.state.osd_change();
            inc.old_blocklist = over;
            inc.old_range_blocklist = ranges;
            self.propose(Mutation::Osd(Box::new(inc)));
        }
    }

    /// Once a minute, when the balancer is on and little is on the move: some PGs go from
    /// OSDs that have too many to such that have too few.
    pub(super) fn balance_round(&mut self) {
        const EVERY_MS: u64 = 60_000;
        let ms = self.now.mono_ms();
        if self.is_young() || ms < self.volatile.balancer.at_ms + EVERY_MS {
            return;
        }
        let options = Options::read(&self.state.config);
        if !options.active || options.mode == Mode::None {
            return;
        }
        let (map, pgmap) = (&self.state.osdmap, &self.volatile.pgmap);
        let mut pools = options.pools.clone();
        pools.retain(|id| map.pools.contains_key(id));
        if pools.is_empty() && !options.pools.is_empty() {
            return; // all that were to be balanced are gone
        }
        let most = self.misplaced_max();
        let result = balancer::optimize("auto", map, pgmap, &options, &pools, most);
        let began = self.wall();
        let b = &mut self.volatile.balancer;
        (b.at_ms, b.began, b.even) = (ms, began, false);
        match result {
            Err((_, why)) => {
                b.even = why == balancer::EVEN;
                b.result = why;
            }
            Ok(plan) => {
                b.result = balancer::MADE.to_owned();
                let mut inc = self.state.osd_change();
                plan.put(&self.state.osdmap, &mut inc);
                self.propose(Mutation::Osd(Box::new(inc)));
            }
        }
    }

    /// Pools whose OSDs with such a state hold something of them.
    fn pools_on(&self, bit: OsdState) -> BTreeSet<PoolId> {
        let map = &self.state.osdmap;
        let osds: BTreeSet<OsdId> = map.osds().filter(|o| map.state(*o).has(bit)).collect();
        if osds.is_empty() {
            return BTreeSet::new();
        }
        let uses = |pool: &maps::PgPool| {
            let weights = crushops::rule_weights(&map.crush, u32::from(pool.crush_rule));
            weights.keys().any(|o| osds.contains(o))
        };
        map.pools.iter().filter(|(_, p)| uses(p)).map(|(id, _)| *id).collect()
    }

    fn pool_flags(&mut self) {
        let full = self.pools_on(OsdState::FULL);
        let backfillfull = self.pools_on(OsdState::BACKFILLFULL);
        let nearfull = self.pools_on(OsdState::NEARFULL);
        let map = &self.state.osdmap;
        let mut inc = self.state.osd_change();
        let mut lines = Vec::new();
        for (id, pool) in map.pools.iter() {
            let sum = self.volatile.pgmap.pools.get(id).map(|p| p.stats.sum).unwrap_or_default();
            let name = map.pool_name(*id).unwrap_or_default();
            let bytes_over =
                pool.quota_max_bytes > 0 && sum.num_bytes.max(0) as u64 >= pool.quota_max_bytes;
            let objects_over = pool.quota_max_objects > 0
                && sum.num_objects.max(0) as u64 >= pool.quota_max_objects;
            let quota = bytes_over || objects_over;
            let mut flags = pool.flags;
            flags.set(PoolFlags::FULL_QUOTA, quota);
            flags.set(PoolFlags::FULL, quota || full.contains(id));
            let worse = full.contains(id);
            flags.set(PoolFlags::BACKFILLFULL, !worse && backfillfull.contains(id));
            let worse = worse || backfillfull.contains(id);
            flags.set(PoolFlags::NEARFULL, !worse && nearfull.contains(id));
            if flags == pool.flags {
                continue;
            }
            let was_quota = pool.has_flag(PoolFlags::FULL_QUOTA);
            if quota && !was_quota {
                if bytes_over {
                    lines.push((
                        LogPriority::WARN,
                        format!(
                            "pool '{name}' is full (reached quota's max_bytes: {})",
                            cli::bytes_u(pool.quota_max_bytes)
                        ),
                    ));
                }
                if objects_over {
                    lines.push((
                        LogPriority::WARN,
                        format!(
                            "pool '{name}' is full (reached quota's max_objects: {})",
                            pool.quota_max_objects
                        ),
                    ));
                }
            } else if was_quota && !quota {
                lines.push((
                    LogPriority::INFO,
                    format!("pool '{name}' no longer out of quota; removing NO_QUOTA flag"),
                ));
            }
            let mut changed = pool.clone();
            changed.flags = flags;
            changed.last_change = inc.epoch;
            inc.new_pools.insert(*id, changed);
        }
        for (prio, line) in lines {
            self.log(prio, line);
        }
        if !inc.new_pools.is_empty() {
            self.propose(Mutation::Osd(Box::new(inc)));
        }
    }

    /// Snapshots that every PG of a pool has trimmed leave the map's queue.
    fn purged_snaps(&mut self) {
        let map = &self.state.osdmap;
        let mut inc = self.state.osd_change();
        for (id, queue) in map.removed_snaps_queue.iter() {
            let Some(pool) = map.pool(*id) else { continue };
            if pool.pg_num_pending < pool.pg_num {
                continue; // PGs that are being merged trim nothing
            }
            let mut done = queue.0.clone();
            // Its caches first: they name snapshots to it as long as they know of them.
            for tier in pool.tiers.iter().map(|t| PoolId(*t as i64)) {
                if let Some(queue) = map.removed_snaps_queue.get(&tier) {
                    done.subtract(queue);
                }
            }
            for ps in 0..pool.pg_num {
                let pg = PgId { pool: *id, ps };
                match self.volatile.pgmap.pgs.get(&pg).filter(|_| self.has_trimmed_all(pool, pg)) {
                    Some(stat) => done = done.intersection(&stat.purged_snaps.0),
                    None => done = stdx::IntervalSet::new(),
                }
                if done.is_empty() {
                    break;
                }
            }
            if !done.is_empty() {
                inc.new_purged_snaps.insert(*id, SnapIntervals(done));
            }
        }
        if !inc.new_purged_snaps.is_empty() {
            self.propose(Mutation::Osd(Box::new(inc)));
        }
    }

    fn map_bounds(&self) -> MapBounds {
        MapBounds {
            public_network: self.option(key::PUBLIC_NETWORK),
            pgs_per_osd: self.option(key::MON_MAX_PG_PER_OSD),
            failsafe_full: self.option(key::OSD_FAILSAFE_FULL_RATIO),
            power_of_two: self.option(key::MON_WARN_ON_POOL_PG_NUM_NOT_POWER_OF_TWO),
            straw_calc: self.option(key::MON_WARN_ON_CRUSH_STRAW_CALC_VERSION_ZERO),
            tunables: self.option(key::MON_WARN_ON_LEGACY_CRUSH_TUNABLES),
            down_out: self
                .option(key::MON_WARN_ON_OSD_DOWN_OUT_INTERVAL_ZERO)
                .then(|| self.option(key::MON_OSD_DOWN_OUT_INTERVAL)),
        }
    }

    fn health_options(&self) -> HealthOptions {
        HealthOptions {
            pool_size: self.option(key::OSD_POOL_DEFAULT_SIZE) as u32,
            no_redundancy: self.option(key::MON_WARN_ON_POOL_NO_REDUNDANCY),
            no_app: self.option(key::MON_WARN_ON_POOL_NO_APP),
            no_hit_sets: self.option(key::MON_WARN_ON_CACHE_POOLS_WITHOUT_HIT_SETS),
            cache_full_ratio: self.option(key::MON_CACHE_TARGET_FULL_WARN_RATIO),
            too_few_osds: self.option(key::MON_WARN_ON_TOO_FEW_OSDS),
            stuck_ms: self.option(key::MON_PG_STUCK_THRESHOLD).as_secs() * 1000,
            autoscale: self.autoscale_bounds(),
            auth: crate::health_auth::Options {
                makes_insecure: self.makes_insecure(),
                emergency: self.emergency_kinds().is_some(),
            },
            now_ms: self.now.mono_ms(),
            wall_ns: self.now.wall_ns,
            unscrubbed_s: ScrubAges {
                light_s: self.option(key::OSD_SCRUB_MAX_INTERVAL),
                deep_s: self.option(key::OSD_DEEP_SCRUB_INTERVAL),
                light_ratio: self.option(key::MON_WARN_PG_NOT_SCRUBBED_RATIO),
                deep_ratio: self.option(key::MON_WARN_PG_NOT_DEEP_SCRUBBED_RATIO),
            },
            bounds: self.map_bounds(),
            reports: self.report_bounds(),
            mons: self.mon_bounds(),
        }
    }

    /// `mon_auth_allow_insecure_key`, which follows what may log in until somebody sets it.
    fn makes_insecure(&self) -> bool {
        let key = key::MON_AUTH_ALLOW_INSECURE_KEY;
        let set = self.option_text(key).and_then(|text| key.parse(&text));
        set.unwrap_or_else(|| crate::health_auth::insecure_may_log_in(&self.state.monmap))
    }

    fn mon_bounds(&self) -> vitals::Bounds {
        vitals::Bounds {
            drift_s: self.option(key::MON_CLOCK_DRIFT_ALLOWED),
            avail_warn: self.option(key::MON_DATA_AVAIL_WARN).max(0) as u64,
            avail_crit: self.option(key::MON_DATA_AVAIL_CRIT).max(0) as u64,
            data_warn: self.option(key::MON_DATA_SIZE_WARN),
        }
    }

    fn report_bounds(&self) -> health_reports::Bounds {
        let grace_s = self.option_of_mgr(key::OSD_HEARTBEAT_GRACE).as_secs_f64();
        let ratio = self.option_of_mgr(key::MON_WARN_ON_SLOW_PING_RATIO);
        let ping_ms = self.option_of_mgr(key::MON_WARN_ON_SLOW_PING_TIME);
        let ping_ms = if ping_ms == 0.0 { grace_s * 1e3 * ratio } else { ping_ms };
        health_reports::Bounds {
            slow_ping_us: ping_ms * 1e3,
            grace_s,
            repaired: self.option_of_mgr(key::MON_OSD_WARN_NUM_REPAIRED),
            snaps_queued: self.option_of_mgr(key::MON_OSD_SNAP_TRIM_QUEUE_WARN_ON).max(0) as u64,
            objects_min: self.option_of_mgr(key::MON_PG_WARN_MIN_OBJECTS),
            pool_objects_min: self.option_of_mgr(key::MON_PG_WARN_MIN_POOL_OBJECTS),
            object_skew: self.option_of_mgr(key::MON_PG_WARN_MAX_OBJECT_SKEW),
            quota_warn: self.option_of_mgr(key::MON_POOL_QUOTA_WARN_THRESHOLD).max(0) as u64,
            quota_crit: self.option_of_mgr(key::MON_POOL_QUOTA_CRIT_THRESHOLD).max(0) as u64,
            misplaced: self.option_of_mgr(key::MON_WARN_ON_MISPLACED),
        }
    }

    /// Computes the checks anew.
    pub(super) fn refresh_health(&mut self) {
        if !self.health_stale {
            return;
        }
        self.health_stale = false;
        self.volatile.health = health::check(&self.state, &self.volatile, &self.health_options());
    }

    /// Tells the cluster log what changed in the checks; ends mutes.
    pub(super) fn health_round(&mut self) {
        self.health_stale = true;
        self.refresh_health();
        let new = self.volatile.health.clone();
        if self.is_young() {
            self.health_told = new;
            return;
        }
        for (prio, line) in health::changes(&self.health_told, &new) {
            self.log(prio, line);
        }
        let now = self.wall();
        let mut ended = Vec::new();
        for (code, mute) in &self.state.health_mutes {
            let over = !mute.until.is_zero() && mute.until <= now;
            let check = new.checks.get(code);
            let gone = !mute.sticky && check.is_none();
            let worse = !mute.sticky && check.is_some_and(|c| c.count > mute.count);
            if over || gone || worse {
                ended.push(code.clone());
            }
        }
        for code in ended {
            self.log(LogPriority::INFO, format!("Health alert mute for {code} cleared"));
            self.propose(Mutation::HealthMute { code, mute: None });
        }
        self.health_told = new;
    }
}
