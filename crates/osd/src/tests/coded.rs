//! Erasure-coded pools: an object is what was written, whichever shards are there.

use bytes::Bytes;
use messages::{OsdOp, op};
use types::{OsdId, PgId, PoolId, ShardId, SpgId};

use super::cluster::Cluster;
use super::ops::xattr;
use super::survive::{Faults, seeds, storm_on};
use crate::backing::{Coll, ObjectStore};

const POOL: PoolId = PoolId(1);

fn write(off: u64, data: Vec<u8>) -> OsdOp {
    OsdOp::extent(op::WRITE, off, data.len() as u64, data.into())
}

fn read(off: u64, len: u64) -> OsdOp {
    OsdOp::extent(op::READ, off, len, Bytes::new())
}

/// Where each PG's shards are, and all of one object.
fn shards_of(c: &Cluster, pg: PgId) -> Vec<(OsdId, SpgId)> {
    let acting = c.map.pg_to_up_acting(pg).acting;
    let at = |(i, osd): (usize, OsdId)| (osd, SpgId { pg, shard: ShardId(i as i8) });
    acting.into_iter().enumerate().map(at).collect()
}

/// All shards of every PG are there and fit each other.
pub fn check_shards(c: &Cluster) {
    for ps in 0..c.map.pool(POOL).expect("there is a pool").pg_num {
        let pg = PgId { pool: POOL, ps };
        let mut all = Vec::new();
        for (osd, spg) in shards_of(c, pg) {
            let node = &c.nodes[osd.0 as usize];
            let role = node.osd.as_ref().expect("all run");
            assert!(role.pgs[&spg].missing.is_empty(), "{spg} on osd.{osd}");
            all.push(node.store.lock().now[&Coll::Pg(spg)].objects.clone());
        }
        if let Err(why) = crate::shards_agree(&c.map, POOL, &all) {
            panic!("{pg}: {why}");
        }
    }
}

/// Writes, cuts, holes and appends, against a plain array.
#[test]
fn an_object_is_what_was_written() {
    for (k, m) in [(2, 1), (4, 2), (6, 2)] {
        let mut c = Cluster::ready_coded(k + m, (k, m), 2, 3);
        let mut model: Vec<u8> = Vec::new();
        for round in 0..150u64 {
            let (off, len) = (c.random(700), 1 + c.random(260));
            let data = vec![round as u8 | 1; len];
            let fits = |model: &mut Vec<u8>, end: usize| {
                if model.len() < end {
                    model.resize(end, 0);
                }
            };
            let o = match c.random(9) {
                0 => {
                    model.resize(off, 0);
                    OsdOp::extent(op::TRUNCATE, off as u64, 0, Bytes::new())
                }
                1 => {
                    let (a, b) = (off.min(model.len()), (off + len).min(model.len()));
                    model[a..b].fill(0);
                    if off + len >= model.len() {
                        model.truncate(a.max(off.min(model.len())));
                    }
                    OsdOp::extent(op::ZERO, off as u64, len as u64, Bytes::new())
                }
                2 => {
                    model.extend_from_slice(&data);
                    OsdOp::extent(op::APPEND, 0, len as u64, data.into())
                }
                3 if round % 5 == 0 => {
                    model = data.clone();
                    OsdOp::extent(op::WRITEFULL, 0, len as u64, data.into())
                }
                _ => {
                    fits(&mut model, off + len);
                    model[off..off + len].copy_from_slice(&data);
                    write(off as u64, data)
                }
            };
            let first = OsdOp::new(op::CREATE, Bytes::new());
            assert_eq!(c.run(POOL, "o", vec![first, o]).result, 0);
            let (off, len) = (c.random(500), c.random(400));
            let r = c.run(POOL, "o", vec![read(off as u64, len as u64)]);
            let (a, b) = (off.min(model.len()), (off + len).min(model.len()));
            let want = if len == 0 { &model[a..] } else { &model[a..b] };
            assert_eq!((r.result, &r.ops[0].data[..]), (0, want), "{k}+{m} round {round}");
        }
        c.settle();
        check_shards(&c);
    }
}

/// As long as k shards are left every byte is there, whichever these are, and what is written
/// meanwhile is too once all are back.
#[test]
fn any_k_shards_give_an_object() {
    for seed in 0..12 {
        let (k, m) = [(2, 1), (4, 2), (3, 2)][seed % 3];
        let mut c = Cluster::ready_coded(k + m, (k, m), 1, seed as u64);
        c.set_pool(POOL, |p| p.min_size = k as u8);
        let body = |i: usize| vec![i as u8 + 1; 50 + i * 77];
        for i in 0..8 {
            c.run(POOL, &format!("o{i}"), vec![write(0, body(i))]);
        }
        let mut dead: Vec<usize> = Vec::new();
        while dead.len() < m {
            let i = c.random(k + m);
            if !dead.contains(&i) {
                c.kill(i);
                c.mark_down(i);
                dead.push(i);
            }
        }
        for i in 0..8 {
            let r = c.run(POOL, &format!("o{i}"), vec![read(0, 0)]);
            assert_eq!((r.result, &r.ops[0].data[..]), (0, &body(i)[..]), "seed {seed} o{i}");
        }
        // Overwritten in part, while shards are away.
        for i in 0..4 {
            assert_eq!(c.run(POOL, &format!("o{i}"), vec![write(20, vec![99; 30])]).result, 0);
        }
        for i in dead {
            c.start(i);
        }
        c.settle();
        check_shards(&c);
        for i in 0..8 {
            let mut want = body(i);
            if i < 4 {
                want[20..50].fill(99);
            }
            let r = c.run(POOL, &format!("o{i}"), vec![read(0, 0)]);
            assert_eq!((r.result, &r.ops[0].data[..]), (0, &want[..]), "seed {seed} o{i}");
        }
    }
}

/// A shard whose disk was replaced, and one that moved to another OSD, are computed anew.
#[test]
fn lost_shards_are_computed_anew() {
    for seed in 0..6 {
        let mut c = Cluster::ready_coded(5, (2, 2), 2, seed);
        let body = |i: usize| vec![i as u8 + 1; 1 + i * 131];
        for i in 0..20 {
            c.run(POOL, &format!("o{i}"), vec![write(0, body(i))]);
        }
        let i = c.random(5);
        c.kill(i);
        c.nodes[i].store = crate::memory::MemStore::default();
        c.mark_down(i);
        if seed % 2 == 0 {
            let mut inc = c.inc();
            inc.new_weight.insert(OsdId(i as i32), 0);
            c.publish(inc);
            c.settle();
        }
        c.start(i);
        c.settle();
        check_shards(&c);
        for i in 0..20 {
            let r = c.run(POOL, &format!("o{i}"), vec![read(0, 0)]);
            assert_eq!((r.result, &r.ops[0].data[..]), (0, &body(i)[..]), "seed {seed} o{i}");
        }
    }
}

#[test]
fn shards_survive_broken_connections() {
    for seed in seeds(5_000_000, 10) {
        let c = Cluster::ready_coded(4, (2, 1), 4, seed);
        storm_on(c, seed, &Faults { kill: false, kill_all: false, wires: true });
    }
}

#[test]
fn shards_survive_single_deaths() {
    for seed in seeds(6_000_000, 20) {
        let (osds, code) = [(4, (2, 1)), (4, (2, 2)), (6, (4, 2))][seed as usize % 3];
        let c = Cluster::ready_coded(osds, code, 3, seed);
        storm_on(c, seed, &Faults { kill: true, kill_all: false, wires: seed % 2 == 0 });
    }
}

#[test]
fn shards_survive_the_death_of_all() {
    for seed in seeds(7_000_000, 20) {
        let (osds, code) = [(3, (2, 1)), (4, (2, 2)), (6, (4, 2))][seed as usize % 3];
        let c = Cluster::ready_coded(osds, code, 3, seed);
        storm_on(c, seed, &Faults { kill: true, kill_all: true, wires: true });
    }
}

fn errors_said(c: &mut Cluster) -> Vec<String> {
    let all = std::mem::take(&mut c.effects_seen);
    let text = |e| if let crate::Effect::ClusterLog { text, .. } = e { Some(text) } else { None };
    all.into_iter().filter_map(text).collect()
}

/// Changes one byte of some shard of an object behind everybody's back; which OSD.
fn spoil(c: &mut Cluster, name: &str) -> usize {
    let (osd, spg) = shards_of(c, PgId { pool: POOL, ps: 0 })[c.random(3)];
    let mut inner = c.nodes[osd.0 as usize].store.lock();
    let objects = &mut inner.now.get_mut(&Coll::Pg(spg)).expect("it has the PG").objects;
    let found = objects.iter_mut().find(|(o, _)| o.name == name.as_bytes());
    found.expect("it has the object").1.data[5] ^= 1;
    osd.0 as usize
}

/// A deep scrub finds the shard that does not fit the others and a repair computes it anew;
/// with one coding shard it can be any of them, and nothing is changed.
#[test]
fn scrubs_find_shards_that_do_not_fit() {
    for (k, m) in [(2, 2), (3, 2), (2, 1)] {
        let mut c = Cluster::ready_coded(k + m, (k, m), 1, 4);
        for i in 0..5 {
            c.run(POOL, &format!("o{i}"), vec![write(0, vec![7; 100 * (i + 1)])]);
        }
        c.settle();
        (0..k + m).for_each(|i| c.scrub_all(i));
        c.settle();
        assert_eq!(errors_said(&mut c), Vec::<String>::new(), "nothing is wrong yet");
        spoil(&mut c, "o3");
        (0..k + m).for_each(|i| c.scrub_all(i));
        c.settle();
        let said = errors_said(&mut c);
        assert!(!said.is_empty(), "{k}+{m}: it is found");
        if m > 1 {
            assert!(said.iter().any(|t| t.contains("1 errors, 1 fixed")), "{said:?}");
            check_shards(&c);
            let r = c.run(POOL, "o3", vec![read(0, 0)]);
            assert_eq!(&r.ops[0].data[..], &[7; 400][..]);
        } else {
            assert!(said.iter().any(|t| t.contains("0 fixed")), "{said:?}");
        }
    }
}

/// A shard that cannot be read is computed for who asks, and written anew.
#[test]
fn damaged_shards_are_mended_by_reads() {
    for seed in 0..6 {
        let mut c = Cluster::ready_coded(4, (2, 2), 1, seed);
        let body: Vec<u8> = (0..500).map(|i| i as u8).collect();
        c.run(POOL, "o", vec![write(0, body.clone())]);
        c.settle();
        // A shard of data: those are what is read.
        let (osd, spg) = shards_of(&c, PgId { pool: POOL, ps: 0 })[c.random(2)];
        let oid = types::HObject::head(POOL, Bytes::new(), Bytes::new(), Bytes::from_static(b"o"));
        let osd = osd.0 as usize;
        c.nodes[osd].store.lock().damaged.insert((Coll::Pg(spg), oid));
        for node in &mut c.nodes {
            for shard in (0..4).map(ShardId) {
                node.store.forget_sent(SpgId { shard, ..spg }); // it would not be read
            }
        }
        let r = c.run(POOL, "o", vec![read(0, 0)]);
        assert_eq!((r.result, &r.ops[0].data[..]), (0, &body[..]), "seed {seed}");
        c.settle();
        assert!(c.nodes[osd].store.lock().damaged.is_empty(), "seed {seed}: it was written anew");
        check_shards(&c);
    }
}

/// A write that finds a shard damaged waits until that is whole, and comes before what was
/// asked after it.
#[test]
fn writes_wait_for_shards_found_damaged() {
    for seed in 0..12 {
        let mut c = Cluster::ready_coded(5, (3, 2), 1, seed);
        let mut body: Vec<u8> = (0..300).map(|i| i as u8).collect();
        c.run(POOL, "o", vec![write(0, body.clone())]);
        c.settle();
        let (osd, spg) = shards_of(&c, PgId { pool: POOL, ps: 0 })[c.random(3)];
        let oid = types::HObject::head(POOL, Bytes::new(), Bytes::new(), Bytes::from_static(b"o"));
        let osd = osd.0 as usize;
        c.nodes[osd].store.lock().damaged.insert((Coll::Pg(spg), oid));
        // In part: the rest of the stripe has to be read.
        let asked: Vec<u64> =
            (0..3).map(|i| c.ask(POOL, "o", vec![write(5 + i, vec![200 + i as u8; 9])])).collect();
        for (i, tid) in asked.into_iter().enumerate() {
            assert_eq!(c.wait(tid).result, 0, "seed {seed}");
            body[5 + i..14 + i].fill(200 + i as u8);
        }
        c.settle();
        let r = c.run(POOL, "o", vec![read(0, 0)]);
        assert_eq!((r.result, &r.ops[0].data[..]), (0, &body[..]), "seed {seed}");
        check_shards(&c);
    }
}

/// Without overwrites only whole stripes are appended; omap never.
#[test]
fn pools_without_overwrites() {
    let mut c = Cluster::ready_coded(3, (2, 1), 1, 1);
    c.set_pool(POOL, |p| p.flags.set(maps::PoolFlags::EC_OVERWRITES, false));
    c.settle();
    let not_supported = types::Errno::OPNOTSUPP.0;
    let mut result = |o: OsdOp| c.run(POOL, "o", vec![o]).result;
    assert_eq!(result(write(64, vec![1; 64])), not_supported);
    assert_eq!(result(write(0, vec![1; 64])), 0);
    assert_eq!(result(write(0, vec![1; 64])), not_supported);
    assert_eq!(result(write(64, vec![1; 10])), 0);
    assert_eq!(result(OsdOp::extent(op::APPEND, 0, 3, Bytes::from_static(b"abc"))), not_supported);
    assert_eq!(result(OsdOp::extent(op::ZERO, 0, 3, Bytes::new())), not_supported);
    assert_eq!(result(OsdOp::extent(op::TRUNCATE, 3, 0, Bytes::new())), not_supported);
    assert_eq!(result(OsdOp::extent(op::WRITEFULL, 0, 3, Bytes::from_static(b"abc"))), 0);
    assert_eq!(result(OsdOp::new(op::OMAPCLEAR, Bytes::new())), not_supported);
    assert_eq!(result(OsdOp::new(op::DELETE, Bytes::new())), 0);
}

/// A clone is read, and rolled back to, as it was, also while a shard is away.
#[test]
fn snapshots_of_coded_objects() {
    for seed in 0..4 {
        let mut c = Cluster::ready_coded(4, (2, 2), 1, seed);
        c.set_pool(POOL, |p| p.snap_seq = types::SnapId(4));
        let in_context = |c: &mut Cluster, ops: Vec<OsdOp>, seq: u64, at: u64| {
            let tid = c.ask(POOL, "o", ops);
            let msg = &mut c.asked.back_mut().expect("just asked").msg;
            msg.snap_seq = types::SnapId(seq);
            msg.snaps = if seq > 0 { vec![types::SnapId(seq)] } else { Vec::new() };
            msg.snapid = types::SnapId(at);
            c.wait(tid)
        };
        let head = types::SnapId::HEAD.0;
        let old: Vec<u8> = (0..333).map(|i| i as u8).collect();
        in_context(&mut c, vec![write(0, old.clone())], 0, head);
        assert_eq!(in_context(&mut c, vec![write(70, vec![1; 40])], 4, head).result, 0);
        if seed % 2 == 1 {
            let i = c.random(4);
            c.kill(i);
            c.mark_down(i);
        }
        let r = in_context(&mut c, vec![read(0, 0)], 0, 4);
        assert_eq!((r.result, &r.ops[0].data[..]), (0, &old[..]), "seed {seed}: the clone");
        let mut back = OsdOp::new(op::ROLLBACK, Bytes::new());
        back.put_u64(0, 4);
        let r = in_context(&mut c, vec![back, write(5, vec![9; 3])], 4, head);
        assert_eq!(r.result, 0, "seed {seed}");
        let mut want = old.clone();
        want[5..8].fill(9);
        let r = in_context(&mut c, vec![read(0, 0)], 0, head);
        assert_eq!((r.result, &r.ops[0].data[..]), (0, &want[..]), "seed {seed}: rolled back");
        for i in 0..4 {
            if c.nodes[i].osd.is_none() {
                c.start(i);
            }
        }
        c.settle();
        check_shards(&c);
    }
}

/// Trimming writes the record of an object of which a read gathers bytes: the read begins
/// anew.
#[test]
fn reads_outlive_the_trimming_of_a_snapshot() {
    let snap = types::SnapId(4);
    let body = vec![7; 333];
    for seed in 0..20 {
        let mut c = Cluster::ready_coded(3, (2, 1), 1, seed);
        c.set_pool(POOL, |p| p.snap_seq = snap);
        c.run(POOL, "o", vec![write(0, vec![1; 100])]);
        let tid = c.ask(POOL, "o", vec![write(0, body.clone())]);
        let msg = &mut c.asked.back_mut().expect("just asked").msg;
        (msg.snap_seq, msg.snaps) = (snap, vec![snap]);
        assert_eq!(c.wait(tid).result, 0);
        c.settle();
        let mut reads = Vec::new();
        for round in 0..12 {
            reads.push(c.ask(POOL, "o", vec![read(0, 0)]));
            c.client_step();
            if round == 5 {
                let mut inc = c.inc();
                inc.new_removed_snaps.entry(POOL).or_default().insert(snap.0, 1);
                c.publish(inc);
                (0..3).for_each(|i| c.send_maps(i));
            }
            for _ in 0..4 + c.random(14) {
                c.step();
            }
            // What a shard has not read yet is asked again, behind the trimming.
            c.tick(2100);
        }
        for tid in reads {
            let r = c.wait(tid);
            assert_eq!((r.result, &r.ops[0].data[..]), (0, &body[..]), "seed {seed}");
        }
    }
}

/// A shard that is brought back says so late, while it is being computed once more: writes go on
/// then, and what is asked for the second time is not there any more. That is no error.
#[test]
fn late_news_of_recovery_are_heard() {
    for seed in 0..10 {
        let mut c = Cluster::ready_coded(4, (2, 2), 1, seed);
        let pg = PgId { pool: POOL, ps: 0 };
        c.run(POOL, "o", vec![write(0, vec![1; 100])]);
        let acting = c.map.pg_to_up_acting(pg).acting;
        let (first, third) = (acting[0].0 as usize, acting[2].0 as usize);
        c.kill(third);
        c.mark_down(third);
        c.run(POOL, "o", vec![write(0, vec![2; 100])]);
        c.start(third);
        // What it lacks is on its way.
        let lacks = |c: &Cluster| {
            let pgs = &c.nodes[first].osd.as_ref().unwrap().pgs;
            let mut all = pgs.values().flat_map(|p| &p.peers);
            all.any(|(o, p)| o.osd == acting[2] && p.activated && !p.missing.is_empty())
        };
        while !lacks(&c) {
            if !c.step() {
                c.tick(100);
            }
        }
        c.held.insert((first, third));
        while c.step() {}
        // Another try: it asks for the shards, which takes its time.
        c.held.extend((0..4).map(|to| (first, to)));
        (0..3).for_each(|_| c.tick(2_100));
        c.held.remove(&(first, third));
        while c.step() {}
        assert!(!lacks(&c), "seed {seed}");
        let tid = c.ask(POOL, "o", vec![xattr(op::SETXATTR, "a", "1")]);
        c.client_step();
        while c.step() {}
        c.tick(2_100);
        c.held.clear();
        assert_eq!(c.wait(tid).result, 0, "seed {seed}");
        c.settle();
        let r = c.run(POOL, "o", vec![read(0, 0)]);
        assert_eq!((r.result, &r.ops[0].data[..]), (0, &[2; 100][..]), "seed {seed}");
        check_shards(&c);
    }
}

/// Copies that only follow an interval's log do not say what was acknowledged in it.
#[test]
fn followers_take_nothing_back() {
    for seed in 0..30 {
        let mut c = Cluster::ready_coded(4, (2, 1), 1, seed);
        let pg = PgId { pool: POOL, ps: 0 };
        let mut body = Vec::new();
        let mut acting = c.map.pg_to_up_acting(pg).acting;
        for round in 0..6u8 {
            acting.rotate_left(1);
            let mut inc = c.inc();
            let temp = if round % 2 == 0 { acting.clone() } else { Vec::new() };
            inc.new_pg_temp.insert(pg, temp);
            c.publish(inc);
            for _ in 0..c.random(150) {
                c.step();
            }
            for i in 0..2 {
                let o = write(body.len() as u64, vec![2 * round + i; 50]);
                assert_eq!(c.run(POOL, "o", vec![o]).result, 0, "seed {seed}");
                body.extend([2 * round + i; 50]);
            }
        }
        c.settle();
        let r = c.run(POOL, "o", vec![read(0, 0)]);
        assert_eq!((r.result, &r.ops[0].data[..]), (0, &body[..]), "seed {seed}");
    }
}

/// An OSD that leads a PG for another shard than before has another PG for it. What was sent to the
/// one before is sent again, and what of that comes late must not overtake it.
#[test]
fn requests_do_not_outlive_the_place_of_their_primary() {
    let mut c = Cluster::ready_coded(4, (2, 1), 1, 5);
    let pg = PgId { pool: POOL, ps: 0 };
    let place = |c: &Cluster| {
        let sets = c.map.pg_to_up_acting(pg);
        let leads = sets.acting_primary.expect("it is led");
        (leads, sets.acting.iter().position(|o| *o == leads))
    };
    let (leads, first) = place(&c);
    assert_eq!(first, Some(0));
    let mut temp = c.map.pg_to_up_acting(pg).acting;
    temp.swap(0, 1);
    let mut inc = c.inc();
    inc.new_pg_temp.insert(pg, temp);
    inc.new_primary_temp.insert(pg, leads);
    c.publish(inc);
    (0..4).for_each(|i| c.send_maps(i));
    assert_eq!(place(&c), (leads, Some(1)));
    let early = c.map.epoch;
    let mut inc = c.inc();
    inc.new_pg_temp.insert(pg, Vec::new());
    inc.new_primary_temp.insert(pg, OsdId(-1));
    c.publish(inc);
    c.settle();
    assert_eq!(place(&c), (leads, first));
    let late = c.ask(POOL, "o", vec![write(0, vec![2; 9])]);
    c.send_with_old_map(early);
    while c.step() {}
    assert!(!c.answers.contains_key(&late), "it was sent before the place changed");
    let inc = c.inc();
    c.publish(inc);
    c.settle();
    assert_eq!(c.answers[&late].result, 0);
}

/// What a primary remembers of the shards it wrote does not outlive its interval: another one
/// writes, the first leads again, and reads what is there.
#[test]
fn another_primary_is_believed() {
    let mut c = Cluster::ready_coded(4, (2, 2), 1, 3);
    let pg = PgId { pool: POOL, ps: 0 };
    let names: Vec<String> = (0..8).map(|i| format!("o{i}")).collect();
    let write_all = |c: &mut Cluster, byte: u8| {
        for name in &names {
            assert_eq!(c.run(POOL, name, vec![write(0, vec![byte; 300])]).result, 0);
        }
    };
    write_all(&mut c, 1);
    c.settle();
    let first = c.map.pg_to_up_acting(pg).acting_primary.unwrap();
    c.set_flag(maps::OsdMapFlags::NOUP, true);
    c.mark_down(first.0 as usize);
    assert_ne!(c.map.pg_to_up_acting(pg).acting_primary, Some(first));
    write_all(&mut c, 2);
    assert_ne!(c.map.pg_to_up_acting(pg).acting_primary, Some(first));
    c.set_flag(maps::OsdMapFlags::NOUP, false);
    c.settle();
    assert_eq!(c.map.pg_to_up_acting(pg).acting_primary, Some(first), "it said that it lives");
    for name in &names {
        let r = c.run(POOL, name, vec![read(0, 0)]);
        assert_eq!((r.result, &r.ops[0].data[..]), (0, &[2; 300][..]), "{name}");
    }
    check_shards(&c);
}

/// Shards too few to serve agree among themselves, and acknowledge nothing: what only they have
/// binds nobody later, when one of them is gone and enough others are there.
#[test]
fn too_few_shards_vouch_for_nothing() {
    for seed in 0..20 {
        let mut c = Cluster::ready_coded(4, (2, 2), 1, seed);
        let pg = PgId { pool: POOL, ps: 0 };
        assert_eq!(c.run(POOL, "o", vec![write(0, vec![1; 300])]).result, 0);
        c.settle();
        let acting: Vec<usize> =
            c.map.pg_to_up_acting(pg).acting.iter().map(|o| o.0 as usize).collect();
        c.set_flag(maps::OsdMapFlags::NOUP, true);
        c.kill(acting[2]);
        c.kill(acting[3]);
        let tid = c.ask(POOL, "o", vec![write(10, vec![2; 200])]);
        let quiet = |c: &mut Cluster| {
            for _ in 0..20 {
                c.client_step();
                while c.step() {}
                c.tick(200);
            }
        };
        quiet(&mut c);
        c.mark_down(acting[2]);
        c.mark_down(acting[3]);
        quiet(&mut c);
        c.kill(acting[0]);
        c.mark_down(acting[0]);
        c.set_flag(maps::OsdMapFlags::NOUP, false);
        c.start(acting[2]);
        c.start(acting[3]);
        assert_eq!(c.wait(tid).result, 0, "seed {seed}");
        c.start(acting[0]);
        c.settle();
        let mut want = vec![1; 300];
        want[10..210].fill(2);
        let r = c.run(POOL, "o", vec![read(0, 0)]);
        assert_eq!((r.result, &r.ops[0].data[..]), (0, &want[..]), "seed {seed}");
        check_shards(&c);
    }
}

/// What shards too few to serve agreed upon can still be taken back by all.
#[test]
fn too_few_shards_settle_nothing() {
    for seed in 0..10 {
        let mut c = Cluster::ready_coded(3, (2, 1), 1, seed);
        c.set_pool(POOL, |p| p.min_size = 3);
        let pg = PgId { pool: POOL, ps: 0 };
        for name in ["a", "b"] {
            assert_eq!(c.run(POOL, name, vec![write(0, vec![1; 300])]).result, 0);
        }
        c.settle();
        let third = c.map.pg_to_up_acting(pg).acting[2].0 as usize;
        c.set_flag(maps::OsdMapFlags::NOUP, true);
        c.kill(third);
        for name in ["a", "b"] {
            c.ask(POOL, name, vec![write(10, vec![2; 200])]);
        }
        c.client_step();
        for round in 0..200 {
            while c.step() {}
            c.tick(200);
            if round == 20 {
                c.mark_down(third);
            }
        }
        c.set_flag(maps::OsdMapFlags::NOUP, false);
        c.start(third);
        c.settle();
        let mut want = vec![1; 300];
        want[10..210].fill(2);
        for name in ["a", "b"] {
            let r = c.run(POOL, name, vec![read(0, 0)]);
            assert_eq!((r.result, &r.ops[0].data[..]), (0, &want[..]), "seed {seed} {name}");
        }
        check_shards(&c);
    }
}

/// Shards on OSDs that CRUSH did not choose: those that it chose are brought up beside them,
/// with what is written meanwhile, and act in the end.
#[test]
fn an_exception_to_placement_ends() {
    for seed in 0..20 {
        let mut c = Cluster::ready_coded(6, (2, 1), 1, seed);
        let pg = PgId { pool: POOL, ps: 0 };
        let body = |i: usize, b: u8| vec![b; 40 + i * 33];
        for i in 0..6 {
            c.run(POOL, &format!("o{i}"), vec![write(0, body(i, 1))]);
        }
        let up = c.map.pg_to_up_acting(pg).up;
        let others: Vec<OsdId> = (0..6).map(OsdId).filter(|o| !up.contains(o)).collect();
        let mut temp = up.clone();
        temp[c.random(3)] = others[0];
        temp[c.random(3)] = others[1];
        let mut inc = c.inc();
        inc.new_pg_temp.insert(pg, temp);
        c.publish(inc);
        (0..6).for_each(|i| c.send_maps(i));
        for round in 0..12 {
            let i = round % 6;
            let at = round as u64 / 6;
            c.run(POOL, &format!("o{i}"), vec![write(3 + at, vec![9; 8])]);
            for _ in 0..c.random(30) {
                c.step();
            }
        }
        for _ in 0..40 {
            c.settle();
            c.tick(500);
        }
        c.settle();
        assert!(c.map.pg_temp.is_empty(), "seed {seed}: {:?}", c.map.pg_temp);
        assert_eq!(c.map.pg_to_up_acting(pg).acting, up);
        for i in 0..6 {
            let mut want = body(i, 1);
            want[3..12].fill(9);
            let r = c.run(POOL, &format!("o{i}"), vec![read(0, 0)]);
            assert_eq!((r.result, &r.ops[0].data[..]), (0, &want[..]), "seed {seed} o{i}");
        }
        c.settle();
        check_shards(&c);
    }
}
