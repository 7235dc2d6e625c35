//! Snapshots: what they have stays, through changes, crashes and restarts.

use super::*;

fn made() -> World {
    let mut w = World::new();
    w.mkdir("d");
    w.mkdir("d/sub");
    for name in ["d/kept", "d/gone", "d/moved", "d/sub/deep"] {
        w.create(name);
    }
    w.done(mds_op::MKSNAP, 1, "d//one", &Args::Mode(0o755));
    w.chmod("d/kept", 0o600);
    w.done(mds_op::UNLINK, 1, "d/gone", &Args::None);
    w.two(mds_op::RENAME, "there", "d/moved");
    w.done(mds_op::UNLINK, 1, "d/sub/deep", &Args::None);
    w.done(mds_op::RMDIR, 1, "d/sub", &Args::None);
    w
}

fn check(w: &mut World) {
    assert_eq!(w.stat("d/kept"), Ok((0o100_600, 0)));
    assert_eq!(w.stat("d//one/kept"), Ok((0o100_644, 0)));
    assert_eq!(w.stat("d/gone"), Err(-2));
    assert_eq!(w.stat("d//one/gone"), Ok((0o100_644, 0)));
    assert_eq!(w.stat("d//one/moved"), Ok((0o100_644, 0)));
    assert_eq!(w.stat("d//one/sub/deep"), Ok((0o100_644, 0)));
    assert_eq!(w.stat("d//one/there"), Err(-2));
    assert_eq!(w.stat("d//two"), Err(-2));
    assert_eq!(w.names(mds_op::READDIR, "d"), ["kept"]);
    assert_eq!(w.names(mds_op::READDIR, "d//one"), ["gone", "kept", "moved", "sub"]);
    assert_eq!(w.names(mds_op::READDIR, "d//one/sub"), ["deep"]);
    assert_eq!(w.names(mds_op::LSSNAP, "d"), ["one"]);
}

#[test]
fn snapshots_have_what_was_there() {
    let mut w = made();
    check(&mut w);
    w.restart();
    check(&mut w);
    w.ticks(40); // all is written back
    check(&mut w);
    w.restart();
    check(&mut w);
}

#[test]
fn nothing_in_them_can_be_changed() {
    let mut w = made();
    for (op, path) in [(mds_op::UNLINK, "d//one/kept"), (mds_op::MKDIR, "d//one/new")] {
        assert_eq!(w.op(op, 1, path, &Args::None).unwrap().result, -30, "{path}");
    }
    for name in ["", "_x"] {
        let path = format!("d//{name}");
        let r = w.op(mds_op::MKSNAP, 1, &path, &Args::Mode(0o755)).unwrap();
        assert_eq!(r.result, -22, "{path}");
    }
    let again = w.op(mds_op::MKSNAP, 1, "d//one", &Args::Mode(0o755)).unwrap();
    assert_eq!(again.result, -17);
    let full = w.op(mds_op::RMDIR, 1, "d", &Args::None).unwrap();
    assert_eq!(full.result, -39);
}

/// A snapshot that is removed leaves nothing in the tree, and the monitors hear of it until their
/// map says so.
#[test]
fn what_only_it_had_goes_with_it() {
    let mut w = made();
    w.ticks(40);
    let past = |w: &World| {
        let keys = w.pools.objects.values().flat_map(|o| o.omap.keys());
        keys.filter(|k| {
            let text = String::from_utf8_lossy(k);
            !text.ends_with("_head") && !text.starts_with("client.")
        })
        .count()
    };
    assert!(past(&w) > 3, "{}", past(&w));
    w.done(mds_op::RMSNAP, 1, "d//one", &Args::None);
    w.ticks(60);
    assert_eq!(past(&w), 0);
    let told = w.removed.len();
    assert!(told >= 2, "told {told} times");
    assert_eq!(w.removed[0], BTreeMap::from([(2, vec![types::SnapId(2), types::SnapId(3)])]));
    w.osd.epoch.0 += 1;
    w.osd.snap_seqs.insert(DATA, types::SnapId(3));
    let osd = w.osd.clone();
    w.call(|m, now, out| m.on_osd_map(now, &osd, out));
    w.ticks(2);
    let told = w.removed.len();
    w.ticks(60);
    assert_eq!(w.removed.len(), told, "they know");
    assert_eq!(w.names(mds_op::LSSNAP, "d"), [] as [&str; 0]);
    assert_eq!(w.stat("there"), Ok((0o100_644, 0)));
}

/// Writers of many files are asked for what they have at once, not one after the other's answer.
#[test]
fn differences_ask_all_writers_at_once() {
    let mut w = World::new();
    w.mkdir("d");
    let files: Vec<Ino> = (0..20).map(|n| w.create(&format!("d/f{n}"))).collect();
    let snap = |reply: &ClientReply| reply.target.as_ref().expect("a snapshot").snapid;
    let one = snap(&w.done(mds_op::MKSNAP, 1, "d//one", &Args::Mode(0o755)));
    let two = snap(&w.done(mds_op::MKSNAP, 1, "d//two", &Args::Mode(0o755)));
    assert!(two > one);
    let args = messages::fs::ReaddirArgs { snap_other: one.0, flags: 1, ..Default::default() };
    let mut m = request(mds_op::READDIR_SNAPDIFF, 1, "d//two", &Args::Readdir(args));
    m.stamp = UTime::from_nanos(w.now().wall_ns);
    w.heard.clear();
    w.tid += 1;
    let tid = w.tid;
    w.message(CLIENT, &m, tid);
    let asked = |e: &Envelope| {
        let m = ClientCaps::decode(e).ok().filter(|m| m.op == cap_op::REVOKE)?;
        Some(m.ino)
    };
    let caps = w.heard.iter().filter(|(_, e)| e.kind == ClientCaps::KIND);
    let asked: std::collections::BTreeSet<Ino> = caps.filter_map(|(_, e)| asked(e)).collect();
    assert_eq!(asked.len(), files.len(), "all at once");
}

/// What two snapshots of a directory do not have in common, from either side and in pages.
#[test]
fn what_differs_between_two() {
    let mut w = World::new();
    w.mkdir("d");
    for name in ["d/kept", "d/gone", "d/written", "d/other", "d/anew"] {
        w.create(name);
    }
    for name in ["d/sub", "d/emptied"] {
        w.mkdir(name);
    }
    let snap = |reply: &ClientReply| reply.target.as_ref().expect("a snapshot").snapid;
    let one = snap(&w.done(mds_op::MKSNAP, 1, "d//one", &Args::Mode(0o755)));
    w.done(mds_op::UNLINK, 1, "d/gone", &Args::None);
    w.done(mds_op::RMDIR, 1, "d/emptied", &Args::None);
    w.done(mds_op::UNLINK, 1, "d/other", &Args::None);
    w.mkdir("d/other");
    w.create("d/new");
    w.done(mds_op::UNLINK, 1, "d/anew", &Args::None);
    w.create("d/anew");
    let mtime = UTime { sec: 7, nsec: 0 };
    let args = SetattrArgs { mtime, mask: SetattrArgs::MTIME, ..SetattrArgs::default() };
    w.done(mds_op::SETATTR, 1, "d/written", &Args::Setattr(args));
    let two = snap(&w.done(mds_op::MKSNAP, 1, "d//two", &Args::Mode(0o755)));
    w.create("d/later");
    let mut want = vec![
        ("anew", one),
        ("anew", two),
        ("emptied", one),
        ("gone", one),
        ("new", two),
        ("other", one),
        ("other", two),
        ("sub", two),
        ("written", two),
    ];
    want.sort_unstable();
    for (path, other) in [("d//one", two), ("d//two", one)] {
        for max_entries in [0, 1, 3] {
            let (mut found, mut after) = (Vec::new(), Bytes::new());
            loop {
                let args = messages::fs::ReaddirArgs {
                    max_entries,
                    snap_other: other.0,
                    flags: 1,
                    ..Default::default()
                };
                let args = Args::Readdir(args);
                let mut m = request(mds_op::READDIR_SNAPDIFF, 1, path, &args);
                m.path2.path = after.clone();
                let reply = w.ask(&m).expect("an answer");
                assert_eq!((reply.result, snap(&reply)), (0, other));
                let page = messages::fs::DirListing::from_shared(&reply.extra).expect("a listing");
                for e in &page.entries {
                    after = e.name.clone();
                    found.push((String::from_utf8_lossy(&e.name).into_owned(), e.inode.snapid));
                }
                if page.flags & messages::fs::readdir_flag::FRAG_END != 0 {
                    break;
                }
            }
            found.sort_unstable();
            let found: Vec<_> = found.iter().map(|(n, s)| (&n[..], *s)).collect();
            assert_eq!(found, want, "{path} {max_entries}");
        }
    }
    let same = messages::fs::ReaddirArgs { snap_other: one.0, ..Default::default() };
    let reply = w.op(mds_op::READDIR_SNAPDIFF, 1, "d//one", &Args::Readdir(same)).unwrap();
    assert_eq!(reply.result, Errno::INVAL.0);
}
