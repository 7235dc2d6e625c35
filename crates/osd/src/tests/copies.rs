//! COPY_FROM while PGs move, divide and lose their OSDs: each copy succeeds, with the version
//! that was named and its content, and what the client orders behind it finds it done.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Writer};
use maps::PgShard;
use messages::{Message, OsdOp, OsdPeer, PeerMsg, op, req_flag};
use types::{Epoch, HObject, ObjectLocator, OsdId, PgId, PoolId, ShardId, SnapId, SpgId};

use super::cluster::Cluster;
use super::survive::seeds;
use crate::backing::Coll;
use crate::outbox::Outbox;

const POOL: PoolId = PoolId(1);

fn write(data: Bytes) -> Vec<OsdOp> {
    vec![OsdOp::extent(op::WRITEFULL, 0, data.len() as u64, data)]
}

fn read() -> Vec<OsdOp> {
    vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]
}

/// A copy of an object at a version.
pub(super) fn copy(from: &str, version: u64) -> Vec<OsdOp> {
    let mut w = Writer::new(types::Features::ALL);
    w.str(from);
    ObjectLocator { pool: POOL, ..ObjectLocator::default() }.encode(&mut w);
    let mut o = OsdOp::new(op::COPY_FROM, w.finish());
    o.put_u64(0, SnapId::HEAD.0);
    o.put_u64(8, version);
    vec![o]
}

fn nothing() -> Vec<OsdOp> {
    // Removes no key of the omap: it succeeds and changes nothing.
    let mut w = Writer::new(types::Features::ALL);
    Vec::<Bytes>::new().encode(&mut w);
    vec![OsdOp::new(op::OMAPRMKEYS, w.finish())]
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Write,
    Nothing,
    Copy(u64),
    Read(u64),
}

/// One pair of objects, of which one is written and copied to the other, again and again.
#[derive(Default)]
struct Pair {
    version: u64,
    data: Bytes,
    copies: u64,
    busy: usize,
}

fn storm(seed: u64) {
    const PAIRS: usize = 24;
    let mut c = Cluster::ready(5, 2, 3, seed);
    let mut pairs: Vec<Pair> = (0..PAIRS).map(|_| Pair::default()).collect();
    let mut asked: BTreeMap<u64, (usize, Asked)> = BTreeMap::new();
    // Versions by which a copy and the read behind it are told, by the copy.
    let mut told: BTreeMap<u64, u64> = BTreeMap::new();
    let mut done = 0;
    for round in 0..400 {
        for _ in 0..2 {
            let i = c.random(PAIRS);
            if pairs[i].busy > 0 {
                continue;
            }
            let pair = &mut pairs[i];
            let kind = if pair.version == 0 { 0 } else { c.random(5) };
            if kind == 0 {
                // Some take several parts to copy.
                let len = if c.random(30) == 0 { 5 << 20 } else { 40 };
                pair.data = format!("{i} {round} ").into_bytes().repeat(len / 8).into();
                let tid = c.ask(POOL, &format!("src{i}"), write(pair.data.clone()));
                asked.insert(tid, (i, Asked::Write));
                pair.busy = 1;
            } else if kind == 1 {
                let tid = c.ask(POOL, &format!("src{i}"), nothing());
                asked.insert(tid, (i, Asked::Nothing));
                pair.busy = 1;
            } else {
                let to = format!("dst{i}");
                let tid = c.ask(POOL, &to, copy(&format!("src{i}"), pair.version));
                asked.insert(tid, (i, Asked::Copy(tid)));
                let behind = c.ask_with(POOL, &to, read(), req_flag::RWORDERED);
                asked.insert(behind, (i, Asked::Read(tid)));
                pair.busy = 2;
            }
        }
        c.client_step();
        for _ in 0..c.random(120) {
            if !c.step() {
                c.tick(200);
            }
        }
        match c.random(40) {
            0 | 1 => {
                let i = c.random(5);
                c.mark_down(i);
            }
            2 if c.nodes.iter().all(|n| n.osd.is_some()) => {
                let i = c.random(5);
                c.kill(i);
                c.mark_down(i);
            }
            3..=5 => {
                for i in 0..5 {
                    if c.nodes[i].osd.is_none() {
                        c.start(i);
                    }
                }
            }
            10 => c.grow_pool(POOL),
            11 => c.shrink_pool(POOL),
            6 | 7 => {
                // CRUSH chooses others: PGs move by backfill.
                let i = c.random(5);
                let mut inc = c.next_inc();
                let weight = [0, 0x8000, 0x1_0000][c.random(3)];
                for o in 0..5 {
                    let weight = if o == i { weight } else { 0x1_0000 };
                    inc.new_weight.insert(types::OsdId(o as i32), weight);
                }
                c.publish(inc);
            }
            8 => {
                let i = c.random(5);
                c.break_client(i);
            }
            9 => {
                let i = c.random(5);
                c.scrub_all(i);
            }
            _ => {}
        }
        done += take(&mut c, seed, &mut asked, &mut told, &mut pairs);
    }
    for i in 0..5 {
        if c.nodes[i].osd.is_none() {
            c.start(i);
        }
    }
    let mut inc = c.next_inc();
    inc.new_weight.extend((0..5).map(|i| (types::OsdId(i), 0x1_0000)));
    c.publish(inc);
    c.settle();
    done += take(&mut c, seed, &mut asked, &mut told, &mut pairs);
    assert!(asked.is_empty() && done > 100, "seed {seed}: {done} answers");
}

fn take(
    c: &mut Cluster,
    seed: u64,
    asked: &mut BTreeMap<u64, (usize, Asked)>,
    told: &mut BTreeMap<u64, u64>,
    pairs: &mut [Pair],
) -> usize {
    let answers = std::mem::take(&mut c.answers);
    let n = answers.len();
    for (tid, reply) in answers {
        let (i, what) = asked.remove(&tid).expect("asked");
        let at = format!("seed {seed}: pair {i}, {what:?} (tid {tid})");
        assert_eq!(reply.result, 0, "{at}");
        let pair = &mut pairs[i];
        pair.busy -= 1;
        match what {
            Asked::Write => pair.version = reply.user_version,
            Asked::Nothing => {
                assert_eq!(reply.user_version, pair.version, "{at}: nothing was changed");
            }
            Asked::Copy(copy) | Asked::Read(copy) => {
                let version = *told.entry(copy).or_insert(reply.user_version);
                assert_eq!(version, reply.user_version, "{at}: what is behind a copy sees it");
                pair.copies += 1;
            }
        }
        if let Asked::Read(_) = what {
            assert!(reply.ops[0].data == pair.data, "{at}: not what was copied");
        }
    }
    n
}

#[test]
fn copies_under_faults() {
    for seed in seeds(6_000_000, 5) {
        storm(seed);
    }
}

/// Where an object is not any more it is not said to be absent: neither by the PG it left when
/// that was divided, nor by a primary that may have been replaced.
#[test]
fn sources_that_may_be_elsewhere_are_not_absent() {
    let mut c = Cluster::ready(3, 2, 1, 3);
    for i in 0..40 {
        c.ask(POOL, &format!("o{i}"), write("data".into()));
    }
    c.settle();
    let parent = PgId { pool: POOL, ps: 0 };
    let parts = |c: &mut Cluster| {
        let primary = c.map.pg_to_up_acting(parent).acting_primary.expect("it is led").0 as usize;
        let mut present = 0;
        for i in 0..40 {
            let name = Bytes::from(format!("o{i}"));
            let oid = HObject::head(POOL, Bytes::new(), Bytes::new(), name);
            let body = PeerMsg::CopyGet { id: 1, oid, off: 0, omap_after: Bytes::new() };
            let pg = SpgId { pg: parent, shard: ShardId::NONE };
            let (from, epoch) = (ShardId::NONE, c.map.epoch);
            let m = OsdPeer { pg, from, epoch, interval: Epoch(0), felt: 0, body };
            let (mut out, now) = (Outbox::new(), c.now);
            let asker = PgShard { osd: OsdId(9), shard: ShardId::NONE };
            c.nodes[primary].osd.as_mut().expect("it runs").on_copy_get(now, asker, &m, &mut out);
            for effect in out.drain() {
                let crate::Effect::Osd(_, e) = effect else { continue };
                let PeerMsg::CopyPart { push, .. } = OsdPeer::decode(&e).unwrap().body else {
                    continue;
                };
                assert!(!push.absent, "o{i} is somewhere");
                present += 1;
            }
        }
        present
    };
    assert_eq!(parts(&mut c), 40);
    c.set_pool(POOL, |p| super::cluster::set_pg_num(p, 2));
    c.settle();
    let left = parts(&mut c);
    assert!((5..35).contains(&left), "{left} of 40 stayed");
    c.now.mono_ns += 60_000_000_000; // no copy has promised anything for a minute
    assert_eq!(parts(&mut c), 0);
}

/// The resend of a write that changed nothing is told the object's version, as the first one.
#[test]
fn resends_of_what_changed_nothing_are_told_the_same_version() {
    let mut c = Cluster::ready(3, 3, 1, 5);
    let version = c.run(POOL, "a", write("a".into())).user_version;
    for i in 0..10 {
        c.run(POOL, &format!("other{i}"), write("b".into()));
    }
    let tid = c.ask(POOL, "a", nothing());
    c.client_step();
    let primary = c.map.pg_to_up_acting(PgId { pool: POOL, ps: 0 }).acting_primary.unwrap();
    // It is done, and the answer is lost.
    while !c.has_answer(primary.0 as usize) {
        assert!(c.step(), "an answer");
    }
    c.break_client(primary.0 as usize);
    assert_eq!(c.wait(tid).user_version, version);
}

/// A source that nobody can read is an error, and the target stays as it was; one of which
/// another copy is whole is copied.
#[test]
fn sources_that_nobody_can_read_are_errors() {
    for (osds, size, want) in [(1, 1, -5), (3, 3, 0)] {
        let mut c = Cluster::ready(osds, size, 4, 3);
        c.run(POOL, "a", write(Bytes::from_static(b"first")));
        c.run(POOL, "b", write(Bytes::from_static(b"old")));
        c.settle();
        let pg = c
            .map
            .object_to_pg(b"a", &ObjectLocator { pool: POOL, ..ObjectLocator::default() })
            .expect("a pool");
        let leader = c.map.pg_to_up_acting(pg).acting_primary.expect("somebody");
        let coll = Coll::Pg(SpgId::from(pg));
        let store = &c.nodes[leader.0 as usize].store;
        let oid = store.lock().now[&coll].objects.keys().find(|o| o.name == "a").cloned();
        store.lock().damaged.insert((coll, oid.expect("it was written")));
        assert_eq!(c.run(POOL, "b", copy("a", 0)).result, want);
        let kept: &[u8] = if want == 0 { b"first" } else { b"old" };
        assert_eq!(c.run(POOL, "b", read()).ops[0].data, kept);
    }
}
