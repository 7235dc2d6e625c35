//! How fast the tree is written back.

use super::*;

/// Each write that ends begins another: what is due is not left for later ticks.
#[test]
fn what_is_due_is_written_at_once() {
    let mut w = World::new();
    let dirs: Vec<Ino> = (0..100).map(|n| w.mkdir(&format!("d{n}"))).collect();
    // Without a tick in between.
    let send = |w: &mut World, op, dir: &Ino, args: &Args| {
        for f in 0..3 {
            w.tid += 1;
            let (tid, now) = (w.tid, UTime::from_nanos(w.now().wall_ns));
            let m = ClientRequest { stamp: now, ..request(op, dir.0, &format!("f{f}"), args) };
            w.message(CLIENT, &m, tid);
            let mut replies = Vec::new();
            while let Some((_, e)) = w.heard.pop_front() {
                match e.kind {
                    ClientCaps::KIND => w.give_back(&ClientCaps::decode(&e).expect("caps")),
                    ClientReply::KIND => {
                        let reply = ClientReply::decode(&e).unwrap();
                        replies.push((reply.result, reply.safe));
                    }
                    _ => {}
                }
            }
            assert_eq!(replies, [(0, false), (0, true)]);
        }
    };
    let stored = |w: &World| {
        let traces = w.pools.objects.iter().filter(|((pool, _), _)| *pool == DATA).count();
        let meta = w.pools.objects.iter().filter(|((pool, _), _)| *pool == META);
        let names = |o: &Object| o.omap.keys().filter(|k| k.starts_with(b"f")).count();
        (traces, meta.map(|(_, o)| names(o)).sum::<usize>())
    };
    for dir in &dirs {
        send(&mut w, mds_op::MKNOD, dir, &Args::Mknod { mode: 0o100_644, rdev: 0 });
    }
    assert_eq!(stored(&w), (0, 0));
    w.now_ms += 2_000;
    w.ticks(1);
    assert_eq!(stored(&w), (300, 300), "backtraces and entries");
}

/// A directory with much in it is written in parts, one after another; its header, which says that all
/// is there, goes with the last.
#[test]
fn much_is_written_in_parts() {
    const FILES: usize = 300;
    let mut w = World::new();
    w.mkdir("d");
    let now_ms = w.now_ms;
    for n in 0..FILES {
        w.create(&format!("d/f{n}"));
        let mut m = request(mds_op::SETXATTR, 1, &format!("d/f{n}"), &Args::None);
        m.args = Args::Setxattr { flags: 0, osdmap_epoch: 0 }.to_raw();
        m.path2 = FilePath { ino: Ino(0), path: "user.x".into() };
        m.data = vec![b'x'; 60_000].into();
        assert_eq!(w.ask(&m).expect("an answer").result, 0);
        w.now_ms = now_ms; // so that nothing of it is due meanwhile
    }
    w.tree = Some(VecDeque::new());
    w.now_ms += 10_000;
    let bytes = |io: &Io| -> usize {
        let sets = io.ops.iter().filter_map(|op| match op {
            IoOp::OmapSet(pairs) => {
                Some(pairs.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>())
            }
            _ => None,
        });
        sets.sum()
    };
    let (mut parts, mut headers) = (0, 0);
    for _ in 0..40 {
        w.ticks(1);
        let kept = std::mem::take(w.tree.as_mut().unwrap());
        let parts_of = kept.iter().filter(|io| bytes(io) > 1 << 20).count();
        assert!(parts_of <= 1, "{parts_of} parts at the same time");
        for io in kept {
            if bytes(&io) > 1 << 20 {
                assert!(bytes(&io) <= 9 << 20, "{} bytes", bytes(&io));
                parts += 1;
                headers += io.ops.iter().filter(|op| matches!(op, IoOp::OmapSetHeader(_))).count();
            }
            let answer = w.pools.run(&io);
            w.call(|m, now, out| m.on_done(now, io.id, answer, out));
        }
    }
    assert_eq!((parts, headers), (3, 1));
    w.tree = None;
    w.restart();
    assert_eq!(w.names(mds_op::READDIR, "d").len(), FILES);
}

/// Files that are removed and wait for their turn to be purged get no backtrace any more.
#[test]
fn what_is_removed_gets_no_backtrace() {
    let mut w = World::new();
    w.options.purge_files_max = 0;
    w.mds.set_options(&w.options);
    let now_ms = w.now_ms;
    for n in 0..20 {
        w.done(mds_op::MKNOD, 1, &format!("f{n}"), &Args::Mknod { mode: 0o100_644, rdev: 0 });
        w.now_ms = now_ms;
    }
    for n in 0..20 {
        w.done(mds_op::UNLINK, 1, &format!("f{n}"), &Args::None);
        w.now_ms = now_ms;
    }
    w.ok("session evict", serde_json::json!({"filters": ["id=77"]}));
    w.ticks(40);
    let traces =
        w.pools.objects.iter().filter(|((pool, _), o)| *pool == DATA && !o.xattrs.is_empty());
    assert_eq!(traces.count(), 0);
}
