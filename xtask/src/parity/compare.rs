//! What can be seen of a cluster, and what differs between two.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::sh;

/// Words of a PG's state that pass by themselves.
const MOVING: [&str; 13] = [
    "activating",
    "backfill_wait",
    "backfilling",
    "creating",
    "deep",
    "forced_backfill",
    "forced_recovery",
    "peering",
    "recovering",
    "recovery_wait",
    "scrubbing",
    "snaptrim",
    "unknown",
];

/// Fields of `osd dump` and others that name a moment, a process or an address.
const OWN: [&str; 31] = [
    "fsid",
    "epoch",
    "created",
    "modified",
    "last_up_change",
    "last_in_change",
    "osd_xinfo",
    "blocklist",
    "range_blocklist",
    "uuid",
    "up_from",
    "up_thru",
    "down_at",
    "lost_at",
    "last_clean_begin",
    "last_clean_end",
    "crush_version",
    "new_purged_snaps",
    "removed_snaps_queue",
    "new_removed_snaps",
    "create_time",
    "last_change",
    "last_force_op_resend",
    "last_force_op_resend_prenautilus",
    "last_force_op_resend_preluminous",
    "auid",
    "stamp",
    "last_pg_merge_meta",
    "snap_epoch",
    "read_balance",
    "device_class",
];

/// One cluster at one moment: leaves of its maps by path.
#[derive(Default, PartialEq, Eq)]
pub struct State {
    leaves: BTreeMap<String, String>,
    /// PGs: state and the OSDs that should have it.
    pgs: BTreeMap<String, (String, Vec<u64>)>,
    /// Numbers of pools by name, and their snapshots.
    pools: BTreeMap<String, (u64, Vec<u64>)>,
    up: BTreeSet<u64>,
}

impl State {
    /// From what `osd dump`, `osd crush dump`, `pg dump pgs_brief`, `health` and `config dump`
    /// print as JSON.
    pub fn new(dump: &Value, crush: &Value, pgs: &Value, health: &Value, config: &Value) -> Self {
        let mut state = Self::default();
        state.walk("osdmap", dump);
        state.walk("crush", crush);
        for (code, check) in health["checks"].as_object().into_iter().flatten() {
            state.leaves.insert(format!("health.{code}"), check["severity"].to_string());
        }
        for row in list(config) {
            let path = format!("config.{}.{}", text(&row["section"]), text(&row["name"]));
            state.leaves.insert(path, text(&row["value"]));
        }
        for pg in list(pgs.get("pg_stats").unwrap_or(pgs)) {
            let id = text(&pg["pgid"]);
            for what in ["state", "up", "up_primary", "acting", "acting_primary"] {
                let mut said = text(&pg[what]);
                if what == "state" {
                    said = sorted(&said);
                }
                state.leaves.insert(format!("pg.{id}.{what}"), said);
            }
            let up = list(&pg["up"]).filter_map(Value::as_u64).filter(|o| *o < 1 << 31).collect();
            state.pgs.insert(id, (text(&pg["state"]), up));
        }
        for pool in list(&dump["pools"]) {
            let id = pool["pool"].as_u64().unwrap_or_default();
            let snaps = list(&pool["pool_snaps"]).filter_map(|s| s["snapid"].as_u64()).collect();
            state.pools.insert(text(&pool["pool_name"]), (id, snaps));
        }
        for osd in list(&dump["osds"]) {
            if osd["up"] == 1 {
                state.up.extend(osd["osd"].as_u64());
            }
        }
        state
    }

    fn walk(&mut self, path: &str, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if !OWN.contains(&name.as_str()) && !name.contains("addr") {
                        self.walk(&format!("{path}.{name}"), value);
                    }
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    let names = ["pool_name", "osd", "pgid", "id", "rule_id", "type_id", "name"];
                    let name = names.iter().map(|n| &item[*n]).find(|n| !n.is_null());
                    let name = name.map_or_else(|| at.to_string(), text);
                    self.walk(&format!("{path}.{name}"), item);
                }
            }
            leaf => {
                let said = match path.rsplit('.').next() {
                    Some("flags" | "state") => sorted(&text(leaf).replace(',', "+")),
                    _ => text(leaf),
                };
                self.leaves.insert(path.to_owned(), said);
            }
        }
    }

    /// Whether no PG is on its way and all that was stopped or started is known.
    pub fn rests(&self) -> bool {
        !self.pgs.is_empty() && self.moving().is_empty()
    }

    /// PGs on their way, with their states.
    pub fn moving(&self) -> Vec<String> {
        let moves = |state: &str| state.split('+').any(|word| MOVING.contains(&word));
        let all = self.pgs.iter().filter(|(_, (state, _))| moves(state));
        all.map(|(pg, (state, _))| format!("{pg} {state}")).collect()
    }

    /// Whether each PG of a pool answers clients.
    pub fn serves(&self, pool: &str) -> bool {
        let Some((id, _)) = self.pools.get(pool) else { return false };
        let mine = format!("{id}.");
        let mut pgs = self.pgs.iter().filter(|(pg, _)| pg.starts_with(&mine)).peekable();
        pgs.peek().is_some()
            && pgs.all(|(_, (state, _))| {
                state.split('+').any(|word| word == "active") && !state.contains("stale")
            })
    }

    /// The snapshots of a pool.
    pub fn snaps(&self, pool: &str) -> &[u64] {
        self.pools.get(pool).map_or(&[], |(_, snaps)| snaps)
    }

    /// All PGs and the OSDs that should have them.
    pub fn pgs(&self) -> Vec<(&str, &[u64])> {
        self.pgs.iter().map(|(pg, (_, up))| (pg.as_str(), up.as_slice())).collect()
    }

    /// Whether the map has an OSD up.
    pub fn is_up(&self, osd: u64) -> bool {
        self.up.contains(&osd)
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn sorted(words: &str) -> String {
    words.split('+').collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("+")
}

/// What differs: a path, ours, stock's.
pub fn differ(ours: &State, stock: &State) -> BTreeSet<String> {
    pairs(&ours.leaves, &stock.leaves)
}

/// The same of objects' sums.
pub fn objects(ours: &Value, stock: &Value) -> BTreeSet<String> {
    let leaves = |of: &Value| -> BTreeMap<String, String> {
        let all = of.as_object().into_iter().flatten();
        all.map(|(name, sum)| (format!("object.{name}"), text(sum))).collect()
    };
    pairs(&leaves(ours), &leaves(stock))
}

fn pairs(ours: &BTreeMap<String, String>, stock: &BTreeMap<String, String>) -> BTreeSet<String> {
    let none = || "absent".to_owned();
    let paths: BTreeSet<&String> = ours.keys().chain(stock.keys()).collect();
    paths
        .into_iter()
        .filter(|path| ours.get(*path) != stock.get(*path))
        .map(|path| {
            let [ours, stock] = [ours, stock].map(|of| of.get(path).cloned().unwrap_or_else(none));
            format!("{path}: ours {ours}, stock {stock}")
        })
        .collect()
}

/// Divergences that are known, each with its reason: `tests/parity/allowed.txt`.
pub struct Allowed(Vec<String>);

impl Allowed {
    /// Reads the list.
    ///
    /// # Errors
    /// When a line has no reason.
    pub fn read() -> Result<Self> {
        Self::parse(&std::fs::read_to_string(sh::repo().join("tests/parity/allowed.txt"))?)
    }

    fn parse(list: &str) -> Result<Self> {
        let mut rows = Vec::new();
        for line in list.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let (pattern, why) = line.split_once(" # ").unwrap_or((line, ""));
            ensure!(!why.trim().is_empty(), "allowed.txt: no reason behind {line:?}");
            rows.push(pattern.trim().to_owned());
        }
        Ok(Self(rows))
    }

    /// What is left without them.
    pub fn without(&self, all: BTreeSet<String>) -> BTreeSet<String> {
        all.into_iter().filter(|said| !self.0.iter().any(|p| matches(p, said))).collect()
    }
}

/// Whether `said` begins as `pattern` says, in which `*` stands for any text.
fn matches(pattern: &str, said: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = said.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(size: u64, state: &str) -> State {
        State::new(
            &json!({"epoch": size, "pools": [{"pool": 1, "pool_name": "data", "size": size}],
                "osds": [{"osd": 0, "up": 1, "public_addr": state}]}),
            &json!({}),
            &json!([{"pgid": "1.0", "state": state, "up": [0], "acting": [0]}]),
            &json!({"checks": {}}),
            &json!([]),
        )
    }

    #[test]
    fn what_an_operator_sees_is_compared_and_moments_are_not() {
        let (ours, stock) = (state(2, "active+clean"), state(3, "clean+active"));
        let size = "osdmap.pools.data.size: ours 2, stock 3";
        assert_eq!(differ(&ours, &stock), BTreeSet::from([size.to_owned()]));
        assert_eq!(differ(&ours, &state(2, "clean+active")), BTreeSet::new());
        assert_eq!(differ(&ours, &state(2, "active+undersized")).len(), 1);
    }

    #[test]
    fn a_pool_serves_when_all_its_pgs_are_active() {
        assert!(state(2, "active+undersized").serves("data"));
        assert!(!state(2, "undersized+peered").serves("data"));
        assert!(!state(2, "active").serves("none"));
        assert!(state(2, "undersized+peered").rests());
        assert!(!state(2, "active+recovering").rests());
    }

    #[test]
    fn allowed_rows_need_reasons_and_match_from_the_start() {
        assert!(Allowed::parse("pg.1.0.state\n").is_err());
        let allowed = Allowed::parse("# x\npg.*.state: ours active # why\n").expect("a list");
        let said = |s: &str| BTreeSet::from([s.to_owned()]);
        assert!(allowed.without(said("pg.1.0.state: ours active, stock clean")).is_empty());
        assert_eq!(allowed.without(said("a pg.1.0.state: ours active")).len(), 1);
        assert_eq!(allowed.without(said("pg.1.0.up: ours active")).len(), 1);
    }
}
