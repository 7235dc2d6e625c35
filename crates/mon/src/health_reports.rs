//! Checks of what OSDs and PGs report beside their states: heartbeats that take long, reads that
//! were repaired, snapshots that wait, pools that hold much.
//!
//! Source: the peer's `PGMap::get_health_checks`, `pybind/mgr/pg_autoscaler/module.py`.

use std::collections::BTreeMap;

use maps::{HeartbeatTimes, OsdMap};
use types::OsdId;

use crate::health::DETAIL_MAX;
use crate::{HealthReport, HealthStatus, PgMap, autoscale, crushops};

/// Pairs of OSDs that are told of at most.
const PAIRS_MAX: usize = 10;

/// From when on reports are complained of; 0 of a number is never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// `mon_warn_on_slow_ping_time`, or as much of the grace as `mon_warn_on_slow_ping_ratio`
    /// says; microseconds.
    pub slow_ping_us: f64,
    /// `osd_heartbeat_grace`, seconds.
    pub grace_s: f64,
    /// `mon_osd_warn_num_repaired`
    pub repaired: u64,
    /// `mon_osd_snap_trim_queue_warn_on`
    pub snaps_queued: u64,
    /// `mon_pg_warn_min_objects`
    pub objects_min: i64,
    /// `mon_pg_warn_min_pool_objects`
    pub pool_objects_min: i64,
    /// `mon_pg_warn_max_object_skew`
    pub object_skew: f64,
    /// `mon_pool_quota_warn_threshold`, percent.
    pub quota_warn: u64,
    /// `mon_pool_quota_crit_threshold`, percent.
    pub quota_crit: u64,
    /// `mon_warn_on_misplaced`
    pub misplaced: bool,
}

/// All checks of this page.
pub(crate) fn check(
    map: &OsdMap,
    pgmap: &PgMap,
    bounds: &Bounds,
    wall_ns: u64,
    report: &mut HealthReport,
) {
    check_pings(map, pgmap, bounds, wall_ns / 1_000_000_000, report);
    check_repairs(pgmap, bounds, report);
    check_trims(pgmap, bounds, report);
    check_object_counts(map, pgmap, bounds, report);
    check_quotas(map, pgmap, bounds, report);
}

/// A time on the wire between two OSDs that is too long, µs; the longest sorts last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Slow {
    us: u32,
    from: OsdId,
    to: OsdId,
    improving: bool,
}

fn check_pings(
    map: &OsdMap,
    pgmap: &PgMap,
    bounds: &Bounds,
    wall_s: u64,
    report: &mut HealthReport,
) {
    if bounds.slow_ping_us <= 0.0 {
        return;
    }
    let sides = [("back", "OSD_SLOW_PING_TIME_BACK"), ("front", "OSD_SLOW_PING_TIME_FRONT")];
    for (side, code) in sides {
        let of = |t: &HeartbeatTimes| if side == "back" { t.back } else { t.front };
        let mut slow: Vec<Slow> = Vec::new();
        for (from, stat) in &pgmap.osds {
            for (to, times) in &stat.hb_pingtime {
                if wall_s.saturating_sub(u64::from(times.last_update)) as f64
                    > bounds.grace_s * 60.0
                {
                    continue; // whoever measured it has long stopped to
                }
                let [one, five, fifteen] = of(times).average;
                let us = one.max(five).max(fifteen);
                if f64::from(us) > bounds.slow_ping_us {
                    let improving = one < five && five < fifteen;
                    slow.push(Slow { us, from: *from, to: OsdId(*to), improving });
                }
            }
        }
        slow.sort();
        let Some(longest) = slow.last() else { continue };
        let ms = |us: u32| format!("{}.{:03}", us / 1000, us % 1000);
        let summary = format!("Slow OSD heartbeats on {side} (longest {}ms)", ms(longest.us));
        let osd = |osd: OsdId| {
            let place = crushops::location(&map.crush, osd.0);
            let place: Vec<String> = place.into_values().collect();
            let down = if map.is_down(osd) { " (down)" } else { "" };
            format!("osd.{osd} [{}]{down}", place.join(","))
        };
        let line = |s: &Slow| {
            let (from, to) = (osd(s.from), osd(s.to));
            let improving = if s.improving { " possibly improving" } else { "" };
            format!(
                "Slow OSD heartbeats on {side} from {from} to {to} {} msec{improving}",
                ms(s.us)
            )
        };
        let mut detail: Vec<String> = slow.iter().rev().take(PAIRS_MAX).map(line).collect();
        if slow.len() > PAIRS_MAX {
            detail.push(
                "Truncated long network list.  Use ceph daemon mgr.# dump_osd_network for more \
                 information"
                    .to_owned(),
            );
        }
        report.add(code, HealthStatus::Warn, slow.len(), summary, detail);
    }
}

fn check_repairs(pgmap: &PgMap, bounds: &Bounds, report: &mut HealthReport) {
    let many = pgmap.osds.iter().filter(|(_, s)| s.num_shards_repaired > bounds.repaired);
    let detail: Vec<String> = many
        .map(|(o, s)| format!("osd.{o} had {} reads repaired", s.num_shards_repaired))
        .collect();
    if !detail.is_empty() {
        let summary = format!("Too many repaired reads on {} OSDs", detail.len());
        report.add("OSD_TOO_MANY_REPAIRS", HealthStatus::Warn, detail.len(), summary, detail);
    }
}

fn check_trims(pgmap: &PgMap, bounds: &Bounds, report: &mut HealthReport) {
    let max = bounds.snaps_queued;
    if max == 0 {
        return;
    }
    let long = pgmap.pgs.iter().filter(|(_, s)| u64::from(s.snaptrimq_len) >= max);
    let long: Vec<_> = long.map(|(pg, stat)| (*pg, stat.snaptrimq_len)).collect();
    let Some((pg, len)) = long.iter().max_by_key(|(_, len)| *len) else { return };
    let told = DETAIL_MAX - 3;
    let line = |(pg, len): &(types::PgId, u32)| format!("snap trim queue for pg {pg} at {len}");
    let mut detail: Vec<String> = long.iter().take(told).map(line).collect();
    if long.len() > told {
        detail.push("...more pgs affected".to_owned());
    }
    detail.push(format!("longest queue on pg {pg} at {len}"));
    detail.push(
        "try decreasing \"osd snap trim sleep\" and/or increasing \"osd pg max concurrent snap \
         trims\"."
            .to_owned(),
    );
    let n = long.len();
    let summary =
        format!("snap trim queue for {n} pg(s) >= {max} (mon_osd_snap_trim_queue_warn_on)");
    report.add("PG_SLOW_SNAP_TRIMMING", HealthStatus::Warn, n, summary, detail);
}

/// Pools whose PGs hold far more objects than others', unless the autoscaler sees to it.
fn check_object_counts(map: &OsdMap, pgmap: &PgMap, bounds: &Bounds, report: &mut HealthReport) {
    const AUTOSCALE_ON: i64 = 2;
    let objects = |sum: &maps::PoolStat| sum.stats.sum.num_objects;
    let all = pgmap.pools.values().map(objects).fold(0i64, i64::saturating_add);
    let average = all / (pgmap.pgs.len() as i64).max(1);
    if average <= 0 || all < bounds.objects_min || bounds.object_skew <= 0.0 {
        return;
    }
    let mut detail = Vec::new();
    for (id, pool) in map.pools.iter() {
        let own = pgmap.pools.get(id).map_or(0, objects);
        let each = own / i64::from(pool.pg_num_target.max(1));
        let ratio = each as f32 / average as f32;
        if own < bounds.pool_objects_min
            || f64::from(ratio) <= bounds.object_skew
            || i64::from(pool.pg_autoscale_mode) == AUTOSCALE_ON
        {
            continue;
        }
        detail.push(format!(
            "pool {} objects per pg ({each}) is more than {} times cluster average ({average})",
            map.pool_name(*id).unwrap_or_default(),
            cli::float_text(f64::from(ratio), 6)
        ));
    }
    if !detail.is_empty() {
        let n = detail.len();
        let summary = format!("{n} pools have many more objects per pg than average");
        report.add("MANY_OBJECTS_PER_PG", HealthStatus::Warn, n, summary, detail);
    }
}

/// Pools that near their quotas. Those that have reached them are told of by their flag.
fn check_quotas(map: &OsdMap, pgmap: &PgMap, bounds: &Bounds, report: &mut HealthReport) {
    let (mut full, mut near) = (BTreeMap::new(), BTreeMap::new());
    for (id, pool) in map.pools.iter() {
        let sum = pgmap.pools.get(id).map(|p| p.stats.sum).unwrap_or_default();
        let name = map.pool_name(*id).unwrap_or_default();
        let (objects, bytes) = (sum.num_objects.max(0) as u64, sum.num_bytes.max(0) as u64);
        let (max_objects, max_bytes) = (pool.quota_max_objects, pool.quota_max_bytes);
        let told = [
            (
                objects,
                max_objects,
                format!("pool '{name}' has {objects} objects (max {max_objects})"),
            ),
            (
                bytes,
                max_bytes,
                format!(
                    "pool '{name}' has {} (max {})",
                    cli::bytes_u(bytes),
                    cli::bytes_u(max_bytes)
                ),
            ),
        ];
        for (have, max, line) in told {
            let over = |percent: u64| {
                percent > 0 && u128::from(have) * 100 >= u128::from(max) * u128::from(percent)
            };
            if max == 0 || have >= max {
                continue;
            }
            if over(bounds.quota_crit) {
                full.entry(*id).or_insert_with(Vec::new).push(line);
            } else if over(bounds.quota_warn) {
                near.entry(*id).or_insert_with(Vec::new).push(line);
            }
        }
    }
    for (pools, code, severity, word) in [
        (full, "POOL_FULL", HealthStatus::Err, "full"),
        (near, "POOL_NEAR_FULL", HealthStatus::Warn, "nearfull"),
    ] {
        let n = pools.len();
        // Pools that are full by their flag have the code already.
        if n > 0 && !report.checks.contains_key(code) {
            let detail = pools.into_values().flatten().collect();
            report.add(code, severity, n, format!("{n} pools {word}"), detail);
        }
    }
}

/// Roots whose pools are said to become larger, all together, than the space there is.
pub(crate) fn check_targets(map: &OsdMap, plans: &[autoscale::Plan], report: &mut HealthReport) {
    let mut roots: BTreeMap<i32, Vec<&autoscale::Plan>> = BTreeMap::new();
    for plan in plans {
        roots.entry(plan.root).or_default().push(plan);
    }
    let mut detail = Vec::new();
    for pools in roots.into_values() {
        let asked: Vec<&autoscale::Plan> =
            pools.iter().copied().filter(|p| p.target_bytes > 0).collect();
        let total: f64 = pools.iter().map(|p| p.raw_expected).sum();
        let capacity = pools[0].capacity as f64;
        if asked.is_empty() || total <= capacity {
            continue;
        }
        let names = |plans: &[&autoscale::Plan]| {
            let quoted =
                |p: &&autoscale::Plan| format!("'{}'", map.pool_name(p.id).unwrap_or_default());
            format!("[{}]", plans.iter().map(quoted).collect::<Vec<_>>().join(", "))
        };
        let bytes: f64 = asked.iter().map(|p| p.target_bytes as f64 * p.rate).sum();
        detail.push(format!(
            "Pools {} overcommit available storage by {:.3}x due to target_size_bytes {} on pools {}",
            names(&pools),
            total / capacity,
            cli::bytes_u(bytes as u64),
            names(&asked)
        ));
    }
    if !detail.is_empty() {
        let n = detail.len();
        let summary = format!("{n} subtrees have overcommitted pool target_size_bytes");
        report.add("POOL_TARGET_SIZE_BYTES_OVERCOMMITTED", HealthStatus::Warn, n, summary, detail);
    }
}

#[cfg(test)]
impl Default for Bounds {
    fn default() -> Self {
        Self {
            slow_ping_us: 1e6,
            grace_s: 20.0,
            repaired: 10,
            snaps_queued: 32_768,
            objects_min: 10_000,
            pool_objects_min: 1_000,
            object_skew: 10.0,
            quota_warn: 0,
            quota_crit: 0,
            misplaced: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use maps::{OsdStat, PgPool, PgStat, PingTimes, PoolStat};
    use types::{PgId, PoolId};

    use super::*;

    const WALL_S: u64 = 1_700_000_000;

    /// A map of two pools with eight PGs each, with their sums.
    fn cluster() -> (OsdMap, PgMap) {
        let (mut map, mut pgmap) = (OsdMap::default(), PgMap::default());
        for (id, name) in [(1, "one"), (2, "two")] {
            let pool =
                PgPool { pg_num: 8, pg_num_target: 8, pg_autoscale_mode: 1, ..PgPool::default() };
            std::sync::Arc::make_mut(&mut map.pools).insert(PoolId(id), pool);
            std::sync::Arc::make_mut(&mut map.pool_names).insert(PoolId(id), name.to_owned());
            pgmap.pools.insert(PoolId(id), PoolStat::default());
            for ps in 0..8 {
                pgmap.pgs.insert(PgId { pool: PoolId(id), ps }, PgStat::default());
            }
        }
        (map, pgmap)
    }

    fn told(map: &OsdMap, pgmap: &PgMap, bounds: &Bounds) -> HealthReport {
        let mut report = HealthReport::default();
        check(map, pgmap, bounds, WALL_S * 1_000_000_000, &mut report);
        report
    }

    /// A pair of OSDs whose heartbeats take long is named with the longest average, on the network
    /// that is slow; what was measured long ago is not.
    #[test]
    fn slow_heartbeats_are_named() {
        let (map, mut pgmap) = cluster();
        let slow = PingTimes { average: [1_200_345, 1_300_000, 1_400_000], ..PingTimes::default() };
        let fast = PingTimes { average: [900_000; 3], ..PingTimes::default() };
        let times = HeartbeatTimes { last_update: WALL_S as u32, back: slow, front: fast };
        let mut stat = OsdStat::default();
        stat.hb_pingtime.insert(1, times);
        pgmap.osds.insert(OsdId(0), stat.clone());
        let report = told(&map, &pgmap, &Bounds::default());
        assert!(!report.checks.contains_key("OSD_SLOW_PING_TIME_FRONT"));
        let back = &report.checks["OSD_SLOW_PING_TIME_BACK"];
        assert_eq!(back.summary, "Slow OSD heartbeats on back (longest 1400.000ms)");
        assert_eq!(
            back.detail,
            ["Slow OSD heartbeats on back from osd.0 [] (down) to osd.1 [] (down) 1400.000 msec \
                 possibly improving"]
        );
        let old = HeartbeatTimes { last_update: WALL_S as u32 - 1_201, ..times };
        stat.hb_pingtime.insert(1, old);
        pgmap.osds.insert(OsdId(0), stat);
        assert!(told(&map, &pgmap, &Bounds::default()).checks.is_empty());
    }

    /// Counts above their bounds, each with the peer's sentence.
    #[test]
    fn counts_are_told() {
        let (mut map, mut pgmap) = cluster();
        let bounds = Bounds { quota_warn: 80, ..Bounds::default() };
        assert!(told(&map, &pgmap, &bounds).checks.is_empty());
        let stat = OsdStat { num_shards_repaired: 11, ..OsdStat::default() };
        pgmap.osds.insert(OsdId(2), stat);
        let waits = PgStat { snaptrimq_len: 40_000, ..PgStat::default() };
        pgmap.pgs.insert(PgId { pool: PoolId(1), ps: 3 }, waits);
        let sum = &mut pgmap.pools.get_mut(&PoolId(2)).unwrap().stats.sum;
        sum.num_objects = 16_000;
        let pools = std::sync::Arc::make_mut(&mut map.pools);
        pools.get_mut(&PoolId(2)).unwrap().quota_max_objects = 18_000;
        let skewed = Bounds { object_skew: 1.5, ..bounds };
        let report = told(&map, &pgmap, &skewed);
        let summary = |code: &str| report.checks[code].summary.as_str();
        assert_eq!(summary("OSD_TOO_MANY_REPAIRS"), "Too many repaired reads on 1 OSDs");
        assert_eq!(report.checks["OSD_TOO_MANY_REPAIRS"].detail, ["osd.2 had 11 reads repaired"]);
        assert_eq!(
            summary("PG_SLOW_SNAP_TRIMMING"),
            "snap trim queue for 1 pg(s) >= 32768 (mon_osd_snap_trim_queue_warn_on)"
        );
        assert_eq!(
            report.checks["PG_SLOW_SNAP_TRIMMING"].detail[..2],
            ["snap trim queue for pg 1.3 at 40000", "longest queue on pg 1.3 at 40000"]
        );
        assert_eq!(
            report.checks["MANY_OBJECTS_PER_PG"].detail,
            ["pool two objects per pg (2000) is more than 2 times cluster average (1000)"]
        );
        assert_eq!(summary("POOL_NEAR_FULL"), "1 pools nearfull");
        assert_eq!(
            report.checks["POOL_NEAR_FULL"].detail,
            ["pool 'two' has 16000 objects (max 18000)"]
        );
        assert_eq!(report.checks.len(), 4);
    }
}
