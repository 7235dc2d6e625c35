//! Every health code of the peer: where it is raised here, or why it cannot be; and the checks that
//! need the maps alone.
//!
//! Source: the peer's `doc/rados/operations/health-checks.rst` and `doc/cephfs/health-messages.rst`,
//! release 20.2.4.

use std::collections::BTreeSet;
use std::net::IpAddr;

use maps::{OsdMap, OsdState, PoolFlags};
use types::OsdId;

use crate::{ClusterState, HealthReport, HealthStatus, Volatile};

/// What becomes of a code here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg(test)]
pub(crate) enum Fate {
    /// A check raises it.
    Raised,
    /// It cannot be true here, and why.
    Never(&'static str),
}

/// The peer's codes, by area.
#[cfg(test)]
pub(crate) const CODES: &[(&str, Fate)] = {
    use Fate::{Never, Raised};
    const NO_BLUESTORE: Fate = Never("the store is another");
    const BUILT_IN: Fate = Never("modules are built in, not loaded");
    &[
        ("MON_DOWN", Raised),
        ("MON_CLOCK_SKEW", Raised),
        ("MON_MSGR2_NOT_ENABLED", Never("monitors listen at v2 addresses from the start")),
        ("MON_DISK_LOW", Raised),
        ("MON_DISK_CRIT", Raised),
        ("MON_DISK_BIG", Raised),
        ("MON_NETSPLIT", Never("there are no connectivity elections")),
        ("AUTH_INSECURE_GLOBAL_ID_RECLAIM", Never("an id is reclaimed with its ticket alone")),
        ("AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED", Never("it cannot be allowed")),
        ("AUTH_INSECURE_KEYS_ALLOWED", Raised),
        ("AUTH_INSECURE_KEYS_CREATABLE", Raised),
        ("AUTH_INSECURE_CLIENT_KEY_TYPE", Raised),
        ("AUTH_INSECURE_SERVICE_KEY_TYPE", Raised),
        ("AUTH_INSECURE_SERVICE_TICKETS", Raised),
        ("AUTH_INSECURE_ROTATING_SERVICE_KEY_TYPE", Raised),
        ("AUTH_EMERGENCY_CIPHERS_SET", Raised),
        ("AUTH_BAD_CAPS", Never("caps are parsed before they are kept")),
        ("MGR_DOWN", Raised),
        ("MGR_MODULE_DEPENDENCY", BUILT_IN),
        ("MGR_MODULE_ERROR", BUILT_IN),
        ("RECENT_MGR_MODULE_CRASH", BUILT_IN),
        ("OSD_DOWN", Raised),
        ("OSD_HOST_DOWN", Raised),
        ("OSD_ORPHAN", Raised),
        ("OSD_OUT_OF_ORDER_FULL", Raised),
        ("OSD_FULL", Raised),
        ("OSD_BACKFILLFULL", Raised),
        ("OSD_NEARFULL", Raised),
        ("OSDMAP_FLAGS", Raised),
        ("OSD_FLAGS", Raised),
        ("OSD_NO_DOWN_OUT_INTERVAL", Raised),
        ("OLD_CRUSH_TUNABLES", Raised),
        ("OLD_CRUSH_STRAW_CALC_VERSION", Raised),
        ("CACHE_POOL_NO_HIT_SET", Raised),
        ("OSD_NO_SORTBITWISE", Never("maps are made with the flag, which nobody can unset")),
        ("OSD_UPGRADE_FINISHED", Never("one release of OSDs is known")),
        ("OSD_FILESTORE", NO_BLUESTORE),
        ("OSD_UNREACHABLE", Raised),
        ("OSD_TOO_MANY_REPAIRS", Raised),
        ("OSD_SCRUB_ERRORS", Raised),
        ("OSD_SLOW_PING_TIME_BACK", Raised),
        ("OSD_SLOW_PING_TIME_FRONT", Raised),
        ("BLUEFS_SPILLOVER", NO_BLUESTORE),
        ("BLUEFS_LOW_SPACE", NO_BLUESTORE),
        ("BLUESTORE_FRAGMENTATION", NO_BLUESTORE),
        ("BLUESTORE_LEGACY_STATFS", NO_BLUESTORE),
        ("BLUESTORE_NO_PER_POOL_OMAP", NO_BLUESTORE),
        ("BLUESTORE_NO_PER_PG_OMAP", NO_BLUESTORE),
        ("BLUESTORE_DISK_SIZE_MISMATCH", NO_BLUESTORE),
        ("BLUESTORE_NO_COMPRESSION", NO_BLUESTORE),
        ("BLUESTORE_SPURIOUS_READ_ERRORS", NO_BLUESTORE),
        ("BLUESTORE_SLOW_OP_ALERT", NO_BLUESTORE),
        ("DEVICE_HEALTH", Never("no device is asked for its health")),
        ("DEVICE_HEALTH_IN_USE", Never("no device is asked for its health")),
        ("DEVICE_HEALTH_TOOMANY", Never("no device is asked for its health")),
        ("PG_AVAILABILITY", Raised),
        ("PG_DEGRADED", Raised),
        ("PG_RECOVERY_FULL", Raised),
        ("PG_BACKFILL_FULL", Raised),
        ("PG_DAMAGED", Raised),
        ("PG_NOT_SCRUBBED", Raised),
        ("PG_NOT_DEEP_SCRUBBED", Raised),
        ("PG_SLOW_SNAP_TRIMMING", Raised),
        ("LARGE_OMAP_OBJECTS", Raised),
        ("CACHE_POOL_NEAR_FULL", Raised),
        ("TOO_FEW_OSDS", Raised),
        ("TOO_FEW_PGS", Never("the peer's default asks for none: mon_pg_warn_min_per_osd is 0")),
        ("TOO_MANY_PGS", Raised),
        ("POOL_PG_NUM_NOT_POWER_OF_TWO", Raised),
        ("POOL_TOO_FEW_PGS", Raised),
        ("POOL_TOO_MANY_PGS", Raised),
        ("POOL_TARGET_SIZE_BYTES_OVERCOMMITTED", Raised),
        ("POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO", Raised),
        ("SMALLER_PGP_NUM", Raised),
        ("MANY_OBJECTS_PER_PG", Raised),
        ("POOL_APP_NOT_ENABLED", Raised),
        ("POOL_FULL", Raised),
        ("POOL_BACKFILLFULL", Raised),
        ("POOL_NEARFULL", Raised),
        ("POOL_NEAR_FULL", Raised),
        ("POOL_NO_REDUNDANCY", Raised),
        ("POOL_SCRUB_FLAGS", Raised),
        ("OBJECT_MISPLACED", Raised),
        ("OBJECT_UNFOUND", Raised),
        ("SLOW_OPS", Raised),
        ("RECENT_CRASH", Raised),
        ("DAEMON_OLD_VERSION", Never("one release of daemons is known")),
        ("TELEMETRY_CHANGED", Never("nothing is sent to anybody")),
        ("FS_DEGRADED", Raised),
        ("FS_WITH_FAILED_MDS", Raised),
        ("MDS_ALL_DOWN", Raised),
        ("MDS_UP_LESS_THAN_MAX", Raised),
        ("MDS_INSUFFICIENT_STANDBY", Raised),
        ("FS_INLINE_DATA_DEPRECATED", Raised),
        ("MDS_TRIM", Raised),
        ("MDS_CLIENT_RECALL", Raised),
        ("MDS_CLIENT_LATE_RELEASE", Raised),
        ("MDS_CLIENT_RECALL_MANY", Raised),
        ("MDS_CLIENT_LATE_RELEASE_MANY", Raised),
        ("MDS_CLIENT_OLDEST_TID", Raised),
        ("MDS_CLIENT_OLDEST_TID_MANY", Raised),
        ("MDS_DAMAGE", Raised),
        ("MDS_READ_ONLY", Raised),
        ("MDS_SLOW_REQUEST", Raised),
        ("MDS_CACHE_OVERSIZED", Raised),
        ("MDS_SLOW_METADATA_IO", Raised),
        ("MDS_CLIENTS_LAGGY", Raised),
        ("MDS_CLIENTS_LAGGY_MANY", Raised),
        ("MDS_CLIENTS_BROKEN_ROOTSQUASH", Raised),
        ("MDS_ESTIMATED_REPLAY_TIME", Raised),
        ("MULTIMDS_WITH_OLDSNAPS", Never("no file system is older than release 13")),
    ]
};

/// Bounds of these checks.
#[derive(Clone, Debug)]
pub(crate) struct MapBounds {
    /// `public_network`: networks of clients, by commas.
    pub public_network: String,
    /// `mon_max_pg_per_osd`
    pub pgs_per_osd: u64,
    /// `osd_failsafe_full_ratio`
    pub failsafe_full: f64,
    /// `mon_warn_on_pool_pg_num_not_power_of_two`
    pub power_of_two: bool,
    /// `mon_warn_on_crush_straw_calc_version_zero`
    pub straw_calc: bool,
    /// `mon_warn_on_legacy_crush_tunables`
    pub tunables: bool,
    /// `mon_osd_down_out_interval`, where `mon_warn_on_osd_down_out_interval_zero` asks for it.
    pub down_out: Option<i64>,
}

/// The checks of what maps and sums alone tell.
pub(crate) fn check(
    cluster: &ClusterState,
    volatile: &Volatile,
    bounds: &MapBounds,
    report: &mut HealthReport,
) {
    check_ratios(&cluster.osdmap, bounds, report);
    check_healing(volatile, bounds, report);
    check_crush(&cluster.osdmap, bounds, report);
    check_pools(&cluster.osdmap, bounds, report);
    check_places(&cluster.osdmap, report);
    check_counts(&cluster.osdmap, bounds, report);
    check_omaps(&cluster.osdmap, volatile, report);
    check_new(&cluster.osdmap, volatile, report);
    check_orphans(&cluster.osdmap, report);
    check_networks(&cluster.osdmap, &bounds.public_network, report);
}

/// OSDs that CRUSH chooses and the map does not know: PGs on them lack a copy.
fn check_orphans(map: &OsdMap, report: &mut HealthReport) {
    let placed: BTreeSet<i32> = map
        .crush
        .buckets()
        .filter(|bucket| !map.crush.is_shadow(bucket.id()))
        .flat_map(|bucket| bucket.items().to_vec())
        .filter(|item| *item >= 0 && !map.exists(OsdId(*item)))
        .collect();
    let line = |osd: &i32| format!("osd.{osd} exists in crush map but not in osdmap");
    let detail: Vec<String> = placed.iter().map(line).collect();
    if !detail.is_empty() {
        let summary = format!("{} osds exist in the crush map but not in the osdmap", detail.len());
        report.add("OSD_ORPHAN", HealthStatus::Warn, detail.len(), summary, detail);
    }
}

/// Whether an address is of a network: `192.0.2.0/24`, `2001:db8::/32`.
fn is_in(ip: IpAddr, network: &str) -> bool {
    let Some((base, bits)) = network.trim().split_once('/') else { return false };
    let (Ok(base), Ok(bits)) = (base.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    let same = |a: u128, b: u128, width: u32| {
        bits <= width && a.checked_shr(width - bits) == b.checked_shr(width - bits)
    };
    match (ip, base) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => bits == 0 || same(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

/// OSDs that listen outside of the network that clients are on.
fn check_networks(map: &OsdMap, networks: &str, report: &mut HealthReport) {
    let all: Vec<&str> = networks.split([',', ';', ' ']).filter(|n| !n.is_empty()).collect();
    if all.is_empty() {
        return;
    }
    let outside = |osd: &OsdId| {
        let mut ips =
            map.osd_addrs(*osd).into_iter().flat_map(|a| &a.0).filter_map(|a| a.sock).peekable();
        ips.peek().is_some() && !ips.any(|at| all.iter().any(|n| is_in(at.ip(), n)))
    };
    let detail: Vec<String> = map
        .osds()
        .filter(|osd| map.is_up(*osd) && outside(osd))
        .map(|osd| format!("osd.{osd}'s public address is not in '{networks}' subnet"))
        .collect();
    if !detail.is_empty() {
        let summary = format!("{} osds(s) are not reachable", detail.len());
        report.add("OSD_UNREACHABLE", HealthStatus::Err, detail.len(), summary, detail);
    }
}

/// Nothing of an OSD that is down goes elsewhere unless an operator says so.
fn check_healing(volatile: &Volatile, bounds: &MapBounds, report: &mut HealthReport) {
    if bounds.down_out == Some(0) {
        let (name, what) = (&volatile.quorum.name, "has mon_osd_down_out_interval set to 0");
        let detail = vec![format!("mon.{name} {what}")];
        let summary = format!("mon {name} {what}");
        report.add("OSD_NO_DOWN_OUT_INTERVAL", HealthStatus::Warn, 1, summary, detail);
    }
}

fn check_ratios(map: &OsdMap, bounds: &MapBounds, report: &mut HealthReport) {
    let round = |ratio: f32| f64::from(ratio);
    let steps = [
        ("nearfull_ratio", round(map.nearfull_ratio)),
        ("backfillfull_ratio", round(map.backfillfull_ratio)),
        ("full_ratio", round(map.full_ratio)),
        (conf::key::OSD_FAILSAFE_FULL_RATIO.name(), bounds.failsafe_full),
    ];
    let shown = |ratio: f64| cli::float_text(ratio, 6);
    // A ratio of single precision is a hair beside the number it was set to.
    let wrong = steps.windows(2).filter(|w| w[1].1 < w[0].1 - 1e-6);
    let detail: Vec<String> = wrong
        .map(|w| {
            format!("{} ({}) < {} ({}), increased", w[1].0, shown(w[1].1), w[0].0, shown(w[0].1))
        })
        .collect();
    if !detail.is_empty() {
        let summary = "full ratio(s) out of order".to_owned();
        report.add("OSD_OUT_OF_ORDER_FULL", HealthStatus::Err, detail.len(), summary, detail);
    }
}

fn check_crush(map: &OsdMap, bounds: &MapBounds, report: &mut HealthReport) {
    let see = || {
        vec!["see http://docs.ceph.com/en/latest/rados/operations/crush-map/#tunables".to_owned()]
    };
    let least = map.crush.min_required_version();
    if bounds.tunables && matches!(least, "argonaut" | "bobtail" | "firefly") {
        let summary = format!("crush map has legacy tunables (require {least}, min is hammer)");
        report.add("OLD_CRUSH_TUNABLES", HealthStatus::Warn, 0, summary, see());
    }
    if bounds.straw_calc && map.crush.tunables().straw_calc_version == 0 {
        let summary = "crush map has straw_calc_version=0".to_owned();
        report.add("OLD_CRUSH_STRAW_CALC_VERSION", HealthStatus::Warn, 0, summary, see());
    }
}

/// Pools whose rule gives no PG enough places to be active, were every OSD up and in. A code of
/// ours: the peer tells of their PGs after a minute, and not why.
fn check_places(map: &OsdMap, report: &mut HealthReport) {
    const PGS_LOOKED_AT: u32 = 8;
    let all_in = vec![maps::WEIGHT_ONE; usize::try_from(map.max_osd).unwrap_or(0)];
    let mut detail = Vec::new();
    for (id, pool) in map.pools.iter() {
        let places = |ps| {
            let (rule, pps) = (u32::from(pool.crush_rule), pool.pps(*id, ps));
            let all = map.crush.do_rule(rule, pps, usize::from(pool.size), &all_in, Some(id.0));
            all.into_iter().filter(|osd| map.exists(OsdId(*osd))).count()
        };
        let least = usize::from(pool.min_size.max(1));
        let mut most = 0;
        let all_few = (0..pool.pg_num.clamp(1, PGS_LOOKED_AT)).all(|ps| {
            let n = places(ps);
            most = most.max(n);
            n < least
        });
        if !all_few {
            continue;
        }
        let rule = map.crush.rule_names().get(i32::from(pool.crush_rule)).unwrap_or("?");
        detail.push(format!(
            "pool '{}' cannot become active: rule '{rule}' finds {most} of the {least} OSDs that a PG needs \
             at least; add what it chooses among (hosts, by default), or choose another failure domain",
            map.pool_name(*id).unwrap_or_default()
        ));
    }
    if !detail.is_empty() {
        let summary = format!("{} pool(s) cannot become active", detail.len());
        report.add("POOL_UNPLACEABLE", HealthStatus::Warn, detail.len(), summary, detail);
    }
}

fn check_pools(map: &OsdMap, bounds: &MapBounds, report: &mut HealthReport) {
    let (mut odd, mut flags, mut smaller) = (Vec::new(), Vec::new(), Vec::new());
    let (mut light, mut deep) = (false, false);
    for (id, pool) in map.pools.iter() {
        let name = map.pool_name(*id).unwrap_or_default();
        if !pool.pg_num_target.is_power_of_two() {
            odd.push(format!("pool '{name}' pg_num {} is not a power of two", pool.pg_num_target));
        }
        if pool.has_flag(PoolFlags::NOSCRUB) {
            flags.push(format!("Pool {name} has noscrub flag"));
            light = true;
        }
        if pool.has_flag(PoolFlags::NODEEP_SCRUB) {
            flags.push(format!("Pool {name} has nodeep-scrub flag"));
            deep = true;
        }
        if pool.pg_num_target > pool.pgp_num_target {
            smaller.push(format!(
                "pool {name} pg_num {} > pgp_num {}",
                pool.pg_num_target, pool.pgp_num_target
            ));
        }
    }
    if bounds.power_of_two && !odd.is_empty() {
        let summary = format!("{} pool(s) have non-power-of-two pg_num", odd.len());
        let n = odd.len();
        report.add("POOL_PG_NUM_NOT_POWER_OF_TWO", HealthStatus::Warn, n, summary, odd);
    }
    if !flags.is_empty() {
        let words: Vec<&str> = [(light, "noscrub"), (deep, "nodeep-scrub")]
            .into_iter()
            .filter_map(|(set, word)| set.then_some(word))
            .collect();
        let summary = format!("Some pool(s) have the {} flag(s) set", words.join(", "));
        // Told, but no reason to worry: as the peer.
        report.add("POOL_SCRUB_FLAGS", HealthStatus::Ok, flags.len(), summary, flags);
    }
    if !smaller.is_empty() {
        let summary = format!("{} pools have pg_num > pgp_num", smaller.len());
        let n = smaller.len();
        report.add("SMALLER_PGP_NUM", HealthStatus::Warn, n, summary, smaller);
    }
}

fn check_counts(map: &OsdMap, bounds: &MapBounds, report: &mut HealthReport) {
    let (_, _, r#in) = map.osd_counts();
    let copies: u64 =
        map.pools.values().map(|pool| u64::from(pool.pg_num) * u64::from(pool.size)).sum();
    let each = copies.checked_div(r#in as u64).unwrap_or(0);
    if bounds.pgs_per_osd > 0 && each > bounds.pgs_per_osd {
        let summary = format!("too many PGs per OSD ({each} > max {})", bounds.pgs_per_osd);
        report.add("TOO_MANY_PGS", HealthStatus::Warn, each as usize, summary, Vec::new());
    }
}

fn check_omaps(map: &OsdMap, volatile: &Volatile, report: &mut HealthReport) {
    let (mut detail, mut all) = (Vec::new(), 0);
    for (id, stat) in &volatile.pgmap.pools {
        let n = stat.stats.sum.num_large_omap_objects;
        if n > 0 {
            all += n;
            let name = map.pool_name(*id).unwrap_or_default();
            detail.push(format!("{n} large objects found in pool '{name}'"));
        }
    }
    if all > 0 {
        let hint = "Search the cluster log for 'Large omap object found' for more details.";
        detail.push(hint.to_owned());
        let summary = format!("{all} large omap objects");
        report.add("LARGE_OMAP_OBJECTS", HealthStatus::Warn, all as usize, summary, detail);
    }
}

/// OSDs that were made a while ago and of which nobody ever heard. The code is ours: to the
/// peer a cluster whose OSDs never came up is healthy.
fn check_new(map: &OsdMap, volatile: &Volatile, report: &mut HealthReport) {
    let never = |osd: &&OsdId| map.is_down(**osd) && map.state(**osd).has(OsdState::NEW);
    let osds: Vec<&OsdId> = volatile.never_up.iter().filter(never).collect();
    if osds.is_empty() {
        return;
    }
    let detail = osds
        .iter()
        .map(|osd| {
            format!("osd.{osd} was never up: start it, or undo with 'ceph osd purge-new {osd}'")
        })
        .collect();
    let summary = format!("{} osd(s) were made and never came up", osds.len());
    report.add("OSD_NEVER_UP", HealthStatus::Warn, osds.len(), summary, detail);
}

#[cfg(test)]
impl Default for MapBounds {
    fn default() -> Self {
        Self {
            public_network: String::new(),
            pgs_per_osd: 250,
            failsafe_full: 0.97,
            power_of_two: true,
            straw_calc: true,
            tunables: true,
            down_out: Some(600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each code that is said to be raised is named by a check, each that is not is named by
    /// none, and no code is listed twice.
    #[test]
    fn the_table_tells_the_truth() {
        let (checks, table) = (include_str!("health.rs"), include_str!("health_codes.rs"));
        let below = table.split_once("/// Bounds of these checks.").expect("the table's end").1;
        let below = below.split_once("mod tests {").expect("the tests' begin").0;
        let mut seen = std::collections::BTreeSet::new();
        for (code, fate) in CODES {
            assert!(seen.insert(code), "{code} stands twice");
            let quoted = format!("\"{code}\"");
            let all = [
                checks,
                below,
                include_str!("fs/health.rs"),
                include_str!("health_auth.rs"),
                include_str!("health_reports.rs"),
                include_str!("vitals.rs"),
            ];
            let raised = all.iter().any(|text| text.contains(&quoted));
            // Its code has the type of the place in it.
            let raised = raised || *code == "OSD_HOST_DOWN";
            assert_eq!(raised, *fate == Fate::Raised, "{code}");
        }
        assert!(CODES.iter().all(|(_, fate)| !matches!(fate, Fate::Never(why) if why.is_empty())));
    }

    /// The page for operators says what to do about each code that a check raises, upstream's and
    /// ours.
    #[test]
    fn the_page_has_each_code() {
        let page = include_str!("../../../docs/ops/health.md");
        let raised = CODES.iter().filter(|(_, fate)| *fate == Fate::Raised).map(|(code, _)| *code);
        let ours = ["OSD_NEVER_UP", "OSD_UNSAFE_JOURNAL", "POOL_UNPLACEABLE"];
        for code in raised.chain(ours) {
            assert!(
                page.contains(&format!("`{code}`")),
                "docs/ops/health.md says nothing of {code}"
            );
        }
    }
}
