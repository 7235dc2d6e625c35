//! Hit sets of cache tiers: they are objects of their PG, and outlive its primary.

use bytes::Bytes;
use denc::Denc;
use maps::{HitSet, HitSetParams, Used};
use messages::{OsdOp, op, req_flag};
use types::{HObject, OsdId, PgId, PoolId, UTime};

use super::cluster::{Cluster, set_pg_num};
use super::survive::{check_copies, seeds};
use super::tier::check_counts;
use crate::backing::Coll;

const BASE: PoolId = PoolId(1);
const PERIOD_S: u32 = 120;

/// A base with two objects, and a cache over it that keeps two sets.
fn ready(seed: u64, kind: &str, pg_num: u32, recency: u32) -> (Cluster, PoolId) {
    let mut c = Cluster::ready(4, 2, 4, seed);
    for name in ["old", "other"] {
        let data = Bytes::from("from the base");
        let write = vec![OsdOp::extent(op::WRITEFULL, 0, data.len() as u64, data)];
        assert_eq!(c.run(BASE, name, write).result, 0);
    }
    let cache = c.make_tier(BASE, 3, pg_num);
    c.set_pool(cache, |p| {
        p.hit_set_params = HitSetParams::from_name(kind, 0.05).unwrap();
        (p.hit_set_count, p.hit_set_period) = (2, PERIOD_S);
        p.min_read_recency_for_promote = recency;
    });
    c.settle();
    (c, cache)
}

fn read(c: &mut Cluster, name: &str) {
    let reply = c.run(BASE, name, vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]);
    assert_eq!(reply.ops[0].data, "from the base", "{reply:?}");
    c.settle();
}

fn pg_of(c: &Cluster, pool: PoolId, name: &str) -> PgId {
    let oid =
        HObject::head(pool, Bytes::new(), Bytes::new(), Bytes::copy_from_slice(name.as_bytes()));
    c.map.pool(pool).unwrap().raw_pg_to_pg(pool, oid.hash)
}

/// What a PG's primary lists.
fn sets(c: &mut Cluster, pg: PgId) -> Vec<(UTime, UTime)> {
    let reply = c.list(pg.pool, pg.ps, vec![OsdOp::new(op::PG_HITSET_LS, Bytes::new())]);
    assert_eq!(reply.result, 0);
    Vec::from_bytes(&reply.ops[0].data).unwrap()
}

fn get(c: &mut Cluster, pg: PgId, at: UTime) -> Result<HitSet, i32> {
    let mut get = OsdOp::new(op::PG_HITSET_GET, Bytes::new());
    get.raw[..8].copy_from_slice(&at.to_bytes());
    let reply = c.list(pg.pool, pg.ps, vec![get]);
    if reply.result < 0 {
        return Err(reply.result);
    }
    Ok(HitSet::from_bytes(&reply.ops[0].data).unwrap())
}

fn primary(c: &Cluster, pg: PgId) -> OsdId {
    c.map.pg_to_up_acting(pg).acting_primary.expect("it is led")
}

/// The objects of a copy that are archives, or that are not.
fn objects(c: &Cluster, osd: OsdId, pg: PgId, archives: bool) -> Vec<HObject> {
    let store = c.nodes[osd.0 as usize].store.lock();
    let Some(coll) = store.now.get(&Coll::Pg(pg.into())) else { return Vec::new() };
    coll.objects.keys().filter(|o| (o.nspace == ".ceph-internal") == archives).cloned().collect()
}

/// The sets of now end.
fn pass_period(c: &mut Cluster) {
    for _ in 0..=PERIOD_S / 4 {
        c.tick(4_000);
        while c.step() {}
    }
    c.settle();
}

/// The primary of a PG dies and stays away.
fn depose(c: &mut Cluster, pg: PgId) {
    let was = primary(c, pg);
    c.kill(was.0 as usize);
    c.mark_down(was.0 as usize);
    c.settle();
    assert_ne!(primary(c, pg), was);
}

/// An object that was used in the last set and in this is used often enough, though another
/// OSD led the PG then.
#[test]
fn another_primary_knows_what_was_used() {
    for kind in ["explicit_object", "explicit_hash", "bloom"] {
        let (mut c, cache) = ready(31, kind, 4, 2);
        let pg = pg_of(&c, cache, "old");
        read(&mut c, "old");
        pass_period(&mut c);
        depose(&mut c, pg);
        let here = |c: &Cluster| !objects(c, primary(c, pg), pg, false).is_empty();
        read(&mut c, "old");
        assert!(!here(&c), "{kind}: not in the set of now");
        read(&mut c, "old");
        assert!(here(&c), "{kind}: in this set and in the one before");
        check_counts_up(&c);
    }
}

fn start_all(c: &mut Cluster) {
    for i in 0..c.nodes.len() {
        if c.nodes[i].osd.is_none() {
            c.start(i);
        }
    }
}

/// As [`check_counts`], once all run.
fn check_counts_up(c: &Cluster) {
    if c.nodes.iter().all(|n| n.osd.is_some()) {
        check_counts(c);
        check_copies(c);
    }
}

/// Sets are listed and read as before when every OSD was started anew; the oldest go; no
/// listing shows them; scrub finds nothing; without hit sets they are removed.
#[test]
fn sets_outlive_restarts() {
    let (mut c, cache) = ready(32, "explicit_object", 1, 1);
    let pg = PgId::new(cache.0, 0);
    read(&mut c, "old");
    let first = sets(&mut c, pg)[0].0;
    pass_period(&mut c);
    read(&mut c, "other");
    pass_period(&mut c);
    let before = sets(&mut c, pg);
    assert_eq!((before.len(), before[0].0), (3, first), "{before:?}");
    assert!(before.windows(2).all(|w| w[0].1 == w[1].0), "one behind the other: {before:?}");
    for i in 0..4 {
        c.kill(i);
    }
    (0..4).for_each(|i| c.start(i));
    c.settle();
    let after = sets(&mut c, pg);
    assert_eq!(after[..2], before[..2]);
    for ((_, at), name) in before.iter().zip(["old", "other"]) {
        let set = get(&mut c, pg, *at).unwrap();
        let Used::Objects(1, all) = &set.used else { panic!("{set:?}") };
        assert!(set.sealed && all.iter().all(|o| o.name == name), "{set:?}");
    }
    assert_eq!(get(&mut c, pg, UTime { sec: 1, nsec: 0 }), Err(-2));
    pass_period(&mut c);
    let later = sets(&mut c, pg);
    assert_eq!((later.len(), later[0].0), (3, before[1].0), "the oldest is gone");
    for up in c.map.pg_to_up_acting(pg).acting {
        assert_eq!(objects(&c, up, pg, true).len(), 2, "{up}");
    }
    let mut w = denc::Writer::new(types::Features::ALL);
    HObject::min().encode(&mut w);
    let mut pgnls = OsdOp::new(op::PGNLS, w.finish());
    pgnls.put_u64(0, 100);
    let listed = c.list(cache, 0, vec![pgnls]);
    assert_eq!(listed.result, 1);
    assert!(!listed.ops[0].data.windows(7).any(|w| w == b"hit_set"), "{listed:?}");
    c.scrub_all(primary(&c, pg).0 as usize);
    c.settle();
    check_counts_up(&c);
    for n in &c.nodes {
        let pgs = &n.osd.as_ref().unwrap().pgs;
        assert!(pgs.values().all(|pg| pg.info.scrub.errors() == 0));
    }
    c.set_pool(cache, |p| p.hit_set_params = HitSetParams::default());
    c.tick(1_000);
    c.settle();
    assert_eq!(objects(&c, primary(&c, pg), pg, true), []);
    assert_eq!(sets(&mut c, pg), []);
    check_counts_up(&c);
}

/// Divided, a PG keeps its sets and the child begins with none; merged, those of the PG that
/// goes end with it.
#[test]
fn sets_stay_with_their_pg() {
    let (mut c, cache) = ready(33, "explicit_hash", 1, 1);
    read(&mut c, "old");
    pass_period(&mut c);
    let whole = PgId::new(cache.0, 0);
    let before = sets(&mut c, whole);
    c.set_pool(cache, |p| set_pg_num(p, 2));
    c.settle();
    assert_eq!(sets(&mut c, whole)[0], before[0]);
    let child = PgId::new(cache.0, 1);
    assert_eq!(sets(&mut c, child).len(), 1);
    pass_period(&mut c);
    assert_eq!(sets(&mut c, child).len(), 2);
    check_counts_up(&c);
    for _ in 0..200 {
        if c.map.pool(cache).unwrap().pg_num == 1 {
            break;
        }
        c.shrink_pool(cache);
        c.settle();
    }
    assert_eq!(c.map.pool(cache).unwrap().pg_num, 1);
    for up in c.map.pg_to_up_acting(whole).acting {
        let left = objects(&c, up, whole, true);
        assert!(!left.is_empty() && left.iter().all(|o| o.hash == 0), "{left:?}");
    }
    check_counts_up(&c);
}

/// Whatever dies while sets are written and removed: copies agree, names are as many as sets
/// may be, and what is listed can be read.
#[test]
fn sets_among_faults() {
    for seed in seeds(7_900_000, 6) {
        let (mut c, cache) = ready(seed, "bloom", 2, 1);
        for round in 0..12 {
            for name in ["old", "other"] {
                c.ask(BASE, name, vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]);
                c.client_step();
            }
            for _ in 0..c.random(30) {
                c.tick(4_000);
                for _ in 0..c.random(40) {
                    c.step();
                }
            }
            let i = c.random(4);
            if round % 3 == 0 {
                c.kill(i);
                c.mark_down(i);
            } else if round % 3 == 2 {
                start_all(&mut c);
            }
        }
        start_all(&mut c);
        c.settle();
        pass_period(&mut c);
        for ps in 0..2 {
            let pg = PgId::new(cache.0, ps);
            let all = sets(&mut c, pg);
            assert!((2..=3).contains(&all.len()), "seed {seed}: {all:?}");
            assert_eq!(objects(&c, primary(&c, pg), pg, true).len(), all.len() - 1, "seed {seed}");
            for (at, _) in &all {
                assert!(matches!(get(&mut c, pg, *at).unwrap().used, Used::Bloom(_)));
            }
        }
        let past = req_flag::IGNORE_OVERLAY;
        let reply =
            c.run_with(BASE, "old", vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())], past);
        assert_eq!(reply.ops[0].data, "from the base");
        check_copies(&c);
        check_counts(&c);
    }
}
