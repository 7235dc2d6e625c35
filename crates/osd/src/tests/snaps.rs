//! Snapshots: what was taken stays as it was, whatever happens to the object and to OSDs;
//! and what was removed is gone in the end.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::Denc;
use maps::SnapIntervals;
use messages::{MOsdOpReply, Mutation, OsdOp, op, req_flag};
use stdx::IntervalSet;
use types::{HObject, OsdId, PgId, PoolId, SnapId};

use super::cluster::Cluster;
use super::survive::{check_copies, seeds};
use super::tier;
use crate::backing::{Coll, ObjectStore, StoreOp};
use crate::object::{INFO_ATTR, ObjectInfo};
use crate::snapset;

const POOL: PoolId = PoolId(1);
const OBJECTS: usize = 4;

/// An object as a client sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Content {
    data: Vec<u8>,
    attr: Option<Vec<u8>>,
    omap: BTreeMap<Vec<u8>, Vec<u8>>,
}

type Objects = BTreeMap<String, Content>;

/// What should be: the objects now, and as they were at every snapshot that is kept.
#[derive(Default)]
struct Model {
    now: Objects,
    snaps: BTreeMap<u64, Objects>,
    seq: u64,
    count: u32,
    /// Snapshots that requests roll back to: they are not removed before the answer.
    rolling: BTreeMap<u64, u64>,
}

fn xattr(code: u16, name: &str, value: &[u8]) -> OsdOp {
    let mut data = name.as_bytes().to_vec();
    data.extend_from_slice(value);
    let mut o = OsdOp::new(code, data.into());
    o.put_u32(0, name.len() as u32);
    o.put_u32(4, value.len() as u32);
    o
}

fn ask_at(c: &mut Cluster, name: &str, ops: Vec<OsdOp>, snap: SnapId) -> u64 {
    let tid = c.ask(POOL, name, ops);
    c.asked.back_mut().expect("just asked").msg.snapid = snap;
    tid
}

fn everything() -> Vec<OsdOp> {
    let vals = (Bytes::new(), (100u64, Bytes::new())).to_bytes();
    let mut attr = xattr(op::GETXATTR, "a", b"");
    attr.flags = messages::op_flag::FAILOK;
    vec![
        OsdOp::extent(op::READ, 0, 0, Bytes::new()),
        OsdOp::new(op::STAT, Bytes::new()),
        attr,
        OsdOp::new(op::OMAPGETVALS, vals),
    ]
}

/// The content that an answer to [`everything`] shows.
fn seen(reply: &MOsdOpReply) -> Option<Content> {
    if reply.result == -2 {
        return None;
    }
    assert_eq!(reply.result, 0, "{reply:?}");
    let size = u64::from_le_bytes(reply.ops[1].data[..8].try_into().unwrap());
    assert_eq!(size, reply.ops[0].data.len() as u64, "size and data");
    let omap: BTreeMap<Bytes, Bytes> =
        Denc::decode(&mut denc::Reader::new(&reply.ops[3].data)).unwrap();
    Some(Content {
        data: reply.ops[0].data.to_vec(),
        attr: (reply.rvals[2] >= 0).then(|| reply.ops[2].data.to_vec()),
        omap: omap.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect(),
    })
}

impl Model {
    /// One change of a random object, done here and asked for there.
    fn change(&mut self, c: &mut Cluster, contexts: bool) -> u64 {
        let name = format!("o{}", c.random(OBJECTS));
        self.count += 1;
        let fill = (self.count % 251) as u8;
        let (off, len) = (c.random(300), 1 + c.random(200));
        let mut was = self.now.get(&name).cloned();
        let data = vec![fill; len];
        let extent = |code, off: usize, len: usize, data: Vec<u8>| {
            OsdOp::extent(code, off as u64, len as u64, data.into())
        };
        let kind = c.random(12);
        let creates = !matches!(kind, 3 | 4 | 9..);
        if creates && was.is_none() {
            was = Some(Content::default());
        }
        let size = was.as_ref().map_or(0, |o| o.data.len());
        let with = |was: &mut Option<Content>, f: &dyn Fn(&mut Content)| {
            if let Some(o) = was {
                f(o);
            }
        };
        let mut ops = Vec::new();
        match kind {
            0..=2 => {
                ops.push(extent(op::WRITE, off, len, data.clone()));
                with(&mut was, &|o| {
                    o.data.resize(size.max(off + len), 0);
                    o.data[off..off + len].copy_from_slice(&data);
                });
            }
            3 => {
                ops.push(extent(op::TRUNCATE, off, 0, vec![]));
                with(&mut was, &|o| o.data.resize(off, 0));
            }
            4 => {
                ops.push(extent(op::ZERO, off, len, vec![]));
                with(&mut was, &|o| match (off, off + len) {
                    (off, _) if off >= size => {}
                    (off, end) if end >= size => o.data.truncate(off),
                    (off, end) => o.data[off..end].fill(0),
                });
            }
            5 | 6 => {
                ops.push(extent(op::WRITEFULL, 0, len, data.clone()));
                with(&mut was, &|o| o.data.clone_from(&data));
            }
            7 => {
                ops.push(xattr(op::SETXATTR, "a", &data));
                with(&mut was, &|o| o.attr = Some(data.clone()));
            }
            8 => {
                let key = vec![b'k', (len % 3) as u8];
                let pairs = BTreeMap::from([(Bytes::from(key.clone()), Bytes::from(data.clone()))]);
                ops.push(OsdOp::new(op::OMAPSETVALS, pairs.to_bytes()));
                with(&mut was, &|o| {
                    o.omap.insert(key.clone(), data.clone());
                });
            }
            9 => {
                ops.push(OsdOp::new(op::DELETE, Bytes::new()));
                was = None;
            }
            _ => {
                let kept: Vec<u64> = self.snaps.keys().copied().collect();
                if kept.is_empty() {
                    ops.push(extent(op::WRITEFULL, 0, len, data.clone()));
                    was.get_or_insert_with(Content::default).data = data;
                } else {
                    let snap = kept[c.random(kept.len())];
                    let mut back = OsdOp::new(op::ROLLBACK, Bytes::new());
                    back.put_u64(0, snap);
                    ops.push(back);
                    was = self.snaps[&snap].get(&name).cloned();
                    if was.is_some() && kind == 11 {
                        // What follows in the same request sees the object as it was.
                        ops.push(extent(op::APPEND, 0, len, data.clone()));
                        with(&mut was, &|o| o.data.extend(&data));
                    }
                }
            }
        }
        match was {
            Some(content) => self.now.insert(name.clone(), content),
            None => self.now.remove(&name),
        };
        let back = ops.iter().find(|o| o.code == op::ROLLBACK).map(|o| o.u64(0));
        let tid = c.ask(POOL, &name, ops);
        self.rolling.extend(back.map(|snap| (tid, snap)));
        if contexts {
            let msg = &mut c.asked.back_mut().expect("just asked").msg;
            msg.snap_seq = SnapId(self.seq);
            msg.snaps = self.snaps.keys().rev().map(|s| SnapId(*s)).collect();
        }
        tid
    }

    fn take(&mut self, snap: u64) {
        self.seq = snap;
        self.snaps.insert(snap, self.now.clone());
    }

    /// Every snapshot, and the objects now, read back.
    fn check(&self, c: &mut Cluster, seed: u64) {
        let all =
            self.snaps.iter().map(|(s, o)| (SnapId(*s), o)).chain([(SnapId::HEAD, &self.now)]);
        for (snap, objects) in all {
            for n in 0..OBJECTS {
                let name = format!("o{n}");
                let tid = ask_at(c, &name, everything(), snap);
                let found = seen(&c.wait(tid));
                assert_eq!(found.as_ref(), objects.get(&name), "seed {seed}: {name} at {snap:?}");
            }
        }
    }
}

/// Takes a snapshot as the monitors do for a client that manages its own.
fn new_snap(c: &mut Cluster) -> u64 {
    let mut snap = 0;
    c.set_pool(POOL, |p| {
        p.snap_seq.0 += 1;
        snap = p.snap_seq.0;
    });
    snap
}

fn remove_snap(c: &mut Cluster, snap: u64) {
    let mut inc = c.inc();
    inc.new_removed_snaps.entry(POOL).or_default().insert(snap, 1);
    c.follow_base(POOL, &mut inc);
    c.publish(inc);
}

/// A store that has stopped takes nothing more, so the index stays as it is: trimming does not go
/// on for ever over it.
#[test]
fn trimming_ends_when_the_store_has_stopped() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    let write = |c: &mut Cluster, snap: u64| {
        let write = OsdOp::extent(op::WRITEFULL, 0, 3, Bytes::from_static(b"abc"));
        let tid = c.ask(POOL, "o", vec![write]);
        let msg = &mut c.asked.back_mut().expect("just asked").msg;
        (msg.snap_seq, msg.snaps) = (SnapId(snap), (1..=snap).map(SnapId).collect());
        assert_eq!(c.wait(tid).result, 0);
    };
    write(&mut c, 0);
    let snap = new_snap(&mut c);
    write(&mut c, snap);
    c.settle();
    let pg = PgId { pool: POOL, ps: 0 }.into();
    let mut store = c.nodes[0].store.clone();
    let oid = store.list(Coll::Pg(pg), &HObject::min(), 1).unwrap().remove(0);
    store.lock().capacity = Some(1);
    let data = Mutation::Write { off: 0, data: Bytes::from_static(b"no room") };
    store.submit(vec![StoreOp::Object(Coll::Pg(pg), oid, vec![data])], 0);
    assert!(store.is_stopped());
    c.event(0, |osd, now, out| {
        let mut map = maps::OsdMap::clone(&osd.c.map);
        let queue = SnapIntervals([(snap, 1)].into_iter().collect());
        map.removed_snaps_queue = BTreeMap::from([(POOL, queue)]).into();
        osd.c.map = map.into();
        osd.with_pg(now, pg, out, |pg, cx| pg.kick_trim(cx));
        assert!(osd.pgs[&pg].trim.purged.is_empty(), "nothing was trimmed");
    });
}

/// What every PG says it has trimmed leaves the queue, as the monitors do it.
fn purge(c: &mut Cluster) {
    let queues: Vec<PoolId> = c.map.removed_snaps_queue.keys().copied().collect();
    queues.into_iter().for_each(|pool| purge_pool(c, pool));
}

fn purge_pool(c: &mut Cluster, pool: PoolId) {
    let mut done: IntervalSet = c.map.removed_snaps_queue[&pool].0.clone();
    for tier in &c.map.pool(pool).unwrap().tiers {
        if let Some(queue) = c.map.removed_snaps_queue.get(&PoolId(*tier as i64)) {
            done.subtract(queue);
        }
    }
    for ps in 0..c.map.pool(pool).unwrap().pg_num {
        let id = PgId { pool, ps };
        let osds = c.nodes.iter().filter_map(|n| n.osd.as_ref());
        let mut leads = osds.filter_map(|o| o.pgs.get(&id.into())).filter(|pg| pg.leads);
        match leads.next() {
            Some(pg) => done = done.intersection(&pg.trim.purged),
            None => return,
        }
    }
    if !done.is_empty() {
        let mut inc = c.inc();
        inc.new_purged_snaps.insert(pool, SnapIntervals(done));
        c.publish(inc);
    }
}

/// Until no removed snapshot is queued any more.
fn trim_all(c: &mut Cluster) {
    for _ in 0..50 {
        c.settle();
        purge(c);
        if c.map.removed_snaps_queue.values().all(|q| q.is_empty()) {
            c.settle();
            return;
        }
    }
    panic!("trimming does not end: {:?}", c.map.removed_snaps_queue);
}

/// On every copy: clones are just those that their heads name, each serves only snapshots
/// that are kept, has the size it should, and in common with the next what is said; the
/// index names just these; and the counters say what is there. Returns the clones.
fn check_clones(c: &Cluster, kept: &BTreeSet<u64>) -> usize {
    let mut found = 0;
    for (i, n) in c.nodes.iter().enumerate() {
        let store = n.store.lock();
        for (id, pg) in &n.osd.as_ref().expect("all run").pgs {
            if !pg.info.acting.contains(&OsdId(i as i32)) || pg.pool.cache.is_some() {
                continue; // a cache need not have all clones
            }
            let coll = &store.now[&Coll::Pg(*id)];
            let info = |oid: &HObject| {
                ObjectInfo::from_bytes(&coll.objects[oid].attrs[INFO_ATTR]).unwrap()
            };
            let (mut bytes, mut clones) = (0, BTreeSet::new());
            for oid in coll.objects.keys().filter(|o| o.is_head()) {
                let head = info(oid);
                assert_eq!(head.size, coll.objects[oid].data.len() as u64, "{oid}");
                bytes += head.size as i64;
                let Some(set) = head.snaps else { continue };
                assert!(!(head.whiteout && set.clones.is_empty()), "{oid}: kept for nothing");
                bytes += snapset::clone_bytes(&set);
                for (at, clone) in set.clones.iter().enumerate() {
                    let it = oid.with_snap(*clone);
                    let next = set.clones.get(at + 1).map_or(oid.clone(), |n| oid.with_snap(*n));
                    let (a, b) = (&coll.objects[&it].data, &coll.objects[&next].data);
                    assert_eq!(set.clone_size[clone], a.len() as u64, "{it}");
                    for (from, len) in set.clone_overlap[clone].iter() {
                        let range = from as usize..(from + len) as usize;
                        assert_eq!(a[range.clone()], b[range], "{it} has it in common with {next}");
                    }
                    let record = info(&it);
                    assert_eq!(set.clone_snaps[clone], record.clone_snaps, "{it}");
                    assert!(!record.clone_snaps.is_empty(), "{it} serves nothing");
                    assert!(
                        record.clone_snaps.iter().all(|s| kept.contains(&s.0)),
                        "{it}: {kept:?}"
                    );
                    for snap in record.clone_snaps {
                        clones.insert((snap, it.clone()));
                    }
                }
            }
            let there = coll.objects.keys().filter(|o| !o.is_head()).cloned();
            let named: BTreeSet<HObject> = clones.iter().map(|(_, o)| o.clone()).collect();
            assert_eq!(there.collect::<BTreeSet<_>>(), named, "{id}: clones and what heads name");
            let keys = coll.keys.keys().filter(|k| k[0] == b's');
            let index: BTreeSet<(SnapId, HObject)> = keys
                .map(|k| {
                    let snap = SnapId(u64::from_be_bytes(k[1..9].try_into().unwrap()));
                    (snap, crate::pg::clone_of_key(k).unwrap())
                })
                .collect();
            assert_eq!(index, clones, "{id}: the index");
            if pg.leads {
                let counts = pg.counts();
                let n = coll.objects.len() as i64;
                assert_eq!((counts.objects, counts.bytes), (n, bytes), "{id}");
                assert_eq!(counts.clones, named.len() as i64, "{id}");
                found += named.len();
            }
        }
    }
    found
}

#[derive(Default)]
struct Faults {
    kill: bool,
    split: bool,
    /// Over a cache tier, which is flushed and emptied meanwhile; its mode.
    tier: Option<maps::CacheMode>,
}

/// A client that manages its snapshots writes, takes, removes and rolls back, with many
/// requests in flight, while OSDs come and go.
fn storm(seed: u64, f: &Faults, osds: usize) {
    let mut c = Cluster::ready(osds, 3, 2, seed);
    let cache = f.tier.map(|mode| {
        let cache = c.make_tier(POOL, 2, 3);
        c.set_pool(cache, |p| p.cache_mode = mode as u8);
        cache
    });
    let mut moves = BTreeSet::new();
    let mut model = Model::default();
    let mut changes = BTreeSet::new();
    let mut reads: BTreeMap<u64, (u64, String, Option<Content>)> = BTreeMap::new();
    for _ in 0..60 {
        for _ in 0..c.random(5) {
            changes.insert(model.change(&mut c, true));
        }
        match c.random(8) {
            0 | 1 => {
                let snap = new_snap(&mut c);
                model.take(snap);
            }
            // Through a cache requests are long on their way: who removes a snapshot must be the
            // last to name it.
            2 if !model.snaps.is_empty() && (cache.is_none() || c.asked.is_empty()) => {
                let nth = c.random(model.snaps.len());
                let snap = *model.snaps.keys().nth(nth).unwrap();
                if !model.rolling.values().any(|s| *s == snap) {
                    model.snaps.remove(&snap);
                    remove_snap(&mut c, snap);
                }
            }
            3 | 4 if !model.snaps.is_empty() => {
                let nth = c.random(model.snaps.len());
                let (&snap, objects) = model.snaps.iter().nth(nth).unwrap();
                let name = format!("o{}", c.random(OBJECTS));
                let expected = objects.get(&name).cloned();
                let tid = ask_at(&mut c, &name, everything(), SnapId(snap));
                reads.insert(tid, (snap, name, expected));
            }
            5 => purge(&mut c),
            _ => {}
        }
        if let Some(cache) = cache {
            for _ in 0..c.random(4) {
                let snap = match c.random(3) {
                    0 if model.seq > 0 => SnapId(1 + c.random(model.seq as usize) as u64),
                    _ => SnapId::HEAD,
                };
                let name = format!("o{}", c.random(OBJECTS));
                moves.insert(tier::ask_move(&mut c, cache, &name, snap));
            }
        }
        c.client_step();
        for _ in 0..c.random(80) {
            if !c.step() {
                break;
            }
        }
        if c.random(3) == 0 {
            c.tick(700);
        }
        let (a, b) = (c.random(osds), c.random(osds));
        match c.random(12) {
            0 if f.kill && c.nodes.iter().all(|n| n.osd.is_some()) => {
                c.kill(a);
                if c.random(2) == 0 {
                    c.mark_down(a);
                }
            }
            1 | 2 if f.kill => (0..osds).for_each(|i| {
                if c.nodes[i].osd.is_none() {
                    c.start(i);
                }
            }),
            3 if f.kill && seed.is_multiple_of(3) => (0..osds).for_each(|i| {
                if c.nodes[i].osd.is_some() {
                    c.kill(i);
                }
            }),
            4 | 5 if a != b => c.break_wire(a, b),
            6 => c.break_client(a),
            7 if f.split => c.grow_pool(POOL),
            8 if f.split => c.shrink_pool(POOL),
            _ => {}
        }
        for (tid, reply) in std::mem::take(&mut c.answers) {
            model.rolling.remove(&tid);
            if moves.contains(&tid) {
                let possible = [0, -2, -16];
                assert!(possible.contains(&reply.result), "seed {seed}: {reply:?}");
            } else if changes.contains(&tid) {
                // Deleting what is not there is the one failure.
                assert!(matches!(reply.result, 0 | -2), "seed {seed}: {reply:?}");
            } else if let Some((snap, name, expected)) = reads.remove(&tid)
                && model.snaps.contains_key(&snap)
            {
                assert_eq!(seen(&reply), expected, "seed {seed}: {name} at {snap}");
            }
        }
    }
    for i in 0..osds {
        if c.nodes[i].osd.is_none() {
            c.start(i);
        }
    }
    c.settle();
    model.check(&mut c, seed);
    trim_all(&mut c);
    check_copies(&c);
    if let Some(cache) = cache {
        tier::check_counts(&c);
        tier::flush_evict_all(&mut c, cache);
        model.check(&mut c, seed);
        tier::flush_evict_all(&mut c, cache);
        // What the base has by itself is all there is.
        c.set_pool(POOL, |p| (p.read_tier, p.write_tier) = (-1, -1));
        c.settle();
        model.check(&mut c, seed);
    }
    check_clones(&c, &model.snaps.keys().copied().collect());
    model.check(&mut c, seed);
    for snap in std::mem::take(&mut model.snaps).into_keys() {
        remove_snap(&mut c, snap);
    }
    trim_all(&mut c);
    assert_eq!(check_clones(&c, &BTreeSet::new()), 0, "seed {seed}: nothing is left");
    model.check(&mut c, seed);
}

#[test]
fn snapshots_stay_as_they_were() {
    for seed in seeds(5_000_000, 6) {
        storm(seed, &Faults::default(), 3);
    }
}

#[test]
fn snapshots_survive_osds_that_die() {
    for seed in seeds(6_000_000, 15) {
        storm(seed, &Faults { kill: true, ..Faults::default() }, 3);
    }
}

#[test]
fn snapshots_move_and_split_with_their_pgs() {
    for seed in seeds(7_000_000, 8) {
        storm(seed, &Faults { kill: true, split: true, tier: None }, 4);
    }
}

#[test]
fn snapshots_go_through_a_cache() {
    for seed in seeds(7_100_000, 8) {
        let tier = Some(maps::CacheMode::Writeback);
        storm(seed, &Faults { tier, ..Faults::default() }, 3);
    }
}

#[test]
fn snapshots_go_through_caches_that_die() {
    use maps::CacheMode::{Proxy, Readproxy, Writeback};
    for seed in seeds(7_200_000, 12) {
        let tier = Some([Writeback, Writeback, Readproxy, Proxy][seed as usize % 4]);
        storm(seed, &Faults { kill: true, split: seed.is_multiple_of(2), tier }, 4);
    }
}

/// A pool's own snapshots: writes keep them though their clients know of none, unless these
/// insist on their own context.
#[test]
fn pool_snapshots() {
    for seed in seeds(8_000_000, 6) {
        let mut c = Cluster::ready(3, 3, 2, seed);
        let mut model = Model::default();
        for _ in 0..12 {
            for _ in 0..c.random(8) {
                model.change(&mut c, false);
            }
            c.settle();
            match c.random(3) {
                0 if model.snaps.len() > 2 => {
                    let snap = *model.snaps.keys().next().unwrap();
                    model.snaps.remove(&snap);
                    c.set_pool(POOL, |p| {
                        p.snaps.remove(&SnapId(snap));
                        p.snap_seq.0 += 1;
                    });
                    remove_snap(&mut c, snap);
                }
                1 => {}
                _ => {
                    let mut snap = 0;
                    c.set_pool(POOL, |p| {
                        p.flags.set(maps::PoolFlags::POOL_SNAPS, true);
                        p.snap_seq.0 += 1;
                        snap = p.snap_seq.0;
                        let info = maps::PoolSnapInfo { id: p.snap_seq, ..Default::default() };
                        p.snaps.insert(p.snap_seq, info);
                    });
                    model.take(snap);
                }
            }
        }
        trim_all(&mut c);
        model.check(&mut c, seed);
        check_clones(&c, &model.snaps.keys().copied().collect());
    }
}

/// A context that is older than what the object has seen makes no clone; with ORDERSNAP it
/// is refused. A removed snapshot in a context does not count.
#[test]
fn contexts_are_ordered() {
    let mut c = Cluster::ready(3, 3, 1, 9);
    let write = |c: &mut Cluster, seq: u64, snaps: &[u64], flags: u32| {
        let ops = vec![OsdOp::extent(op::WRITEFULL, 0, 1, Bytes::from_static(b"x"))];
        let tid = c.ask_with(POOL, "x", ops, flags);
        let msg = &mut c.asked.back_mut().unwrap().msg;
        msg.snap_seq = SnapId(seq);
        msg.snaps = snaps.iter().map(|s| SnapId(*s)).collect();
        c.wait(tid).result
    };
    let clones = |c: &mut Cluster| {
        let tid = ask_at(c, "x", vec![OsdOp::new(op::LIST_SNAPS, Bytes::new())], SnapId::DIR);
        let reply = c.wait(tid);
        u32::from_le_bytes(reply.ops[0].data[6..10].try_into().unwrap())
    };
    assert_eq!(write(&mut c, 5, &[5], 0), 0);
    assert_eq!(clones(&mut c), 1, "there was no object to keep");
    assert_eq!(write(&mut c, 4, &[4], 0), 0);
    assert_eq!(clones(&mut c), 1, "older than what was seen");
    assert_eq!(write(&mut c, 4, &[4], req_flag::ORDERSNAP), -85);
    assert_eq!(write(&mut c, 5, &[5], req_flag::ORDERSNAP), 0);
    assert_eq!(write(&mut c, 7, &[7, 7], 0), -22, "not falling");
    assert_eq!(write(&mut c, 6, &[7], 0), -22, "above its newest");
    remove_snap(&mut c, 8);
    assert_eq!(write(&mut c, 8, &[8, 5], 0), 0);
    assert_eq!(clones(&mut c), 1, "what is removed is not kept");
    assert_eq!(write(&mut c, 9, &[9, 8, 5], 0), 0);
    assert_eq!(clones(&mut c), 2);
}
