//! Cache tiers: what clients see over one is what they would see without, and what leaves the
//! cache is in the base.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;
use maps::OsdMapFlags;
use messages::{Answered, MOsdOpReply, OsdOp, op, op_flag, req_flag};
use types::{EntityId, EntityKind, HObject, PoolId, ReqId, SnapId, SpgId};

use super::cluster::Cluster;
use super::survive::{check_copies, seeds};
use crate::backing::Coll;
use crate::object::{INFO_ATTR, ObjectInfo};

const BASE: PoolId = PoolId(1);
const EBUSY: i32 = -16;
const ENOENT: i32 = -2;
const PAST: u32 = req_flag::IGNORE_CACHE | req_flag::SKIPRWLOCKS;

fn full(data: &[u8]) -> Vec<OsdOp> {
    let data = Bytes::copy_from_slice(data);
    vec![OsdOp::extent(op::WRITEFULL, 0, data.len() as u64, data)]
}

fn one(code: u16) -> Vec<OsdOp> {
    vec![OsdOp::new(code, Bytes::new())]
}

fn read() -> Vec<OsdOp> {
    vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]
}

/// What an object of a cache is there: its record and data.
fn kept(c: &Cluster, pool: PoolId, name: &str, snap: SnapId) -> Option<(ObjectInfo, Bytes)> {
    let oid = HObject::head(pool, Bytes::new(), Bytes::new(), name.as_bytes().to_vec().into());
    let oid = oid.with_snap(snap);
    let pg = c.map.pool(pool)?.raw_pg_to_pg(pool, oid.hash);
    let primary = c.map.pg_to_up_acting(pg).acting_primary?;
    let store = c.nodes[primary.0 as usize].store.lock();
    let object = store.now.get(&Coll::Pg(pg.into()))?.objects.get(&oid)?;
    let info = ObjectInfo::from_bytes(&object.attrs[INFO_ATTR]).ok()?;
    Some((info, object.data.to_vec().into()))
}

/// Asks to flush, to try so or to evict what an object was at a snapshot.
pub fn ask_move(c: &mut Cluster, cache: PoolId, name: &str, snap: SnapId) -> u64 {
    let code = [op::CACHE_FLUSH, op::CACHE_TRY_FLUSH, op::CACHE_EVICT][c.random(3)];
    let tid = c.ask_with(cache, name, one(code), PAST);
    c.asked.back_mut().expect("just asked").msg.snapid = snap;
    tid
}

/// Every object and clone in a cache.
fn objects(c: &Cluster, pool: PoolId) -> Vec<HObject> {
    let mut all = Vec::new();
    for ps in 0..c.map.pool(pool).unwrap().pg_num {
        let pg = types::PgId { pool, ps };
        let primary = c.map.pg_to_up_acting(pg).acting_primary.expect("it is led");
        let store = c.nodes[primary.0 as usize].store.lock();
        let coll = store.now.get(&Coll::Pg(SpgId::from(pg)));
        all.extend(coll.into_iter().flat_map(|c| c.objects.keys().cloned()));
    }
    all
}

/// As `rados cache-flush-evict-all`: clones from the oldest on, then heads.
pub fn flush_evict_all(c: &mut Cluster, cache: PoolId) {
    c.settle();
    for oid in objects(c, cache) {
        let name = String::from_utf8(oid.name.to_vec()).unwrap();
        for code in [op::CACHE_FLUSH, op::CACHE_EVICT] {
            let tid = c.ask_with(cache, &name, one(code), PAST);
            c.asked.back_mut().expect("just asked").msg.snapid = oid.snap;
            let reply = c.wait(tid);
            assert_eq!(reply.result, 0, "{oid} {code:x}: {reply:?}");
        }
    }
    c.settle();
    assert_eq!(objects(c, cache), [], "the cache is empty");
}

/// Counters of cache PGs say what is there.
pub fn check_counts(c: &Cluster) {
    for n in &c.nodes {
        for (id, pg) in &n.osd.as_ref().expect("all run").pgs {
            if !pg.leads || pg.pool.cache.is_none() {
                continue;
            }
            let own = crate::split::count(&n.store, Coll::Pg(*id)).unwrap();
            let store = n.store.lock();
            let coll = &store.now[&Coll::Pg(*id)];
            let infos = coll.objects.iter().map(|(oid, o)| {
                (oid.is_head(), ObjectInfo::from_bytes(&o.attrs[INFO_ATTR]).unwrap())
            });
            let infos: Vec<(bool, ObjectInfo)> = infos.collect();
            let counts = pg.counts();
            let count = |f: &dyn Fn(&(bool, ObjectInfo)) -> bool| {
                infos.iter().filter(|i| f(i)).count() as i64
            };
            assert_eq!(counts.objects, infos.len() as i64, "{id}");
            assert_eq!(counts.clean, count(&|(_, i)| i.clean), "{id}");
            assert_eq!(counts.clones, count(&|(head, _)| !head), "{id}");
            assert_eq!(counts.bytes, own.bytes, "{id}");
        }
    }
}

fn ready(seed: u64) -> (Cluster, PoolId) {
    let mut c = Cluster::ready(4, 2, 4, seed);
    assert_eq!(c.run(BASE, "old", full(b"from the base")).result, 0);
    let cache = c.make_tier(BASE, 2, 4);
    (c, cache)
}

fn text(reply: &MOsdOpReply) -> Result<&str, i32> {
    if reply.result < 0 {
        return Err(reply.result);
    }
    Ok(std::str::from_utf8(&reply.ops[0].data).unwrap())
}

/// A read brings the object, clean, and with the version its users know; what the base has
/// not is a clean whiteout.
#[test]
fn misses_promote() {
    let (mut c, cache) = ready(1);
    let before = c.run_with(BASE, "old", read(), req_flag::IGNORE_OVERLAY).user_version;
    let reply = c.run(BASE, "old", read());
    assert_eq!((text(&reply), reply.user_version), (Ok("from the base"), before));
    let (info, data) = kept(&c, cache, "old", SnapId::HEAD).unwrap();
    assert!(info.clean && data == "from the base", "{info:?}");
    assert_eq!(text(&c.run(BASE, "none", read())), Err(ENOENT));
    let (info, _) = kept(&c, cache, "none", SnapId::HEAD).unwrap();
    assert!(info.clean && info.whiteout, "{info:?}");
    check_copies(&c);
    check_counts(&c);
}

/// Omap, attributes and appends to an object that comes from the base.
#[test]
fn writes_promote_first() {
    let (mut c, cache) = ready(2);
    let pairs = BTreeMap::from([(Bytes::from("k"), Bytes::from("v"))]).to_bytes();
    let ops = vec![OsdOp::new(op::OMAPSETVALS, pairs)];
    assert_eq!(c.run_with(BASE, "old", ops, req_flag::IGNORE_OVERLAY).result, 0);
    let more = Bytes::from(", and more");
    let append = vec![OsdOp::extent(op::APPEND, 0, more.len() as u64, more)];
    assert_eq!(c.run(BASE, "old", append).result, 0);
    assert_eq!(text(&c.run(BASE, "old", read())), Ok("from the base, and more"));
    let past = c.run_with(BASE, "old", read(), req_flag::IGNORE_OVERLAY);
    assert_eq!(text(&past), Ok("from the base"), "not flushed yet");
    let vals = (Bytes::new(), (100u64, Bytes::new())).to_bytes();
    let listed = c.run(BASE, "old", vec![OsdOp::new(op::OMAPGETVALS, vals)]);
    assert!(listed.ops[0].data.windows(1).any(|b| b == b"v"), "its omap came along");
    assert_eq!(c.run_with(cache, "old", one(op::CACHE_EVICT), PAST).result, EBUSY, "it is dirty");
    assert_eq!(c.run_with(cache, "old", one(op::CACHE_FLUSH), PAST).result, 0);
    let version = c.run(BASE, "old", read()).user_version;
    assert_eq!(c.run_with(cache, "old", one(op::CACHE_EVICT), PAST).result, 0);
    assert!(kept(&c, cache, "old", SnapId::HEAD).is_none());
    let again = c.run(BASE, "old", read());
    assert_eq!(text(&again), Ok("from the base, and more"));
    assert_eq!(again.user_version, version, "versions are the users' everywhere");
    check_counts(&c);
}

/// A deletion is a whiteout until it is flushed; then the base has nothing.
#[test]
fn deletions_are_whiteouts() {
    let (mut c, cache) = ready(3);
    assert_eq!(text(&c.run(BASE, "old", read())), Ok("from the base"));
    assert_eq!(c.run(BASE, "old", one(op::DELETE)).result, 0);
    assert_eq!(c.run(BASE, "old", one(op::DELETE)).result, ENOENT);
    assert_eq!(text(&c.run(BASE, "old", read())), Err(ENOENT));
    let (info, _) = kept(&c, cache, "old", SnapId::HEAD).unwrap();
    assert!(info.whiteout && !info.clean);
    let direct = req_flag::IGNORE_OVERLAY;
    assert_eq!(text(&c.run_with(BASE, "old", read(), direct)), Ok("from the base"));
    assert_eq!(c.run_with(cache, "old", one(op::CACHE_FLUSH), PAST).result, 0);
    assert_eq!(text(&c.run_with(BASE, "old", read(), direct)), Err(ENOENT));
    assert_eq!(c.run_with(cache, "old", one(op::CACHE_EVICT), PAST).result, 0);
    assert_eq!(c.run_with(cache, "old", one(op::CACHE_EVICT), PAST).result, ENOENT);
    assert_eq!(c.run(BASE, "old", full(b"again")).result, 0);
    assert_eq!(text(&c.run(BASE, "old", read())), Ok("again"));
    check_counts(&c);
}

/// A flush lets writers wait, an attempt does not: whoever writes meanwhile makes it fail.
#[test]
fn flushes_and_writers() {
    let (mut c, cache) = ready(4);
    let mut failed = 0;
    for i in 0..20 {
        assert_eq!(c.run(BASE, "x", full(format!("{i}").as_bytes())).result, 0);
        let code = if i % 2 == 0 { op::CACHE_FLUSH } else { op::CACHE_TRY_FLUSH };
        let flush = c.ask_with(cache, "x", one(code), PAST);
        let write = c.ask(BASE, "x", full(b"meanwhile"));
        let (flush, write) = (c.wait(flush).result, c.wait(write).result);
        assert_eq!(write, 0);
        assert!(flush == 0 || (flush == EBUSY && i % 2 == 1), "{i}: {flush}");
        failed += i32::from(flush == EBUSY);
        assert!(!kept(&c, cache, "x", SnapId::HEAD).unwrap().0.clean);
    }
    assert!(failed > 0, "no attempt met a writer");
}

/// While the base cannot serve, a flush waits and writes to the cache go on.
#[test]
fn the_base_fails() {
    for seed in seeds(7_300_000, 4) {
        let mut c = Cluster::ready(4, 2, 4, seed);
        let cache = c.make_tier(BASE, 3, 4);
        for name in ["x", "y"] {
            assert_eq!(c.run(BASE, name, full(b"one")).result, 0);
        }
        c.set_pool(BASE, |p| p.min_size = 4);
        c.settle();
        let flush = c.ask_with(cache, "x", one(op::CACHE_TRY_FLUSH), PAST);
        for _ in 0..30 {
            while c.step() {}
            c.tick(500);
        }
        assert!(!c.answers.contains_key(&flush), "the base does not serve");
        assert_eq!(c.run(BASE, "y", full(b"two")).result, 0, "it is here");
        let absent = c.ask(BASE, "z", full(b"three"));
        c.set_pool(BASE, |p| p.min_size = 1);
        assert_eq!(c.wait(flush).result, 0);
        assert_eq!(c.wait(absent).result, 0);
        flush_evict_all(&mut c, cache);
        assert_eq!(text(&c.run(BASE, "y", read())), Ok("two"));
    }
}

/// An OSD that dies while objects are flushed: nothing is lost, and the flushes end.
#[test]
fn restarts_during_flushes() {
    for seed in seeds(7_400_000, 10) {
        let mut c = Cluster::ready(4, 3, 4, seed);
        let cache = c.make_tier(BASE, 3, 4);
        let body = |i: usize| format!("object {i} ").repeat(20 + i).into_bytes();
        for i in 0..12 {
            assert_eq!(c.run(BASE, &format!("f{i}"), full(&body(i))).result, 0);
        }
        let flushes: Vec<u64> = (0..12)
            .map(|i| c.ask_with(cache, &format!("f{i}"), one(op::CACHE_FLUSH), PAST))
            .collect();
        c.client_step();
        for _ in 0..c.random(60) {
            c.step();
        }
        let i = c.random(4);
        c.kill(i);
        c.mark_down(i);
        for tid in flushes {
            assert_eq!(c.wait(tid).result, 0, "seed {seed}");
        }
        c.start(i);
        c.settle();
        flush_evict_all(&mut c, cache);
        for i in 0..12 {
            let reply = c.run_with(BASE, &format!("f{i}"), read(), req_flag::IGNORE_OVERLAY);
            assert_eq!(reply.ops[0].data, body(i), "seed {seed}");
        }
        check_copies(&c);
        check_counts(&c);
    }
}

/// A request that the base did, sent again over the cache: not done twice, though who leads the
/// base now began anew and has but a few entries of a log.
#[test]
fn a_base_that_began_anew_knows_requests_by_their_objects() {
    let mut c = Cluster::ready(3, 2, 1, 9);
    c.options = vec![("osd_min_pg_log_entries", "10"), ("osd_max_pg_log_entries", "200")];
    for i in 0..3 {
        c.kill(i);
        c.start(i);
    }
    let cache = c.make_tier(BASE, 2, 1);
    let overlay = |c: &mut Cluster, tier: PoolId| {
        c.set_pool(BASE, |p| (p.read_tier, p.write_tier) = (tier.0, tier.0));
    };
    overlay(&mut c, PoolId(-1));
    for i in 0..400 {
        assert_eq!(c.run(BASE, &format!("y{}", i % 7), full(b"before")).result, 0);
    }
    let tid = c.ask(BASE, "x", vec![OsdOp::extent(op::APPEND, 0, 4, Bytes::from("once"))]);
    c.client_step();
    c.run_unheard();
    for i in 0..100 {
        c.ask(BASE, &format!("y{}", i % 7), full(b"later"));
        c.client_step();
        c.run_unheard();
    }
    let pg = types::PgId { pool: BASE, ps: 0 };
    let acting = c.map.pg_to_up_acting(pg).acting;
    let new = acting[1].0 as usize;
    c.kill(new);
    c.mark_down(new);
    c.nodes[new].store = crate::memory::MemStore::default();
    c.start(new);
    for _ in 0..200 {
        c.tick(200);
        c.run_unheard();
    }
    let mut inc = c.next_inc();
    inc.new_pg_upmap.insert(pg, vec![acting[1], acting[0]]);
    c.publish(inc);
    for _ in 0..200 {
        c.tick(200);
        c.run_unheard();
    }
    assert_eq!(c.map.pg_to_up_acting(pg).acting[0].0 as usize, new, "it leads");
    overlay(&mut c, cache);
    for i in 0..3 {
        c.break_client(i);
    }
    let again = c.asked.iter_mut().find(|a| a.tid == tid).expect("it is asked still");
    again.msg.locator.pool = cache;
    assert_eq!(c.wait(tid).result, 0);
    assert!(kept(&c, cache, "x", SnapId::HEAD).is_some(), "the cache answered");
    assert_eq!(text(&c.run(BASE, "x", read())), Ok("once"));
    c.settle();
    check_copies(&c);
}

/// A delete that a cache did, sent again after the cache was taken away: the base knows it, whether
/// it had the object or not.
#[test]
fn deletes_are_known_where_their_flush_went() {
    let (mut c, cache) = ready(11);
    assert_eq!(text(&c.run(BASE, "old", read())), Ok("from the base"));
    assert_eq!(c.run(BASE, "new", full(b"only in the cache")).result, 0);
    let tids: Vec<u64> = ["old", "new"].map(|n| c.ask(BASE, n, one(op::DELETE))).into();
    c.client_step();
    c.run_unheard();
    c.set_pool(cache, |p| {
        p.target_max_objects = 4;
        (p.cache_target_dirty_ratio_micro, p.cache_target_full_ratio_micro) = (0, 1);
    });
    for _ in 0..40 {
        c.tick(500);
        c.run_unheard();
    }
    assert_eq!(objects(&c, cache), [], "flushed and evicted");
    c.set_pool(BASE, |p| (p.read_tier, p.write_tier) = (-1, -1));
    for i in 0..4 {
        c.break_client(i);
    }
    for a in &mut c.asked {
        a.msg.locator.pool = BASE;
    }
    assert_eq!(tids.into_iter().map(|tid| c.wait(tid).result).collect::<Vec<_>>(), [0, 0]);
    for name in ["old", "new"] {
        assert_eq!(c.run(BASE, name, one(op::DELETE)).result, ENOENT, "{name}: another delete");
    }
    c.settle();
    check_copies(&c);
}

/// The base is not told of a delete that may still be undone.
#[test]
fn flushes_wait_for_writes_under_way() {
    let (mut c, cache) = ready(12);
    assert_eq!(text(&c.run(BASE, "old", read())), Ok("from the base"));
    let pg = types::PgId { pool: cache, ps: HObject::hash_of(b"", b"old") };
    let acting = c.map.pg_to_up_acting(c.map.raw_pg_to_pg(pg).unwrap()).acting;
    c.held.insert((acting[1].0 as usize, acting[0].0 as usize));
    let gone = c.ask(BASE, "old", one(op::DELETE));
    let flush = c.ask_with(cache, "old", one(op::CACHE_FLUSH), PAST);
    for _ in 0..5 {
        c.client_step();
        while c.step() {}
    }
    assert!(kept(&c, cache, "old", SnapId::HEAD).is_some_and(|(i, _)| i.whiteout && !i.clean));
    assert!(kept(&c, BASE, "old", SnapId::HEAD).is_some(), "the base is told too early");
    c.held.clear();
    assert_eq!((c.wait(gone).result, c.wait(flush).result), (0, 0));
    assert!(kept(&c, BASE, "old", SnapId::HEAD).is_none());
}

/// Over an erasure-coded base; what has an omap stays in the cache.
#[test]
fn erasure_coded_bases() {
    let mut c = Cluster::ready_coded(4, (2, 1), 4, 5);
    let cache = c.make_tier(BASE, 3, 4);
    let body: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
    assert_eq!(c.run(BASE, "x", full(&body)).result, 0);
    let part = vec![OsdOp::extent(op::WRITE, 7, 3, Bytes::from("abc"))];
    assert_eq!(c.run(BASE, "x", part).result, 0);
    let pairs = BTreeMap::from([(Bytes::from("k"), Bytes::from("v"))]).to_bytes();
    assert_eq!(c.run(BASE, "o", vec![OsdOp::new(op::OMAPSETVALS, pairs)]).result, 0);
    assert_eq!(c.run_with(cache, "o", one(op::CACHE_FLUSH), PAST).result, -95);
    assert_eq!(c.run(BASE, "o", one(op::DELETE)).result, 0);
    flush_evict_all(&mut c, cache);
    let reply = c.run(BASE, "x", read());
    assert_eq!((reply.ops[0].data.len(), &reply.ops[0].data[6..11]), (1000, &b"\x06abc\x0a"[..]));
}

/// Modes: what is not here is read from, or written to, the base.
#[test]
fn proxies() {
    use maps::CacheMode::{Proxy, Readonly, Readproxy};
    let (mut c, cache) = ready(6);
    let here = |c: &Cluster| kept(c, cache, "old", SnapId::HEAD).is_some();
    for mode in [Proxy, Readproxy] {
        c.set_pool(cache, |p| p.cache_mode = mode as u8);
        assert_eq!(text(&c.run(BASE, "old", read())), Ok("from the base"));
        assert!(!here(&c), "{mode:?}");
    }
    c.set_pool(cache, |p| p.cache_mode = Proxy as u8);
    let write = c.run(BASE, "old", full(b"past it"));
    assert!(write.result == 0 && write.user_version > 0 && !here(&c));
    assert_eq!(text(&c.run(BASE, "old", read())), Ok("past it"));
    // A delete with something in it is not what caches tell their bases of.
    let later = ReqId { client: EntityId::new(EntityKind::CLIENT, 4100), tid: c.tid + 3, inc: 0 };
    let later = vec![Answered { reqid: later, ..Answered::default() }];
    let forged = vec![OsdOp::new(op::DELETE, later.to_bytes())];
    assert_eq!(c.run(BASE, "old", forged).result, 0);
    assert_eq!(c.run(BASE, "old", full(b"not yet")).result, 0);
    assert_eq!(c.run(BASE, "old", full(b"past it")).result, 0);
    assert_eq!(text(&c.run(BASE, "old", read())), Ok("past it"));
    c.set_pool(cache, |p| p.cache_mode = Readonly as u8);
    assert_eq!(text(&c.run(BASE, "old", read())), Ok("past it"));
    assert!(here(&c), "a read brings it");
    assert_eq!(c.run(BASE, "old", full(b"and again")).result, 0);
    assert_eq!(text(&c.run(BASE, "old", read())), Ok("and again"));
    c.set_pool(cache, |p| p.cache_mode = Readproxy as u8);
    assert_eq!(c.run(BASE, "old", full(b"here")).result, 0);
    assert!(!kept(&c, cache, "old", SnapId::HEAD).unwrap().0.clean);
    check_counts(&c);
}

/// With hit sets an object comes when it is read again, and not before.
#[test]
fn second_reads_promote() {
    let (mut c, cache) = ready(7);
    c.set_pool(cache, |p| {
        p.hit_set_params = maps::HitSetParams::from_name("explicit_object", 0.0).unwrap();
        (p.hit_set_count, p.hit_set_period, p.min_read_recency_for_promote) = (2, 1000, 1);
    });
    let here = |c: &Cluster| kept(c, cache, "old", SnapId::HEAD).is_some();
    assert_eq!(text(&c.run(BASE, "old", read())), Ok("from the base"));
    c.settle();
    assert!(!here(&c), "once");
    assert_eq!(text(&c.run(BASE, "old", read())), Ok("from the base"));
    c.settle();
    assert!(here(&c), "twice");
    let pg = c.map.raw_pg_to_pg(types::PgId { pool: cache, ps: HObject::hash_of(b"", b"old") });
    let list = c.list(cache, pg.unwrap().ps, one(op::PG_HITSET_LS));
    assert_eq!(u32::from_le_bytes(list.ops[0].data[..4].try_into().unwrap()), 1);
    let mut get = OsdOp::new(op::PG_HITSET_GET, Bytes::new());
    get.raw[..8].copy_from_slice(&list.ops[0].data[4..12]);
    let set = c.list(cache, pg.unwrap().ps, vec![get]);
    assert!(set.ops[0].data.windows(3).any(|w| w == b"old"), "{set:?}");
}

/// The agent: flushes beyond the dirty ratio, evicts beyond the full ratio, keeps what is
/// pinned or watched.
#[test]
fn the_agent_keeps_the_target() {
    let (mut c, cache) = ready(8);
    for i in 0..60 {
        assert_eq!(c.run(BASE, &format!("a{i}"), full(&[i; 100])).result, 0);
    }
    assert_eq!(c.run(BASE, "a0", one(op::CACHE_PIN)).result, 0);
    assert_eq!(c.run_with(cache, "a0", one(op::CACHE_FLUSH), PAST).result, -1);
    c.set_pool(cache, |p| {
        p.target_max_objects = 40;
        p.cache_target_dirty_ratio_micro = 400_000;
        p.cache_target_full_ratio_micro = 800_000;
    });
    for _ in 0..60 {
        c.settle();
    }
    let all = objects(&c, cache);
    assert!(all.len() <= 32, "{} objects are left", all.len());
    assert!(all.len() > 8, "it stops in time");
    let dirty = all.iter().filter(|o| {
        let name = std::str::from_utf8(&o.name).unwrap();
        !kept(&c, cache, name, SnapId::HEAD).unwrap().0.clean
    });
    assert!(dirty.count() <= 17, "flushed beyond the ratio");
    assert!(kept(&c, cache, "a0", SnapId::HEAD).is_some(), "it is pinned");
    for i in 0..60 {
        assert_eq!(c.run(BASE, &format!("a{i}"), read()).ops[0].data, vec![i; 100]);
    }
    check_counts(&c);
}

/// A request that the base did before its object moved here is not done again.
#[test]
fn resends_are_recognised_behind_a_move() {
    let (mut c, cache) = ready(9);
    let append = vec![OsdOp::extent(op::APPEND, 0, 1, Bytes::from("!"))];
    let tid = c.ask_with(BASE, "old", append.clone(), req_flag::IGNORE_OVERLAY);
    let sent = c.asked.back().unwrap().msg.clone();
    assert_eq!(c.wait(tid).result, 0);
    let again = c.ask(BASE, "old", append);
    let asked = c.asked.back_mut().unwrap();
    asked.msg.reqid = types::ReqId { client: client(), tid, inc: sent.reqid.inc };
    assert_eq!(c.wait(again).result, 0);
    assert_eq!(text(&c.run(BASE, "old", read())), Ok("from the base!"), "once");
    // And back.
    let more = vec![OsdOp::extent(op::APPEND, 0, 1, Bytes::from("?"))];
    let tid = c.ask(BASE, "old", more.clone());
    assert_eq!(c.wait(tid).result, 0);
    assert_eq!(c.run_with(cache, "old", one(op::CACHE_FLUSH), PAST).result, 0);
    let again = c.ask_with(BASE, "old", more, req_flag::IGNORE_OVERLAY);
    c.asked.back_mut().unwrap().msg.reqid = types::ReqId { client: client(), tid, inc: 0 };
    assert_eq!(c.wait(again).result, 0);
    let past = c.run_with(BASE, "old", read(), req_flag::IGNORE_OVERLAY);
    assert_eq!(text(&past), Ok("from the base!?"));
}

fn client() -> types::EntityId {
    types::EntityId::new(types::EntityKind::CLIENT, 4100)
}

/// A copy of an object that only the base has, asked for through the cache.
#[test]
fn copies_come_through() {
    let (mut c, _) = ready(10);
    let mut w = denc::Writer::new(types::Features::ALL);
    w.str("old");
    types::ObjectLocator { pool: BASE, ..Default::default() }.encode(&mut w);
    let mut copy = OsdOp::new(op::COPY_FROM, w.finish());
    copy.put_u64(0, SnapId::HEAD.0);
    copy.flags = op_flag::FADVISE_SEQUENTIAL;
    assert_eq!(c.run(BASE, "new", vec![copy]).result, 0);
    assert_eq!(text(&c.run(BASE, "new", read())), Ok("from the base"));
}

/// A head that is in the cache is rolled back there, also where the clone is not and would
/// not be promoted for a read.
#[test]
fn rollbacks_bring_their_clone() {
    use maps::CacheMode::{Proxy, Writeback};
    for (mode, recency) in [(Proxy, 0), (Writeback, 2)] {
        let (mut c, cache) = ready(11);
        let knows = |c: &mut Cluster, ops, flags| {
            let tid = c.ask_with(BASE, "old", ops, flags);
            let asked = &mut c.asked.back_mut().unwrap().msg;
            (asked.snap_seq, asked.snaps) = (SnapId(3), vec![SnapId(3)]);
            assert_eq!(c.wait(tid).result, 0);
        };
        knows(&mut c, full(b"later"), req_flag::IGNORE_OVERLAY);
        knows(&mut c, full(b"in the cache"), 0);
        assert!(kept(&c, cache, "old", SnapId(3)).is_none());
        c.set_pool(cache, |p| {
            p.cache_mode = mode as u8;
            p.hit_set_params = maps::HitSetParams::from_name("bloom", 0.05).unwrap();
            (p.hit_set_count, p.hit_set_period) = (2, 1000);
            p.min_write_recency_for_promote = recency;
        });
        let mut back = OsdOp::new(op::ROLLBACK, Bytes::new());
        back.put_u64(0, 3);
        knows(&mut c, vec![back], 0);
        assert_eq!(text(&c.run(BASE, "old", read())), Ok("from the base"), "{mode:?}");
        check_counts(&c);
    }
}

/// A clone that leaves the cache between the removal of its snapshot and its trimming, which finds
/// clones by what is here: the head does not name that snapshot to the base any more.
#[test]
fn evicted_clones_serve_nothing_that_was_removed() {
    let (mut c, cache) = ready(14);
    let tid = c.ask_with(BASE, "old", full(b"in the cache"), 0);
    let asked = &mut c.asked.back_mut().unwrap().msg;
    (asked.snap_seq, asked.snaps) = (SnapId(3), vec![SnapId(3), SnapId(2)]);
    assert_eq!(c.wait(tid).result, 0);
    let serves = |c: &Cluster| {
        let (head, _) = kept(c, cache, "old", SnapId::HEAD).expect("it is here");
        head.snaps.unwrap().clone_snaps[&SnapId(3)].clone()
    };
    assert_eq!(serves(&c), [SnapId(3), SnapId(2)]);
    c.set_flag(OsdMapFlags::NOSNAPTRIM, true);
    let mut inc = c.inc();
    inc.new_removed_snaps.entry(BASE).or_default().insert(2, 1);
    c.follow_base(BASE, &mut inc);
    c.publish(inc);
    c.settle();
    assert_eq!(serves(&c), [SnapId(3), SnapId(2)], "nothing is trimmed");
    assert!(kept(&c, cache, "old", SnapId(3)).is_some());
    let tid = c.ask_with(cache, "old", one(op::CACHE_EVICT), PAST);
    c.asked.back_mut().expect("just asked").msg.snapid = SnapId(3);
    assert_eq!(c.wait(tid).result, 0);
    assert!(kept(&c, cache, "old", SnapId(3)).is_none());
    assert_eq!(serves(&c), [SnapId(3)]);
    check_counts(&c);
}

/// Who does not lead the cache's PG, as one who was cut off and has a successor, changes
/// nothing in the base; nor does what it said when it led it before.
#[test]
fn only_the_primary_of_a_cache_is_heard() {
    use messages::{OsdPeer, PeerMsg};
    let (mut c, cache) = ready(12);
    let hash = HObject::hash_of(b"", b"old");
    let primary = |c: &Cluster, pool: PoolId| {
        let pg = c.map.pool(pool).unwrap().raw_pg_to_pg(pool, hash);
        (pg, c.map.pg_to_up_acting(pg).acting_primary.unwrap())
    };
    let ((pg, base), (_, leads)) = (primary(&c, BASE), primary(&c, cache));
    let say = |c: &mut Cluster, osd: types::OsdId, interval: u32, data: &[u8]| {
        let tid = c.ask_with(BASE, "old", full(data), req_flag::IGNORE_OVERLAY);
        let mut op = c.asked.pop_back().unwrap().msg;
        let epoch = c.map.epoch;
        (op.pg, op.epoch) = (pg.into(), epoch);
        op.reqid = types::ReqId { client: client(), tid, inc: 0 };
        let (who, addr) = (client(), super::cluster::client_addr());
        let body = PeerMsg::TierAsk { id: tid, who, addr, op: Box::new(op) };
        let (from, interval) = (types::ShardId::NONE, types::Epoch(interval));
        let m = OsdPeer { pg: pg.into(), from, epoch, interval, felt: 0, body };
        c.event(base.0 as usize, |o, now, out| o.on_tier_ask(now, osd, m, out));
        c.settle();
        let past = c.run_with(BASE, "old", read(), req_flag::IGNORE_OVERLAY);
        text(&past).map(str::to_owned)
    };
    let other = types::OsdId((leads.0 + 1) % 4);
    assert_eq!(say(&mut c, other, 1_000, b"from another").as_deref(), Ok("from the base"));
    assert_eq!(say(&mut c, leads, 900, b"from who leads").as_deref(), Ok("from who leads"));
    assert_eq!(say(&mut c, leads, 800, b"from before").as_deref(), Ok("from who leads"));
}
