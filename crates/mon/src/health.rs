//! The state of the cluster in words: which checks fail, and what changes in them.
//!
//! Codes and sentences are the peer's: operators' scripts look for them.
//!
//! Source: the peer's `OSDMap::check_health`, `PGMap::get_health_checks`,
//! `mon/HealthMonitor.cc`.

use std::collections::{BTreeMap, BTreeSet};

use maps::{OsdMapFlags, OsdState, PgState, PoolFlags};
use types::{OsdId, UTime};

use crate::{
    ClusterState, HealthCheck, HealthReport, HealthStatus, Volatile, crushops, health_codes,
    health_reports, vitals,
};

/// Lines of detail per check.
pub(crate) const DETAIL_MAX: usize = 50;

/// What the checks depend on besides the state.
#[derive(Clone, Debug)]
pub(crate) struct HealthOptions {
    /// `osd_pool_default_size`
    pub pool_size: u32,
    /// `mon_warn_on_pool_no_redundancy`
    pub no_redundancy: bool,
    /// `mon_warn_on_pool_no_app`
    pub no_app: bool,
    /// `mon_warn_on_cache_pools_without_hit_sets`
    pub no_hit_sets: bool,
    /// `mon_cache_target_full_warn_ratio`: between where a cache evicts and its target.
    pub cache_full_ratio: f64,
    /// `mon_warn_on_too_few_osds`
    pub too_few_osds: bool,
    /// `mon_pg_stuck_threshold` in milliseconds.
    pub stuck_ms: u64,
    /// What the autoscaler goes by.
    pub autoscale: crate::autoscale::Bounds,
    pub auth: crate::health_auth::Options,
    /// Monotonic milliseconds.
    pub now_ms: u64,
    /// Wall-clock nanoseconds.
    pub wall_ns: u64,
    /// Seconds without a scrub, and without a deep one, that are too many; pools may say
    /// otherwise.
    pub unscrubbed_s: ScrubAges,
    /// Of the checks that need the maps alone.
    pub bounds: health_codes::MapBounds,
    /// Of what OSDs and PGs report.
    pub reports: health_reports::Bounds,
    /// Of monitors' clocks and disks.
    pub mons: vitals::Bounds,
}

/// When PGs are reported as not scrubbed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScrubAges {
    /// `osd_scrub_max_interval`, seconds.
    pub light_s: f64,
    /// `osd_deep_scrub_interval`, seconds.
    pub deep_s: f64,
    /// `mon_warn_pg_not_scrubbed_ratio`: so much of it beyond; 0 is never.
    pub light_ratio: f64,
    /// `mon_warn_pg_not_deep_scrubbed_ratio`.
    pub deep_ratio: f64,
}

impl HealthStatus {
    /// `HEALTH_OK`, `HEALTH_WARN`, `HEALTH_ERR`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "HEALTH_OK",
            Self::Warn => "HEALTH_WARN",
            Self::Err => "HEALTH_ERR",
        }
    }
}

impl HealthReport {
    /// The worst of all checks that are not muted.
    #[must_use]
    pub fn status(&self, state: &ClusterState) -> HealthStatus {
        let heard = self.checks.iter().filter(|(code, _)| !state.health_mutes.contains_key(*code));
        heard.map(|(_, c)| c.severity).min().unwrap_or(HealthStatus::Ok)
    }

    pub(crate) fn add(
        &mut self,
        code: &str,
        severity: HealthStatus,
        count: usize,
        summary: String,
        mut detail: Vec<String>,
    ) {
        detail.truncate(DETAIL_MAX);
        let check = HealthCheck { severity, summary, count: count as i64, detail };
        self.checks.insert(code.to_owned(), check);
    }
}

fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// All checks.
pub(crate) fn check(
    cluster: &ClusterState,
    volatile: &Volatile,
    options: &HealthOptions,
) -> HealthReport {
    let mut report = HealthReport::default();
    check_mons(cluster, volatile, &mut report);
    vitals::check(&volatile.vitals, &volatile.quorum, &options.mons, &mut report);
    check_managers(cluster, &mut report);
    let crashes = crate::commands::recent_crashes(cluster, UTime::from_nanos(options.wall_ns));
    if !crashes.is_empty() {
        let summary = format!("{} daemons have recently crashed", crashes.len());
        report.add("RECENT_CRASH", HealthStatus::Warn, crashes.len(), summary, crashes);
    }
    check_osds(cluster, volatile, options, &mut report);
    check_journals(cluster, &mut report);
    check_flags(cluster, &mut report);
    check_pools(cluster, volatile, options, &mut report);
    check_tiers(cluster, volatile, options, &mut report);
    check_pgs(cluster, volatile, options, &mut report);
    check_scrubs(cluster, volatile, options, &mut report);
    check_slow(volatile, &mut report);
    check_pg_nums(cluster, volatile, options, &mut report);
    crate::health_auth::check(cluster, options.auth, &mut report);
    let (map, pgmap) = (&cluster.osdmap, &volatile.pgmap);
    health_reports::check(map, pgmap, &options.reports, options.wall_ns, &mut report);
    health_codes::check(cluster, volatile, &options.bounds, &mut report);
    crate::fs::health::check(&cluster.fsmap, &volatile.mds, &mut report);
    report
}

fn check_mons(cluster: &ClusterState, volatile: &Volatile, report: &mut HealthReport) {
    let map = &cluster.monmap;
    let quorum = &volatile.quorum.quorum;
    let down: Vec<String> = map
        .iter()
        .filter(|(rank, _)| !quorum.contains(&(*rank as u32)))
        .map(|(rank, mon)| {
            format!("mon.{} (rank {rank}) addr {} is down (out of quorum)", mon.name, mon.addrs)
        })
        .collect();
    if !down.is_empty() {
        let names: Vec<&str> = map
            .iter()
            .filter(|(rank, _)| quorum.contains(&(*rank as u32)))
            .map(|(_, mon)| mon.name.as_str())
            .collect();
        let summary =
            format!("{}/{} mons down, quorum {}", down.len(), map.mons.len(), names.join(","));
        report.add("MON_DOWN", HealthStatus::Warn, down.len(), summary, down);
    }
}

/// Managers are expected where one has registered whose key is still there.
fn check_managers(cluster: &ClusterState, report: &mut HealthReport) {
    if crate::managers::is_registered(&cluster.mgrmap) {
        return;
    }
    let has_key = |name: &&String| {
        let name = types::EntityName::new(types::EntityKind::MGR, (*name).clone());
        cluster.auth.get(&name).is_some()
    };
    if cluster.mgr_metadata.keys().any(|name| has_key(&name)) {
        let (summary, name) = ("no active mgr".to_owned(), &cluster.mgrmap.active_name);
        let detail = vec![format!(
            "mon.{name} answers light manager commands meanwhile; metrics and background tasks wait"
        )];
        report.add("MGR_DOWN", HealthStatus::Warn, 1, summary, detail);
    }
}

fn check_osds(
    cluster: &ClusterState,
    volatile: &Volatile,
    options: &HealthOptions,
    report: &mut HealthReport,
) {
    let map = &cluster.osdmap;
    let (known, _, _) = map.osd_counts();
    if options.too_few_osds && (known as u32) < options.pool_size {
        report.add(
            "TOO_FEW_OSDS",
            HealthStatus::Warn,
            known,
            format!("OSD count {known} < osd_pool_default_size {}", options.pool_size),
            Vec::new(),
        );
    }
    let down: Vec<OsdId> = map
        .osds()
        .filter(|o| map.is_down(*o) && map.is_in(*o) && !map.state(*o).has(OsdState::NEW))
        .collect();
    if !down.is_empty() {
        let detail = down
            .iter()
            .map(|o| {
                let place = crushops::place_text(&map.crush, *o);
                let why = if volatile.refused_boots.contains_key(o) {
                    ": its daemon has another store than the map, and is refused (its log says more)"
                } else {
                    ""
                };
                format!("osd.{o} ({place}) is down{why}")
            })
            .collect();
        report.add(
            "OSD_DOWN",
            HealthStatus::Warn,
            down.len(),
            format!("{} osds down", down.len()),
            detail,
        );
        check_hosts(cluster, &down, report);
    }
    for (bit, code, word, severity) in [
        (OsdState::FULL, "OSD_FULL", "full", HealthStatus::Err),
        (OsdState::BACKFILLFULL, "OSD_BACKFILLFULL", "backfillfull", HealthStatus::Warn),
        (OsdState::NEARFULL, "OSD_NEARFULL", "nearfull", HealthStatus::Warn),
    ] {
        let full: Vec<OsdId> = map.osds().filter(|o| map.state(*o).has(bit)).collect();
        if !full.is_empty() {
            let detail = full.iter().map(|o| format!("osd.{o} is {word}")).collect();
            let summary = format!("{} {word} osd(s)", full.len());
            report.add(code, severity, full.len(), summary, detail);
        }
    }
}

/// OSDs that say their store keeps its log in memory: what they acknowledge is not safe.
/// The code is ours; the peer has no such store.
fn check_journals(cluster: &ClusterState, report: &mut HealthReport) {
    let unsafe_one = |m: &BTreeMap<String, String>| {
        m.get("osd_journal_placement").is_some_and(|place| place == "memory")
    };
    let found = cluster.osd_metadata.iter().filter(|(o, m)| {
        cluster.osdmap.exists(**o) && !cluster.osdmap.is_down(**o) && unsafe_one(m)
    });
    let detail: Vec<String> =
        found.map(|(o, _)| format!("osd.{o}: a crash loses acknowledged writes")).collect();
    if !detail.is_empty() {
        let summary = format!("{} osd(s) keep their journal in memory", detail.len());
        report.add("OSD_UNSAFE_JOURNAL", HealthStatus::Warn, detail.len(), summary, detail);
    }
}

/// Hosts of which every OSD is down.
fn check_hosts(cluster: &ClusterState, down: &[OsdId], report: &mut HealthReport) {
    let map = &cluster.osdmap;
    let hosts: BTreeSet<String> =
        down.iter().filter_map(|o| crushops::location(&map.crush, o.0).remove("host")).collect();
    let (mut lines, mut osds) = (Vec::new(), 0);
    for host in hosts {
        let Some(id) = map.crush.names().id(&host) else { continue };
        let Some(bucket) = map.crush.bucket(id) else { continue };
        let all: Vec<OsdId> = bucket.items().iter().map(|i| OsdId(*i)).collect();
        if all.iter().all(|o| map.is_down(*o)) {
            osds += all.len();
            let place = crushops::place_text(&map.crush, OsdId(id));
            lines.push(format!("host {host} ({place}) ({} osds) is down", all.len()));
        }
    }
    if !lines.is_empty() {
        let summary = format!("{} ({osds} osds) down", plural(lines.len(), "host"));
        report.add("OSD_HOST_DOWN", HealthStatus::Warn, lines.len(), summary, lines);
    }
}

fn check_flags(cluster: &ClusterState, report: &mut HealthReport) {
    let map = &cluster.osdmap;
    let told = [
        OsdMapFlags::PAUSERD,
        OsdMapFlags::PAUSEWR,
        OsdMapFlags::PAUSEREC,
        OsdMapFlags::NOUP,
        OsdMapFlags::NODOWN,
        OsdMapFlags::NOOUT,
        OsdMapFlags::NOIN,
        OsdMapFlags::NOBACKFILL,
        OsdMapFlags::NORECOVER,
        OsdMapFlags::NOSCRUB,
        OsdMapFlags::NODEEP_SCRUB,
        OsdMapFlags::NOTIERAGENT,
        OsdMapFlags::NOREBALANCE,
        OsdMapFlags::NOSNAPTRIM,
    ];
    let set: Vec<OsdMapFlags> = told.into_iter().filter(|f| map.has_flag(*f)).collect();
    if !set.is_empty() {
        let flags = OsdMapFlags(set.iter().fold(0, |all, f| all | f.0));
        let summary = format!("{flags} flag(s) set");
        report.add("OSDMAP_FLAGS", HealthStatus::Warn, set.len(), summary, Vec::new());
    }
    let bits = [
        (OsdState::NOUP, "noup"),
        (OsdState::NODOWN, "nodown"),
        (OsdState::NOIN, "noin"),
        (OsdState::NOOUT, "noout"),
    ];
    let words = |flags: u32| -> Vec<&str> {
        bits.iter().filter(|(b, _)| flags & b.0 != 0).map(|(_, w)| *w).collect()
    };
    let mut detail = Vec::new();
    for osd in map.osds() {
        let words = words(map.state(osd).0);
        if !words.is_empty() {
            detail.push(format!("osd.{osd} has flags {}", words.join(",")));
        }
    }
    for (node, flags) in &map.crush_node_flags {
        let name = map.crush.names().get(*node).unwrap_or("unknown");
        detail.push(format!("{name} has flags {}", words(*flags).join(",")));
    }
    for (class, flags) in &map.device_class_flags {
        let name = map.crush.class_names().get(*class).unwrap_or("unknown");
        detail.push(format!("device class '{name}' has flags {}", words(*flags).join(",")));
    }
    if !detail.is_empty() {
        let summary = format!(
            "{} OSDs or CRUSH {{nodes, device-classes}} have {{NOUP,NODOWN,NOIN,NOOUT}} flags set",
            detail.len()
        );
        report.add("OSD_FLAGS", HealthStatus::Warn, detail.len(), summary, detail);
    }
}

fn check_pools(
    cluster: &ClusterState,
    volatile: &Volatile,
    options: &HealthOptions,
    report: &mut HealthReport,
) {
    let map = &cluster.osdmap;
    let name = |id| map.pool_name(id).unwrap_or_default();
    let (mut full, mut backfill, mut near) = (Vec::new(), Vec::new(), Vec::new());
    let (mut lone, mut unused) = (Vec::new(), Vec::new());
    for (id, pool) in map.pools.iter() {
        let name = name(*id);
        if pool.has_flag(PoolFlags::FULL_QUOTA) {
            full.push(format!("pool '{name}' is full (running out of quota)"));
        } else if pool.has_flag(PoolFlags::FULL) {
            full.push(format!("pool '{name}' is full (no space)"));
        } else if pool.has_flag(PoolFlags::BACKFILLFULL) {
            backfill.push(format!("pool '{name}' is backfillfull"));
        } else if pool.has_flag(PoolFlags::NEARFULL) {
            near.push(format!("pool '{name}' is nearfull"));
        }
        if pool.is_replicated() && pool.size == 1 {
            lone.push(format!("pool '{name}' has no replicas configured"));
        }
        let objects = volatile.pgmap.pools.get(id).map_or(0, |s| s.stats.sum.num_objects);
        if pool.application_metadata.is_empty() && objects > 0 && !pool.is_tier() {
            unused.push(format!("application not enabled on pool '{name}'"));
        }
    }
    let mut add = |code: &str, severity, lines: Vec<String>, words: &str| {
        if !lines.is_empty() {
            report.add(code, severity, lines.len(), format!("{} {words}", lines.len()), lines);
        }
    };
    add("POOL_FULL", HealthStatus::Warn, full, "pool(s) full");
    add("POOL_BACKFILLFULL", HealthStatus::Warn, backfill, "pool(s) backfillfull");
    add("POOL_NEARFULL", HealthStatus::Warn, near, "pool(s) nearfull");
    if options.no_redundancy {
        add("POOL_NO_REDUNDANCY", HealthStatus::Warn, lone, "pool(s) have no replicas configured");
    }
    if options.no_app && !unused.is_empty() {
        let n = unused.len();
        unused.push(
            "use 'ceph osd pool application enable <pool-name> <app-name>', where <app-name> is \
             'cephfs', 'rbd', 'rgw', or freeform for custom applications."
                .to_owned(),
        );
        let summary = format!("{n} pool(s) do not have an application enabled");
        report.add("POOL_APP_NOT_ENABLED", HealthStatus::Warn, n, summary, unused);
    }
}

fn check_tiers(
    cluster: &ClusterState,
    volatile: &Volatile,
    options: &HealthOptions,
    report: &mut HealthReport,
) {
    let map = &cluster.osdmap;
    let (mut blind, mut near, mut near_pools) = (Vec::new(), Vec::new(), 0);
    for (id, pool) in map.pools.iter() {
        let name = map.pool_name(*id).unwrap_or_default();
        if options.no_hit_sets && pool.mode().wants_hit_sets() && !pool.hit_set_params.is_some() {
            blind.push(format!(
                "pool '{name}' with cache_mode {} needs hit_set_type to be set but it is not",
                pool.mode().name()
            ));
        }
        let sum = volatile.pgmap.pools.get(id).map(|p| p.stats.sum).unwrap_or_default();
        let evicts = f64::from(pool.cache_target_full_ratio_micro) / 1e6;
        let ratio = evicts + (1.0 - evicts) * options.cache_full_ratio;
        let over = |have: i64, max: u64| max > 0 && have as f64 > max as f64 * ratio;
        let lines = near.len();
        if over(sum.num_objects, pool.target_max_objects) {
            let (have, max) = (sum.num_objects as u64, pool.target_max_objects);
            near.push(format!(
                "cache pool '{name}' with {} objects at/near target max {} objects",
                cli::si_u(have),
                cli::si_u(max)
            ));
        }
        if over(sum.num_bytes, pool.target_max_bytes) {
            let (have, max) = (sum.num_bytes as u64, pool.target_max_bytes);
            near.push(format!(
                "cache pool '{name}' with {} at/near target max {}",
                cli::bytes_u(have),
                cli::bytes_u(max)
            ));
        }
        near_pools += usize::from(near.len() > lines);
    }
    if !blind.is_empty() {
        let summary = format!("{} cache pools are missing hit_sets", blind.len());
        let n = blind.len();
        report.add("CACHE_POOL_NO_HIT_SET", HealthStatus::Warn, n, summary, blind);
    }
    if near_pools > 0 {
        let summary = format!("{near_pools} cache pools at or near target size");
        report.add("CACHE_POOL_NEAR_FULL", HealthStatus::Warn, near_pools, summary, near);
    }
}

fn check_pgs(
    cluster: &ClusterState,
    volatile: &Volatile,
    options: &HealthOptions,
    report: &mut HealthReport,
) {
    let pgmap = &volatile.pgmap;
    // Word of a state to how many PGs; in the order they are told.
    let mut gone: BTreeMap<&str, usize> = BTreeMap::new();
    let mut degraded: BTreeMap<&str, usize> = BTreeMap::new();
    let mut damaged: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut gone_lines, mut degraded_lines, mut damaged_lines) =
        (Vec::new(), Vec::new(), Vec::new());
    let (mut lost, mut spare, mut copies, mut unfound, mut objects, mut scrub) =
        (0i64, 0i64, 0i64, 0i64, 0i64, 0i64);
    let mut unfound_lines = Vec::new();
    for (pg, stat) in &pgmap.pgs {
        let sum = &stat.stats.sum;
        if sum.num_objects_unfound > 0 {
            let n = sum.num_objects_unfound;
            unfound_lines.push(format!("pg {pg} has {n} unfound objects"));
        }
        lost = lost.saturating_add(sum.num_objects_degraded);
        spare = spare.saturating_add(sum.num_objects_misplaced);
        copies = copies.saturating_add(sum.num_object_copies);
        unfound = unfound.saturating_add(sum.num_objects_unfound);
        objects = objects.saturating_add(sum.num_objects);
        scrub = scrub.saturating_add(sum.num_scrub_errors);
        let has = |bit| stat.state.has(bit);
        let waited = |since: Option<&u64>| since.map(|t| options.now_ms.saturating_sub(*t));
        let inactive_ms = waited(pgmap.inactive_since.get(pg));
        let unclean_ms = waited(pgmap.unclean_since.get(pg));
        let text = stat.state;
        let acting: Vec<String> = stat
            .acting
            .iter()
            .map(|osd| if *osd == OsdId::NONE { "NONE".to_owned() } else { osd.to_string() })
            .collect();
        let acting = acting.join(",");
        let mut bad = false;
        if inactive_ms.is_some_and(|ms| ms >= options.stuck_ms) {
            *gone.entry("inactive").or_default() += 1;
            bad = true;
            gone_lines.push(format!(
                "pg {pg} is stuck inactive for {}s, current state {text}, last acting [{acting}]",
                inactive_ms.unwrap_or(0) / 1000
            ));
        }
        let now_or_stuck = [
            (PgState::DOWN, "down", 0),
            (PgState::INCOMPLETE, "incomplete", 0),
            (PgState::STALE, "stale", options.stuck_ms),
            (PgState::PEERING, "peering", options.stuck_ms),
        ];
        for (bit, word, after) in now_or_stuck {
            if has(bit) && unclean_ms.unwrap_or(0) >= after {
                *gone.entry(word).or_default() += 1;
                if !bad {
                    let hint = match cluster.osdmap.pool(pg.pool) {
                        Some(pool) if word == "incomplete" && pool.min_size > 1 => format!(
                            " (reducing pool {} min_size from {} may help; search ceph.com/docs for 'incomplete')",
                            cluster.osdmap.pool_name(pg.pool).unwrap_or_default(),
                            pool.min_size
                        ),
                        _ => String::new(),
                    };
                    gone_lines.push(format!("pg {pg} is {text}, acting [{acting}]{hint}"));
                    bad = true;
                }
            }
        }
        let mut thin = false;
        for (bit, word, after) in [
            (PgState::DEGRADED, "degraded", 0),
            (PgState::UNDERSIZED, "undersized", options.stuck_ms),
        ] {
            if has(bit) && unclean_ms.unwrap_or(0) >= after {
                *degraded.entry(word).or_default() += 1;
                if !thin {
                    degraded_lines.push(format!("pg {pg} is {text}, acting [{acting}]"));
                    thin = true;
                }
            }
        }
        for (bit, word) in
            [(PgState::INCONSISTENT, "inconsistent"), (PgState::SNAPTRIM_ERROR, "snaptrim_error")]
        {
            if has(bit) {
                *damaged.entry(word).or_default() += 1;
                damaged_lines.push(format!("pg {pg} is {text}, acting [{acting}]"));
            }
        }
    }
    let counted = |words: &BTreeMap<&str, usize>| -> Vec<String> {
        words.iter().map(|(w, n)| format!("{} {w}", plural(*n, "pg"))).collect()
    };
    if !gone.is_empty() {
        let summary = format!("Reduced data availability: {}", counted(&gone).join(", "));
        report.add("PG_AVAILABILITY", HealthStatus::Warn, gone_lines.len(), summary, gone_lines);
    }
    let percent = |part: i64, of: i64| part as f64 * 100.0 / of.max(1) as f64;
    let mut parts = Vec::new();
    if lost > 0 {
        let share = percent(lost, copies);
        parts.push(format!("{lost}/{copies} objects degraded ({share:.3}%)"));
    }
    parts.extend(counted(&degraded));
    if !parts.is_empty() {
        let summary = format!("Degraded data redundancy: {}", parts.join(", "));
        report.add(
            "PG_DEGRADED",
            HealthStatus::Warn,
            degraded_lines.len(),
            summary,
            degraded_lines,
        );
    }
    if !damaged.is_empty() {
        let summary = format!("Possible data damage: {}", counted(&damaged).join(", "));
        report.add("PG_DAMAGED", HealthStatus::Err, damaged_lines.len(), summary, damaged_lines);
    }
    full_copies(pgmap, report);
    if spare > 0 && options.reports.misplaced {
        let summary =
            format!("{spare}/{copies} objects misplaced ({:.3}%)", percent(spare, copies));
        report.add("OBJECT_MISPLACED", HealthStatus::Warn, spare as usize, summary, Vec::new());
    }
    if unfound > 0 {
        let summary =
            format!("{unfound}/{objects} objects unfound ({:.3}%)", percent(unfound, objects));
        report.add("OBJECT_UNFOUND", HealthStatus::Warn, unfound as usize, summary, unfound_lines);
    }
    if scrub > 0 {
        let summary = format!("{scrub} scrub errors");
        report.add("OSD_SCRUB_ERRORS", HealthStatus::Err, scrub as usize, summary, Vec::new());
    }
    let _ = cluster;
}

/// PGs that cannot be recovered or copied because a store is too full.
fn full_copies(pgmap: &crate::PgMap, report: &mut HealthReport) {
    for (bit, code, word, severity, what) in [
        (
            PgState::RECOVERY_TOOFULL,
            "PG_RECOVERY_FULL",
            "recovery_toofull",
            HealthStatus::Err,
            "Full OSDs blocking recovery",
        ),
        (
            PgState::BACKFILL_TOOFULL,
            "PG_BACKFILL_FULL",
            "backfill_toofull",
            HealthStatus::Warn,
            "Low space hindering backfill (add storage if this doesn't resolve itself)",
        ),
    ] {
        let full = pgmap.pgs.iter().filter(|(_, stat)| stat.state.has(bit));
        let lines: Vec<String> = full
            .map(|(pg, stat)| {
                let acting: Vec<String> = stat.acting.iter().map(ToString::to_string).collect();
                format!("pg {pg} is {}, acting [{}]", stat.state, acting.join(","))
            })
            .collect();
        if !lines.is_empty() {
            let summary = format!("{what}: {} {word}", plural(lines.len(), "pg"));
            report.add(code, severity, lines.len(), summary, lines);
        }
    }
}

/// Pools with too many or too few PGs, where the autoscaler is only to warn.
fn check_pg_nums(
    cluster: &ClusterState,
    volatile: &Volatile,
    options: &HealthOptions,
    report: &mut HealthReport,
) {
    let map = &cluster.osdmap;
    if map.has_flag(OsdMapFlags::NOAUTOSCALE) {
        return;
    }
    let (mut few, mut many, mut both) = (Vec::new(), Vec::new(), Vec::new());
    let plans = crate::autoscale::plan(map, &volatile.pgmap, &options.autoscale);
    health_reports::check_targets(map, &plans, report);
    for plan in plans {
        let Some(pool) = map.pool(plan.id) else { continue };
        let name = map.pool_name(plan.id).unwrap_or_default();
        if pool.opts.get("target_size_ratio").is_some()
            && pool.opts.get("target_size_bytes").is_some()
        {
            both.push(format!("Pool {name} has target_size_bytes and target_size_ratio set"));
        }
        let text =
            format!("Pool {name} has {} placement groups, should have {}", plan.now, plan.last);
        if pool.pg_autoscale_mode != 1 || plan.last == plan.now {
            continue;
        }
        if plan.last > plan.now { few.push(text) } else { many.push(text) }
    }
    for (code, lines, what) in [
        ("POOL_TOO_FEW_PGS", few, "pools have too few placement groups"),
        ("POOL_TOO_MANY_PGS", many, "pools have too many placement groups"),
        (
            "POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO",
            both,
            "pools have both target_size_bytes and target_size_ratio set",
        ),
    ] {
        let n = lines.len();
        if n > 0 {
            report.add(code, HealthStatus::Warn, n, format!("{n} {what}"), lines);
        }
    }
}

/// OSDs with operations that take too long.
fn check_slow(volatile: &Volatile, report: &mut HealthReport) {
    let slow = &volatile.pgmap.slow;
    let count: u64 = slow.values().map(|(n, _)| u64::from(*n)).sum();
    if count == 0 {
        return;
    }
    let oldest = slow.values().map(|(_, ms)| ms / 1_000).max().unwrap_or(0);
    let names: Vec<String> = slow.keys().map(|o| format!("osd.{o}")).collect();
    let who = match &names[..] {
        [one] => format!("{one} has slow ops"),
        all => format!("daemons [{}] have slow ops.", all.join(",")),
    };
    let summary = format!("{count} slow ops, oldest one blocked for {oldest} sec, {who}");
    report.add("SLOW_OPS", HealthStatus::Warn, count as usize, summary, Vec::new());
}

/// PGs that should have been scrubbed.
fn check_scrubs(
    cluster: &ClusterState,
    volatile: &Volatile,
    options: &HealthOptions,
    report: &mut HealthReport,
) {
    let ages = &options.unscrubbed_s;
    let (mut light, mut deep) = (Vec::new(), Vec::new());
    for (pg, stat) in &volatile.pgmap.pgs {
        let pool = cluster.osdmap.pool(pg.pool);
        let of = |name: &str, default: f64| match pool.and_then(|p| p.opts.get(name)) {
            Some(maps::PoolOpt::Double(x)) if *x > 0.0 => *x,
            _ => default,
        };
        let late = |since: types::UTime, interval: f64, ratio: f64| {
            let max_ns = (interval * (1.0 + ratio) * 1e9) as u64;
            ratio > 0.0 && !since.is_zero() && since.nanos() + max_ns < options.wall_ns
        };
        let interval = of("scrub_max_interval", ages.light_s);
        if late(stat.last_scrub_stamp, interval, ages.light_ratio) {
            light.push(format!("pg {pg} not scrubbed since {}", stat.last_scrub_stamp));
        }
        let interval = of("deep_scrub_interval", ages.deep_s);
        if late(stat.last_deep_scrub_stamp, interval, ages.deep_ratio) {
            deep.push(format!("pg {pg} not deep-scrubbed since {}", stat.last_deep_scrub_stamp));
        }
    }
    for (code, word, mut lines) in
        [("PG_NOT_SCRUBBED", "scrubbed", light), ("PG_NOT_DEEP_SCRUBBED", "deep-scrubbed", deep)]
    {
        let n = lines.len();
        if n >= DETAIL_MAX {
            lines.truncate(DETAIL_MAX - 1);
            lines.push(format!("{} more pgs... ", n + 1 - DETAIL_MAX));
        }
        if n > 0 {
            let summary = format!("{n} pgs not {word} in time");
            report.add(code, HealthStatus::Warn, n, summary, lines);
        }
    }
}

/// Lines for the cluster log when one report follows another: priority and text.
pub(crate) fn changes(
    old: &HealthReport,
    new: &HealthReport,
) -> Vec<(messages::LogPriority, String)> {
    use messages::LogPriority;
    let prio = |s: HealthStatus| match s {
        HealthStatus::Err => LogPriority::ERROR,
        HealthStatus::Warn => LogPriority::WARN,
        HealthStatus::Ok => LogPriority::INFO,
    };
    let mut out = Vec::new();
    for (code, check) in &new.checks {
        match old.checks.get(code) {
            None => out.push((
                prio(check.severity),
                format!("Health check failed: {} ({code})", check.summary),
            )),
            Some(was) if was.summary != check.summary || was.severity != check.severity => out
                .push((
                    prio(check.severity),
                    format!("Health check update: {} ({code})", check.summary),
                )),
            Some(_) => {}
        }
    }
    for (code, was) in &old.checks {
        if !new.checks.contains_key(code) {
            out.push((
                LogPriority::INFO,
                format!("Health check cleared: {code} (was: {})", was.summary),
            ));
        }
    }
    if !old.checks.is_empty() && new.checks.is_empty() {
        out.push((LogPriority::INFO, "Cluster is now healthy".to_owned()));
    }
    out
}
