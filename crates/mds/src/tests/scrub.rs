//! Scrubs of a tree that is whole, and of one that is broken from outside.

use maps::fs::{Backtrace, Fnode, object_name};
use serde_json::{Value, json};

use super::*;
use crate::AskId;

/// Directories, files, a symbolic link, a further name, a snapshot, one file moved.
fn tree() -> World {
    let mut w = World::new();
    for dir in ["d", "d/sub", "e"] {
        w.mkdir(dir);
    }
    for name in ["d/a", "d/b", "d/sub/c", "e/one", "e/two"] {
        w.create(name);
    }
    w.two(mds_op::LINK, "e/hard", "d/b");
    w.done(mds_op::MKSNAP, 1, "d//snap", &Args::Mode(0o755));
    w.two(mds_op::RENAME, "d/moved", "e/two");
    w.done(mds_op::UNLINK, 1, "d/a", &Args::None);
    w
}

impl World {
    /// All is written back, the client is gone, and a new server has read nothing yet.
    fn forget(&mut self) {
        self.ok("session evict", json!({"filters": ["id=77"]}));
        // Sizes of what it had open are looked up, and written back.
        let files = self.mds_inodes();
        self.ticks(files / 8);
        self.ok("flush journal", json!({}));
        self.mds = new_mds(self.options.clone());
        self.begin(MdsState::REPLAY);
        self.ticks(8);
        assert_eq!(self.state(), MdsState::ACTIVE);
        self.logged.clear();
    }

    /// Inodes in memory; no time passes.
    pub(super) fn mds_inodes(&mut self) -> usize {
        self.said.clear();
        let command = json!({"prefix": "perf dump", "logger": "mds_mem"});
        self.call(|m, now, out| m.on_command(now, AskId(1), &command, out));
        let (_, _, output) = self.said.pop().expect("an answer");
        let dump: Value = serde_json::from_slice(&output).unwrap();
        dump["mds_mem"]["ino"].as_u64().unwrap() as usize
    }

    /// Runs a scrub to its end. Returns what it logged beside its beginning and end.
    fn scrub(&mut self, path: &str, ops: &[&str]) -> Vec<String> {
        self.logged.clear();
        let said = self.ok("scrub start", json!({"path": path, "scrubops": ops}));
        assert_eq!((&said["return_code"], &said["mode"]), (&json!(0), &json!("asynchronous")));
        for _ in 0..20 {
            if self.ok("scrub status", json!({}))["status"] == json!("no active scrubs running") {
                let lines = self.logged.iter().filter(|l| !l.starts_with("Info scrub "));
                return lines.cloned().collect();
            }
        }
        panic!("it does not end: {}", self.ok("scrub status", json!({})));
    }

    fn object(&mut self, pool: PoolId, ino: Ino) -> &mut Object {
        self.pools.objects.get_mut(&(pool, object_name(ino, 0))).expect("it is there")
    }

    fn ino(&mut self, path: &str) -> Ino {
        self.open(CLIENT);
        target(&self.done(mds_op::GETATTR, 1, path, &Args::Mask(0)))
    }
}

#[test]
fn a_whole_tree_is_clean() {
    let mut w = tree();
    // While all is dirty, after it is written, and by another server.
    let all = ["recursive", "scrub_mdsdir"];
    w.open(CLIENT);
    assert_eq!(w.scrub("/", &all), [] as [&str; 0]);
    let told = [
        "Info scrub queued for path: /",
        "Info scrub summary: idle+waiting paths [/]",
        "Info scrub summary: active paths [/]",
        "Info scrub summary: idle+waiting paths [/]",
        "Info scrub summary: idle",
    ];
    assert_eq!(w.logged, told, "as a stock server tells it");
    w.ok("dirfrag split", json!({"path": "/d", "frag": "0/0", "bits": 1}));
    w.forget();
    assert_eq!(w.scrub("/", &all), [] as [&str; 0]);
    w.open(CLIENT);
    w.restart();
    assert_eq!(w.scrub("/", &all), [] as [&str; 0]);
    assert_eq!(w.ok("damage ls", json!({})), json!([]));
    let counted = w.ok("perf dump", json!({"logger": "mds"}))["mds"].clone();
    // The root, ~mds0, ten of strays, d, d/sub, e; c, b, one, moved.
    assert_eq!(counted["scrub_dir_inodes"], json!(15));
    assert_eq!(counted["scrub_dir_base_inodes"], json!(2));
    assert_eq!(counted["scrub_file_inodes"], json!(4));
    let number = w.ino("d/sub").0;
    let shown = w.ok("dump inode", json!({"number": number}));
    assert_ne!(shown["last_scrub_stamp"], json!("0.000000"));
}

/// Sums that are wrong in a fragment, and as its inode was told, are found and mended.
#[test]
fn wrong_sums_are_mended() {
    let mut w = tree();
    let sub = w.ino("d/sub");
    w.forget();
    let o = w.object(META, sub);
    let mut fnode = Fnode::from_bytes(&o.header).unwrap();
    (fnode.fragstat.nfiles, fnode.accounted_fragstat.nfiles) = (7, 7);
    fnode.rstat.rbytes = 99_999;
    o.header = fnode.to_bytes();
    let path = format!("{sub:#x} (/d/sub)");
    let see = "see mds.a log and `damage ls` output for details";
    let found = [
        format!("Warning Scrub error on dir {path} {see}"),
        format!("Warning Scrub error on inode {path} {see}"),
    ];
    assert_eq!(w.scrub("/", &["recursive"]), found);
    assert_eq!(w.scrub("/", &["recursive,force"]), found, "nothing was changed");
    assert_eq!(w.ok("damage ls", json!({})), json!([]), "as a stock server");
    let mended = [format!("Info Scrub repaired inode {path}")];
    assert_eq!(w.scrub("/d", &["recursive", "repair"]), mended);
    assert_eq!(w.scrub("/", &["recursive"]), [] as [&str; 0]);
    w.ok("flush journal", json!({}));
    let fnode = Fnode::from_bytes(&w.object(META, sub).header).unwrap();
    assert_eq!((fnode.fragstat.nfiles, fnode.accounted_fragstat.nfiles), (1, 1));
    assert_eq!(fnode.rstat.rbytes, 0);
    w.open(CLIENT);
    w.restart();
    assert_eq!(w.scrub("/", &["recursive"]), [] as [&str; 0]);
    assert_eq!(w.names(mds_op::READDIR, "d/sub"), ["c"]);
}

/// The inode alone says something else: a server died between, or a tool wrote it.
#[test]
fn wrong_inodes_are_mended() {
    let mut w = tree();
    let (e, root) = (w.ino("e"), Ino(1));
    w.forget();
    let o = w.object(META, root);
    let key = maps::fs::DentryKey::head("e".into()).to_bytes();
    let mut value = maps::fs::DentryValue::from_bytes(&o.omap[&key]).unwrap();
    let maps::fs::DentryLink::Primary(store) = &mut value.link else { panic!("a directory") };
    store.inode.dir.rstat.rfiles = 30;
    o.omap.insert(key, value.to_bytes());
    w.open(CLIENT);
    w.restart();
    w.forget();
    let found = w.scrub("/", &["recursive"]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(&format!("Warning Scrub error on inode {e:#x} (/e)")));
    assert_eq!(w.scrub("/", &["recursive", "repair"]).len(), 1);
    assert_eq!(w.scrub("/", &["recursive"]), [] as [&str; 0]);
}

#[test]
fn backtraces_are_written_anew() {
    let mut w = tree();
    let (dir, one) = (w.ino("e"), w.ino("e/one"));
    w.forget();
    w.object(META, dir).xattrs.remove("parent");
    let elsewhere = Backtrace { ino: one, ..Backtrace::default() };
    w.object(DATA, one).xattrs.insert("parent".into(), elsewhere.to_bytes());
    let found = w.scrub("/", &["recursive"]);
    assert_eq!(found.len(), 2, "{found:?}");
    let listed = w.ok("damage ls", json!({}));
    let listed: Vec<(&Value, &Value)> =
        listed.as_array().unwrap().iter().map(|d| (&d["damage_type"], &d["path"])).collect();
    assert_eq!(listed.len(), 2);
    assert!(listed.contains(&(&json!("backtrace"), &json!("/e/one"))), "{listed:?}");
    w.ticks(8);
    assert_eq!(w.ills, ["8 Metadata damage detected"]);
    let mended = w.scrub("/", &["recursive", "repair"]);
    let rewritten = format!("Warning bad backtrace on inode {one:#x}(/e/one), rewriting it");
    assert!(mended.contains(&rewritten), "{mended:?}");
    assert!(mended.contains(&format!("Info Scrub repaired inode {dir:#x} (/e)")), "{mended:?}");
    assert_eq!(w.ok("damage ls", json!({})), json!([]));
    assert_eq!(w.scrub("/", &["recursive"]), [] as [&str; 0]);
    w.ok("flush journal", json!({}));
    assert_eq!(w.ills, [] as [&str; 0]);
    let trace = Backtrace::from_bytes(&w.object(DATA, one).xattrs["parent"]).unwrap();
    assert_eq!((trace.ancestors[0].dirino, &trace.ancestors[0].dname[..]), (dir, &b"one"[..]));
    assert!(w.object(META, dir).xattrs.contains_key("parent"));
}

/// A fragment that is gone or garbled costs itself alone.
#[test]
fn lost_fragments_are_listed() {
    let mut w = tree();
    let (sub, e, c) = (w.ino("d/sub"), w.ino("e"), w.ino("d/sub/c"));
    w.two(mds_op::LINK, "far", "d/sub/c");
    w.forget();
    let whole = w.pools.objects.remove(&(META, object_name(sub, 0))).unwrap();
    let header = std::mem::replace(&mut w.object(META, e).header, "garbled".into());
    let found = w.scrub("/", &["recursive", "repair"]);
    let lost =
        format!("Error dir {sub:#x} object missing on disk; some files may be lost (/d/sub)");
    assert!(found.contains(&lost), "{found:?}");
    let garbled = format!("Warning Corrupt fnode header in {e:#x}: ");
    assert!(found.iter().any(|l| l.starts_with(&garbled)), "{found:?}");
    let listed = w.ok("damage ls", json!({}));
    let kinds: Vec<&str> =
        listed.as_array().unwrap().iter().filter_map(|d| d["damage_type"].as_str()).collect();
    // The file that the name `far` leads to is in the lost directory.
    assert_eq!(kinds.iter().filter(|k| **k == "dir_frag").count(), 2, "{listed}");
    assert!(listed.as_array().unwrap().iter().any(|d| d["ino"] == json!(c.0)), "{listed}");
    assert!(!w.pools.objects.contains_key(&(META, object_name(sub, 0))), "no empty one is made");
    w.open(CLIENT);
    assert_eq!(w.stat("d/sub/c"), Err(Errno::IO.0));
    w.stat("d/moved").unwrap();
    // A tool brings them back.
    w.pools.objects.insert((META, object_name(sub, 0)), whole);
    w.object(META, e).header = header;
    assert_eq!(w.scrub("/", &["recursive", "repair"]), [] as [&str; 0]);
    assert_eq!(w.ok("damage ls", json!({})), json!([]));
    w.stat("far").unwrap();
}

#[test]
fn numbers_in_use_are_not_free() {
    let mut w = tree();
    let one = w.ino("e/one");
    w.ok("flush journal", json!({}));
    w.forget();
    let free = |w: &World| {
        let o = &w.pools.objects[&(META, "mds0_inotable".to_owned())];
        let table: maps::fs::TableObject<maps::fs::InoTable> = Denc::from_bytes(&o.data).unwrap();
        table
    };
    let mut table = free(&w);
    table.table.free.insert(one.0, 1);
    let key = (META, "mds0_inotable".to_owned());
    w.pools.objects.get_mut(&key).unwrap().data = table.to_bytes().to_vec();
    w.mds = new_mds(w.options.clone());
    w.begin(MdsState::REPLAY);
    w.ticks(8);
    let wrong = format!("Error scrub: inode wrongly marked free: {one:#x}");
    assert_eq!(w.scrub("/", &["recursive"]), std::slice::from_ref(&wrong));
    let mended = format!("Error inode table repaired for inode: {one:#x}");
    assert_eq!(w.scrub("/", &["recursive", "repair"]), [wrong, mended]);
    w.ok("flush journal", json!({}));
    assert!(!free(&w).table.free.contains(one.0));
}

#[test]
fn scrubs_are_held_and_ended() {
    let mut w = tree();
    w.forget();
    let start = |w: &mut World, path: &str, tag: &str| {
        w.ok("scrub start", json!({"path": path, "scrubops": ["recursive"], "tag": tag}))
    };
    assert_eq!(w.ok("scrub pause", json!({})), json!({"message": "", "return_code": 0}));
    let said = start(&mut w, "/", "mine");
    let want = json!({"return_code": 0, "scrub_tag": "mine", "mode": "asynchronous"});
    assert_eq!(said, want);
    let status = w.ok("scrub status", json!({}));
    assert_eq!(status["status"], json!("PAUSED (1 inodes in the stack)"));
    let one = json!({"path": "/", "tag": "mine", "options": "recursive"});
    assert_eq!(status["scrubs"], json!({"mine": one}));
    assert_eq!(status["scrub_stats"]["mine"]["path"], json!("/"));
    assert_eq!(start(&mut w, "/", "other"), json!({"return_code": Errno::BUSY.0}));
    assert_eq!(start(&mut w, "/d", "mine"), json!({"return_code": Errno::EXIST.0}));
    assert_eq!(start(&mut w, "/none", "x"), json!({"return_code": Errno::NOENT.0}));
    assert_eq!(start(&mut w, "/e/one/x", "x"), json!({"return_code": crate::errno::NOTDIR.0}));
    assert_eq!(start(&mut w, "~mdsdir", "y")["return_code"], json!(0));
    assert_eq!(w.ok("scrub abort", json!({}))["return_code"], json!(0));
    assert_eq!(w.ok("scrub status", json!({}))["scrubs"], json!({}));
    assert_eq!(w.ok("scrub resume", json!({})), json!({"return_code": 0}));
    w.ok("scrub purge_status", json!({"tag": "y"}));
    let status = w.ok("scrub status", json!({}));
    assert_eq!(status["status"], json!("no active scrubs running"));
    assert_eq!(status["scrub_stats"].as_object().unwrap().len(), 1);
    w.ok("scrub purge_status", json!({"tag": "all"}));
    assert_eq!(w.ok("scrub status", json!({}))["scrub_stats"], json!({}));
    for (command, r) in [
        (json!({"path": "/", "scrubops": ["bogus"]}), Errno::INVAL),
        (json!({"path": "/", "tag": "x".repeat(256)}), Errno::INVAL),
    ] {
        assert_eq!(w.fails("scrub start", command), r.0);
    }
    assert_eq!(w.fails("scrub purge_status", json!({})), Errno::INVAL.0);
    // An operator's tag is left at the objects, one of ours is not.
    w.scrub("/e", &["recursive"]);
    let one = w.ino("e/one");
    w.forget();
    assert!(!w.object(DATA, one).xattrs.contains_key("scrub_tag"));
    start(&mut w, "/e", "mine");
    assert_eq!(&w.object(DATA, one).xattrs["scrub_tag"][..], b"\x04\0\0\0mine");
    let own = w.ok("scrub start", json!({"path": "/e/one"}));
    assert_eq!(own["scrub_tag"].as_str().map(str::len), Some(36), "{own}");
}

/// A pause and an abort wait for what is being read, requests do not.
#[test]
fn what_is_read_is_waited_for() {
    let mut w = tree();
    w.forget();
    w.open(CLIENT);
    w.stat("e").unwrap();
    let ask = |w: &mut World, id: u64, command: Value| {
        w.call(|m, now, out| m.on_command(now, AskId(id), &command, out));
    };
    let mut unanswered = Vec::new();
    w.deaf_to = Some(Vec::new());
    ask(&mut w, 5, json!({"prefix": "scrub start", "path": "/", "scrubops": ["recursive"]}));
    w.said.clear();
    ask(&mut w, 6, json!({"prefix": "scrub pause"}));
    assert_eq!(w.said, [], "it waits");
    w.stat("e").unwrap();
    let status = w.ok("scrub status", json!({}))["status"].clone();
    assert!(status.as_str().unwrap().starts_with("PAUSING ("), "{status}");
    unanswered.append(&mut w.deaf_to.take().unwrap());
    assert_eq!(unanswered.len(), 5, "no more at a time");
    w.said.clear();
    for io in unanswered {
        let answer = w.pools.run(&io);
        w.call(|m, now, out| m.on_done(now, io.id, answer, out));
    }
    assert_eq!(w.said.len(), 1);
    let status = w.ok("scrub status", json!({}))["status"].clone();
    assert!(status.as_str().unwrap().starts_with("PAUSED ("), "{status}");
    w.ok("scrub resume", json!({}));
    assert_eq!(w.ok("scrub status", json!({}))["status"], json!("no active scrubs running"));
}

/// A tree that is larger than memory is walked within its limit.
#[test]
fn a_large_tree_is_walked_within_memory() {
    const DIRS: usize = 40;
    const FILES: usize = 60;
    let mut w = World::new();
    for d in 0..DIRS {
        w.mkdir(&format!("d{d}"));
        for f in 0..FILES {
            w.create(&format!("d{d}/{f}"));
        }
    }
    // The smallest limit is 1,000 inodes.
    w.options.cache_bytes_max = 1;
    w.forget();
    let start = json!({"prefix": "scrub start", "path": "/", "scrubops": ["recursive"]});
    w.call(|m, now, out| m.on_command(now, AskId(1), &start, out));
    let mut most = w.mds_inodes();
    for _ in 0..200 {
        w.ticks(1);
        most = most.max(w.mds_inodes());
    }
    // A fragment is read whole, and one more for each look at memory.
    assert!(most <= 1_000 + 2 * FILES, "{most}");
    let counted = w.ok("perf dump", json!({"logger": "mds"}))["mds"].clone();
    assert_eq!(counted["scrub_file_inodes"], json!(DIRS * FILES));
    assert_eq!(w.ok("scrub status", json!({}))["status"], json!("no active scrubs running"));
    assert_eq!(w.ok("damage ls", json!({})), json!([]));
}
