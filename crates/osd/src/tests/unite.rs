//! Pools get fewer PGs.

use bytes::Bytes;
use messages::{OsdOp, op};
use types::{OsdId, PgId, PoolId};

use super::cluster::Cluster;
use super::survive::{check_copies, seeds};

const POOL: PoolId = PoolId(1);

fn write(data: &str) -> Vec<OsdOp> {
    let data = Bytes::copy_from_slice(data.as_bytes());
    vec![OsdOp::extent(op::WRITEFULL, 0, data.len() as u64, data)]
}

fn append(data: &str) -> Vec<OsdOp> {
    let data = Bytes::copy_from_slice(data.as_bytes());
    vec![OsdOp::extent(op::APPEND, 0, data.len() as u64, data)]
}

fn read(c: &mut Cluster, name: &str) -> String {
    let reply = c.run(POOL, name, vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]);
    assert_eq!(reply.result, 0, "{name}");
    String::from_utf8_lossy(&reply.ops[0].data).into_owned()
}

fn pg_num(c: &Cluster) -> u32 {
    c.map.pool(POOL).unwrap().pg_num
}

/// One merge after the other until `n` PGs are left.
fn shrink_to(c: &mut Cluster, n: u32) {
    for _ in 0..200 {
        if pg_num(c) == n {
            return;
        }
        c.shrink_pool(POOL);
        c.settle();
    }
    panic!("{} PGs are left", pg_num(c));
}

/// Whole PGs are merged at once; every object is there, is counted once, and no copy of what
/// went is left; and back again.
#[test]
fn whole_pgs_become_one() {
    for seed in seeds(0, 4) {
        let mut c = if seed % 2 == 0 {
            Cluster::ready(4, 3, 8, seed)
        } else {
            Cluster::ready_coded(4, (2, 1), 8, seed)
        };
        for i in 0..60 {
            assert_eq!(c.run(POOL, &format!("o{i}"), write(&format!("body {i}"))).result, 0);
        }
        shrink_to(&mut c, 1);
        for n in &c.nodes {
            let osd = n.osd.as_ref().unwrap();
            assert!(osd.pgs.keys().all(|id| id.pg.ps == 0), "seed {seed}");
            let left = osd.store().collections();
            let pgs = left.iter().filter(|x| matches!(x, crate::backing::Coll::Pg(_)));
            assert_eq!(pgs.count(), osd.pgs.len(), "seed {seed}");
        }
        let led = c.nodes.iter().filter_map(|n| n.osd.as_ref()?.pgs.values().find(|p| p.leads));
        assert_eq!(led.map(|p| p.counts().objects).collect::<Vec<_>>(), [60], "seed {seed}");
        c.set_pool(POOL, |p| super::cluster::set_pg_num(p, 5));
        c.settle();
        for i in 0..60 {
            assert_eq!(read(&mut c, &format!("o{i}")), format!("body {i}"), "seed {seed}");
        }
        if seed % 2 == 0 {
            check_copies(&c);
        } else {
            super::coded::check_shards(&c);
        }
    }
}

/// A request that was done before the merge, and whose answer was lost, is not done again
/// after it.
#[test]
fn resends_are_recognised_after_a_merge() {
    for seed in seeds(0, 4) {
        let mut c = Cluster::ready(3, 3, 2, seed);
        // Both PGs' logs have the same versions.
        let names: Vec<String> = (0..12).map(|i| format!("o{i}")).collect();
        for name in &names {
            assert_eq!(c.run(POOL, name, append("a")).result, 0);
        }
        for name in &names {
            c.ask(POOL, name, append("b"));
        }
        c.client_step();
        // All done, no answer heard.
        c.run_unheard();
        (0..3).for_each(|i| c.break_client(i));
        c.shrink_pool(POOL);
        c.settle();
        assert_eq!(pg_num(&c), 1, "seed {seed}");
        for name in &names {
            assert_eq!(read(&mut c, name), "ab", "seed {seed}");
        }
    }
}

/// What waited in a PG for an object that went to a child was dropped, and its client sends it again
/// as soon as it knows of the split. Until then nothing that it asks passes that: not when the
/// object has come back, and not where it went when there is such a PG again.
#[test]
fn nothing_passes_what_a_split_dropped() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    let split = |c: &mut Cluster| {
        c.set_pool(POOL, |p| super::cluster::set_pg_num(p, 2));
        c.settle();
    };
    for name in ["a", "b", "c", "d"] {
        assert_eq!(c.run(POOL, name, write(name)).result, 0);
    }
    for again in [false, true] {
        // As a client knows it that hears of no later map.
        let before = c.map.epoch;
        if again {
            shrink_to(&mut c, 1);
            split(&mut c);
        } else {
            split(&mut c);
            shrink_to(&mut c, 1);
        }
        let late = ["a", "b", "c", "d"].map(|name| c.ask(POOL, name, append("!")));
        c.send_with_old_map(before);
        for _ in 0..20 {
            c.tick(100);
            while c.step() {}
        }
        assert!(late.iter().all(|tid| !c.answers.contains_key(tid)), "again {again}");
        c.break_client(0);
        c.settle();
        assert!(late.iter().all(|tid| c.answers[tid].result == 0), "again {again}");
        split(&mut c);
    }
    assert_eq!(read(&mut c, "c"), "c!!");
}

/// PGs that lack a copy are not merged: they serve again.
#[test]
fn what_is_not_whole_is_not_merged() {
    let mut c = Cluster::ready(3, 3, 2, 3);
    c.run(POOL, "a", write("x"));
    c.kill(2);
    c.mark_down(2);
    c.settle();
    c.shrink_pool(POOL);
    let epoch = c.map.epoch;
    c.settle();
    assert!(c.map.epoch > epoch, "the monitors are told");
    let pool = c.map.pool(POOL).unwrap();
    assert_eq!((pool.pg_num, pool.pg_num_pending), (2, 2));
    assert_eq!(c.run(POOL, "a", write("y")).result, 0);
}

/// A copy that slept through the merge, with a log that ends earlier than it should, is
/// compared with the others and counts for nothing before.
#[test]
fn copies_that_slept_are_compared() {
    for seed in seeds(0, 6) {
        // An OSD more than copies: PGs are whole without it.
        let mut c = Cluster::ready(4, 3, 2, seed);
        for i in 0..20 {
            c.run(POOL, &format!("o{i}"), write("old"));
        }
        let lost = c.map.pg_to_up_acting(PgId { pool: POOL, ps: 1 }).acting[1];
        let i = lost.0 as usize;
        c.kill(i);
        let mut inc = c.next_inc();
        inc.new_state.insert(lost, 2);
        inc.new_weight.insert(lost, 0);
        c.publish(inc);
        c.settle();
        for i in 0..10 {
            c.run(POOL, &format!("o{i}"), write("new"));
        }
        c.run(POOL, "o11", vec![OsdOp::new(op::DELETE, Bytes::new())]);
        shrink_to(&mut c, 1);
        let mut inc = c.next_inc();
        inc.new_weight.insert(lost, 0x1_0000);
        c.publish(inc);
        c.start(i);
        // It leads at once where it can; the others do not answer before it has asked.
        c.settle();
        check_copies(&c);
        for i in (0..20).filter(|i| *i != 11) {
            let want = if i < 10 { "new" } else { "old" };
            assert_eq!(read(&mut c, &format!("o{i}")), want, "seed {seed}");
        }
        assert!(c.map.is_up(OsdId(i as i32)));
    }
}
