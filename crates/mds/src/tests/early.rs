//! What is answered before it is durable, and who waits until it is.

use super::*;
use crate::capset::bits;

/// The other client.
pub(super) const OTHER: i64 = 78;

/// Two clients at one server, whose journal is written when the test says so.
pub(super) struct Scene {
    pub w: World,
    pub conns: BTreeMap<i64, u64>,
    heard: BTreeMap<i64, Vec<Envelope>>,
    /// Requests by their numbers, and whose they are.
    asked: BTreeMap<u64, (i64, ClientRequest)>,
    /// Clients that give nothing back.
    pub stubborn: Vec<i64>,
}

impl Scene {
    /// With directories `a`, `b` and `both`, and a file `both/old`, all of them durable.
    pub fn new() -> Self {
        let mut w = World::new();
        for dir in ["a", "b", "both"] {
            w.mkdir(dir);
        }
        w.done(mds_op::MKNOD, 1, "both/old", &Args::Mknod { mode: 0o100_644, rdev: 0 });
        w.ticks(8);
        let mut conns = BTreeMap::from([(CLIENT, w.conns)]);
        w.open(OTHER);
        conns.insert(OTHER, w.conns);
        w.ticks(2);
        let (heard, asked) = (BTreeMap::new(), BTreeMap::new());
        let mut scene = Self { w, conns, heard, asked, stubborn: Vec::new() };
        // Both have numbers for inodes, and hold what they need of the directories.
        for (client, dir) in [(CLIENT, "a"), (OTHER, "b")] {
            for n in 0..3 {
                let tid = scene.create(client, &format!("{dir}/first{n}"));
                scene.w.ticks(1);
                assert_eq!(scene.said(client, tid).last().map(|r| r.safe), Some(true));
            }
        }
        scene.w.ticks(8);
        scene.w.journal = Some(VecDeque::new());
        scene.w.heard.clear();
        scene
    }

    pub fn message<M: Message>(&mut self, client: i64, message: &M, tid: u64) {
        let last = std::mem::replace(&mut self.w.conns, self.conns[&client]);
        self.w.message(client, message, tid);
        self.w.conns = last;
        self.listen();
    }

    /// Takes what came, and gives back what is taken.
    pub fn listen(&mut self) {
        while let Some((conn, e)) = self.w.heard.pop_front() {
            let Some(client) = self.conns.iter().find(|(_, c)| **c == conn.0).map(|(c, _)| *c)
            else {
                continue;
            };
            if e.kind == ClientCaps::KIND {
                let m = ClientCaps::decode(&e).expect("caps");
                if m.op == cap_op::REVOKE && !self.stubborn.contains(&client) {
                    let back = ClientCaps {
                        op: cap_op::UPDATE,
                        ino: m.ino,
                        cap_id: m.cap_id,
                        seq: m.seq,
                        caps: m.caps,
                        wanted: m.wanted,
                        ..ClientCaps::default()
                    };
                    self.message(client, &back, 0);
                }
            }
            self.heard.entry(client).or_default().push(e);
        }
    }

    /// Sends a request. Returns its number.
    pub fn send(&mut self, client: i64, m: &ClientRequest) -> u64 {
        self.w.tid += 1;
        let tid = self.w.tid;
        let m = ClientRequest { stamp: UTime::from_nanos(self.w.now().wall_ns), ..m.clone() };
        self.message(client, &m, tid);
        self.asked.insert(tid, (client, m));
        tid
    }

    /// The server dies, with what of the journal was not written; another has read all there is, and
    /// waits for clients.
    pub fn die(&mut self) {
        self.listen();
        self.w.journal = None;
        self.w.mds = new_mds(self.w.options.clone());
        self.w.begin(MdsState::REPLAY);
        assert_eq!(self.w.state(), MdsState::RECONNECT, "after replay");
    }

    /// A client comes back: with what it was answered and is not safe, in that order, and then with
    /// its caps.
    pub fn come_back(&mut self, client: i64, caps: BTreeMap<Ino, messages::fs::CapReconnect>) {
        self.w.conns += 1;
        self.conns.insert(client, self.w.conns);
        let asked = self.asked.clone();
        for (tid, (_, m)) in asked.iter().filter(|(_, (c, _))| *c == client) {
            if let [early] = &self.said(client, *tid)[..]
                && !early.safe
            {
                let flags = messages::fs::request_flag::REPLAY;
                let ino = early.target.as_ref().map_or(Ino(0), |t| t.ino);
                let m = ClientRequest { flags, ino, ..m.clone() };
                self.message(client, &m, *tid);
            }
        }
        let m = ClientReconnect { caps, ..ClientReconnect::default() };
        self.message(client, &m, 0);
    }

    /// Goes on until the server is active.
    pub fn go_on(&mut self) {
        for _ in 0..12 {
            self.w.ticks(1);
            self.listen();
        }
        assert_eq!(self.w.state(), MdsState::ACTIVE, "after reconnect");
    }

    /// All answers to a request so far.
    pub fn said(&mut self, client: i64, tid: u64) -> Vec<ClientReply> {
        self.listen();
        let all = self.heard.get(&client).into_iter().flatten();
        let is_it = |e: &&Envelope| e.kind == ClientReply::KIND && e.tid == tid;
        all.filter(is_it).map(|e| ClientReply::decode(e).expect("an answer")).collect()
    }

    /// Results of all answers to a request, and whether they are safe.
    pub fn results(&mut self, client: i64, tid: u64) -> Vec<(i32, bool)> {
        self.said(client, tid).iter().map(|r| (r.result, r.safe)).collect()
    }

    pub fn op(&mut self, client: i64, op: u32, path: &str, args: &Args) -> u64 {
        self.send(client, &request(op, 1, path, args))
    }

    pub fn create(&mut self, client: i64, path: &str) -> u64 {
        self.op(client, mds_op::CREATE, path, &Args::Open(new_file()))
    }

    pub fn lookup(&mut self, client: i64, path: &str) -> u64 {
        self.op(client, mds_op::LOOKUP, path, &Args::Mask(0))
    }

    /// Messages about the caps of an inode that a client heard.
    pub fn caps(&mut self, client: i64, ino: Ino) -> Vec<ClientCaps> {
        self.listen();
        let all = self.heard.get(&client).into_iter().flatten();
        let caps = all.filter(|e| e.kind == ClientCaps::KIND);
        caps.map(|e| ClientCaps::decode(e).unwrap()).filter(|m| m.ino == ino).collect()
    }

    pub fn write_all(&mut self) {
        while self.w.write_journal() {}
        self.listen();
    }
}

/// A file that is there already is no answer.
fn new_file() -> OpenArgs {
    OpenArgs { flags: 0o301, mode: 0o644, pool: -1, ..OpenArgs::default() }
}

const EARLY: (i32, bool) = (0, false);
const SAFE: (i32, bool) = (0, true);

/// The second request of a client sees what the first did, before any of it is durable; and each is
/// answered once more when it is.
#[test]
fn its_own_client_goes_on_at_once() {
    let mut s = Scene::new();
    let made = s.create(CLIENT, "a/one");
    assert_eq!(s.results(CLIENT, made), [EARLY]);
    let early = s.said(CLIENT, made).remove(0);
    assert!(early.target.is_some() && early.dentry.is_some() && early.mdsmap_epoch.0 == 0);
    let seen = s.lookup(CLIENT, "a/one");
    assert_eq!(s.said(CLIENT, seen)[0].target, s.said(CLIENT, seen)[0].target);
    assert_eq!(target(&s.said(CLIENT, seen)[0]), target(&early));
    let again = s.create(CLIENT, "a/one");
    assert_eq!(s.results(CLIENT, again), [(Errno::EXIST.0, true)]);
    let gone = s.op(CLIENT, mds_op::UNLINK, "a/one", &Args::None);
    let seen = s.lookup(CLIENT, "a/one");
    assert_eq!(s.results(CLIENT, gone), [EARLY]);
    assert_eq!(s.results(CLIENT, seen), [(Errno::NOENT.0, true)]);
    s.write_all();
    assert_eq!(s.results(CLIENT, made), [EARLY, SAFE]);
    assert_eq!(s.results(CLIENT, gone), [EARLY, SAFE]);
    let safe = s.said(CLIENT, made).remove(1);
    assert!(safe.target.is_none() && safe.dentry.is_none() && safe.extra.is_empty());
}

/// Whoever else looks at what was made, removed or changed waits; who looks elsewhere does not.
#[test]
fn others_wait_for_what_is_not_durable() {
    type Change = (u32, &'static str, Args);
    let mode = SetattrArgs { mode: 0o600, mask: SetattrArgs::MODE, ..SetattrArgs::default() };
    let changes: [Change; 6] = [
        (mds_op::CREATE, "both/new", Args::Open(new_file())),
        (mds_op::MKDIR, "both/dir", Args::Mode(0o755)),
        (mds_op::SYMLINK, "both/link", Args::None),
        (mds_op::UNLINK, "both/old", Args::None),
        (mds_op::SETATTR, "both/old", Args::Setattr(mode)),
        (mds_op::RMDIR, "b", Args::None),
    ];
    for (op, path, args) in changes {
        let mut s = Scene::new();
        if path == "b" {
            s = Scene::new();
            s.w.journal = None;
            for n in 0..3 {
                s.op(OTHER, mds_op::UNLINK, &format!("b/first{n}"), &Args::None);
            }
            s.w.ticks(8);
            s.w.journal = Some(VecDeque::new());
        }
        let change = s.op(CLIENT, op, path, &args);
        assert_eq!(s.results(CLIENT, change), [EARLY], "{op:#x} {path}");
        let dir = path.split('/').next().unwrap();
        let looks = [
            s.lookup(OTHER, path),
            s.op(OTHER, mds_op::GETATTR, path, &Args::Mask(0)),
            s.op(OTHER, mds_op::READDIR, dir, &Args::Readdir(messages::fs::ReaddirArgs::default())),
        ];
        let elsewhere =
            [s.lookup(OTHER, "a/first0"), s.op(OTHER, mds_op::GETATTR, "a", &Args::Mask(0))];
        for (n, tid) in looks.into_iter().enumerate() {
            assert_eq!(s.results(OTHER, tid), [], "{op:#x} {path} {n}: not durable");
        }
        // What follows over one connection keeps its order.
        for tid in elsewhere {
            assert_eq!(s.results(OTHER, tid), []);
        }
        s.write_all();
        for (n, tid) in looks.into_iter().enumerate() {
            assert_eq!(s.results(OTHER, tid).len(), 1, "{op:#x} {path} {n}: durable");
        }
        let found = s.results(OTHER, looks[0])[0].0 == 0;
        assert_eq!(found, !matches!(op, mds_op::UNLINK | mds_op::RMDIR), "{op:#x}");
    }
}

#[test]
fn what_is_durable_is_seen_meanwhile() {
    let mut s = Scene::new();
    for n in 0..3 {
        let made = s.create(CLIENT, &format!("a/{n}"));
        assert_eq!(s.results(CLIENT, made), [EARLY]);
    }
    let seen = [
        s.lookup(OTHER, "b/first0"),
        s.op(OTHER, mds_op::GETATTR, "both/old", &Args::Mask(bits::AS)),
        s.op(OTHER, mds_op::READDIR, "both", &Args::Readdir(messages::fs::ReaddirArgs::default())),
    ];
    for (n, tid) in seen.into_iter().enumerate() {
        assert_eq!(s.results(OTHER, tid), [SAFE], "{n}");
    }
    // Nor does a change in a directory of one's own wait.
    let made = s.create(OTHER, "b/one");
    assert_eq!(s.results(OTHER, made), [EARLY]);
    assert_eq!(s.w.journal.as_ref().unwrap().len(), 1, "one write is on its way");
}

/// The same name: the second client waits, and hears that it is there.
#[test]
fn one_of_two_makes_a_name() {
    let mut s = Scene::new();
    let first = s.create(CLIENT, "both/x");
    let second = s.create(OTHER, "both/x");
    assert_eq!((s.results(CLIENT, first), s.results(OTHER, second)), (vec![EARLY], vec![]));
    s.write_all();
    assert_eq!(s.results(OTHER, second), [(Errno::EXIST.0, true)]);
    assert_eq!(s.results(CLIENT, first), [EARLY, SAFE]);
}

/// What a client makes of another's change is not its own: it waits for the other's record, and
/// whoever sees its own for that.
#[test]
fn what_is_under_a_change_counts() {
    let mut s = Scene::new();
    s.create(CLIENT, "both/x");
    let mut m = request(mds_op::RENAME, 1, "b/y", &Args::None);
    m.path2 = FilePath { ino: Ino(1), path: "both/x".into() };
    let moved = s.send(OTHER, &m);
    let seen = s.lookup(OTHER, "b/y");
    assert_eq!((s.results(OTHER, moved), s.results(OTHER, seen)), (vec![], vec![]));
    let back = s.lookup(CLIENT, "both/x");
    assert_eq!(s.results(CLIENT, back), [], "its own name is gone by another's change");
    s.write_all();
    assert_eq!(s.results(OTHER, seen), [SAFE]);
    assert_eq!(s.results(CLIENT, back), [(Errno::NOENT.0, true)]);
}

/// Messages about caps tell of values, too.
#[test]
fn caps_wait_for_the_values_they_tell() {
    let mut s = Scene::new();
    s.w.journal = None;
    let seen = s.lookup(OTHER, "both/old");
    s.w.ticks(2);
    let ino = target(&s.said(OTHER, seen)[0]);
    let args = OpenArgs { flags: 2, pool: -1, ..OpenArgs::default() };
    s.op(OTHER, mds_op::OPEN, "both/old", &Args::Open(args));
    s.w.ticks(8);
    s.w.journal = Some(VecDeque::new());
    s.listen();
    let before = s.caps(OTHER, ino).len();
    let mode = SetattrArgs { mode: 0o600, mask: SetattrArgs::MODE, ..SetattrArgs::default() };
    let changed = s.op(CLIENT, mds_op::SETATTR, "both/old", &Args::Setattr(mode));
    assert_eq!(s.results(CLIENT, changed), [EARLY]);
    let told = |s: &mut Scene| {
        let caps = s.caps(OTHER, ino).split_off(before);
        caps.iter().filter(|m| m.attrs.mode & 0o777 == 0o600).count()
    };
    assert!(s.caps(OTHER, ino).len() > before, "what it had is taken back");
    assert_eq!(told(&mut s), 0);
    s.write_all();
    assert!(told(&mut s) > 0, "and given again with the new mode");
}

/// Snapshots, layouts and what else all below inherit are answered once; so is everything where the
/// option says so.
#[test]
fn what_is_answered_once() {
    let mut s = Scene::new();
    let snap = s.op(CLIENT, mds_op::MKSNAP, "a//s", &Args::Mode(0o755));
    let made = s.create(CLIENT, "a/x");
    let other = s.lookup(OTHER, "b/first0");
    for (client, tid) in [(CLIENT, snap), (CLIENT, made), (OTHER, other)] {
        assert_eq!(s.results(client, tid), [], "all wait for a snapshot");
    }
    s.write_all();
    assert_eq!((s.results(CLIENT, snap), s.results(OTHER, other)), (vec![SAFE], vec![SAFE]));
    assert_eq!(s.results(CLIENT, made), [EARLY, SAFE]);
    let mut m = request(
        mds_op::SETXATTR,
        1,
        "a",
        &Args::Setxattr { flags: 0, osdmap_epoch: Default::default() },
    );
    m.path2.path = "ceph.quota.max_files".into();
    m.data = "9".into();
    let quota = s.send(CLIENT, &m);
    assert_eq!(s.results(CLIENT, quota), []);
    s.write_all();
    assert_eq!(s.results(CLIENT, quota), [SAFE]);
    let mut options = s.w.options.clone();
    options.early_reply = false;
    s.w.mds.set_options(&options);
    let made = s.create(CLIENT, "a/y");
    assert_eq!(s.results(CLIENT, made), []);
    s.write_all();
    assert_eq!(s.results(CLIENT, made), [SAFE]);
}

/// A number whose reservation is not durable might be anybody's after a crash.
#[test]
fn numbers_are_reserved_before_they_are_told() {
    let mut s = Scene::new();
    s.w.options.prealloc_inos = 8;
    let options = s.w.options.clone();
    s.w.mds.set_options(&options);
    s.w.journal = None;
    s.w.conns += 1;
    s.conns.insert(79, s.w.conns);
    let open = ClientSession {
        op: session_op::REQUEST_OPEN,
        detail: Some(Box::default()),
        ..ClientSession::default()
    };
    s.message(79, &open, 0);
    s.w.ticks(2);
    s.w.journal = Some(VecDeque::new());
    let first = s.create(79, "a/n0");
    assert_eq!(s.results(79, first), [], "it has no numbers");
    s.write_all();
    assert_eq!(s.results(79, first), [SAFE]);
    let mut early = 0;
    for n in 1..20 {
        let tid = s.create(79, &format!("a/n{n}"));
        match s.results(79, tid)[..] {
            [EARLY] => early += 1,
            [] => break,
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!(early, 7, "as many as were reserved before");
    s.write_all();
    let mut inos: Vec<Ino> = s.heard[&79]
        .iter()
        .filter(|e| e.kind == ClientReply::KIND)
        .filter_map(|e| Some(ClientReply::decode(e).unwrap().target?.ino))
        .collect();
    let all = inos.len();
    inos.sort_unstable();
    inos.dedup();
    assert_eq!((inos.len(), all), (9, 9));
}

/// A client that is answered early without end is answered late at last.
#[test]
fn early_answers_are_bounded() {
    let mut s = Scene::new();
    let max = crate::gate::EARLY_MAX;
    for n in 0..max {
        s.op(CLIENT, mds_op::MKNOD, &format!("a/{n}"), &Args::Mknod { mode: 0o100_644, rdev: 0 });
    }
    let last = s.create(CLIENT, "a/last");
    assert_eq!(s.results(CLIENT, last), []);
    s.write_all();
    assert_eq!(s.results(CLIENT, last), [SAFE]);
    let next = s.create(CLIENT, "a/next");
    assert_eq!(s.results(CLIENT, next), [EARLY]);
}

/// The time of a request is that until its first answer leaves.
#[test]
fn the_time_of_answers_is_counted() {
    let mut s = Scene::new();
    let time = |s: &mut Scene| {
        let ask = serde_json::json!({"prefix": "perf dump"});
        s.w.call(|m, now, out| m.on_command(now, crate::AskId(1), &ask, out));
        let (_, _, output) = s.w.said.pop().expect("an answer");
        let all: serde_json::Value = serde_json::from_slice(&output).unwrap();
        let of = |group: &str, name: &str| all[group][name]["sum"].as_f64().unwrap();
        (of("mds", "reply_latency"), of("mds_server", "req_create_latency"))
    };
    let before = time(&mut s);
    s.create(CLIENT, "a/one");
    // The driver takes 2 ms to send what it is told to, and a record as long to be durable as it does.
    s.w.now_ms += 2;
    let now = s.w.now();
    s.w.mds.on_sent(now);
    let sent = time(&mut s);
    assert!((sent.1 - before.1 - 0.002).abs() < 1e-6, "{before:?} {sent:?}");
    s.lookup(OTHER, "a/one");
    s.w.now_ms += 30;
    s.write_all();
    let (now, after) = (s.w.now(), s.w.now_ms);
    s.w.mds.on_sent(now);
    let waited = time(&mut s);
    assert!(after > 0 && (waited.0 - sent.0 - 0.030).abs() < 1e-6, "{sent:?} {waited:?}");
    assert!((waited.1 - sent.1).abs() < 1e-9, "a safe answer counts nothing");
}

/// What a directory counts is told with every name in it; and one that is not empty yet by anybody's
/// word is not removed, and no secret.
#[test]
fn sums_wait_too() {
    let mut s = Scene::new();
    s.create(CLIENT, "both/x");
    let seen = s.lookup(OTHER, "both/old");
    assert_eq!(s.results(OTHER, seen), [], "its directory has one name more");
    s.write_all();
    let reply = s.said(OTHER, seen).remove(0);
    assert_eq!(reply.dentry.unwrap().dir.dir.nfiles, 2);
    s.w.journal = None;
    s.op(CLIENT, mds_op::MKDIR, "empty", &Args::Mode(0o755));
    s.w.ticks(8);
    s.w.journal = Some(VecDeque::new());
    s.create(CLIENT, "empty/x");
    let gone = s.op(OTHER, mds_op::RMDIR, "empty", &Args::None);
    assert_eq!(s.results(OTHER, gone), []);
    s.write_all();
    assert_eq!(s.results(OTHER, gone), [(crate::errno::NOTEMPTY.0, true)]);
}

/// Holders of caps are told of a removed name while the request runs, before there is a record.
#[test]
fn a_removed_name_is_told_when_it_is_durable() {
    let mut s = Scene::new();
    s.w.journal = None;
    let seen = s.lookup(OTHER, "both/old");
    s.w.ticks(4);
    let ino = target(&s.said(OTHER, seen)[0]);
    s.w.journal = Some(VecDeque::new());
    let gone = s.op(CLIENT, mds_op::UNLINK, "both/old", &Args::None);
    assert_eq!(s.results(CLIENT, gone), [EARLY]);
    let told = |s: &mut Scene| s.caps(OTHER, ino).iter().filter(|m| m.attrs.nlink == 0).count();
    assert_eq!(told(&mut s), 0);
    s.write_all();
    assert!(told(&mut s) > 0);
}

/// The newest answer's word of the directory: files, and whether `F` comes with it.
fn told_of_dir(s: &mut Scene, client: i64, tid: u64) -> (i64, bool) {
    let said = s.said(client, tid);
    let dir = &said[0].dentry.as_ref().expect("its directory").dir;
    (dir.dir.nfiles, dir.cap.caps & bits::F != 0)
}

/// Two clients make files in one directory: nobody waits for the other's records, or for caps of the
/// directory to come back. Who asks for the directory hears of all of them.
#[test]
fn makers_in_one_directory_do_not_wait_for_each_other() {
    let mut s = Scene::new();
    let first = s.create(CLIENT, "both/c0");
    assert_eq!(s.results(CLIENT, first), [EARLY]);
    // The first one's record is on its way; the next ones of both are behind it.
    let more = [(CLIENT, "both/c1"), (OTHER, "both/o0"), (CLIENT, "both/c2"), (OTHER, "both/o1")];
    let made = more.map(|(client, path)| (client, s.create(client, path)));
    assert_eq!(s.results(OTHER, made[1].1), [], "what was durable before is not known");
    let dir = s.said(CLIENT, first)[0].dentry.as_ref().expect("its directory").dir.ino;
    let heard = [CLIENT, OTHER].map(|client| s.caps(client, dir).len());
    assert!(s.w.write_journal());
    s.listen();
    let late = [(CLIENT, "both/c3"), (OTHER, "both/o2")].map(|(c, path)| (c, s.create(c, path)));
    // The second write takes what was behind the first one, the third the late ones.
    assert!(s.w.write_journal());
    s.listen();
    for (client, tid) in late {
        assert_eq!(s.results(client, tid), [EARLY], "{client}");
        let (files, with_caps) = told_of_dir(&mut s, client, tid);
        assert_eq!((files, with_caps), (2, false), "what is durable, and nothing that keeps it");
    }
    assert_eq!([CLIENT, OTHER].map(|client| s.caps(client, dir).len()), heard);
    let asked = s.op(OTHER, mds_op::GETATTR, "both", &Args::Mask(bits::FS));
    assert_eq!(s.results(OTHER, asked), [], "who asks hears of what is durable");
    s.write_all();
    for (client, tid) in made.into_iter().chain(late) {
        assert_eq!(s.results(client, tid).last(), Some(&SAFE), "{client}");
    }
    let seen = s.said(OTHER, asked).remove(0).target.expect("the directory");
    assert_eq!((seen.dir.nfiles, seen.cap.caps & bits::F), (8, 0));
    // When all is quiet it may be kept again.
    for _ in 0..8 {
        s.w.ticks(1);
        s.write_all();
    }
    let asked = s.op(OTHER, mds_op::GETATTR, "both", &Args::Mask(bits::FS));
    let seen = s.said(OTHER, asked).remove(0).target.expect("the directory");
    assert_eq!((seen.dir.nfiles, seen.cap.caps & bits::FS), (8, bits::FS));
}

/// Who lists a directory may keep the listing, also where several change it, and where somebody is
/// about to.
#[test]
fn a_listing_comes_with_the_caps_that_keep_it() {
    let mut s = Scene::new();
    s.w.journal = None;
    let list = |s: &mut Scene, client| {
        let args = messages::fs::ReaddirArgs::default();
        s.op(client, mds_op::READDIR, "both", &Args::Readdir(args))
    };
    let shared = |s: &mut Scene, client, tid| {
        let said = s.said(client, tid);
        said.first().map(|r| r.target.as_ref().expect("it").cap.caps & bits::FS != 0)
    };
    for n in 0..3 {
        s.create(CLIENT, &format!("both/c{n}"));
        s.create(OTHER, &format!("both/o{n}"));
    }
    let first = s.create(CLIENT, "both/c");
    let dir = s.said(CLIENT, first)[0].dentry.as_ref().expect("its directory").dir.clone();
    assert_eq!(dir.cap.caps & bits::F, 0, "several change it");
    let listed = list(&mut s, OTHER);
    assert_eq!(shared(&mut s, OTHER, listed), Some(true));
    // It does not give that back yet: nobody else changes the directory, and it lists it again.
    s.stubborn = vec![OTHER];
    let made = s.create(CLIENT, "both/d");
    assert_eq!(s.results(CLIENT, made), []);
    let again = list(&mut s, OTHER);
    assert_eq!(shared(&mut s, OTHER, again), None, "what it has is taken back");
    let told = s.caps(OTHER, dir.ino).pop().expect("it is asked for it");
    let back = ClientCaps { op: cap_op::UPDATE, ..told };
    s.stubborn.clear();
    s.message(OTHER, &back, 0);
    s.w.ticks(2);
    assert_eq!(s.results(CLIENT, made).last(), Some(&SAFE));
    assert_eq!(shared(&mut s, OTHER, again), Some(true));
}

/// A directory that was given a time of change which is to come: its own last change is not then, in
/// whatever way it is told.
#[test]
fn times_that_are_to_come_are_no_changes() {
    let mut s = Scene::new();
    s.w.journal = None;
    let mtime = UTime { sec: 4_000_000_000, nsec: 0 };
    let args = SetattrArgs { mtime, mask: SetattrArgs::MTIME, ..SetattrArgs::default() };
    s.op(CLIENT, mds_op::SETATTR, "both", &Args::Setattr(args));
    s.w.ticks(2);
    for n in 0..3 {
        let made = [(CLIENT, "c"), (OTHER, "o")].map(|(client, name)| {
            let tid = s.create(client, &format!("both/{name}{n}"));
            s.said(client, tid)[0].dentry.as_ref().expect("its directory").dir.clone()
        });
        for dir in made {
            assert_eq!(dir.times.mtime, mtime);
            assert!(dir.times.ctime < mtime, "{:?}", dir.times.ctime);
        }
    }
    let asked = s.op(OTHER, mds_op::GETATTR, "both", &Args::Mask(bits::FS));
    let seen = s.said(OTHER, asked).remove(0).target.expect("the directory");
    assert!(seen.times.mtime == mtime && seen.times.ctime < mtime);
}
