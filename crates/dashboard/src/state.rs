//! What the cluster is like, out of answers of the monitors of one moment: what pages are made of.

use std::collections::BTreeMap;

use serde_json::Value;

/// Answers of one moment.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// `mgr digest`.
    pub digest: Value,
    /// `osd df`.
    pub osd_df: Value,
    /// `osd crush rule dump`.
    pub rules: Value,
    /// `pg dump pgs_brief`, where PGs lack copies and there are not too many.
    pub pgs: Value,
    /// Seconds since 1970.
    pub at_s: u64,
}

/// A health check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Check {
    /// `OSD_DOWN`
    pub code: String,
    /// `HEALTH_WARN`, `HEALTH_ERR`
    pub severity: String,
    /// A sentence.
    pub summary: String,
    /// More sentences.
    pub detail: Vec<String>,
    /// Whether it does not count.
    pub is_muted: bool,
}

/// An OSD.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Osd {
    /// N of `osd.N`.
    pub id: i64,
    /// Where CRUSH has it; empty: nowhere.
    pub host: String,
    /// Its class.
    pub class: String,
    /// Whether it serves.
    pub is_up: bool,
    /// Whether data belongs there.
    pub is_in: bool,
    /// How many bytes it has.
    pub size: u64,
    /// How many of them are in use.
    pub used: u64,
    /// Copies of PGs.
    pub pgs: u64,
    /// Milliseconds that a commit takes.
    pub commit_ms: f64,
    /// Operations that take too long.
    pub slow: u64,
}

impl Osd {
    /// Which part is used, 0 to 1.
    #[must_use]
    pub fn fill(&self) -> f64 {
        part(self.used, self.size)
    }
}

/// Which part of `whole` a number is; 0 of nothing.
#[must_use]
pub fn part(number: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { number as f64 / whole as f64 }
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// By which PGs and commands of the monitors know it.
    pub id: i64,
    /// Its name, as whoever made it wrote it.
    pub name: String,
    /// What it is for.
    pub applications: Vec<String>,
    /// Copies, or shards.
    pub size: u64,
    /// Fewest of them with which a PG serves.
    pub min_size: u64,
    /// Fewest of them from which everything can be read: 1, or data shards.
    pub needed: u64,
    /// Whether it is erasure coded.
    pub is_coded: bool,
    /// The number of its CRUSH rule.
    pub rule: i64,
    /// How many PGs it has.
    pub pg_num: u64,
    /// Bytes of clients.
    pub stored: u64,
    /// Bytes that clients can still write.
    pub avail: u64,
    /// Which part is used, 0 to 1.
    pub fill: f64,
    /// How many objects are in it.
    pub objects: u64,
    /// Most bytes; 0: any.
    pub quota: u64,
    /// Client reads and writes in bytes, then in operations, each second.
    pub rates: [f64; 4],
    /// PGs by state.
    pub states: BTreeMap<String, u64>,
}

/// What clients and recovery do each second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Bytes read.
    pub read: f64,
    /// Bytes written.
    pub written: f64,
    /// How often clients read.
    pub reads: f64,
    /// How often clients write.
    pub writes: f64,
    /// Bytes that recovery moves.
    pub recovered: f64,
}

/// Objects and what is not well with them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objects {
    /// All objects.
    pub all: u64,
    /// Copies, all together.
    pub copies: u64,
    /// Copies that are missing.
    pub degraded: u64,
    /// Copies that are not where they belong.
    pub misplaced: u64,
    /// Objects without a copy that can be read.
    pub unfound: u64,
}

/// A file system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileSystem {
    /// As `fs new` was told it.
    pub name: String,
    /// Servers with a rank: rank, name, state.
    pub servers: Vec<(i64, String, String)>,
    /// Ranks that are to be.
    pub ranks: u64,
    /// Ranks without a server.
    pub failed: usize,
    /// Numbers of pools, that of metadata first.
    pub pools: Vec<i64>,
}

/// Monitors and managers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    /// All monitors, and whether each is in quorum.
    pub mons: Vec<(String, bool)>,
    /// The monitor that leads.
    pub leader: String,
    /// The active manager.
    pub mgr: String,
    /// Managers that wait.
    pub standbys: Vec<String>,
    /// Metadata servers that wait.
    pub mds_standbys: usize,
}

/// Space of all OSDs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Capacity {
    /// What they have.
    pub total: u64,
    /// In use, copies included.
    pub used: u64,
    /// From which part used on there is a warning, 0 to 1.
    pub nearfull: f64,
}

/// The cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// When, in seconds since 1970.
    pub at_s: u64,
    /// The cluster's id.
    pub fsid: String,
    /// `HEALTH_OK`, `HEALTH_WARN`, `HEALTH_ERR`
    pub health: String,
    /// Why it is so.
    pub checks: Vec<Check>,
    /// How full it is.
    pub capacity: Capacity,
    /// What goes on.
    pub rates: Rates,
    /// How objects are.
    pub objects: Objects,
    /// Monitors and managers.
    pub members: Members,
    /// OSDs by number.
    pub osds: BTreeMap<i64, Osd>,
    /// Where hosts are, by name: what is above them in CRUSH, as `default / rack1`.
    pub places: BTreeMap<String, String>,
    /// Pools by number.
    pub pools: BTreeMap<i64, Pool>,
    /// The failure domain of CRUSH rules by number: the type that copies are spread over.
    pub domains: BTreeMap<i64, String>,
    /// The fewest copies that a PG of a pool has, where some lack any.
    pub fewest: BTreeMap<i64, u64>,
    /// File systems.
    pub file_systems: Vec<FileSystem>,
    /// Flags of the OSD map.
    pub flags: Vec<String>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn count(value: &Value) -> u64 {
    match value {
        Value::Bool(yes) => u64::from(*yes),
        other => other.as_u64().unwrap_or_else(|| other.as_f64().unwrap_or(0.0).max(0.0) as u64),
    }
}

fn real(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value) -> Vec<String> {
    list(value).iter().map(text).collect()
}

fn checks(health: &Value) -> Vec<Check> {
    let all = health["checks"].as_object().into_iter().flatten();
    let mut checks: Vec<Check> = all
        .map(|(code, check)| Check {
            code: code.clone(),
            severity: text(&check["severity"]),
            summary: text(&check["summary"]["message"]),
            detail: list(&check["detail"]).iter().map(|one| text(&one["message"])).collect(),
            is_muted: check["muted"] == true,
        })
        .collect();
    checks.sort_by_key(|check| (check.is_muted, check.severity != "HEALTH_ERR"));
    checks
}

fn osds(answers: &Answers) -> BTreeMap<i64, Osd> {
    let digest = &answers.digest;
    let mut all = BTreeMap::new();
    for osd in list(&digest["osd"]["osds"]) {
        let id = osd["osd"].as_i64().unwrap_or(-1);
        let (is_up, is_in) = (count(&osd["up"]) > 0, count(&osd["in"]) > 0);
        all.insert(id, Osd { id, is_up, is_in, ..Osd::default() });
    }
    for node in list(&digest["osd_tree"]["nodes"]) {
        if node["type"] == "osd" {
            let known = node["id"].as_i64().and_then(|id| all.get_mut(&id));
            if let Some(osd) = known {
                osd.class = text(&node["device_class"]);
            }
        }
        // The bucket right above an OSD is its place: a host, nearly always.
        for child in list(&node["children"]) {
            let known = child.as_i64().and_then(|id| all.get_mut(&id));
            if let Some(osd) = known {
                osd.host = text(&node["name"]);
            }
        }
    }
    for node in list(&answers.osd_df["nodes"]) {
        let known = node["id"].as_i64().and_then(|id| all.get_mut(&id));
        if let Some(osd) = known {
            osd.size = count(&node["kb"]) << 10;
            osd.used = count(&node["kb_used"]) << 10;
            osd.pgs = count(&node["pgs"]);
        }
    }
    for info in list(&digest["osd_perf"]["osdstats"]["osd_perf_infos"]) {
        let known = info["id"].as_i64().and_then(|id| all.get_mut(&id));
        if let Some(osd) = known {
            let stats = &info["perf_stats"];
            let ns = real(&stats["commit_latency_ns"]) / 1e6;
            osd.commit_ms = if ns > 0.0 { ns } else { real(&stats["commit_latency_ms"]) };
        }
    }
    for (id, slow) in digest["slow_ops"].as_object().into_iter().flatten() {
        if let Some(osd) = id.parse().ok().and_then(|id: i64| all.get_mut(&id)) {
            osd.slow = count(slow);
        }
    }
    all
}

/// Levels of CRUSH above a host: no tree is deeper.
const DEPTH_MAX: usize = 12;

/// What is above each bucket that has OSDs.
fn places(tree: &Value) -> BTreeMap<String, String> {
    let nodes = list(&tree["nodes"]);
    let mut above: BTreeMap<i64, &Value> = BTreeMap::new();
    for node in nodes {
        above.extend(list(&node["children"]).iter().filter_map(Value::as_i64).map(|id| (id, node)));
    }
    let has_osds = |node: &Value| list(&node["children"]).iter().any(|id| id.as_i64() >= Some(0));
    let hosts = nodes.iter().filter(|node| has_osds(node));
    hosts
        .map(|host| {
            let mut names = Vec::new();
            let mut id = host["id"].as_i64().unwrap_or(0);
            while let Some(parent) = above.get(&id).filter(|_| names.len() < DEPTH_MAX) {
                names.push(text(&parent["name"]));
                id = parent["id"].as_i64().unwrap_or(0);
            }
            names.reverse();
            (text(&host["name"]), names.join(" / "))
        })
        .collect()
}

fn pools(digest: &Value) -> BTreeMap<i64, Pool> {
    let mut all = BTreeMap::new();
    for pool in list(&digest["osd"]["pools"]) {
        let id = pool["pool"].as_i64().unwrap_or(-1);
        let is_coded = count(&pool["type"]) == 3;
        let profile = text(&pool["erasure_code_profile"]);
        let k = &digest["osd"]["erasure_code_profiles"][&profile]["k"];
        let k = k.as_str().and_then(|k| k.parse().ok()).unwrap_or(1);
        let applications = pool["application_metadata"].as_object();
        all.insert(
            id,
            Pool {
                id,
                name: text(&pool["pool_name"]),
                applications: applications.into_iter().flatten().map(|(k, _)| k.clone()).collect(),
                size: count(&pool["size"]),
                min_size: count(&pool["min_size"]),
                needed: if is_coded { k } else { 1 },
                is_coded,
                rule: pool["crush_rule"].as_i64().unwrap_or(-1),
                pg_num: count(&pool["pg_num"]),
                quota: count(&pool["quota_max_bytes"]),
                ..Pool::default()
            },
        );
    }
    for pool in list(&digest["df"]["pools"]) {
        let known = pool["id"].as_i64().and_then(|id| all.get_mut(&id));
        if let Some(own) = known {
            let stats = &pool["stats"];
            own.stored = count(&stats["stored"]);
            own.avail = count(&stats["max_avail"]);
            own.fill = real(&stats["percent_used"]);
            own.objects = count(&stats["objects"]);
        }
    }
    for pool in list(&digest["pool_stats"]) {
        let known = pool["pool_id"].as_i64().and_then(|id| all.get_mut(&id));
        if let Some(own) = known {
            let io = &pool["client_io_rate"];
            let names =
                ["read_bytes_sec", "write_bytes_sec", "read_op_per_sec", "write_op_per_sec"];
            own.rates = names.map(|name| real(&io[name]));
        }
    }
    for (id, states) in digest["pgs"].as_object().into_iter().flatten() {
        if let Some(own) = id.parse().ok().and_then(|id: i64| all.get_mut(&id)) {
            let states = states.as_object().into_iter().flatten();
            own.states = states.map(|(name, n)| (name.clone(), count(n))).collect();
        }
    }
    all
}

/// What the last step of a rule that chooses spreads copies over.
fn domain(rule: &Value) -> String {
    let steps = list(&rule["steps"]).iter().rev();
    let mut chooses = steps.filter(|step| text(&step["op"]).starts_with("choose"));
    let last = chooses.find(|step| step["type"] != "osd" || text(&step["op"]).contains("leaf"));
    // `choose` of OSDs within a host spreads over hosts no further than the steps before it say.
    let direct =
        list(&rule["steps"]).iter().filter(|s| text(&s["op"]).starts_with("choose")).count();
    match last {
        Some(step) if direct == 1 => text(&step["type"]),
        _ => "osd".to_owned(),
    }
}

fn file_systems(digest: &Value) -> Vec<FileSystem> {
    let all = list(&digest["fs"]["filesystems"]).iter();
    all.map(|fs| {
        let map = &fs["mdsmap"];
        let servers = map["info"].as_object().into_iter().flatten();
        let mut servers: Vec<_> = servers
            .map(|(_, s)| (s["rank"].as_i64().unwrap_or(-1), text(&s["name"]), text(&s["state"])))
            .collect();
        servers.sort();
        let pools = std::iter::once(&map["metadata_pool"]).chain(list(&map["data_pools"]));
        FileSystem {
            name: text(&map["fs_name"]),
            servers,
            ranks: count(&map["max_mds"]),
            failed: list(&map["failed"]).len(),
            pools: pools.filter_map(Value::as_i64).collect(),
        }
    })
    .collect()
}

fn members(digest: &Value) -> Members {
    let quorum = &digest["quorum"];
    let within = texts(&quorum["quorum_names"]);
    let mons = list(&quorum["monmap"]["mons"]).iter().map(|mon| text(&mon["name"]));
    Members {
        mons: mons.map(|name| (name.clone(), within.contains(&name))).collect(),
        leader: text(&quorum["quorum_leader_name"]),
        mgr: text(&digest["mgr"]["active_name"]),
        standbys: list(&digest["mgr"]["standbys"]).iter().map(|s| text(&s["name"])).collect(),
        mds_standbys: list(&digest["fs"]["standbys"]).len(),
    }
}

impl State {
    /// Reads answers; what one of them lacks is nothing or zero.
    #[must_use]
    pub fn of(answers: &Answers) -> Self {
        let digest = &answers.digest;
        let health = &digest["health"];
        let pools = pools(digest);
        let mut objects = Objects::default();
        for pool in list(&digest["pg_pools"]["pool_stats"]) {
            let sum = &pool["stat_sum"];
            objects.all += count(&sum["num_objects"]);
            objects.copies += count(&sum["num_object_copies"]);
            objects.degraded += count(&sum["num_objects_degraded"]);
            objects.misplaced += count(&sum["num_objects_misplaced"]);
            objects.unfound += count(&sum["num_objects_unfound"]);
        }
        let sum = |at: usize| pools.values().map(|pool| pool.rates[at]).sum();
        let recovered = list(&digest["pool_stats"]).iter();
        let rates = Rates {
            read: sum(0),
            written: sum(1),
            reads: sum(2),
            writes: sum(3),
            recovered: recovered
                .map(|pool| real(&pool["recovery_rate"]["recovering_bytes_per_sec"]))
                .sum(),
        };
        let mut fewest: BTreeMap<i64, u64> = BTreeMap::new();
        for pg in list(&answers.pgs["pg_stats"]) {
            let id = pg["pgid"].as_str().unwrap_or_default();
            let pool = id.split('.').next().and_then(|id| id.parse().ok());
            let (Some(pool), Some(acting)) = (pool, pg["acting"].as_array()) else { continue };
            // 2147483647 is a shard that nobody has.
            let has = acting.iter().filter(|osd| osd.as_i64().is_some_and(|o| o < 1 << 30)).count();
            let least = fewest.entry(pool).or_insert(u64::MAX);
            *least = (*least).min(has as u64);
        }
        let rules = list(&answers.rules).iter();
        let stats = &digest["df"]["stats"];
        Self {
            at_s: answers.at_s,
            fsid: text(&digest["osd"]["fsid"]),
            health: text(&health["status"]),
            checks: checks(health),
            capacity: Capacity {
                total: count(&stats["total_bytes"]),
                used: count(&stats["total_used_raw_bytes"]),
                nearfull: real(&digest["osd"]["nearfull_ratio"]),
            },
            rates,
            objects,
            members: members(digest),
            osds: osds(answers),
            places: places(&digest["osd_tree"]),
            domains: rules
                .filter_map(|rule| Some((rule["rule_id"].as_i64()?, domain(rule))))
                .collect(),
            fewest,
            file_systems: file_systems(digest),
            flags: texts(&digest["osd"]["flags_set"]),
            pools,
        }
    }

    /// OSDs by host.
    #[must_use]
    pub fn hosts(&self) -> BTreeMap<&str, Vec<&Osd>> {
        let mut all: BTreeMap<&str, Vec<&Osd>> = BTreeMap::new();
        for osd in self.osds.values() {
            all.entry(&osd.host).or_default().push(osd);
        }
        all
    }

    /// PGs of all pools by state; `total` is all.
    #[must_use]
    pub fn pg_states(&self) -> BTreeMap<&str, u64> {
        let mut all: BTreeMap<&str, u64> = BTreeMap::new();
        for (state, n) in self.pools.values().flat_map(|pool| &pool.states) {
            *all.entry(state).or_default() += n;
        }
        all
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A small cluster's answers.
    pub(crate) fn answers() -> Answers {
        let digest = include_str!("../../mgr/testdata/digest.json");
        Answers {
            digest: serde_json::from_str(digest).expect("json"),
            osd_df: json!({"nodes": [
                {"id": 0, "type": "osd", "kb": 1000, "kb_used": 500, "pgs": 24},
                {"id": 1, "type": "osd", "kb": 1000, "kb_used": 100, "pgs": 24},
            ]}),
            rules: json!([{"rule_id": 0, "steps": [
                {"op": "take", "item": -1},
                {"op": "chooseleaf_firstn", "num": 0, "type": "host"},
                {"op": "emit"},
            ]}]),
            pgs: Value::Null,
            at_s: 1_796_000_000,
        }
    }

    #[test]
    fn answers_are_read() {
        let state = State::of(&answers());
        assert_eq!(state.health, "HEALTH_WARN");
        assert_eq!(state.checks[0].code, "POOL_APP_NOT_ENABLED");
        assert_eq!(state.osds.len(), 3);
        let osd = &state.osds[&0];
        assert!(osd.is_up && osd.is_in);
        assert_eq!((osd.host.as_str(), osd.class.as_str(), osd.pgs), ("h1", "hdd", 24));
        assert!((osd.fill() - 0.5).abs() < 1e-9);
        assert_eq!(state.hosts()["h1"].len(), 3);
        assert_eq!(state.places["h1"], "default");
        let pool = &state.pools[&1];
        assert_eq!((pool.size, pool.min_size, pool.needed), (3, 2, 1));
        assert_eq!(state.domains[&0], "host");
        assert_eq!(state.pg_states()["total"], 24);
        assert_eq!(state.file_systems[0].pools, [1, 2]);
        assert_eq!(state.members.mons.len(), state.members.mons.iter().filter(|m| m.1).count());
    }

    #[test]
    fn nonsense_is_borne() {
        let digest = json!({"osd": {"osds": 7, "pools": [{}]}, "df": [], "health": {"checks": 3}});
        let state = State::of(&Answers { digest, ..Answers::default() });
        assert_eq!((state.osds.len(), state.checks.len()), (0, 0));
    }

    #[test]
    fn places_of_hosts() {
        let tree = json!({"nodes": [
            {"id": -1, "name": "default", "children": [-2, -4]},
            {"id": -2, "name": "r1", "children": [-3]},
            {"id": -3, "name": "h1", "children": [0, 1]},
            {"id": -4, "name": "h2", "children": [2]},
            {"id": 0, "name": "osd.0"},
        ]});
        let places = places(&tree);
        assert_eq!((places["h1"].as_str(), places["h2"].as_str()), ("default / r1", "default"));
        let circle = json!({"nodes": [{"id": -1, "name": "a", "children": [-1, 0]}]});
        assert!(super::places(&circle)["a"].len() < 100, "a tree that is none ends");
    }

    #[test]
    fn domains_of_rules() {
        let rule = |steps: Value| domain(&json!({ "steps": steps }));
        let leaf = |kind: &str| json!([{"op": "take"}, {"op": "chooseleaf_indep", "type": kind}]);
        assert_eq!(rule(leaf("rack")), "rack");
        assert_eq!(rule(leaf("osd")), "osd");
        assert_eq!(rule(json!([{"op": "take"}, {"op": "choose_firstn", "type": "osd"}])), "osd");
        let two =
            json!([{"op": "choose_indep", "type": "host"}, {"op": "choose_indep", "type": "osd"}]);
        assert_eq!(rule(two), "osd", "several shards on a host");
    }

    /// What a shard lacks is counted, and what is no OSD is none.
    #[test]
    fn fewest_copies() {
        let mut answers = answers();
        answers.pgs = json!({"pg_stats": [
            {"pgid": "1.0", "acting": [0, 1, 2]},
            {"pgid": "1.1", "acting": [0, 2_147_483_647]},
        ]});
        assert_eq!(State::of(&answers).fewest, BTreeMap::from([(1, 1)]));
    }
}
