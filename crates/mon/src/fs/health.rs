//! Whether file systems are well.
//!
//! Source: the peer's `MDSMap::get_health_checks`, `FSMap::get_health_checks` and
//! `messages/MMDSBeacon.h`.

use std::collections::BTreeMap;

use maps::{FsMap, MdsMap, MdsState};

use super::Watch;
use crate::{HealthReport, HealthStatus};

/// What servers complain about, by the number in beacons: code and summary.
const METRICS: [(&str, &str); 17] = [
    ("MDS_TRIM", "%num% MDSs behind on trimming"),
    ("MDS_CLIENT_RECALL", "%num% clients failing to respond to cache pressure"),
    ("MDS_CLIENT_LATE_RELEASE", "%num% clients failing to respond to capability release"),
    ("MDS_CLIENT_RECALL_MANY", "%num% MDSs have many clients failing to respond to cache pressure"),
    (
        "MDS_CLIENT_LATE_RELEASE_MANY",
        "%num% MDSs have many clients failing to respond to capability release",
    ),
    ("MDS_CLIENT_OLDEST_TID", "%num% clients failing to advance oldest client/flush tid"),
    (
        "MDS_CLIENT_OLDEST_TID_MANY",
        "%num% MDSs have clients failing to advance oldest client/flush tid",
    ),
    ("MDS_DAMAGE", "%num% MDSs report damaged metadata"),
    ("MDS_READ_ONLY", "%num% MDSs are read only"),
    ("MDS_SLOW_REQUEST", "%num% MDSs report slow requests"),
    ("MDS_CACHE_OVERSIZED", "%num% MDSs report oversized cache"),
    ("MDS_SLOW_METADATA_IO", "%num% MDSs report slow metadata IOs"),
    ("MDS_CLIENTS_LAGGY", "%num% client(s) laggy due to laggy OSDs"),
    ("MDS_CLIENTS_LAGGY_MANY", "%num% client(s) laggy due to laggy OSDs"),
    (
        "MDS_CLIENTS_BROKEN_ROOTSQUASH",
        "%num% MDS report clients with broken root_squash implementation",
    ),
    ("MDS_ESTIMATED_REPLAY_TIME", "%num% estimated journal replay time"),
    // Only ever said by tests of the peer, and not shown.
    ("MDS_DUMMY", ""),
];

/// The number of [`METRICS`] about a journal that is not trimmed, and about a full cache.
pub(crate) const TRIM: u16 = 1;
pub(crate) const CACHE_OVERSIZED: u16 = 11;
const DUMMY: u16 = 17;

/// Details of a check, and its summary before words are put in.
struct Check {
    severity: HealthStatus,
    summary: &'static str,
    detail: Vec<String>,
}

#[derive(Default)]
struct Checks(BTreeMap<&'static str, Check>);

impl Checks {
    fn add(
        &mut self,
        code: &'static str,
        severity: HealthStatus,
        summary: &'static str,
        detail: impl IntoIterator<Item = String>,
    ) {
        let check = self.0.entry(code).or_insert(Check { severity, summary, detail: Vec::new() });
        check.detail.extend(detail);
    }
}

/// A summary with its words put in.
fn filled(summary: &str, n: usize) -> String {
    let many = n > 1;
    summary
        .replace("%num%", &n.to_string())
        .replace("%plurals%", if many { "s" } else { "" })
        .replace("%isorare%", if many { "are" } else { "is" })
        .replace("%hasorhave%", if many { "have" } else { "has" })
}

/// All checks of file systems.
pub(crate) fn check(map: &FsMap, watch: &Watch, report: &mut HealthReport) {
    let mut checks = Checks::default();
    for info in map.servers() {
        let Some(health) = watch.health.get(&info.gid) else { continue };
        for metric in &health.metrics {
            let known = usize::from(metric.kind).checked_sub(1).and_then(|i| METRICS.get(i));
            let Some((code, summary)) = known.filter(|_| metric.kind != DUMMY) else { continue };
            let severity = match metric.severity {
                0 => HealthStatus::Err,
                1 => HealthStatus::Warn,
                _ => HealthStatus::Ok,
            };
            let pairs = metric.metadata.iter().map(|(k, v)| format!("{k}: {v}"));
            let mut line = format!("mds.{}(mds.{}): {}", info.name, info.rank, metric.message);
            if !metric.metadata.is_empty() {
                line = format!("{line} {}", pairs.collect::<Vec<_>>().join(", "));
            }
            checks.add(code, severity, summary, [line]);
        }
    }
    for fs in &map.filesystems {
        check_fs(map, fs, &mut checks);
    }
    let missing = map.filesystems.iter();
    let standbys = map.standby_daemons.len();
    let missing = missing.map(|fs| fs.mds_map.standbys_missing(standbys)).max().unwrap_or(0);
    if missing > 0 {
        checks.add(
            "MDS_INSUFFICIENT_STANDBY",
            HealthStatus::Warn,
            "insufficient standby MDS daemons available",
            [format!("have {standbys}; want {missing} more")],
        );
    }
    for (code, Check { severity, summary, detail }) in checks.0 {
        let n = detail.len();
        report.add(code, severity, n, filled(summary, n), detail);
    }
}

fn check_fs(all: &FsMap, fs: &maps::Filesystem, checks: &mut Checks) {
    let map = &fs.mds_map;
    let name = &map.fs_name;
    let damaged = map.damaged.iter().map(|rank| format!("fs {name} mds.{rank} is damaged"));
    if !map.damaged.is_empty() {
        let summary = "%num% mds daemon%plurals% damaged";
        checks.add("MDS_DAMAGE", HealthStatus::Err, summary, damaged);
    }
    if map.is_degraded() {
        let summary = "%num% filesystem%plurals% %isorare% degraded";
        let line = [format!("fs {name} is degraded")];
        checks.add("FS_DEGRADED", HealthStatus::Warn, summary, line);
    }
    let stuck = map.failed.iter().filter(|r| all.replacement_for(fs, **r).is_none()).count();
    if stuck > 0 {
        let s = if stuck > 1 { "s" } else { "" };
        checks.add(
            "FS_WITH_FAILED_MDS",
            HealthStatus::Warn,
            "%num% filesystem%plurals% %hasorhave% a failed mds daemon",
            [format!("fs {name} has {stuck} failed mds{s}")],
        );
    }
    let there = i32::try_from(map.r#in.len()).unwrap_or(i32::MAX);
    if there < map.max_mds {
        checks.add(
            "MDS_UP_LESS_THAN_MAX",
            HealthStatus::Warn,
            "%num% filesystem%plurals% %isorare% online with fewer MDS than max_mds",
            [format!("fs {name} has {there} MDS online, but wants {}", map.max_mds)],
        );
    }
    if map.up.is_empty() && map.max_mds > 0 {
        checks.add(
            "MDS_ALL_DOWN",
            HealthStatus::Err,
            "%num% filesystem%plurals% %isorare% offline",
            [format!("fs {name} is offline because no MDS is active for it.")],
        );
    }
    if map.inline_data {
        checks.add(
            "FS_INLINE_DATA_DEPRECATED",
            HealthStatus::Warn,
            "%num% filesystem%plurals% with deprecated feature inline_data",
            [format!("fs {name} has deprecated feature inline_data.")],
        );
    }
}

/// The line about servers in `ceph -s`; `None` where there is no file system.
pub(crate) fn daemons_line(map: &FsMap) -> Option<String> {
    if map.filesystems.is_empty() {
        return None;
    }
    let sum = |of: &dyn Fn(&MdsMap) -> usize| {
        map.filesystems.iter().map(|fs| of(&fs.mds_map)).sum::<usize>()
    };
    let mut line = format!("{}/{} daemons up", sum(&|m| m.up.len()), sum(&|m| m.r#in.len()));
    let failed = sum(&|m| m.failed.len());
    if failed > 0 {
        line += &format!(" ({failed} failed)");
    }
    if !map.standby_daemons.is_empty() {
        line += &format!(", {} standby", map.standby_daemons.len());
    }
    let followers = sum(&|m| m.count(MdsState::STANDBY_REPLAY));
    if followers > 0 {
        line += &format!(", {followers} hot standby");
    }
    Some(line)
}

/// The line about file systems in `ceph -s`; `None` where there are none.
pub(crate) fn volumes_line(map: &FsMap) -> Option<String> {
    let all = map.filesystems.len();
    if all == 0 {
        return None;
    }
    let [mut healthy, mut recovering, mut failed, mut stopped, mut damaged] = [0; 5];
    for m in map.filesystems.iter().map(|fs| &fs.mds_map) {
        damaged += usize::from(!m.damaged.is_empty());
        let kind = if !m.failed.is_empty() {
            &mut failed
        } else if m.is_degraded() {
            &mut recovering
        } else if m.max_mds == 0 {
            &mut stopped
        } else {
            &mut healthy
        };
        *kind += 1;
    }
    let mut line = format!("{healthy}/{all} healthy");
    for (n, what) in [(recovering, "recovering"), (failed, "failed"), (stopped, "stopped")] {
        if n > 0 {
            line += &format!(", {n} {what}");
        }
    }
    if damaged > 0 {
        line += &format!("; {damaged} damaged");
    }
    Some(line)
}
