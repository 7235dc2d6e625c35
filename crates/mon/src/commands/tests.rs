//! Commands against transcripts of a stock cluster: the same words in, the same answers out.
//!
//! A transcript in `vectors/commands/` has `> {json}` for a command (` < "input"` when
//! something came along), then `rc N`, `rs "line"` when there is one, and the output.
//! `\ no newline` says that the output ends without one. Times and keys are blanked on both
//! sides before they are compared.

mod hosts;

use std::net::SocketAddr;
use std::path::Path;

use ::auth::{CryptoKey, KeyKind, MonCap};
use bytes::Bytes;
use env::{ConnId, Now, Seeded};
use maps::{MonInfo, MonMap, OsdState, PgMapping, PgStat, PgState, StoreStatfs};
use types::{
    AddrKind, AddrVec, EntityAddr, EntityId, EntityKind, EntityName, Epoch, Features, OsdId, UTime,
    Uuid,
};

use crate::{
    ClusterState, CommandCtx, HealthReport, Mkfs, Mutation, Outcome, QuorumInfo, Reply,
    SessionInfo, Volatile,
};

/// A cluster like the one the transcripts are of: a monitor, three OSDs of class hdd on one
/// host, and what its tools made at the start.
struct Cluster {
    state: ClusterState,
    volatile: Volatile,
    session: SessionInfo,
    now: Now,
    rng: Seeded,
    /// The command that is being run.
    doing: String,
    options: std::collections::BTreeMap<String, String>,
}

fn addrs(port: u16, nonce: u32) -> AddrVec {
    EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], port)), nonce).into()
}

impl Cluster {
    fn new() -> Self {
        let created = UTime { sec: 1_795_183_789, nsec: 0 };
        let fsid = Uuid::from_random([7; 16]);
        let mon = MonInfo { name: "a".into(), addrs: addrs(44_700, 0), ..MonInfo::default() };
        let mut mkfs = Mkfs {
            fsid,
            now: created,
            monmap: MonMap::new(fsid, created, 20, vec![mon]),
            chooseleaf_kind: 0,
            ..Mkfs::default()
        };
        for name in ["mon.", "client.admin", "osd.0", "osd.1", "osd.2"] {
            let key = CryptoKey::generate(KeyKind::AES, created, &mut Seeded(1));
            mkfs.add_key(name.parse().unwrap(), key);
        }
        let session = SessionInfo {
            conn: ConnId(1),
            name: EntityName::new(EntityKind::CLIENT, "admin"),
            entity: EntityId::new(EntityKind::CLIENT, -1),
            global_id: 4200,
            addrs: AddrVec(vec![EntityAddr {
                kind: AddrKind::ANY,
                nonce: 7,
                sock: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            }]),
            features: Features::ALL,
            caps: MonCap::allow_all(),
            mgr_caps: None,
            hostname: "vm".into(),
        };
        let volatile = Volatile {
            quorum: QuorumInfo {
                name: "a".into(),
                quorum: vec![0],
                leader: "a".into(),
                election_epoch: 3,
                ..QuorumInfo::default()
            },
            ..Volatile::default()
        };
        let mut this = Self {
            state: mkfs.state(),
            volatile,
            session,
            now: Now { mono_ns: 10_000_000_000_000, wall_ns: 1_795_184_000_000_000_000 },
            rng: Seeded(3),
            doing: String::new(),
            options: [
                ("mon_allow_pool_delete", "true"),
                ("mon_allow_pool_size_one", "true"),
                ("osd_pool_default_min_size", "1"),
            ]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        };
        this.osds();
        for id in 0..3 {
            let metadata = Some([("hostname".to_owned(), "vm".to_owned())].into());
            this.apply(&Mutation::OsdMetadata { osd: OsdId(id), metadata });
        }
        this.quiet(r#"{"prefix":"osd set-require-min-compat-client","version":"luminous"}"#);
        for (pool, pgs) in [("cephfs_meta", 8), ("cephfs_data", 16)] {
            this.quiet(&format!(
                r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":{pgs}}}"#
            ));
        }
        this.quiet(
            r#"{"prefix":"osd pool create","pool":".mgr","pg_num":1,"yes_i_really_mean_it":true}"#,
        );
        this
    }

    fn osds(&mut self) {
        let mut inc = self.state.osd_change();
        inc.new_max_osd = Some(3);
        for id in 0..3 {
            let osd = OsdId(id);
            let port = 6800 + 8 * id as u16;
            inc.new_state.insert(osd, OsdState::EXISTS.0 | OsdState::UP.0);
            inc.new_weight.insert(osd, maps::WEIGHT_ONE);
            inc.new_uuid.insert(osd, Uuid::from_random([id as u8 + 1; 16]));
            inc.new_up_client.insert(osd, addrs(port, 1));
            inc.new_up_cluster.insert(osd, addrs(port + 1, 1));
            inc.new_hb_back_up.insert(osd, addrs(port + 2, 1));
            inc.new_hb_front_up.insert(osd, addrs(port + 3, 1));
        }
        self.apply(&Mutation::Osd(Box::new(inc)));
        let mut crush = (**self.state.osdmap.crush.map()).clone();
        let at = [("host", "vm"), ("root", "default")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        for id in 0..3 {
            crush.insert_item(id, 131, &format!("osd.{id}"), &at.clone().into(), true).unwrap();
            crush.update_device_class(id, "hdd").unwrap();
        }
        let mut inc = self.state.osd_change();
        inc.crush = super::crush::bytes_of(&crush);
        self.apply(&Mutation::Osd(Box::new(inc)));
        for id in 0..3 {
            let statfs = StoreStatfs {
                total: 2 << 30,
                available: (2 << 30) - (27 << 20),
                ..StoreStatfs::default()
            };
            self.volatile.pgmap.osds.insert(OsdId(id), maps::OsdStat::new(statfs));
        }
    }

    /// What the monitor does with a mutation, without its log.
    fn commit(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::Batch(all) => all.iter().for_each(|one| self.commit(one)),
            Mutation::Osd(inc) => {
                let open = crate::osdinc::OpenOsd::new(self.state.osdmap.clone(), (**inc).clone());
                let sealed = open.finish(UTime::from_nanos(self.now.wall_ns), None);
                let (inc, _) = sealed.unwrap_or_else(|e| panic!("{}: {e}", self.doing));
                self.state.apply(&Mutation::Osd(Box::new(inc))).map(drop).unwrap();
            }
            other => self.state.apply(other).map(drop).unwrap(),
        }
    }

    fn apply(&mut self, mutation: &Mutation) {
        self.commit(mutation);
        let map = &self.state.osdmap;
        self.volatile.mapping = PgMapping::new(map);
        let pgs = &mut self.volatile.pgmap.pgs;
        pgs.retain(|id, _| map.have_pg(*id));
        for (id, sets) in self.volatile.mapping.iter() {
            let stat = pgs.entry(id).or_insert_with(|| PgStat {
                state: PgState(PgState::ACTIVE.0 | PgState::CLEAN.0),
                last_clean: UTime { sec: 1_795_184_000, nsec: 0 },
                ..PgStat::default()
            });
            stat.up.clone_from(&sets.up);
            stat.acting.clone_from(&sets.acting);
            stat.up_primary = sets.up_primary.unwrap_or(OsdId(-1));
            stat.acting_primary = sets.acting_primary.unwrap_or(OsdId(-1));
            stat.reported_epoch = Epoch(1);
        }
        for id in map.pools.keys() {
            self.volatile.pgmap.pools.entry(*id).or_default();
        }
        self.volatile.health = HealthReport::default();
    }

    fn run(&mut self, json: &str, input: &Bytes) -> Reply {
        let args = match cli::Args::parse(&[json]) {
            Ok(args) => args,
            Err(e) => return Reply::err(22, e.to_string()),
        };
        self.now.wall_ns += 1_000_000_000;
        json.clone_into(&mut self.doing);
        let mut ctx = CommandCtx {
            now: self.now,
            state: &self.state,
            volatile: &self.volatile,
            session: &self.session,
            cmd: &args,
            inbuf: input,
            rng: &mut self.rng,
            options: &self.options,
        };
        let is_own = super::is_own(&[Bytes::copy_from_slice(json.as_bytes())]);
        let outcome = if is_own { super::tell(&mut ctx) } else { super::run(&mut ctx) };
        let outcome = match outcome {
            Outcome::Balancer { step, then } => {
                self.volatile.balancer.take(*step, UTime::ZERO);
                *then
            }
            Outcome::FileSystems { edit, then } => {
                if let Some(inc) = edit.osd_change(&self.state, 86_400) {
                    self.apply(&Mutation::Osd(Box::new(inc)));
                }
                let epoch = self.state.osd_history.last;
                let map = edit.finish(epoch);
                Outcome::Propose { mutation: Mutation::FsMap(Box::new(map)), then }
            }
            other => other,
        };
        match outcome {
            Outcome::Reply(reply)
            | Outcome::ClearProgress(reply)
            | Outcome::WaitFor { then: reply, .. }
            | Outcome::Send { then: reply, .. } => reply,
            Outcome::Propose { mutation, then } => {
                self.apply(&mutation);
                then
            }
            Outcome::Module => Reply::err(95, "modules are elsewhere"),
            Outcome::FailManager { .. } => Reply::err(95, "managers are elsewhere"),
            Outcome::Balancer { .. } | Outcome::FileSystems { .. } => {
                unreachable!("one step only")
            }
        }
    }

    fn quiet(&mut self, json: &str) {
        let reply = self.run(json, &Bytes::new());
        assert_eq!(reply.r, 0, "{json}: {}", reply.rs);
    }
}

/// Blanks what differs from run to run: times, keys, ids of pools and buckets.
fn blank(text: &str) -> String {
    let mut out = String::new();
    let (mut before, mut last) = (String::new(), String::new());
    for word in text.split_inclusive([' ', '\t', '\n', '"', '\'', ',', '}']) {
        let bare = word.trim_end_matches([' ', '\t', '\n', '"', '\'', ',', '}']);
        let time = bare.len() >= 19 && bare.starts_with("20") && bare.as_bytes()[10] == b'T';
        let key = bare.len() >= 40 && (bare.starts_with("AQ") || bare.starts_with("Ag"));
        let number = bare.trim_start_matches([':', '-']).parse::<u64>().is_ok();
        let id = number
            && matches!(
                (before.as_str(), last.as_str()),
                ("set" | "unset", "pool")
                    | ("item", "id")
                    | (_, "pool_id")
                    | ("rule", "at")
                    | ("with", "id")
                    | (_, "epoch")
                    | ("epoch", ":")
            );
        let at = number && before.ends_with("created") && last == "rule";
        out.push_str(if time {
            "TIME"
        } else if key {
            "KEY"
        } else if id || at {
            "ID"
        } else {
            bare
        });
        out.push_str(&word[bare.len()..]);
        if !bare.is_empty() {
            before = std::mem::replace(&mut last, bare.to_owned());
        }
    }
    out
}

fn shown(reply: &Reply) -> String {
    let mut text = format!("rc {}\n", reply.r);
    if !reply.rs.is_empty() {
        text += &format!("rs {}\n", serde_json::Value::from(reply.rs.as_str()));
    }
    match std::str::from_utf8(&reply.out) {
        Ok(out) => {
            text += out;
            if !out.is_empty() && !out.ends_with('\n') {
                text += "\n\\ no newline\n";
            }
        }
        Err(_) => text += "<binary>\n",
    }
    blank(&text)
}

fn replay(name: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/commands");
    let path = root.join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut cluster = Cluster::new();
    let (mut wrong, mut count) = (String::new(), 0);
    let dump = std::env::var_os("ARGONAUT_KEEP").map(|dir| Path::new(&dir).join(name));
    let mut kept = text.lines().next().unwrap_or_default().to_owned() + "\n";
    for entry in text.split("\n> ").skip(1) {
        let (command, expected) = entry.split_once('\n').unwrap_or((entry, ""));
        let mut words = serde_json::Deserializer::from_str(command).into_iter();
        let Some(Ok(json)) = words.next() else { continue };
        let json: serde_json::Value = json;
        let input = command[words.byte_offset()..].strip_prefix(" < ");
        let input: String = input.map_or_else(String::new, |i| serde_json::from_str(i).unwrap());
        let reply = cluster.run(&json.to_string(), &Bytes::from(input.into_bytes()));
        let (got, want) = (shown(&reply), blank(&format!("{}\n", expected.trim_end_matches('\n'))));
        count += 1;
        if got.trim_end() == want.trim_end() {
            kept += &format!("> {entry}\n");
        } else {
            wrong += &format!("> {command}\n--- want\n{want}--- got\n{got}");
        }
    }
    if let Some(path) = dump {
        std::fs::write(path, kept).unwrap();
    }
    assert!(count > 0);
    assert!(wrong.is_empty(), "{name}:\n{wrong}");
}

#[test]
fn pools() {
    replay("pools.txt");
}

/// File systems without metadata servers.
#[test]
fn file_systems() {
    replay("fs.txt");
}

/// Erasure code profiles and pools.
#[test]
fn erasure() {
    replay("erasure.txt");
}

#[test]
fn osds() {
    replay("osds.txt");
}

#[test]
fn crush() {
    replay("crush.txt");
}

#[test]
fn reads() {
    replay("reads.txt");
}

#[test]
fn profiles() {
    replay("profiles.txt");
}

/// `min_size` follows `size`, whatever it was set to before.
#[test]
fn sizes() {
    replay("sizes.txt");
}

/// Ranges of the blocklist, stopping, reweighting.
#[test]
fn rest() {
    replay("rest.txt");
}

/// Reweighting by PGs: who has more than its share gets less weight, by no more than asked for,
/// and a test changes nothing.
#[test]
fn reweighting_by_pgs() {
    let mut cluster = Cluster::new();
    cluster.quiet(r#"{"prefix":"osd pool create","pool":"many","pg_num":64,"size":1}"#);
    cluster.quiet(r#"{"prefix":"osd crush reweight","name":"osd.1","weight":0.001}"#);
    let ask = |cluster: &mut Cluster, prefix: &str, more: &str| {
        let json =
            format!(r#"{{"prefix":"osd {prefix}-by-pg","pools":["many"],"oload":101{more}}}"#);
        cluster.run(&json, &Bytes::new())
    };
    let weights = |cluster: &Cluster| cluster.state.osdmap.osd_weight.to_vec();
    let test = ask(&mut cluster, "test-reweight", "");
    assert_eq!((test.r, test.rs.as_str()), (1, "no change"));
    assert_eq!(weights(&cluster), [maps::WEIGHT_ONE; 3]);
    let done = ask(&mut cluster, "reweight", "");
    assert_eq!(done.r, 0, "{}", done.rs);
    assert_eq!(done.out, test.out);
    let now = weights(&cluster);
    assert!(now.iter().any(|w| *w < maps::WEIGHT_ONE), "{now:?}");
    assert!(now.iter().all(|w| *w >= maps::WEIGHT_ONE - maps::WEIGHT_ONE / 20 - 1), "{now:?}");
}

/// Values of options, quotas and pool settings.
#[test]
fn values() {
    replay("values.txt");
}

/// New OSDs, rules, profiles and CRUSH edits.
#[test]
fn operators() {
    replay("operators.txt");
}

/// The keys of a json value, one per line, indented; of arrays the first member.
fn shape(value: &serde_json::Value, depth: usize, key: &str, out: &mut Vec<String>) {
    use serde_json::Value;
    let line = |kind: &str| format!("{}{key} {kind}", "  ".repeat(depth));
    match value {
        Value::Object(map) => {
            out.push(line("{}"));
            map.iter().for_each(|(key, value)| shape(value, depth + 1, key, out));
        }
        Value::Array(list) => {
            out.push(line("[]"));
            list.iter().take(1).for_each(|value| shape(value, depth + 1, "", out));
        }
        Value::Bool(_) => out.push(line("bool")),
        Value::Number(_) => out.push(line("num")),
        Value::String(_) | Value::Null => out.push(line("text")),
    }
}

/// Every json answer has the peer's keys in the peer's order. In `shapes.txt`, a line that
/// begins with `-` is the peer's alone, one with `+` ours alone.
#[test]
fn shapes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/commands/shapes.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut cluster = Cluster::new();
    for json in [
        r#"{"prefix":"osd pool create","pool":"rep","pg_num":8}"#,
        r#"{"prefix":"osd pool application enable","pool":"rep","app":"rbd"}"#,
        r#"{"prefix":"osd pool create","pool":"rep1","pg_num":4}"#,
        r#"{"prefix":"osd pool mksnap","pool":"rep1","snap":"s1"}"#,
        r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"1.2.3.4:0/5"}"#,
        r#"{"prefix":"config set","who":"osd.0","name":"debug_osd","value":"1/5"}"#,
        r#"{"prefix":"log","logtext":["hello"]}"#,
        r#"{"prefix":"auth add","entity":"client.t1","caps":["mon","allow r"]}"#,
    ] {
        cluster.quiet(json);
    }
    let metadata = [("hostname", "vm"), ("ceph_version", "x")];
    let metadata: std::collections::BTreeMap<String, String> =
        metadata.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    for id in 0..3 {
        let metadata = Some(metadata.clone());
        cluster.apply(&Mutation::OsdMetadata { osd: OsdId(id), metadata });
    }
    cluster.apply(&Mutation::MonMetadata { name: "a".into(), metadata });
    let check = crate::HealthCheck {
        severity: crate::HealthStatus::Warn,
        summary: "1 osds down".into(),
        count: 1,
        detail: vec!["osd.0 is down".into()],
    };
    cluster.volatile.health.checks.insert("OSD_DOWN".into(), check);
    let (mut wrong, mut kept) = (String::new(), String::new());
    for entry in text.split("\n> ").skip(1) {
        let (command, lines) = entry.split_once('\n').unwrap();
        let reply = cluster.run(command, &Bytes::new());
        let value = serde_json::from_slice(&reply.out)
            .unwrap_or_else(|e| panic!("{command}: {} {}: {e}", reply.r, reply.rs));
        let mut got = Vec::new();
        shape(&value, 0, "", &mut got);
        kept += &format!("> {command}\n{}\n", got.join("\n"));
        let lines = lines.lines().filter(|l| !l.is_empty() && !l.starts_with('-'));
        let want: Vec<&str> = lines.map(|l| l.get(1..).unwrap_or_default()).collect();
        let differs = want.iter().zip(&got).position(|(a, b)| a != b);
        if differs.is_some() || want.len() != got.len() {
            let at = differs.unwrap_or(want.len().min(got.len()));
            wrong += &format!("{command}: want {:?}, got {:?}\n", want.get(at), got.get(at));
        }
    }
    if let Some(dir) = std::env::var_os("ARGONAUT_KEEP") {
        std::fs::write(Path::new(&dir).join("shapes.txt"), kept).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A pool becomes another's cache and stops being it, with the peer's checks and sentences.
#[test]
fn tiers() {
    let mut cluster = Cluster::new();
    for pool in ["base", "cache", "third"] {
        cluster.quiet(&format!(r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":1}}"#));
    }
    fn say(cluster: &mut Cluster, what: &str, args: &str) -> (i32, String) {
        let reply = cluster.run(&format!(r#"{{"prefix":"osd {what}",{args}}}"#), &Bytes::new());
        (reply.r, reply.rs)
    }
    let pair = |a: &str, b: &str| format!(r#""pool":"{a}","tierpool":"{b}""#);
    let c = &mut cluster;
    let set = |c: &mut Cluster, var: &str, val: &str| {
        say(c, "pool set", &format!(r#""pool":"cache","var":"{var}","val":"{val}""#))
    };
    let mode = |c: &mut Cluster, m: &str| {
        say(c, "tier cache-mode", &format!(r#""pool":"cache","mode":"{m}""#))
    };
    assert_eq!(set(c, "hit_set_type", "bloom").0, -13);
    assert_eq!(mode(c, "writeback"), (-22, "pool 'cache' is not a tier".to_owned()));
    let overlay = r#""pool":"base","overlaypool":"cache""#;
    let refused = say(c, "tier set-overlay", overlay);
    assert_eq!(refused, (-22, "tier pool 'cache' is not a tier of 'base'".to_owned()));
    let added = (0, "pool 'cache' is now (or already was) a tier of 'base'".to_owned());
    assert_eq!(say(c, "tier add", &pair("base", "cache")), added);
    assert_eq!(say(c, "tier add", &pair("base", "cache")), added);
    let again = say(c, "tier add", &pair("third", "cache"));
    assert_eq!(again, (-22, "tier pool 'cache' is already a tier of 'base'".to_owned()));
    assert_eq!(say(c, "tier add", &pair("cache", "third")).0, -22);
    assert_eq!(say(c, "tier add", &pair("third", "base")).0, -22);
    assert_eq!(say(c, "tier add", &pair("third", "third")).0, -22);

    let warned = say(c, "tier set-overlay", overlay);
    let text = "overlay for 'base' is now (or already was) 'cache' (WARNING: overlay pool cache_mode is still NONE)";
    assert_eq!(warned, (0, text.to_owned()));
    assert_eq!(mode(c, "readonly").0, -1);
    assert_eq!(mode(c, "forward").0, -1);
    assert_eq!(mode(c, "writeback"), (0, "set cache-mode for pool 'cache' to writeback".into()));
    assert_eq!(mode(c, "none").0, -22, "dirty objects would be forgotten");
    assert_eq!(set(c, "hit_set_fpp", "0.1").0, -22);
    for (var, val, r) in [
        ("hit_set_type", "bloom", 0),
        ("hit_set_type", "tree", -22),
        ("hit_set_fpp", "0.01", 0),
        ("hit_set_count", "8", 0),
        ("hit_set_count", "-1", -22),
        ("hit_set_period", "600", 0),
        ("hit_set_search_last_n", "9", -22),
        ("hit_set_grade_decay_rate", "101", -22),
        ("cache_target_dirty_ratio", "0.25", 0),
        ("cache_target_full_ratio", "1.1", -22),
        ("target_max_objects", "500", 0),
        ("target_max_bytes", "1073741824", 0),
        ("min_read_recency_for_promote", "2", 0),
        ("cache_min_flush_age", "x", -22),
    ] {
        assert_eq!(set(c, var, val).0, r, "{var} {val}");
    }
    let dump = c.run(r#"{"prefix":"osd dump"}"#, &Bytes::new()).out;
    let dump = String::from_utf8_lossy(&dump).into_owned();
    let line = |name: &str| dump.lines().find(|l| l.contains(&format!("'{name}'"))).unwrap();
    let words = " cache_mode writeback target_bytes 1073741824 target_objects 500 hit_set bloom{false_positive_probability: 0.01, target_size: 0, seed: 0} 600s x8 decay_rate 0 search_last_n 0 min_read_recency_for_promote 2 stripe_width 0";
    assert!(line("cache").contains(words), "{}", line("cache"));
    assert!(line("base").contains("read_tier") && line("base").contains("write_tier"));

    // Snapshots of the base are the tier's.
    assert_eq!(say(c, "pool mksnap", r#""pool":"cache","snap":"s""#).0, -22);
    assert_eq!(say(c, "pool mksnap", r#""pool":"base","snap":"s""#).0, 0);
    let cache = c.state.osdmap.pool_by_name("cache").unwrap();
    assert_eq!(c.state.osdmap.pool(cache).unwrap().snaps.len(), 1);
    assert_eq!(say(c, "pool rmsnap", r#""pool":"base","snap":"s""#).0, 0);
    assert!(c.state.osdmap.removed_snaps_queue[&cache].contains(1));

    let rm = |c: &mut Cluster, pool: &str| {
        let twice =
            format!(r#""pool":"{pool}","pool2":"{pool}","yes_i_really_really_mean_it":true"#);
        say(c, "pool rm", &twice)
    };
    assert_eq!(rm(c, "base"), (-16, "pool 'base' has tiers cache".to_owned()));
    assert_eq!(rm(c, "cache"), (-16, "pool 'cache' is a tier of 'base'".to_owned()));
    assert_eq!(say(c, "tier remove", &pair("base", "cache")).0, -16, "it is the overlay");
    let none = (0, "there is now (or already was) no overlay for 'base'".to_owned());
    assert_eq!(say(c, "tier remove-overlay", r#""pool":"base""#), none);
    assert_eq!(say(c, "tier remove-overlay", r#""pool":"base""#), none);
    let removed = (0, "pool 'cache' is now (or already was) not a tier of 'base'".to_owned());
    assert_eq!(say(c, "tier remove", &pair("base", "cache")), removed);
    assert_eq!(c.state.osdmap.pool(cache).unwrap().target_max_bytes, 0);
    let cached = (0, "pool 'third' is now (or already was) a cache tier of 'base'".to_owned());
    let args = pair("base", "third") + r#","size":1000"#;
    assert_eq!(say(c, "tier add-cache", &args), cached);
    assert_eq!(rm(c, "cache").0, 0);
}

/// Every command of the table is known here, and takes any argument without a panic: none,
/// wrong kinds, odd values.
#[test]
fn everything_is_known_and_nothing_panics() {
    use cli::ArgKind;
    use serde_json::{Map, Value, json};
    let mut cluster = Cluster::new();
    let odd = [
        json!(null),
        json!(""),
        json!("osd.0"),
        json!("cephfs_data"),
        json!("1.0"),
        json!(-1),
        json!(i64::MAX),
        json!(1e300),
        json!(true),
        json!([]),
        json!(["0", 7, null]),
        json!({}),
    ];
    for command in cli::commands() {
        let prefix = command.prefix.as_str();
        let fitting = |kind: &ArgKind, repeats: bool| {
            let one = match kind {
                ArgKind::Int => json!(0),
                ArgKind::Float => json!(0.5),
                ArgKind::Bool => json!(true),
                ArgKind::Choices(values) => json!(values[0]),
                ArgKind::Named("Poolname") => json!("cephfs_data"),
                ArgKind::Named("Pgid") => json!("1.0"),
                _ => json!("0"),
            };
            if repeats { json!([one]) } else { one }
        };
        for round in 0..=odd.len() {
            let mut map = Map::from_iter([("prefix".to_owned(), Value::from(prefix))]);
            for (i, arg) in command.sig.args().enumerate() {
                let value = match round {
                    0 => continue,
                    n if n == odd.len() => fitting(&arg.kind, arg.repeats),
                    n => odd[(n + i) % odd.len()].clone(),
                };
                map.insert(arg.name.to_owned(), value);
            }
            let format = ["plain", "json", "xml", "table"][round % 4];
            map.insert("format".to_owned(), Value::from(format));
            let reply = cluster.run(&Value::Object(map.clone()).to_string(), &Bytes::new());
            assert_ne!(reply.rs, "command not known", "{prefix}");
            assert!(reply.r <= 0 || reply.r == 22, "{map:?}: {}", reply.r);
        }
    }
    for prefix in super::UNBUILT {
        assert!(cli::find_prefix(prefix).is_some(), "{prefix} is not in the table");
    }
}

/// A monitor has a v2 address and may have one of v1; `mon add` names both as the peer does.
#[test]
fn monitors_have_addresses_of_both_messengers() {
    let mut cluster = Cluster::new();
    let mut run = |words: &str| {
        let reply = cluster.run(words, &Bytes::new());
        let map = &cluster.state.monmap;
        let of = |name| map.mons.get(name).map(|m: &MonInfo| m.addrs.to_string());
        (reply.r, reply.rs, of("a"), of("b"))
    };
    let set = |name: &str, addrs: &str| {
        format!(r#"{{"prefix":"mon set-addrs","name":"{name}","addrs":"{addrs}"}}"#)
    };
    let both = "[v2:127.0.0.1:44700/0,v1:127.0.0.1:6789/0]";
    // As an operator types it; the order and the nonce do not matter.
    let done = run(&set("a", "[v1:127.0.0.1:6789/9,v2:127.0.0.1:44700]"));
    assert_eq!((done.0, done.2.as_deref()), (0, Some(both)), "{}", done.1);
    for (name, addrs, r) in [
        ("z", "v2:127.0.0.1:44700", -2),
        ("a", "v1:127.0.0.1:6789", -22),
        ("a", "v2:127.0.0.1:0", -22),
        ("a", "[v2:127.0.0.1:44700,v2:127.0.0.1:44701]", -22),
        ("a", "nowhere", -22),
    ] {
        let refused = run(&set(name, addrs));
        assert_eq!((refused.0, refused.2.as_deref()), (r, Some(both)), "{addrs}: {}", refused.1);
        assert!(!refused.1.is_empty());
    }
    let add = |addr: &str| format!(r#"{{"prefix":"mon add","name":"b","addr":"{addr}"}}"#);
    let of_b = |addr, given: &str, mut cluster: Cluster| {
        let reply = cluster.run(given, &Bytes::new());
        assert_eq!(reply.r, 0, "{addr}: {}", reply.rs);
        cluster.state.monmap.mons["b"].addrs.to_string()
    };
    let usual = "[v2:10.0.0.2:3300/0,v1:10.0.0.2:6789/0]";
    for (addr, expected) in [
        ("10.0.0.2", usual),
        ("10.0.0.2:6789", usual),
        ("v1:10.0.0.2:6789", usual),
        ("10.0.0.2:3300", "v2:10.0.0.2:3300/0"),
        ("[v2:10.0.0.2:7000/0,v1:10.0.0.2:7001/0]", "[v2:10.0.0.2:7000/0,v1:10.0.0.2:7001/0]"),
    ] {
        assert_eq!(of_b(addr, &add(addr), Cluster::new()), expected, "{addr}");
    }
    assert_eq!(Cluster::new().run(&add("v1:10.0.0.2:7001"), &Bytes::new()).r, -22);
    run(&add("10.0.0.2"));
    let taken = run(&set("a", "[v2:127.0.0.1:44700,v1:10.0.0.2:6789]"));
    assert_eq!((taken.0, taken.2.as_deref()), (-17, Some(both)), "{}", taken.1);
}

fn health_options() -> crate::health::HealthOptions {
    crate::health::HealthOptions {
        autoscale: crate::autoscale::Bounds::default(),
        auth: crate::health_auth::Options::default(),
        pool_size: 3,
        no_redundancy: false,
        no_app: false,
        no_hit_sets: true,
        cache_full_ratio: 0.66,
        too_few_osds: false,
        stuck_ms: 60_000,
        now_ms: 0,
        wall_ns: 0,
        unscrubbed_s: crate::health::ScrubAges::default(),
        bounds: crate::health_codes::MapBounds::default(),
        reports: crate::health_reports::Bounds::default(),
        mons: crate::vitals::Bounds::default(),
    }
}

#[test]
fn counters_are_upstreams() {
    let mut c = Cluster::new();
    let told = c.run(r#"{"prefix":"counter schema"}"#, &Bytes::new());
    let schema = serde_json::from_slice(&told.out).unwrap();
    let recorded = include_str!("../../../../vectors/metrics/counters-20.2.4.tsv");
    assert_eq!(metrics::differences("mon", &schema, recorded), Vec::<String>::new());
    let told = c.run(r#"{"prefix":"perf dump","logger":"cluster"}"#, &Bytes::new());
    let all: serde_json::Value = serde_json::from_slice(&told.out).unwrap();
    assert_eq!((&all["cluster"]["num_osd"], all.as_object().unwrap().len()), (&3.into(), 1));
}

/// What maps alone tell of ratios, pools and CRUSH, as stock 20.2.4 told it of the same
/// settings; and OSDs that were made and never came up.
#[test]
fn maps_are_looked_at() {
    let mut cluster = Cluster::new();
    let mut options = health_options();
    options.bounds.pgs_per_osd = 5;
    let told = |cluster: &Cluster, options| {
        crate::health::check(&cluster.state, &cluster.volatile, options).checks
    };
    let odd = ["POOL_PG_NUM_NOT_POWER_OF_TWO", "POOL_SCRUB_FLAGS", "OSD_OUT_OF_ORDER_FULL"];
    let crush = ["OLD_CRUSH_STRAW_CALC_VERSION", "OSD_NEVER_UP"];
    let before = told(&cluster, &options);
    assert!(odd.iter().chain(&crush).all(|code| !before.contains_key(*code)), "{before:?}");
    for json in [
        r#"{"prefix":"osd pool create","pool":"odd","pg_num":6,"pgp_num":6}"#,
        r#"{"prefix":"osd pool set","pool":"odd","var":"noscrub","val":"1"}"#,
        r#"{"prefix":"osd pool set","pool":"odd","var":"nodeep-scrub","val":"1"}"#,
        r#"{"prefix":"osd set-nearfull-ratio","ratio":0.95}"#,
        r#"{"prefix":"osd set-backfillfull-ratio","ratio":0.97}"#,
        r#"{"prefix":"osd set-full-ratio","ratio":0.93}"#,
        r#"{"prefix":"osd crush tunables","profile":"argonaut"}"#,
        r#"{"prefix":"osd new","uuid":"11111111-2222-3333-4444-555555555555","id":5}"#,
    ] {
        cluster.quiet(json);
    }
    cluster.volatile.never_up.insert(OsdId(5));
    let after = told(&cluster, &options);
    let told = |code: &str| {
        let check = after.get(code).unwrap_or_else(|| panic!("{code}: {after:?}"));
        (check.severity, check.summary.as_str(), check.detail.join("; "))
    };
    use crate::HealthStatus::{Err, Ok, Warn};
    let (odd, flags, full) = (told(odd[0]), told(odd[1]), told(odd[2]));
    assert_eq!((odd.0, odd.1), (Warn, "1 pool(s) have non-power-of-two pg_num"));
    assert_eq!(odd.2, "pool 'odd' pg_num 6 is not a power of two");
    assert_eq!((flags.0, flags.1), (Ok, "Some pool(s) have the noscrub, nodeep-scrub flag(s) set"));
    assert_eq!(flags.2, "Pool odd has noscrub flag; Pool odd has nodeep-scrub flag");
    assert_eq!((full.0, full.1), (Err, "full ratio(s) out of order"));
    assert_eq!(full.2, "full_ratio (0.93) < backfillfull_ratio (0.97), increased");
    assert_eq!(told(crush[0]).1, "crush map has straw_calc_version=0");
    assert_eq!(told(crush[1]).1, "1 osd(s) were made and never came up");
    assert!(told("TOO_MANY_PGS").1.ends_with("> max 5)"));
}

/// As stock 20.2.4 tells it.
#[test]
fn osds_that_are_never_marked_out_are_told() {
    let mut cluster = Cluster::new();
    cluster.volatile.quorum.name = "a".to_owned();
    let mut options = health_options();
    let mut told = |interval| {
        options.bounds.down_out = interval;
        let mut checks = crate::health::check(&cluster.state, &cluster.volatile, &options).checks;
        checks.remove("OSD_NO_DOWN_OUT_INTERVAL")
    };
    assert!(told(Some(600)).is_none() && told(None).is_none());
    let check = told(Some(0)).expect("a warning");
    assert_eq!(check.severity, crate::HealthStatus::Warn);
    assert_eq!(check.summary, "mon a has mon_osd_down_out_interval set to 0");
    assert_eq!(check.detail, ["mon.a has mon_osd_down_out_interval set to 0"]);
}

/// OSDs that only CRUSH knows, OSDs outside of the clients' networks, and pools that are to become
/// larger than all there is.
#[test]
fn orphans_networks_and_targets_are_told() {
    let mut cluster = Cluster::new();
    let mut options = health_options();
    let told = |cluster: &Cluster, options: &crate::health::HealthOptions, code: &str| {
        let report = crate::health::check(&cluster.state, &cluster.volatile, options);
        report.checks.get(code).map(|c| (c.severity, c.summary.clone(), c.detail.clone()))
    };
    options.bounds.public_network = "2001:db8::/32, 127.0.0.0/8".into();
    let over = "POOL_TARGET_SIZE_BYTES_OVERCOMMITTED";
    for code in ["OSD_ORPHAN", "OSD_UNREACHABLE", over] {
        assert_eq!(told(&cluster, &options, code), None);
    }
    let mut crush = (**cluster.state.osdmap.crush.map()).clone();
    let at = [("host", "vm"), ("root", "default")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    crush.insert_item(7, 131, "osd.7", &at.into(), true).unwrap();
    let mut inc = cluster.state.osd_change();
    inc.crush = super::crush::bytes_of(&crush);
    cluster.apply(&Mutation::Osd(Box::new(inc)));
    let (_, orphan, detail) = told(&cluster, &options, "OSD_ORPHAN").expect("a warning");
    assert_eq!(orphan, "1 osds exist in the crush map but not in the osdmap");
    assert_eq!(detail, ["osd.7 exists in crush map but not in osdmap"]);
    options.bounds.public_network = "192.0.2.0/24".into();
    let (severity, apart, detail) = told(&cluster, &options, "OSD_UNREACHABLE").expect("an error");
    assert_eq!((severity, &*apart), (crate::HealthStatus::Err, "3 osds(s) are not reachable"));
    assert_eq!(detail[0], "osd.0's public address is not in '192.0.2.0/24' subnet");
    cluster.quiet(
        r#"{"prefix":"osd pool set","pool":"cephfs_data","var":"target_size_bytes","val":"10T"}"#,
    );
    let (_, summary, detail) = told(&cluster, &options, over).expect("a warning");
    assert_eq!(summary, "1 subtrees have overcommitted pool target_size_bytes");
    assert!(detail[0].starts_with("Pools ['cephfs_meta', 'cephfs_data', '.mgr'] overcommit"));
    assert!(detail[0].ends_with(" on pools ['cephfs_data']"), "{detail:?}");
}

/// An OSD that says its journal is in memory makes the cluster warn, by name.
#[test]
fn a_journal_in_memory_is_told() {
    let mut cluster = Cluster::new();
    let options = health_options();
    let told = |cluster: &Cluster| {
        let report = crate::health::check(&cluster.state, &cluster.volatile, &options);
        report.checks.get("OSD_UNSAFE_JOURNAL").cloned()
    };
    assert_eq!(told(&cluster), None);
    for (osd, place) in [(0, "device"), (1, "memory"), (2, "own device")] {
        let metadata = [("osd_journal_placement".to_owned(), place.to_owned())].into();
        let metadata = Some(metadata);
        cluster.apply(&Mutation::OsdMetadata { osd: OsdId(osd), metadata });
    }
    let check = told(&cluster).expect("a warning");
    assert_eq!(check.severity, crate::HealthStatus::Warn);
    assert_eq!(check.summary, "1 osd(s) keep their journal in memory");
    assert_eq!(check.detail, ["osd.1: a crash loses acknowledged writes"]);
}

/// PGs that nobody scrubbed for long are told, by name and since when; pools may say how long
/// that is, and PGs of which nothing was ever heard do not count.
#[test]
fn unscrubbed_pgs_are_told() {
    use types::{PgId, PoolId, UTime};
    let mut cluster = Cluster::new();
    let day = 86_400.0;
    let options = crate::health::HealthOptions {
        autoscale: crate::autoscale::Bounds::default(),
        auth: crate::health_auth::Options::default(),
        pool_size: 3,
        no_redundancy: false,
        no_app: false,
        no_hit_sets: true,
        cache_full_ratio: 0.66,
        too_few_osds: false,
        stuck_ms: 60_000,
        now_ms: 0,
        wall_ns: 1_700_000_000_000_000_000,
        unscrubbed_s: crate::health::ScrubAges {
            light_s: 7.0 * day,
            deep_s: 7.0 * day,
            light_ratio: 0.5,
            deep_ratio: 0.75,
        },
        bounds: crate::health_codes::MapBounds::default(),
        reports: crate::health_reports::Bounds::default(),
        mons: crate::vitals::Bounds::default(),
    };
    let ago = |days: u64| UTime::from_nanos(options.wall_ns - days * 86_400_000_000_000);
    for (ps, light, deep) in [(0, 1, 2), (1, 10, 12), (2, 11, 13), (3, 8, 8)] {
        let stat = maps::PgStat {
            last_scrub_stamp: ago(light),
            last_deep_scrub_stamp: ago(deep),
            ..maps::PgStat::default()
        };
        cluster.volatile.pgmap.pgs.insert(PgId { pool: PoolId(77), ps }, stat);
    }
    cluster.volatile.pgmap.pgs.insert(PgId { pool: PoolId(78), ps: 0 }, maps::PgStat::default());
    let report = crate::health::check(&cluster.state, &cluster.volatile, &options);
    let light = &report.checks["PG_NOT_SCRUBBED"];
    assert_eq!(light.summary, "1 pgs not scrubbed in time");
    assert_eq!(light.detail, [format!("pg 77.2 not scrubbed since {}", ago(11))]);
    let deep = &report.checks["PG_NOT_DEEP_SCRUBBED"];
    assert_eq!(deep.summary, "1 pgs not deep-scrubbed in time");
    assert_eq!(deep.detail, [format!("pg 77.2 not deep-scrubbed since {}", ago(13))]);
}

/// Scrubs are asked of the OSDs that lead the PGs.
#[test]
fn scrubs_are_sent_to_primaries() {
    let mut cluster = Cluster::new();
    let mut reply = |json: &str| cluster.run(json, &Bytes::new());
    let r = reply(r#"{"prefix":"pg scrub","pgid":"99.0"}"#);
    assert_eq!((r.r, r.rs.as_str()), (-2, "pg 99.0 does not exist"));
    let r = reply(r#"{"prefix":"osd deep-scrub","who":"all"}"#);
    assert_eq!(r.r, 0, "{}", r.rs);
    assert!(r.rs == "instructed osd(s) 0,1,2 to deep-scrub", "{}", r.rs);
}

/// Operations that take too long are told, with who has them; an OSD that has none any more
/// is not.
#[test]
fn slow_operations_are_told() {
    let mut cluster = Cluster::new();
    let options = health_options();
    let told = |cluster: &Cluster| {
        let report = crate::health::check(&cluster.state, &cluster.volatile, &options);
        report.checks.get("SLOW_OPS").map(|c| c.summary.clone())
    };
    assert_eq!(told(&cluster), None);
    cluster.volatile.pgmap.slow.insert(OsdId(1), (3, 34_500));
    let one = "3 slow ops, oldest one blocked for 34 sec, osd.1 has slow ops";
    assert_eq!(told(&cluster).as_deref(), Some(one));
    cluster.volatile.pgmap.slow.insert(OsdId(2), (1, 60_000));
    let two = "4 slow ops, oldest one blocked for 60 sec, daemons [osd.1,osd.2] have slow ops.";
    assert_eq!(told(&cluster).as_deref(), Some(two));
}

/// Of an OSD that is down nobody knows what it holds, before all is whole without it.
#[test]
fn a_dead_osd_may_be_needed() {
    let mut c = Cluster::new();
    let ask = r#"{"prefix":"osd safe-to-destroy","ids":["2"]}"#;
    for change in ["osd down", "osd out"] {
        let json = format!(r#"{{"prefix":"{change}","ids":["2"]}}"#);
        assert_eq!(c.run(&json, &Bytes::new()).r, 0, "{change}");
    }
    // As a monitor has it: what the OSD said is gone once it is out.
    c.volatile.pgmap.osds.insert(OsdId(2), maps::OsdStat::default());
    let whole: Vec<_> = c.volatile.pgmap.pgs.iter().map(|(pg, s)| (*pg, s.state)).collect();
    assert!(!whole.is_empty());
    assert_eq!(c.run(ask, &Bytes::new()).r, 0, "all is active and clean elsewhere");
    c.volatile.pgmap.pgs.get_mut(&whole[0].0).unwrap().state = PgState::ACTIVE;
    let refused = c.run(ask, &Bytes::new());
    assert_eq!(refused.r, -11, "{refused:?}");
    assert!(refused.rs.contains("not all PGs are active+clean"), "{refused:?}");
}

/// Plans made by hand: shown as what would do the same, judged, executed once, forgotten; and
/// none are made while the balancer works by itself.
#[test]
fn plans_by_hand() {
    let mut c = Cluster::new();
    let ask = |c: &mut Cluster, json: &str| c.run(json, &Bytes::new());
    let optimize = r#"{"prefix":"balancer optimize","plan":"x","pools":["cephfs_data"]}"#;
    assert_eq!(ask(&mut c, optimize).r, -8, "no mode");
    assert_eq!(ask(&mut c, r#"{"prefix":"balancer mode","mode":"read"}"#).r, -1, "old clients");
    c.quiet(r#"{"prefix":"osd set-require-min-compat-client","version":"reef"}"#);
    c.quiet(r#"{"prefix":"balancer mode","mode":"read"}"#);
    let unknown = ask(&mut c, r#"{"prefix":"balancer optimize","plan":"x","pools":["q"]}"#);
    assert_eq!((unknown.r, unknown.rs.as_str()), (-22, "pools ['q'] not found"));
    c.quiet(optimize);
    let shown = ask(&mut c, r#"{"prefix":"balancer show","plan":"x"}"#).out;
    let shown = String::from_utf8(shown.to_vec()).unwrap();
    assert!(shown.contains("# mode read\nceph osd pg-upmap-primary "), "{shown}");
    let dump = ask(&mut c, r#"{"prefix":"balancer dump","plan":"x"}"#).out;
    let dump: serde_json::Value = serde_json::from_slice(&dump).unwrap();
    let planned = dump["new_pg_upmap_primaries"].as_array().unwrap().len();
    let eval = ask(&mut c, r#"{"prefix":"balancer eval","option":"x"}"#).out;
    assert!(eval.starts_with(b"plan \"x\" score 0."), "{eval:?}");
    c.quiet(r#"{"prefix":"balancer execute","plan":"x"}"#);
    assert_eq!(c.state.osdmap.pg_upmap_primaries.len(), planned);
    assert_eq!(ask(&mut c, r#"{"prefix":"balancer execute","plan":"x"}"#).r, -2);
    let again = ask(&mut c, optimize);
    assert_eq!((again.r, again.rs.as_str()), (-114, crate::balancer::EVEN));
    assert!(c.volatile.balancer.even && c.volatile.balancer.plans.is_empty());
    c.quiet(r#"{"prefix":"balancer pool add","pools":["cephfs_meta","cephfs_data"]}"#);
    c.quiet(r#"{"prefix":"balancer pool rm","pools":["cephfs_meta"]}"#);
    let pools = ask(&mut c, r#"{"prefix":"balancer pool ls"}"#).out;
    assert_eq!(pools, "[\n    \"cephfs_data\"\n]\n");
    c.quiet(r#"{"prefix":"balancer on"}"#);
    assert_eq!(ask(&mut c, optimize).rs, "Balancer enabled, disable to optimize manually");
}
