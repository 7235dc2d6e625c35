//! Periodic work that is not about single OSDs: pools' flags, snapshots that are gone,
//! clients that are let in again, health.

use std::collections::BTreeSet;

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
        let default = MapBounds::default();
        MapBounds {
            public_network: self.option("public_network").unwrap_or_default(),
            pgs_per_osd: self.option_u64("mon_max_pg_per_osd", default.pgs_per_osd),
            failsafe_full: self.option_f64("osd_failsafe_full_ratio", default.failsafe_full),
            power_of_two: self.option_bool("mon_warn_on_pool_pg_num_not_power_of_two", true),
            straw_calc: self.option_bool("mon_warn_on_crush_straw_calc_version_zero", true),
            tunables: self.option_bool("mon_warn_on_legacy_crush_tunables", true),
        }
    }

    fn health_options(&self) -> HealthOptions {
        HealthOptions {
            pool_size: self.option_u64("osd_pool_default_size", 3) as u32,
            no_redundancy: self.option_bool("mon_warn_on_pool_no_redundancy", true),
            no_app: self.option_bool("mon_warn_on_pool_no_app", true),
            no_hit_sets: self.option_bool("mon_warn_on_cache_pools_without_hit_sets", true),
            cache_full_ratio: self.option_f64("mon_cache_target_full_warn_ratio", 0.66),
            too_few_osds: self.option_bool("mon_warn_on_too_few_osds", true),
            stuck_ms: self.option_u64("mon_pg_stuck_threshold", 60) * 1000,
            autoscale: self.autoscale_bounds(),
            auth: crate::health_auth::Options {
                makes_insecure: self.option_bool(
                    crate::health_auth::MAKES_INSECURE,
                    crate::health_auth::insecure_may_log_in(&self.state.monmap),
                ),
                emergency: self.emergency_kinds().is_some(),
            },
            now_ms: self.now.mono_ms(),
            wall_ns: self.now.wall_ns,
            unscrubbed_s: ScrubAges {
                light_s: self.option_f64("osd_scrub_max_interval", 604_800.0),
                deep_s: self.option_f64("osd_deep_scrub_interval", 604_800.0),
                light_ratio: self.option_f64("mon_warn_pg_not_scrubbed_ratio", 0.5),
                deep_ratio: self.option_f64("mon_warn_pg_not_deep_scrubbed_ratio", 0.75),
            },
            bounds: self.map_bounds(),
            reports: self.report_bounds(),
            mons: self.mon_bounds(),
        }
    }

    fn mon_bounds(&self) -> vitals::Bounds {
        let default = vitals::Bounds::default();
        let size = self.option("mon_data_size_warn").and_then(|v| conf::parse_size(&v));
        vitals::Bounds {
            drift_s: self.option_f64("mon_clock_drift_allowed", default.drift_s),
            avail_warn: self.option_u64("mon_data_avail_warn", default.avail_warn),
            avail_crit: self.option_u64("mon_data_avail_crit", default.avail_crit),
            data_warn: size.unwrap_or(default.data_warn),
        }
    }

    fn report_bounds(&self) -> health_reports::Bounds {
        let default = health_reports::Bounds::default();
        let number = |name: &str, default: i64| self.option_of_mgr(name, default);
        let grace_s = self.option_of_mgr("osd_heartbeat_grace", default.grace_s);
        let ratio = self.option_of_mgr("mon_warn_on_slow_ping_ratio", 0.05);
        let ping_ms = self.option_of_mgr("mon_warn_on_slow_ping_time", 0.0);
        let ping_ms = if ping_ms == 0.0 { grace_s * 1e3 * ratio } else { ping_ms };
        health_reports::Bounds {
            slow_ping_us: ping_ms * 1e3,
            grace_s,
            repaired: self.option_of_mgr("mon_osd_warn_num_repaired", default.repaired),
            snaps_queued: self
                .option_of_mgr("mon_osd_snap_trim_queue_warn_on", default.snaps_queued),
            objects_min: number("mon_pg_warn_min_objects", default.objects_min),
            pool_objects_min: number("mon_pg_warn_min_pool_objects", default.pool_objects_min),
            object_skew: self.option_of_mgr("mon_pg_warn_max_object_skew", default.object_skew),
            quota_warn: self.option_of_mgr("mon_pool_quota_warn_threshold", default.quota_warn),
            quota_crit: self.option_of_mgr("mon_pool_quota_crit_threshold", default.quota_crit),
            misplaced: self.option_of_mgr("mon_warn_on_misplaced", default.misplaced),
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
