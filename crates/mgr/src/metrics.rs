//! The families of the peer's `prometheus` module: names, types, help and labels are its own, so that
//! dashboards and rules made for it hold here.
//!
//! All values come from one answer of the leading monitor (`mgr digest`): what `ceph df`, `pg dump`
//! and `status` say in the same moment.
//!
//! Source: the peer's `pybind/mgr/prometheus/module.py`; recorded output in
//! `vectors/mgr/prometheus-20.2.4.txt`.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

/// PG states that have a family each.
const PG_STATES: [&str; 34] = [
    "active",
    "clean",
    "down",
    "recovery_unfound",
    "backfill_unfound",
    "scrubbing",
    "degraded",
    "inconsistent",
    "peering",
    "repair",
    "recovering",
    "forced_recovery",
    "backfill_wait",
    "incomplete",
    "stale",
    "remapped",
    "deep",
    "backfilling",
    "forced_backfill",
    "backfill_toofull",
    "recovery_wait",
    "recovery_toofull",
    "undersized",
    "activating",
    "peered",
    "snaptrim",
    "snaptrim_wait",
    "snaptrim_error",
    "creating",
    "unknown",
    "premerge",
    "failed_repair",
    "laggy",
    "wait",
];
const OSD_FLAGS: [&str; 9] = [
    "noup",
    "nodown",
    "noout",
    "noin",
    "nobackfill",
    "norebalance",
    "norecover",
    "noscrub",
    "nodeep-scrub",
];
const RECOVERY: [&str; 5] = [
    "recovering_objects_per_sec",
    "recovering_bytes_per_sec",
    "recovering_keys_per_sec",
    "num_objects_recovered",
    "num_bytes_recovered",
];
const DF_CLUSTER: [&str; 3] = ["total_bytes", "total_used_bytes", "total_used_raw_bytes"];
const DF_POOL: [&str; 16] = [
    "max_avail",
    "avail_raw",
    "stored",
    "stored_raw",
    "objects",
    "dirty",
    "quota_bytes",
    "quota_objects",
    "rd",
    "rd_bytes",
    "wr",
    "wr_bytes",
    "compress_bytes_used",
    "compress_under_bytes",
    "bytes_used",
    "percent_used",
];
/// Images whose names are shown.
pub(crate) const IMAGES_MAX: usize = 10_000;

/// One metric and its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Without `ceph_`.
    pub name: String,
    /// `gauge`, `counter` or `untyped`.
    pub kind: &'static str,
    /// A line about it.
    pub help: String,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// The labels' values, and the value.
    pub samples: Vec<(Vec<String>, f64)>,
}

/// What is known of health codes beside those that hold now.
pub type Inactive = BTreeMap<String, String>;

/// What the families are made of.
#[derive(Debug, Default)]
pub struct Seen {
    /// The leading monitor's answer.
    pub digest: Value,
    /// Codes that were active once, with their severity.
    pub inactive: Inactive,
    /// Images by pool: their names.
    pub images: BTreeMap<i64, Vec<String>>,
    /// Seconds that each part took so far, and how often it was made.
    pub took: BTreeMap<&'static str, (f64, u64)>,
}

/// Families in the order they are shown.
#[derive(Default)]
struct Made(Vec<Family>);

impl Made {
    fn family(
        &mut self,
        kind: &'static str,
        name: impl Into<String>,
        help: impl Into<String>,
        labels: &'static [&'static str],
        samples: Vec<(Vec<String>, f64)>,
    ) {
        self.0.push(Family { name: name.into(), kind, help: help.into(), labels, samples });
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Bool(yes) => f64::from(u8::from(*yes)),
        other => other.as_f64().unwrap_or(0.0),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// `127.0.0.1:3300/0` without port and nonce.
fn host_of(addr: &Value) -> String {
    let addr = text(addr);
    addr.rsplit_once(':').map_or(addr.as_str(), |(host, _)| host).to_owned()
}

/// Host and version of daemons, by `name` or `id`.
struct About(BTreeMap<String, Value>);

impl About {
    fn of(all: &Value) -> Self {
        let name = |v: &Value| match &v["name"] {
            Value::Null => text(&v["id"]),
            name => text(name),
        };
        Self(list(all).iter().map(|v| (name(v), v.clone())).collect())
    }

    fn get(&self, name: &str, key: &str) -> String {
        self.0.get(name).map(|own| text(&own[key])).unwrap_or_default()
    }
}

/// All families, in the peer's order.
#[must_use]
pub fn families(seen: &Seen) -> Vec<Family> {
    let mut made = Made::default();
    let d = &seen.digest;
    let status = match d["health"]["status"].as_str() {
        Some("HEALTH_OK") => 0.0,
        Some("HEALTH_WARN") => 1.0,
        _ => 2.0,
    };
    made.family("untyped", "health_status", "Cluster health status", &[], vec![(vec![], status)]);
    let monitors = monitors(&mut made, d);
    file_systems(&mut made, d);
    let labels = &["ceph_daemon", "hostname", "public_addr", "rank", "ceph_version"];
    made.family("untyped", "mon_metadata", "MON Metadata", labels, monitors);
    managers(&mut made, d);
    osds(&mut made, d);
    pools(&mut made, seen);
    health(&mut made, seen);
    osd_state(&mut made, d);
    pool_state(&mut made, d);
    usage(&mut made, d);
    sums(&mut made, d);
    hardware(&mut made);
    let (mut sum, mut count) = (Vec::new(), Vec::new());
    for (method, (seconds, times)) in &seen.took {
        sum.push((vec![(*method).to_owned()], *seconds));
        count.push((vec![(*method).to_owned()], *times as f64));
    }
    let name = "prometheus_collect_duration_seconds_sum";
    let help = "The sum of seconds took to collect all metrics of this exporter";
    made.family("counter", name, help, &["method"], sum);
    let name = "prometheus_collect_duration_seconds_count";
    let help = "The amount of metrics gathered for this exporter";
    made.family("counter", name, help, &["method"], count);
    made.0
}

/// Who is in quorum; the samples of what monitors say of themselves come back, for they stand further on.
fn monitors(made: &mut Made, d: &Value) -> Vec<(Vec<String>, f64)> {
    let about = About::of(&d["mon_metadata"]);
    let quorum: Vec<i64> = list(&d["quorum"]["quorum"]).iter().filter_map(Value::as_i64).collect();
    let (mut state, mut own) = (Vec::new(), Vec::new());
    for mon in list(&d["quorum"]["monmap"]["mons"]) {
        let (name, rank) = (text(&mon["name"]), mon["rank"].as_i64().unwrap_or(-1));
        let daemon = format!("mon.{name}");
        state.push((vec![daemon.clone()], f64::from(u8::from(quorum.contains(&rank)))));
        let labels = vec![
            daemon,
            about.get(&name, "hostname"),
            host_of(&mon["public_addr"]),
            rank.to_string(),
            about.get(&name, "ceph_version"),
        ];
        own.push((labels, 1.0));
    }
    made.family("gauge", "mon_quorum_status", "Monitors in quorum", &["ceph_daemon"], state);
    own
}

fn file_systems(made: &mut Made, d: &Value) {
    let about = About::of(&d["mds_metadata"]);
    let (mut all, mut servers) = (Vec::new(), Vec::new());
    let server = |info: &Value, fs: String| {
        let name = text(&info["name"]);
        let labels = vec![
            format!("mds.{name}"),
            fs,
            about.get(&name, "hostname"),
            text(&info["addr"]),
            text(&info["rank"]),
            about.get(&name, "ceph_version"),
        ];
        (labels, 1.0)
    };
    for fs in list(&d["fs"]["filesystems"]) {
        let (map, id) = (&fs["mdsmap"], text(&fs["id"]));
        let data: Vec<String> = list(&map["data_pools"]).iter().map(text).collect();
        let labels =
            vec![data.join(","), id.clone(), text(&map["metadata_pool"]), text(&map["fs_name"])];
        all.push((labels, 1.0));
        let infos = map["info"].as_object().into_iter().flatten();
        servers.extend(infos.map(|(_, info)| server(info, id.clone())));
    }
    servers.extend(list(&d["fs"]["standbys"]).iter().map(|info| server(info, "-1".to_owned())));
    let labels = &["data_pools", "fs_id", "metadata_pool", "name"];
    made.family("untyped", "fs_metadata", "FS Metadata", labels, all);
    let labels = &["ceph_daemon", "fs_id", "hostname", "public_addr", "rank", "ceph_version"];
    made.family("untyped", "mds_metadata", "MDS Metadata", labels, servers);
}

fn managers(made: &mut Made, d: &Value) {
    let (map, about) = (&d["mgr"], About::of(&d["mgr_metadata"]));
    let active = text(&map["active_name"]);
    let standbys = list(&map["standbys"]).iter().map(|s| text(&s["name"]));
    let (mut own, mut state) = (Vec::new(), Vec::new());
    for name in standbys.chain([active.clone()]) {
        let daemon = format!("mgr.{name}");
        let (host, version) = (about.get(&name, "hostname"), about.get(&name, "ceph_version"));
        own.push((vec![daemon.clone(), host, version], 1.0));
        state.push((vec![daemon], f64::from(u8::from(name == active))));
    }
    let labels = &["ceph_daemon", "hostname", "ceph_version"];
    made.family("gauge", "mgr_metadata", "MGR metadata", labels, own);
    let help = "MGR status (0=standby, 1=active)";
    made.family("gauge", "mgr_status", help, &["ceph_daemon"], state);
    let on: Vec<String> = list(&map["modules"]).iter().map(text).collect();
    let always = map["always_on_modules"].as_object().into_iter().flatten().next_back();
    let always: Vec<String> =
        always.map(|(_, all)| list(all).iter().map(text).collect()).unwrap_or_default();
    let (mut state, mut can) = (Vec::new(), Vec::new());
    for module in list(&map["available_modules"]) {
        let name = text(&module["name"]);
        let is = match (always.contains(&name), on.contains(&name)) {
            (true, _) => 2.0,
            (false, true) => 1.0,
            (false, false) => 0.0,
        };
        state.push((vec![name.clone()], is));
        can.push((vec![name], number(&module["can_run"])));
    }
    let help = "MGR module status (0=disabled, 1=enabled, 2=auto-enabled)";
    made.family("gauge", "mgr_module_status", help, &["name"], state);
    let help = "MGR module runnable state i.e. can it run (0=no, 1=yes)";
    made.family("gauge", "mgr_module_can_run", help, &["name"], can);
}

fn osds(made: &mut Made, d: &Value) {
    let about = About::of(&d["osd_metadata"]);
    let classes: BTreeMap<i64, String> = list(&d["osd_tree"]["nodes"])
        .iter()
        .filter_map(|n| Some((n["id"].as_i64()?, text(&n["device_class"]))))
        .collect();
    let (mut own, mut disks) = (Vec::new(), Vec::new());
    let mut by_device: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for osd in list(&d["osd"]["osds"]) {
        let id = text(&osd["osd"]);
        let daemon = format!("osd.{id}");
        let get = |key: &str| about.get(&id, key);
        if about.0.contains_key(&id) {
            let class = osd["osd"].as_i64().and_then(|id| classes.get(&id).cloned());
            let labels = vec![
                get("back_iface"),
                daemon.clone(),
                host_of(&osd["cluster_addr"]),
                class.unwrap_or_default(),
                get("front_iface"),
                get("hostname"),
                get("osd_objectstore"),
                host_of(&osd["public_addr"]),
                get("ceph_version"),
            ];
            own.push((labels, 1.0));
        }
        // Only where the store is on a block device that the host names.
        let (device, host) = (get("bluestore_bdev_dev_node"), get("hostname"));
        if get("osd_objectstore") == "bluestore" && !device.is_empty() {
            let db = get("bluefs_db_dev_node");
            let wal = get("bluefs_wal_dev_node");
            let (devices, ids) = (get("devices"), get("device_ids"));
            let labels = vec![daemon.clone(), device.clone(), db, wal, host.clone(), devices, ids];
            disks.push((labels, 1.0));
            by_device.entry((device, host)).or_default().push(daemon);
        }
    }
    let labels = &[
        "back_iface",
        "ceph_daemon",
        "cluster_addr",
        "device_class",
        "front_iface",
        "hostname",
        "objectstore",
        "public_addr",
        "ceph_version",
    ];
    made.family("untyped", "osd_metadata", "OSD Metadata", labels, own);
    for (key, name) in [("nearfull_ratio", "nearfull"), ("full_ratio", "full")] {
        let help = format!("OSD cluster-wide {name} ratio");
        let samples = vec![(vec![], number(&d["osd"][key]))];
        made.family("gauge", format!("osd_{key}"), help, &[], samples);
    }
    let help = "Associate Ceph daemon with disk used";
    let labels =
        &["ceph_daemon", "device", "db_device", "wal_device", "instance", "devices", "device_ids"];
    made.family("untyped", "disk_occupation", help, labels, disks);
    let human = by_device
        .into_iter()
        .map(|((device, host), daemons)| (vec![device, host, daemons.join(", ")], 1.0));
    let labels = &["device", "instance", "ceph_daemon"];
    made.family("untyped", "disk_occupation_human", help, labels, human.collect());
}

fn pools(made: &mut Made, seen: &Seen) {
    let d = &seen.digest;
    let mut own = Vec::new();
    for pool in list(&d["osd"]["pools"]) {
        let is_coded = pool["type"] == 3;
        let (kind, how) = if is_coded {
            let profile = text(&pool["erasure_code_profile"]);
            let profile = &d["osd"]["erasure_code_profiles"][&*profile];
            ("erasure", format!("ec:{}+{}", text(&profile["k"]), text(&profile["m"])))
        } else {
            ("replicated", format!("replica:{}", text(&pool["size"])))
        };
        let mode = match &pool["options"]["compression_mode"] {
            Value::String(mode) => mode.clone(),
            _ => "none".to_owned(),
        };
        let apps = pool["application_metadata"].as_object().into_iter().flatten();
        let apps = apps.map(|(name, _)| match name.as_str() {
            "rbd" => "Block".to_owned(),
            "cephfs" => "Filesystem".to_owned(),
            "rgw" => "Object".to_owned(),
            other => other.to_owned(),
        });
        let labels = vec![
            text(&pool["pool"]),
            text(&pool["pool_name"]),
            kind.to_owned(),
            how,
            mode,
            apps.collect::<Vec<_>>().join(", "),
        ];
        own.push((labels, 1.0));
    }
    let labels = &["pool_id", "name", "type", "description", "compression_mode", "application"];
    made.family("untyped", "pool_metadata", "POOL Metadata", labels, own);
    let services = &d["services"]["services"];
    let daemons = |service: &str, with_id: bool| {
        let all = services[service]["daemons"].as_object().into_iter().flatten();
        let real = all.filter(|(name, _)| *name != "summary");
        let sample = move |(name, daemon): (&String, &Value)| {
            let own = &daemon["metadata"];
            let id = match &own["id"] {
                Value::String(id) => id.clone(),
                _ => name.clone(),
            };
            let (host, version) = (text(&own["hostname"]), text(&own["ceph_version"]));
            let daemon_name = if with_id { service } else { "rgw" };
            let mut labels = vec![format!("{daemon_name}.{id}")];
            let gid = text(&daemon["gid"]);
            if with_id {
                labels.extend([id, gid, host, version]);
            } else {
                labels.extend([host, version, gid]);
            }
            (labels, 1.0)
        };
        real.map(sample).collect::<Vec<_>>()
    };
    let labels = &["ceph_daemon", "hostname", "ceph_version", "instance_id"];
    made.family("untyped", "rgw_metadata", "RGW Metadata", labels, daemons("rgw", false));
    let labels = &["ceph_daemon", "id", "instance_id", "hostname", "ceph_version"];
    let mirrors = daemons("rbd-mirror", true);
    made.family("untyped", "rbd_mirror_metadata", "RBD Mirror Metadata", labels, mirrors);
    let all = seen.images.iter().flat_map(|(pool, names)| {
        names.iter().map(move |name| (vec![pool.to_string(), name.clone()], 1.0))
    });
    let images = all.take(IMAGES_MAX).collect();
    let labels = &["pool_id", "image_name"];
    made.family("untyped", "rbd_image_metadata", "RBD Image Metadata", labels, images);
    let total = by_pool(d, |counts| number(&counts["total"]));
    made.family("gauge", "pg_total", "PG Total Count per Pool", &["pool_id"], total);
}

/// A value of each pool out of the numbers of its PGs.
fn by_pool(d: &Value, value: impl Fn(&Value) -> f64) -> Vec<(Vec<String>, f64)> {
    let pools = list(&d["osd"]["pools"]).iter().map(|pool| text(&pool["pool"]));
    pools.map(|id| (vec![id.clone()], value(&d["pgs"][&*id]))).collect()
}

fn health(made: &mut Made, seen: &Seen) {
    let d = &seen.digest;
    let checks = d["health"]["checks"].as_object().into_iter().flatten();
    let mut detail: Vec<(Vec<String>, f64)> =
        checks.map(|(code, check)| (vec![code.clone(), text(&check["severity"])], 1.0)).collect();
    let is_active = |code: &str| detail.iter().any(|(labels, _)| labels[0] == code);
    let past = seen.inactive.iter().filter(|(code, _)| !is_active(code));
    let past: Vec<_> = past.map(|(c, severity)| (vec![c.clone(), severity.clone()], 0.0)).collect();
    detail.extend(past);
    let help = "healthcheck status by type (0=inactive, 1=active)";
    made.family("gauge", "health_detail", help, &["name", "severity"], detail);
    let repaired = list(&d["pg_pools"]["pool_stats"]).iter().map(|pool| {
        (vec![text(&pool["poolid"])], number(&pool["stat_sum"]["num_objects_repaired"]))
    });
    let help = "Number of objects repaired in a pool";
    made.family("counter", "pool_objects_repaired", help, &["pool_id"], repaired.collect());
    let mut slow: Vec<(Vec<String>, f64)> = Vec::new();
    for mon in list(&d["quorum"]["monmap"]["mons"]) {
        slow.push((vec!["SLOW_OPS".to_owned(), format!("mon.{}", text(&mon["name"]))], 0.0));
    }
    for osd in list(&d["osd"]["osds"]).iter().filter(|osd| osd["up"] == 1) {
        let id = text(&osd["osd"]);
        for (kind, counts) in
            [("SLOW_OPS", &d["slow_ops"]), ("PENDING_CREATING_PGS", &d["creating_pgs"])]
        {
            slow.push((vec![kind.to_owned(), format!("osd.{id}")], number(&counts[&*id])));
        }
    }
    let help = "Health metrics for Ceph daemons";
    made.family("gauge", "daemon_health_metrics", help, &["type", "ceph_daemon"], slow);
    made.family("untyped", "smb_metadata", "SMB Metadata", &[], vec![]);
    let help = "Status of cephadm daemons (0=stopped, 1=running, 2=errored)";
    made.family("gauge", "cephadm_daemon_status", help, &[], vec![]);
}

fn osd_state(made: &mut Made, d: &Value) {
    let flags = text(&d["osd"]["flags"]);
    for flag in OSD_FLAGS {
        let is = f64::from(u8::from(flags.split(',').any(|f| f == flag)));
        let name = format!("osd_flag_{}", flag.replace('-', "_"));
        made.family("untyped", name, format!("OSD Flag {flag}"), &[], vec![(vec![], is)]);
    }
    for state in ["weight", "up", "in"] {
        let all = list(&d["osd"]["osds"]).iter();
        let samples =
            all.map(|osd| (vec![format!("osd.{}", text(&osd["osd"]))], number(&osd[state])));
        let (name, help) = (format!("osd_{state}"), format!("OSD status {state}"));
        made.family("untyped", name, help, &["ceph_daemon"], samples.collect());
    }
    for stat in ["apply_latency_ms", "commit_latency_ms"] {
        let all = list(&d["osd_perf"]["osdstats"]["osd_perf_infos"]).iter();
        let samples = all.map(|osd| {
            (vec![format!("osd.{}", text(&osd["id"]))], number(&osd["perf_stats"][stat]))
        });
        let (name, help) = (format!("osd_{stat}"), format!("OSD stat {stat}"));
        made.family("gauge", name, help, &["ceph_daemon"], samples.collect());
    }
}

fn pool_state(made: &mut Made, d: &Value) {
    for stat in RECOVERY {
        let samples = list(&d["pool_stats"])
            .iter()
            .map(|pool| (vec![text(&pool["pool_id"])], number(&pool["recovery_rate"][stat])));
        let (name, help) = (format!("pool_{stat}"), format!("OSD pool stats: {stat}"));
        made.family("gauge", name, help, &["pool_id"], samples.collect());
    }
    for state in PG_STATES {
        let samples = by_pool(d, |counts| number(&counts[state]));
        let (name, help) = (format!("pg_{state}"), format!("PG {state} per pool"));
        made.family("gauge", name, help, &["pool_id"], samples);
    }
}

fn usage(made: &mut Made, d: &Value) {
    for stat in DF_CLUSTER {
        let help = format!("DF {stat}");
        let samples = vec![(vec![], number(&d["df"]["stats"][stat]))];
        made.family("gauge", format!("cluster_{stat}"), help.clone(), &[], samples);
        let classes = d["df"]["stats_by_class"].as_object().into_iter().flatten();
        let samples = classes.map(|(class, stats)| (vec![class.clone()], number(&stats[stat])));
        let name = format!("cluster_by_class_{stat}");
        made.family("gauge", name, help, &["device_class"], samples.collect());
    }
    for stat in DF_POOL {
        let kind = match stat {
            "rd" | "rd_bytes" | "wr" | "wr_bytes" => "counter",
            _ => "gauge",
        };
        let samples = list(&d["df"]["pools"])
            .iter()
            .map(|pool| (vec![text(&pool["id"])], number(&pool["stats"][stat])));
        let (name, help) = (format!("pool_{stat}"), format!("DF pool {stat}"));
        made.family(kind, name, help, &["pool_id"], samples.collect());
    }
}

fn sums(made: &mut Made, d: &Value) {
    let blocked = list(&d["osd"]["blocklist"]).len();
    let blocked = match d["osd"]["blocklist"].as_object() {
        Some(all) => all.len(),
        None => blocked,
    };
    let help = "OSD Blocklist Count osd_blocklist_count";
    let samples = vec![(vec![], blocked as f64)];
    made.family("gauge", "cluster_osd_blocklist_count", help, &[], samples);
    for state in ["degraded", "misplaced", "unfound"] {
        let all = list(&d["pg_pools"]["pool_stats"]).iter();
        let key = format!("num_objects_{state}");
        let sum = all.map(|pool| number(&pool["stat_sum"][&*key])).sum();
        let help = format!("Number of {state} objects");
        made.family("gauge", key, help, &[], vec![(vec![], sum)]);
    }
    let slow = &d["health"]["checks"]["SLOW_OPS"]["summary"]["message"];
    let slow = text(slow).split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
    let help = "OSD or Monitor requests taking a long time to process";
    made.family("gauge", "healthcheck_slow_ops", help, &[], vec![(vec![], slow)]);
}

/// What only services that are not built here report: the families are there, without samples.
fn hardware(made: &mut Made) {
    for (name, help) in [
        ("storage_capacity_bytes", "Storage device capacity in bytes"),
        ("cpu_cores", "Total CPU cores"),
        ("memory_capacity_bytes", "Memory capacity in bytes"),
        ("health", "Hardware component health status (0=OK, 1=Warning, 2=Error)"),
        ("fan_rpm", "Hardware fan speed in RPM"),
        ("temperature_celsius", "Hardware temperature sensor reading in Celsius"),
        ("firmware_info", "Firmware version information (value is always 1, version in label)"),
    ] {
        made.family("gauge", format!("hardware_{name}"), help, &[], vec![]);
    }
}

/// A number as the peer writes it: always with a point or an exponent.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if value != 0.0 && !(1e-4..1e16).contains(&value.abs()) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{value:?}")
}

/// The text that Prometheus reads.
#[must_use]
pub fn render(families: &[Family]) -> String {
    let mut out = String::new();
    for family in families {
        let name = format!("ceph_{}", family.name);
        let _ = write!(out, "\n# HELP {name} {}\n# TYPE {name} {}", family.help, family.kind);
        for (values, value) in &family.samples {
            let pairs = family.labels.iter().zip(values).map(|(label, value)| {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                format!("{label}=\"{value}\"")
            });
            let pairs = pairs.collect::<Vec<_>>().join(",");
            let pairs = if pairs.is_empty() { pairs } else { format!("{{{pairs}}}") };
            let _ = write!(out, "\n{name}{pairs} {}", float(*value));
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Name to type, help and the labels of a first sample.
    type Shape = BTreeMap<String, (String, String, Option<Vec<String>>)>;

    fn labels(line: &str) -> Vec<String> {
        let inside = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
        let Some((inside, _)) = inside else { return Vec::new() };
        let mut names = Vec::new();
        let mut rest = inside;
        while let Some((name, after)) = rest.split_once("=\"") {
            names.push(name.trim_start_matches(',').to_owned());
            rest = after.split_once('"').map_or("", |(_, rest)| rest);
        }
        names
    }

    fn shape(text: &str) -> (Vec<String>, Shape) {
        let (mut order, mut all) = (Vec::new(), Shape::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                order.push(name.to_owned());
                all.insert(name.to_owned(), (String::new(), help.to_owned(), None));
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                all.get_mut(name).unwrap().0 = kind.to_owned();
            } else if !line.is_empty() {
                let name = line.split(['{', ' ']).next().unwrap();
                let one = all.get_mut(name).unwrap();
                one.2.get_or_insert_with(|| labels(line));
            }
        }
        (order, all)
    }

    fn digest() -> Value {
        serde_json::from_str(include_str!("../testdata/digest.json")).unwrap()
    }

    fn seen() -> Seen {
        Seen {
            digest: digest(),
            inactive: Inactive::from([("OSD_DOWN".into(), "HEALTH_WARN".into())]),
            images: BTreeMap::from([(2, vec!["img\"1".to_owned()])]),
            took: BTreeMap::from([("get_health", (0.5, 2))]),
        }
    }

    /// Names, types, help, labels and order are those of stock's recorded output; families that have
    /// samples there have them here.
    #[test]
    fn families_are_those_of_stock() {
        let stock = include_str!("../../../vectors/mgr/prometheus-20.2.4.txt");
        let (stock_order, stock) = shape(stock);
        let (order, ours) = shape(&render(&families(&seen())));
        assert_eq!(order, stock_order);
        for (name, (kind, help, labels)) in &stock {
            let own = &ours[name];
            assert_eq!((&own.0, &own.1), (kind, help), "{name}");
            if labels.is_some() {
                assert_eq!(&own.2, labels, "{name}");
            }
        }
    }

    fn value(text: &str, line: &str) -> f64 {
        let found = text.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {line}")).parse().unwrap()
    }

    /// Values are those of the commands whose output the digest holds.
    #[test]
    fn values_are_those_of_the_commands() {
        let (seen, d) = (seen(), digest());
        let text = render(&families(&seen));
        let df = &d["df"]["pools"][0];
        let id = df["id"].as_i64().unwrap();
        for stat in DF_POOL {
            let line = format!("ceph_pool_{stat}{{pool_id=\"{id}\"}}");
            assert_eq!(value(&text, &line), df["stats"][stat].as_f64().unwrap(), "{stat}");
        }
        let total = d["df"]["stats"]["total_bytes"].as_f64().unwrap();
        assert_eq!(value(&text, "ceph_cluster_total_bytes"), total);
        let line = format!("ceph_pg_total{{pool_id=\"{id}\"}}");
        assert_eq!(value(&text, &line), d["pgs"][id.to_string()]["total"].as_f64().unwrap());
        assert_eq!(value(&text, "ceph_osd_up{ceph_daemon=\"osd.0\"}"), 1.0);
        assert!(
            text.contains("ceph_rbd_image_metadata{pool_id=\"2\",image_name=\"img\\\"1\"} 1.0")
        );
        assert!(
            text.contains("ceph_health_detail{name=\"OSD_DOWN\",severity=\"HEALTH_WARN\"} 0.0")
        );
    }

    #[test]
    fn slow_operations_and_health() {
        let mut seen = seen();
        seen.digest["health"] = json!({"status": "HEALTH_ERR", "checks": {"SLOW_OPS": {
            "severity": "HEALTH_WARN",
            "summary": {"message": "3 slow ops, oldest one blocked for 40 sec, osd.0 has slow ops"},
        }}});
        seen.digest["slow_ops"] = json!({"0": 3});
        let text = render(&families(&seen));
        assert_eq!(value(&text, "ceph_health_status"), 2.0);
        assert_eq!(value(&text, "ceph_healthcheck_slow_ops"), 3.0);
        let line = "ceph_daemon_health_metrics{type=\"SLOW_OPS\",ceph_daemon=\"osd.0\"}";
        assert_eq!(value(&text, line), 3.0);
    }

    #[test]
    fn numbers_are_written_as_the_peers() {
        for (number, text) in [
            (1.0, "1.0"),
            (0.0, "0.0"),
            (0.85, "0.85"),
            (2.5266461307182908e-05, "2.5266461307182908e-05"),
            (38654705664.0, "38654705664.0"),
            (1e16, "1e+16"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(float(number), text);
        }
    }

    /// An empty answer, or one with other types than expected, makes zeros and no panic.
    #[test]
    fn nonsense_is_borne() {
        for digest in [Value::Null, json!({"osd": 7, "df": [], "fs": {"filesystems": [3]}})] {
            let seen = Seen { digest, ..Seen::default() };
            assert!(render(&families(&seen)).contains("ceph_health_status 2.0"));
        }
    }
}
