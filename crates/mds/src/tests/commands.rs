//! Commands of administrators, and what they tell of requests.

use serde_json::{Value, json};

use super::*;
use crate::AskId;

impl World {
    /// Runs a command; errno and sentence, or what it printed.
    pub(super) fn command(&mut self, command: &Value) -> Result<Value, (i32, String)> {
        self.said.clear();
        self.call(|m, now, out| m.on_command(now, AskId(1), command, out));
        self.ticks(12);
        let (r, rs, output) = self.said.pop().expect("an answer");
        if r != 0 {
            return Err((r, rs));
        }
        Ok(serde_json::from_slice(&output).unwrap_or(Value::String(rs)))
    }

    pub(super) fn ok(&mut self, prefix: &str, more: Value) -> Value {
        let mut command = more;
        command["prefix"] = json!(prefix);
        self.command(&command).unwrap_or_else(|e| panic!("{prefix}: {e:?}"))
    }

    pub(super) fn fails(&mut self, prefix: &str, more: Value) -> i32 {
        let mut command = more;
        command["prefix"] = json!(prefix);
        self.command(&command).expect_err(prefix).0
    }
}

fn tree() -> World {
    let mut w = World::new();
    w.mkdir("d");
    w.mkdir("d/sub");
    for name in ["d/a", "d/b", "d/sub/c"] {
        w.create(name);
    }
    w
}

#[test]
fn sessions_are_found_and_configured() {
    let mut w = tree();
    let all = w.ok("session ls", json!({}));
    assert_eq!((all[0]["id"].as_i64(), all[0]["state"].as_str()), (Some(CLIENT), Some("open")));
    assert_eq!(all[0]["num_caps"], json!(6));
    for (filter, found) in
        [("id=77", 1), ("77", 1), ("id=1", 0), ("state=open", 1), ("state=stale", 0)]
    {
        let listed = w.ok("session ls", json!({"filters": [filter]}));
        assert_eq!(listed.as_array().map(Vec::len), Some(found), "{filter}");
    }
    let caps = w.ok("session ls", json!({"cap_dump": true}));
    let caps = caps[0]["caps"].as_array().expect("caps").clone();
    assert!(caps.iter().any(|c| c["pending"] == json!("pAsxLsXsxFsxcrwb")), "{caps:?}");
    assert_eq!(w.fails("session ls", json!({"filters": ["foo=1"]})), Errno::INVAL.0);
    let set = |v: &str| json!({"client_id": CLIENT, "option": "timeout", "value": v});
    w.ok("session config", set("100"));
    w.restart();
    let all = w.ok("session ls", json!({}));
    assert_eq!(all[0]["client_metadata"]["timeout"], json!("100"), "it outlives the server");
    w.ok("session config", set(""));
    assert_eq!(w.fails("session config", set("long")), Errno::INVAL.0);
    let other = json!({"client_id": CLIENT, "option": "foo", "value": "1"});
    assert_eq!(w.fails("session config", other), Errno::INVAL.0);
    let nobody = json!({"client_id": 1, "option": "timeout", "value": "1"});
    assert_eq!(w.fails("session config", nobody), Errno::NOENT.0);
    assert_eq!(w.ok("session evict", json!({"filters": ["id=1"]})), json!("no hosts match"));
    assert_eq!(w.fails("session evict", json!({})), Errno::INVAL.0);
    w.ok("session evict", json!({"filters": ["auth_name=admin"]}));
    assert_eq!(w.ok("session ls", json!({})), json!([]));
}

#[test]
fn the_tree_is_shown() {
    let mut w = tree();
    let all = w.ok("dump tree", json!({"root": "/"}));
    let paths: Vec<&str> =
        all.as_array().unwrap().iter().filter_map(|i| i["path"].as_str()).collect();
    assert_eq!(paths.len(), 6, "{paths:?}");
    assert_eq!(paths.last(), Some(&"/"), "a directory comes after what is in it");
    let one = w.ok("dump tree", json!({"root": "/d", "depth": 0}));
    assert_eq!((one[0]["path"].as_str(), one[1].is_null()), (Some("/d"), true));
    assert_eq!(one[0]["dirstat"]["num_subdirs"], json!(1));
    let ino = one[0]["ino"].clone();
    assert_eq!(w.ok("dump inode", json!({"number": ino}))["path"], json!("/d"));
    assert!(w.ok("dump inode", json!({"number": 5})).as_str().unwrap().contains("not cached"));
    let dir = w.ok("dump dir", json!({"path": "/d", "dentry_dump": true}));
    assert_eq!(dir[0]["dentries"].as_array().map(Vec::len), Some(3));
    assert_eq!(w.fails("dump dir", json!({"path": "/none"})), Errno::NOENT.0);
    assert_eq!(w.ok("get subtrees", json!({}))[0]["dir"]["dirfrag"], json!("0x1"));
    assert_eq!(w.ok("flush_path", json!({"path": "/d"}))["return_code"], json!(0));
    assert_eq!(w.fails("flush_path", json!({"path": "/none"})), Errno::NOENT.0);
}

#[test]
fn fragments_are_split_and_merged() {
    let mut w = tree();
    // Small ones stay as they are.
    w.options.merge_entries = 0;
    w.mds.set_options(&w.options.clone());
    let frags = |w: &mut World| -> Vec<String> {
        let all = w.ok("dirfrag ls", json!({"path": "/d"}));
        all.as_array().unwrap().iter().map(|f| f["str"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(frags(&mut w), ["0/0"]);
    w.ok("dirfrag split", json!({"path": "/d", "frag": "0/0", "bits": 1}));
    assert_eq!(frags(&mut w), ["800000/1", "0/1"]);
    w.ok("dirfrag split", json!({"path": "/d", "frag": "800000/1", "bits": 2}));
    assert_eq!(frags(&mut w).len(), 5);
    w.restart();
    for name in ["d/a", "d/b", "d/sub/c"] {
        w.stat(name).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let merge = json!({"path": "/d", "frag": "800000/1"});
    assert_eq!(w.fails("dirfrag merge", merge.clone()), Errno::AGAIN.0, "they are read first");
    w.ok("dirfrag merge", merge);
    assert_eq!(frags(&mut w), ["800000/1", "0/1"]);
    for (frag, bits, errno) in
        [("x", 1, Errno::INVAL), ("0/1", 0, Errno::INVAL), ("0/3", 1, Errno::NOENT)]
    {
        let split = json!({"path": "/d", "frag": frag, "bits": bits});
        assert_eq!(w.fails("dirfrag split", split), errno.0, "{frag} {bits}");
    }
    let merge = json!({"path": "/d", "frag": "0/1"});
    assert_eq!(w.fails("dirfrag merge", merge), Errno::INVAL.0);
}

#[test]
fn requests_are_remembered() {
    let mut w = tree();
    w.stat("d/a").unwrap();
    let all = w.ok("dump_historic_ops", json!({}));
    let ops = all["ops"].as_array().unwrap();
    assert_eq!(all["size"], json!(20));
    let last = ops.last().unwrap();
    let said = last["description"].as_str().unwrap();
    assert!(said.starts_with("client_request(client.77:6 getattr - #0x1/d/a 2023-"), "{said}");
    assert!(said.ends_with(" caller_uid=0, caller_gid=0{})"), "{said}");
    assert_eq!(last["type_data"]["flag_point"], json!("done"));
    assert_eq!(w.ok("ops", json!({})), json!({"ops": [], "num_ops": 0}));
    assert_eq!(w.fails("op get", json!({"id": "client.1:1"})), Errno::NOENT.0);
    w.ticks(3000);
    assert_eq!(
        w.ok("dump_historic_ops_by_duration", json!({}))["ops"],
        json!([]),
        "10 minutes later"
    );
}

/// A client that was told of many inodes and gives none back waits with its next listing.
#[test]
fn listings_are_held_back() {
    let mut w = tree();
    let throttle =
        crate::Throttle { acquired: 1, half_life_ms: 1_000, held_ratio: 1.1, retry_ms: 500 };
    let options = Options { caps_per_client_max: 1, throttle, ..options() };
    w.mds.set_options(&options);
    assert_eq!(w.names(mds_op::READDIR, "d"), ["a", "b", "sub"]);
    let args = Args::Readdir(messages::fs::ReaddirArgs::default());
    let mut list = request(mds_op::READDIR, 1, "d", &args);
    list.stamp = UTime::from_nanos(w.now().wall_ns);
    w.tid += 1;
    let tid = w.tid;
    w.message(CLIENT, &list, tid);
    w.heard.clear();
    w.said.clear();
    w.call(|m, now, out| m.on_command(now, AskId(1), &json!({"prefix": "ops"}), out));
    let ops: Value = serde_json::from_slice(&w.said.pop().unwrap().2).unwrap();
    assert_eq!(ops["ops"][0]["type_data"]["flag_point"], json!("cap_acquisition_throttle"));
    w.ticks(16);
    assert!(w.heard.iter().any(|(_, e)| e.kind == ClientReply::KIND && e.tid == tid), "later");
    let past = w.ok("dump_historic_ops", json!({}));
    let events = past["ops"].as_array().unwrap().last().unwrap()["type_data"]["events"].clone();
    let held = |e: &Value| e["event"] == json!("cap_acquisition_throttle");
    assert!(events.as_array().unwrap().iter().any(held), "{events}");
}

/// A server dies after it recorded that a file is cut, and before its objects are.
#[test]
fn a_cut_is_finished_by_the_next_server() {
    let mut w = tree();
    let ino = w.create("d/file");
    let object = (DATA, maps::fs::object_name(ino, 0));
    let full = Object { data: vec![7; 100_000], ..Object::default() };
    w.pools.objects.insert(object.clone(), full);
    let size = |size: u64| {
        let mask = SetattrArgs::SIZE;
        Args::Setattr(SetattrArgs { size, mask, ..SetattrArgs::default() })
    };
    w.done(mds_op::SETATTR, 1, "d/file", &size(100_000));
    w.ok("flush journal", json!({}));
    let data = |w: &World| w.pools.objects[&object].data.len();
    assert_eq!(data(&w), 100_000);
    // Only the record of it is written.
    w.writes_left = Some(1);
    w.op(mds_op::SETATTR, 1, "d/file", &size(10));
    assert_eq!(data(&w), 100_000, "the server died before");
    w.restart();
    w.ticks(8);
    assert_eq!(data(&w), 10, "the next one cuts what is there");
    let shown = w.ok("dump tree", json!({"root": "/d/file"}));
    assert_eq!(
        (shown[0]["size"].clone(), shown[0]["truncate_pending"].clone()),
        (json!(10), json!(0))
    );
}

#[test]
fn caches_are_dropped() {
    let mut w = tree();
    w.ok("session evict", json!({"filters": ["id=77"]}));
    let dropped = w.ok("cache drop", json!({}));
    assert!(dropped["trim_cache"]["trimmed"].as_u64() > Some(3), "{dropped}");
    assert_eq!(dropped["flush_journal"]["return_code"], json!(0));
    assert_eq!(w.fails("cache drop", json!({"timeout": -1})), Errno::INVAL.0);
    w.ok("force_readonly", json!({}));
    w.open(CLIENT);
    let reply = w.op(mds_op::MKDIR, 1, "no", &Args::Mode(0o755)).unwrap();
    assert_eq!(reply.result, crate::errno::ROFS.0);
}

/// A request that waits for long is told of in health, and by the commands that list such.
#[test]
fn slow_requests_are_told() {
    let mut w = tree();
    assert_eq!(w.ills, [] as [&str; 0]);
    w.open(CLIENT + 1);
    let args = Args::Setattr(SetattrArgs {
        mode: 0o600,
        mask: SetattrArgs::MODE,
        ..SetattrArgs::default()
    });
    // The other client asks for what this one has and does not give back.
    let m = ClientRequest {
        stamp: UTime::from_nanos(w.now().wall_ns),
        ..request(mds_op::SETATTR, 1, "d/a", &args)
    };
    w.message(CLIENT + 1, &m, 1);
    w.ticks(90);
    assert_eq!(w.ills, [] as [&str; 0], "27 s");
    w.ticks(30);
    assert_eq!(w.ills, ["10 1 slow requests are blocked > 30 secs"]);
    assert_eq!(w.ok("dump_blocked_ops_count", json!({}))["num_blocked_ops"], json!(1));
    let blocked = w.ok("dump_blocked_ops", json!({}));
    assert_eq!(blocked["ops"][0]["type_data"]["flag_point"], json!("failed to rdlock, waiting"));
    let one = w.ok("op get", json!({"id": "client.78:1"}));
    assert_eq!(one["type_data"]["reqid"]["tid"], json!(1));
    w.ok("force_readonly", json!({}));
    w.ticks(8);
    assert!(w.ills.contains(&"9 MDS in read-only mode".to_owned()), "{:?}", w.ills);
}

#[test]
fn counters_are_upstreams() {
    let mut w = tree();
    let schema = w.ok("counter schema", json!({}));
    let recorded = include_str!("../../../../vectors/metrics/counters-20.2.4.tsv");
    assert_eq!(metrics::differences("mds", &schema, recorded), Vec::<String>::new());
    let all = w.ok("perf dump", json!({}));
    assert_eq!(all["mds_server"]["req_mkdir_latency"]["avgcount"], json!(2));
    assert_eq!(all["mds_server"]["req_create_latency"]["avgcount"], json!(3));
    assert_eq!(all["mds"]["reply"], all["mds"]["request"]);
    assert_eq!(
        all["mds_mem"]["dn"],
        json!(5 + 10),
        "two directories, three files, stray directories"
    );
    let one = w.ok("perf dump", json!({"logger": "mds_mem", "counter": "ino"}));
    assert_eq!(one, json!({"mds_mem": {"ino": all["mds_mem"]["ino"]}}));
    w.ok("perf reset", json!({"var": "all"}));
    let all = w.ok("perf dump", json!({"logger": "mds"}));
    assert_eq!(all["mds"]["request"], json!(0));
}

/// Each command of the table is known to the role, once, and says what it needs.
#[test]
fn the_table_has_what_is_answered() {
    let mut w = tree();
    let mut names: Vec<&str> = crate::COMMANDS.iter().map(|c| c.0).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "each stands there once");
    for (name, args, help, perm) in crate::COMMANDS {
        let mut command = json!({"prefix": name});
        for arg in args.split_whitespace().filter(|a| !a.ends_with('?')) {
            let (arg, kind) = arg.split_once(':').expect("a name and a type");
            let is_int = kind.starts_with("CephInt");
            command[arg] = if is_int { json!(1) } else { json!("x") };
        }
        let said = w.command(&command).map_err(|(r, _)| r);
        assert_ne!(said, Err(Errno::NOSYS.0), "{name}");
        assert!(!help.is_empty() && ["r", "rw"].contains(perm), "{name}");
        // What changes something is not for those who may look only.
        let verbs = ["evict", "config", "start", "abort", "pause", "resume", "rm", "kill", "split"];
        let changes = verbs.iter().any(|v| name.split(' ').any(|w| w == *v));
        assert!(!changes || *perm == "rw", "{name}");
    }
    assert_eq!(w.fails("no such", json!({})), Errno::NOSYS.0);
}

#[test]
fn the_cache_is_shown() {
    let mut w = tree();
    w.two(mds_op::LINK, "d/hard", "d/b");
    let all = w.ok("dump cache", json!({}));
    let inos: Vec<u64> = all.as_array().unwrap().iter().filter_map(|i| i["ino"].as_u64()).collect();
    assert_eq!(inos.len(), 2 + 10 + 2 + 3, "the root and ~mds0, strays, directories, files");
    assert!(all[0]["path"].is_null() && all[0]["dirfrags"].is_array(), "{}", all[0]);
    w.said.clear();
    let command = json!({"prefix": "dump cache", "path": "/var/cache.txt"});
    w.call(|m, now, out| m.on_command(now, AskId(1), &command, out));
    let (r, _, text) = w.said.pop().expect("an answer");
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert_eq!(r, 0);
    let b = target(&w.done(mds_op::GETATTR, 1, "d/b", &Args::Mask(0)));
    for line in [
        "[inode 0x1 [2,head] / auth v",
        &format!("[inode {b:#x} [2,head] /d/b auth v"),
        " [dir 0x1 / [2,head] auth v=",
        &format!("  [dentry #0x1/d/b [2,head] auth ino={b:#x}]"),
        &format!("  [dentry #0x1/d/hard [2,head] auth REMOTE ino={b:#x}]"),
    ] {
        assert!(text.lines().any(|l| l.starts_with(line)), "{line}\n{text}");
    }
    assert!(text.contains(" 4=3+1) n(v"), "{text}");
}

#[test]
fn open_files_and_loads_are_shown() {
    let mut w = tree();
    let open = w.ok("openfiles ls", json!({}));
    let paths: Vec<&str> =
        open.as_array().unwrap().iter().filter_map(|f| f["path"].as_str()).collect();
    assert_eq!(paths, ["/d/a", "/d/b", "/d/sub/c"], "they were made, and not closed");
    assert_eq!(open[0]["client_caps"][0]["client_id"], json!(CLIENT));
    assert!(open[0]["is_auth"].is_null());
    let loads = w.ok("dump loads", json!({}));
    let value = |loads: &Value, path: &str, pop: &str, kind: usize| {
        let all = loads["dirfrags"].as_array().unwrap().clone();
        let one = all.into_iter().find(|d| d["path"] == json!(path)).expect("it is there");
        one[pop]["Decay Counters"][kind]["value"].as_f64().unwrap()
    };
    let (read, write) = (0, 1);
    assert!(value(&loads, "/d", "pop_me", write) > 0.5, "{loads}");
    let (d, sub) = ("/d", "/d/sub");
    let sum = value(&loads, d, "pop_me", write) + value(&loads, sub, "pop_me", write);
    assert!((value(&loads, d, "pop_nested", write) - sum).abs() < 1e-9);
    let before = value(&loads, d, "pop_me", read);
    for _ in 0..8 {
        w.stat("d/a").unwrap();
    }
    let loads = w.ok("dump loads", json!({}));
    assert!(value(&loads, d, "pop_me", read) > before + 2.0, "{loads}");
    let roots = w.ok("dump loads", json!({"depth": 0}));
    assert_eq!(roots["dirfrags"].as_array().map(Vec::len), Some(1));
    w.ticks(400);
    let later = w.ok("dump loads", json!({}));
    assert!(value(&later, d, "pop_me", read) < 0.01, "two minutes later");
    let no = w.ok("export dir", json!({"path": "/d", "rank": 1}));
    assert_eq!(no, json!({"return_code": -2}));
}

/// A request that waits is ended, and its client hears of it.
#[test]
fn requests_are_killed() {
    let mut w = tree();
    w.open(CLIENT + 1);
    let mask = SetattrArgs::MODE;
    let args = Args::Setattr(SetattrArgs { mode: 0o600, mask, ..SetattrArgs::default() });
    let m = ClientRequest {
        stamp: UTime::from_nanos(w.now().wall_ns),
        ..request(mds_op::SETATTR, 1, "d/a", &args)
    };
    w.message(CLIENT + 1, &m, 1);
    w.heard.clear();
    assert_eq!(w.fails("op kill", json!({"id": "client.78:2"})), Errno::NOENT.0);
    w.ok("op kill", json!({"id": "client.78:1"}));
    let reply = w.heard.iter().find(|(_, e)| e.kind == ClientReply::KIND && e.tid == 1);
    let reply = ClientReply::decode(&reply.expect("an answer").1).unwrap();
    assert_eq!(reply.result, crate::errno::INTR.0);
    assert_eq!(w.ok("ops", json!({}))["num_ops"], json!(0));
    assert_eq!(w.fails("op kill", json!({"id": "client.78:1"})), Errno::NOENT.0);
}
