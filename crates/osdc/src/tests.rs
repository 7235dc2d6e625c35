//! What a map does to operations under way.

use std::sync::Arc;

use bytes::Bytes;
use denc::Features;
use maps::{CrushPart, Incremental, OsdMap, OsdMapFlags, PgPool, PoolFlags, PoolKind};
use messages::{MOsdOp, Message, OsdOp, op, req_flag};
use types::{AddrVec, EntityAddr, Epoch, HObject, OsdId, PoolId, UTime, Uuid};

use super::{Objecter, Out, Request};

const POOL: PoolId = PoolId(1);

/// A map of one OSD, which is up, and one pool.
fn first() -> OsdMap {
    let mut map = OsdMap::new(Uuid::default(), Epoch(1), UTime::ZERO, 20);
    map.crush =
        CrushPart::new(crush::CrushMap::build_simple("host", &[(0, 0x1_0000)], true).unwrap());
    map.set_max_osd(1);
    next(&map, |inc| {
        let pool = PgPool::new(PoolKind::REPLICATED, 1, 1, 0, 8);
        inc.new_pools.insert(POOL, pool);
        inc.new_pool_names.insert(POOL, "p".into());
        inc.new_pool_max = Some(POOL.0);
        let addr = EntityAddr::msgr2(([127, 0, 0, 1], 6_800).into(), 1);
        inc.new_state.insert(OsdId(0), 1);
        inc.new_weight.insert(OsdId(0), 0x1_0000);
        for up in [&mut inc.new_up_client, &mut inc.new_up_cluster] {
            up.insert(OsdId(0), AddrVec(vec![addr]));
        }
    })
}

fn next(map: &OsdMap, f: impl FnOnce(&mut Incremental)) -> OsdMap {
    let mut inc = Incremental::new(map.fsid, Epoch(map.epoch.0 + 1));
    f(&mut inc);
    inc.seal(map, Features::TENTACLE_WORD).unwrap().map
}

fn pool_full(map: &OsdMap, full: bool) -> OsdMap {
    next(map, |inc| {
        let mut pool = map.pool(POOL).unwrap().clone();
        pool.flags.set(PoolFlags::FULL, full);
        inc.new_pools.insert(POOL, pool);
    })
}

fn request(flags: u32) -> Request {
    let name = Bytes::from_static(b"x");
    let code = if flags & req_flag::WRITE != 0 { op::DELETE } else { op::STAT };
    Request {
        object: HObject { pool: POOL, hash: HObject::hash_of(b"", &name), name, ..HObject::min() },
        pg: None,
        ops: vec![OsdOp::new(code, Bytes::new())],
        flags,
        mtime: UTime::ZERO,
        snaps: Default::default(),
    }
}

/// What is sent, as flags and attempt.
fn sent(out: &mut Vec<Out>) -> Vec<(u32, i32)> {
    let all = std::mem::take(out).into_iter();
    all.filter_map(|o| match o {
        Out::Send(_, e) => MOsdOp::decode(&e).ok(),
        _ => None,
    })
    .map(|m| (m.flags & (req_flag::READ | req_flag::WRITE | req_flag::FULL_TRY), m.retry_attempt))
    .collect()
}

fn ready() -> (Objecter, OsdMap, Vec<Out>) {
    let (mut o, map, mut out) = (Objecter::new(), first(), Vec::new());
    o.on_map(Arc::new(map.clone()), &mut out);
    o.submit(request(req_flag::READ), &mut out);
    o.on_opened(OsdId(0), Features::TENTACLE_WORD, &mut out);
    assert_eq!(sent(&mut out), [(req_flag::READ, 0)]);
    (o, map, out)
}

/// A full pool takes no writes but those that ask to try; what was sent before is sent again
/// with what waited, in order, by the map that says that there is room.
#[test]
fn writes_wait_for_a_full_pool() {
    use req_flag::{FULL_TRY, READ, WRITE};
    let (mut o, map, mut out) = ready();
    o.submit(request(WRITE), &mut out);
    assert_eq!(sent(&mut out), [(WRITE, 0)]);
    let map = pool_full(&map, true);
    o.on_map(Arc::new(map.clone()), &mut out);
    assert_eq!(sent(&mut out), []);
    o.submit(request(READ | WRITE), &mut out);
    assert!(out.contains(&Out::WantMap(Epoch(map.epoch.0 + 1))));
    o.submit(request(READ | req_flag::RWORDERED), &mut out);
    assert_eq!(sent(&mut out), []);
    o.submit(request(WRITE | FULL_TRY), &mut out);
    o.submit(request(READ), &mut out);
    assert_eq!(sent(&mut out), [(WRITE | FULL_TRY, 0), (READ, 0)]);
    let map = pool_full(&map, false);
    o.on_map(Arc::new(map), &mut out);
    assert_eq!(sent(&mut out), [(WRITE, 1), (READ | WRITE, 0), (READ, 0)]);
}

/// `pauserd` and `pausewr` hold what is not sent yet.
#[test]
fn a_paused_cluster_gets_nothing() {
    use req_flag::{READ, WRITE};
    let (mut o, map, mut out) = ready();
    let pause = OsdMapFlags::PAUSERD.0 | OsdMapFlags::PAUSEWR.0;
    let map = next(&map, |inc| inc.new_flags = Some(OsdMapFlags(map.flags.0 | pause)));
    o.on_map(Arc::new(map.clone()), &mut out);
    o.submit(request(WRITE), &mut out);
    o.submit(request(READ), &mut out);
    assert_eq!(sent(&mut out), []);
    let map = next(&map, |inc| inc.new_flags = Some(OsdMapFlags(map.flags.0 & !pause)));
    o.on_map(Arc::new(map), &mut out);
    assert_eq!(sent(&mut out), [(WRITE, 0), (READ, 0)]);
}

/// With an overlay requests go to the cache tier, those that ask for the base do not; when it
/// comes or goes, what is under way is sent again.
#[test]
fn overlays_lead_to_the_cache() {
    const CACHE: PoolId = PoolId(2);
    let base = first();
    let tiers = next(&base, |inc| {
        let mut cache = PgPool::new(PoolKind::REPLICATED, 1, 1, 0, 4);
        cache.tier_of = POOL.0;
        inc.new_pools.insert(CACHE, cache);
        inc.new_pool_names.insert(CACHE, "c".into());
        inc.new_pool_max = Some(CACHE.0);
    });
    let overlay = |map: &OsdMap, to: i64| {
        next(map, |inc| {
            let mut pool = map.pool(POOL).unwrap().clone();
            (pool.read_tier, pool.write_tier) = (to, to);
            pool.last_force_op_resend = inc.epoch;
            inc.new_pools.insert(POOL, pool);
        })
    };
    let over = overlay(&tiers, CACHE.0);
    let gone = overlay(&over, -1);
    let mut o = Objecter::new();
    let mut out = Vec::new();
    o.on_map(Arc::new(base), &mut out);
    o.on_map(Arc::new(tiers), &mut out);
    for flags in [req_flag::READ, req_flag::WRITE, req_flag::READ | req_flag::IGNORE_OVERLAY] {
        o.submit(request(flags), &mut out);
    }
    o.on_opened(OsdId(0), Features::TENTACLE_WORD, &mut out);
    let mut pools = |o: &mut Objecter, map: Option<OsdMap>| {
        if let Some(map) = map {
            o.on_map(Arc::new(map), &mut out);
        }
        let sent = std::mem::take(&mut out);
        let sent = sent.iter().filter_map(|o| match o {
            Out::Send(_, e) => MOsdOp::decode(e).ok(),
            _ => None,
        });
        sent.map(|m| (m.pg.pg.pool, m.locator.pool, m.retry_attempt)).collect::<Vec<_>>()
    };
    assert_eq!(pools(&mut o, None), [(POOL, POOL, 0); 3]);
    assert_eq!(pools(&mut o, Some(over)), [(CACHE, CACHE, 1), (CACHE, CACHE, 1), (POOL, POOL, 1)]);
    let place = o.place(&request(req_flag::WRITE).object).unwrap();
    assert_eq!(place.pg.pg.pool, CACHE);
    assert_eq!(pools(&mut o, Some(gone)), [(POOL, POOL, 2); 3]);
}

/// What is under way in a PG that is divided is sent again though it goes where it went: its OSD
/// drops it. Other PGs' requests stay.
#[test]
fn divided_pgs_are_asked_again() {
    let (mut o, map, mut out) = ready();
    let ps = map.pool(POOL).unwrap().raw_pg_to_pg(POOL, request(0).object.hash).ps;
    let grown = |map: &OsdMap, pg_num: u32| {
        next(map, |inc| {
            let mut pool = map.pool(POOL).unwrap().clone();
            (pool.pg_num, pool.pg_num_pending) = (pg_num, pg_num);
            inc.new_pools.insert(POOL, pool);
        })
    };
    // One PG more at a time: each divides that of the same number less eight.
    let (mut map, mut attempt) = (map, 0);
    for n in 9..=16 {
        map = grown(&map, n);
        o.on_map(Arc::new(map.clone()), &mut out);
        let again = if n == 9 + ps { vec![(req_flag::READ, 1)] } else { vec![] };
        attempt += again.len();
        assert_eq!(sent(&mut out), again, "{n} PGs, the object was in {ps}");
    }
    assert_eq!(attempt, 1);
}
