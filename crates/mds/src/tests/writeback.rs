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
