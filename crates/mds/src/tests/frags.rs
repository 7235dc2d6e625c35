//! Directories that are split and merged again, through crashes.

use super::*;

const MANY: usize = 40;

fn name(n: usize) -> String {
    format!("d/{n:04}")
}

fn world() -> World {
    let mut w = World::new();
    w.options = Options { split_entries: 20, merge_entries: 8, ..options() };
    w.restart();
    w.mkdir("d");
    w
}

fn leaves(w: &World) -> usize {
    // Objects of directories that have a header, but for the root's, the server's and the strays'.
    let of_dirs = |(pool, name): &&(PoolId, String)| *pool == META && name.starts_with("1000");
    let all = w.pools.objects.iter().filter(|(k, _)| of_dirs(k));
    all.filter(|(_, o)| !o.header.is_empty()).count()
}

fn all_there(w: &mut World, range: std::ops::Range<usize>) {
    for n in 0..MANY {
        assert_eq!(w.stat(&name(n)).is_ok(), range.contains(&n), "{n}");
    }
    let reply = w.op(mds_op::GETATTR, 1, "d", &Args::Mask(0)).unwrap();
    assert_eq!(reply.target.unwrap().dir.nfiles as usize, range.len());
}

#[test]
fn split_and_merged() {
    let mut w = world();
    for n in 0..MANY {
        w.create(&name(n));
    }
    w.done(mds_op::MKSNAP, 1, "d//s", &Args::Mode(0o755));
    w.ticks(20);
    assert_eq!(leaves(&w), 8);
    all_there(&mut w, 0..MANY);
    w.restart();
    all_there(&mut w, 0..MANY);
    for n in 3..MANY {
        w.done(mds_op::UNLINK, 1, &name(n), &Args::None);
    }
    w.ticks(20);
    all_there(&mut w, 0..3);
    assert_eq!(leaves(&w), 8, "the snapshot has all of them");
    assert!(w.stat("d//s/0039").is_ok());
    w.done(mds_op::RMSNAP, 1, "d//s", &Args::None);
    w.ticks(40);
    assert_eq!(leaves(&w), 1);
    all_there(&mut w, 0..3);
    w.restart();
    all_there(&mut w, 0..3);
}

/// The server dies between any two of its writes while it splits and merges.
#[test]
fn crashes_while_splitting() {
    for writes in (0..400).step_by(3) {
        let mut w = world();
        for n in 0..19 {
            w.create(&name(n));
        }
        w.writes_left = Some(writes);
        let args = OpenArgs { flags: 0o101, mode: 0o644, pool: -1, ..OpenArgs::default() };
        let (mut made, mut dead) = (19, false);
        for n in 19..24 {
            match w.op(mds_op::CREATE, 1, &name(n), &Args::Open(args)) {
                Some(_) => made += 1,
                None => dead = true,
            }
            if dead {
                break;
            }
        }
        let mut first = 0;
        for n in 0..18 {
            if dead || w.op(mds_op::UNLINK, 1, &name(n), &Args::None).is_none() {
                dead = true;
                break;
            }
            first += 1;
        }
        w.ticks(12);
        w.restart();
        for n in 0..24 {
            // The one that got no answer may have happened.
            if (n == made || n == first) && dead {
                continue;
            }
            assert_eq!(w.stat(&name(n)).is_ok(), (first..made).contains(&n), "{n} {writes}");
        }
    }
}
