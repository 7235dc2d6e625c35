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
