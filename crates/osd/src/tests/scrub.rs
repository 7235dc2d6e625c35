//! What scrubs find, and that it is mended.

use bytes::Bytes;
use denc::Reader;
use messages::{OsdOp, op};
use types::{HObject, OsdId, PgId, PoolId, ShardId, SnapId, SpgId};

use super::cluster::Cluster;
use crate::backing::Coll;
use crate::memory::Object;
use crate::{Effect, PgSummary};

const POOL: PoolId = PoolId(1);
const PG: SpgId = SpgId { pg: PgId { pool: POOL, ps: 0 }, shard: ShardId::NONE };

fn write(data: &'static [u8]) -> Vec<OsdOp> {
    vec![OsdOp::extent(op::WRITEFULL, 0, data.len() as u64, Bytes::from_static(data))]
}

fn read() -> Vec<OsdOp> {
    vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]
}

fn omap(key: &str, value: &str) -> Vec<OsdOp> {
    use denc::Denc;
    let all = vec![(Bytes::from(key.to_owned()), Bytes::from(value.to_owned()))];
    vec![OsdOp::new(op::OMAPSETVALS, all.to_bytes())]
}

fn named(name: &str) -> HObject {
    HObject::head(POOL, Bytes::new(), Bytes::new(), Bytes::copy_from_slice(name.as_bytes()))
}

/// Three OSDs, one PG, twenty objects with data and omap.
fn filled(seed: u64) -> Cluster {
    let mut c = Cluster::ready(3, 3, 1, seed);
    for i in 0..20 {
        c.run(POOL, &format!("o{i}"), write(b"what is written here is what is read"));
        c.run(POOL, &format!("o{i}"), omap("key", "value"));
    }
    c.settle();
    c
}

fn primary(c: &Cluster) -> usize {
    c.map.pg_to_up_acting(PG.pg).acting_primary.expect("it is led").0 as usize
}

fn summary(c: &Cluster) -> PgSummary {
    let osd = c.nodes[primary(c)].osd.as_ref().expect("it runs");
    osd.pg_summaries().into_iter().find(|s| s.id == PG).expect("it leads it")
}

/// Runs a scrub to its end; the cluster log's lines.
fn scrub(c: &mut Cluster, what: &str) -> Vec<String> {
    let p = primary(c);
    let before = c.nodes[p].osd.as_ref().unwrap().pgs[&PG].info.scrub.last_ns;
    let (r, _) = c.admin(p, &format!(r#"{{"prefix":"{what}","pgid":"{PG}"}}"#));
    assert_eq!(r, 0);
    for _ in 0..100 {
        while c.step() {}
        let pg = &c.nodes[p].osd.as_ref().unwrap().pgs[&PG];
        if pg.info.scrub.last_ns > before && pg.scrub.running().is_none() {
            break;
        }
        c.tick(600);
    }
    assert!(c.nodes[p].osd.as_ref().unwrap().pgs[&PG].info.scrub.last_ns > before, "it ended");
    lines(c)
}

fn lines(c: &mut Cluster) -> Vec<String> {
    let all = std::mem::take(&mut c.effects_seen);
    all.into_iter()
        .filter_map(|e| match e {
            Effect::ClusterLog { text, .. } => Some(text),
            _ => None,
        })
        .collect()
}

fn errors(c: &Cluster) -> (u32, u32) {
    let h = c.nodes[primary(c)].osd.as_ref().unwrap().pgs[&PG].info.scrub;
    (h.shallow_errors, h.deep_errors)
}

/// Changes what one OSD's store has of an object, behind its back.
fn spoil(c: &mut Cluster, osd: usize, name: &str, f: impl FnOnce(&mut Object)) {
    let mut inner = c.nodes[osd].store.lock();
    let coll = inner.now.get_mut(&Coll::Pg(PG)).expect("it has the PG");
    f(coll.objects.get_mut(&named(name)).expect("it has the object"));
}

/// What `rados list-inconsistent-obj` gets: names, and errors of object and shards.
fn inconsistent(c: &mut Cluster) -> Result<Vec<(Bytes, u64, u64)>, i32> {
    use denc::{Denc, Features, Writer};
    let mut w = Writer::new(Features::ALL);
    w.framed(1, 1, |w| {
        w.u32(0);
        w.u32(0);
        w.blob(b"");
        w.blob(b"");
        w.u64(0);
        w.u64(100);
    });
    let reply = c.list(POOL, 0, vec![OsdOp::new(op::SCRUBLS, w.finish())]);
    if reply.result < 0 {
        return Err(reply.result);
    }
    let mut r = Reader::new(&reply.ops[0].data);
    let vals: Vec<Bytes> = r
        .framed("scrub_ls_result_t", 1, |r, _| {
            assert!(r.u32()? > 0, "an interval");
            Denc::decode(r)
        })
        .unwrap();
    let one = |raw: &Bytes| {
        Reader::new(raw)
            .framed("inconsistent_obj_t", 2, |r, _| {
                let errors = r.u64()?;
                let name = r.framed("object_id_t", 1, |r, _| {
                    let (name, _, _) = (r.blob()?, r.blob()?, r.blob()?);
                    assert_eq!(SnapId(r.u64()?), SnapId::HEAD);
                    Ok(name)
                })?;
                let (_version, shards) = (r.u64()?, r.u32()?);
                assert_eq!(shards, 3);
                let mut counting = 0;
                for _ in 0..shards {
                    r.framed("osd_shard_t", 1, |r, _| Ok((r.i32()?, r.u8()?)))?;
                    counting += r.framed("shard_info_t", 3, |r, _| {
                        let (errors, _primary) = (r.u64()?, r.bool()?);
                        if errors & 2 != 0 {
                            return Ok(0);
                        }
                        let attrs: Vec<(Bytes, Bytes)> = Denc::decode(r)?;
                        let info = attrs.iter().find(|(name, _)| name == "_");
                        if errors & (1 << 15 | 1 << 14) == 0 {
                            maps::ObjectInfo::from_bytes(&info.expect("a record").1)?;
                        }
                        let _ = (r.u64()?, r.bool()?, r.u32()?, r.bool()?, r.u32()?);
                        Ok(u32::from(r.bool()?))
                    })?;
                }
                assert!(counting <= 1, "one copy counts");
                Ok((Bytes::copy_from_slice(&name), errors, r.u64()?))
            })
            .unwrap()
    };
    Ok(vals.iter().map(one).collect())
}

fn copies_are_equal(c: &Cluster) {
    let of = |i: usize| c.nodes[i].store.lock().now[&Coll::Pg(PG)].objects.clone();
    let first = of(0);
    for i in 1..3 {
        assert!(first == of(i), "copies differ");
    }
}

/// One kind of damage, at the primary and at another: found by the scrub that can, listed,
/// and mended by a repair.
fn found_and_mended(
    spoil_it: impl Fn(&mut Cluster, usize),
    deep_only: bool,
    (object_errors, shard_errors): (u64, u64),
) {
    for at_primary in [true, false] {
        let mut c = filled(u64::from(at_primary) + 3);
        assert_eq!(inconsistent(&mut c), Err(-2), "nothing is known yet");
        let p = primary(&c);
        let osd = if at_primary { p } else { (p + 1) % 3 };
        spoil_it(&mut c, osd);
        let light = scrub(&mut c, "scrub");
        assert_eq!(light.is_empty(), deep_only, "{light:?}");
        let deep = scrub(&mut c, "deep-scrub");
        assert!(deep.last().is_some_and(|l| l == "1.0 deep-scrub 1 errors"), "{deep:?}");
        assert!(deep[0].starts_with(&format!("1.0 deep-scrub shard {osd} soid ")), "{deep:?}");
        assert_eq!(errors(&c), if deep_only { (0, 1) } else { (1, 0) });
        let state = summary(&c).state.to_string();
        assert_eq!(state, "active+clean+inconsistent");
        let found = inconsistent(&mut c).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].1, found[0].2), (object_errors, shard_errors), "{deep:?}");
        let text = scrub(&mut c, "repair");
        assert!(text.contains(&"1.0 repair 1 errors, 1 fixed".to_owned()), "{text:?}");
        c.settle();
        assert_eq!(errors(&c), (0, 0));
        let (p, h) = (primary(&c), |c: &Cluster, i: usize| {
            c.nodes[i].osd.as_ref().unwrap().pgs[&PG].info.scrub
        });
        assert_eq!(h(&c, p), h(&c, (p + 1) % 3), "copies know it too");
        assert_eq!(h(&c, p).repaired, 1);
        copies_are_equal(&c);
        assert_eq!(scrub(&mut c, "deep-scrub"), Vec::<String>::new());
        assert_eq!(inconsistent(&mut c), Ok(vec![]));
        assert_eq!(summary(&c).state.to_string(), "active+clean");
    }
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let mut c = filled(1);
    for what in ["scrub", "deep-scrub", "repair"] {
        assert_eq!(scrub(&mut c, what), Vec::<String>::new());
    }
    assert_eq!(errors(&c), (0, 0));
    assert_eq!(inconsistent(&mut c), Ok(vec![]));
    let h = c.nodes[primary(&c)].osd.as_ref().unwrap().pgs[&PG].info.scrub;
    assert_eq!((h.objects, h.omap), (20, (20, 20 * 8)));
}

#[test]
fn a_flipped_bit() {
    let flip = |c: &mut Cluster, osd: usize| spoil(c, osd, "o3", |o| o.data[7] ^= 4);
    found_and_mended(flip, true, (1 << 4, 1 << 9));
}

#[test]
fn a_wrong_omap_entry() {
    let change = |c: &mut Cluster, osd: usize| {
        spoil(c, osd, "o3", |o| {
            o.omap.insert("key".into(), "valve".into());
        });
    };
    found_and_mended(change, true, (1 << 5, 1 << 10));
}

#[test]
fn an_unreadable_object() {
    let damage = |c: &mut Cluster, osd: usize| {
        c.nodes[osd].store.lock().damaged.insert((Coll::Pg(PG), named("o3")));
    };
    found_and_mended(damage, true, (0, 1 << 3));
}

#[test]
fn a_lost_object() {
    let lose = |c: &mut Cluster, osd: usize| {
        let mut inner = c.nodes[osd].store.lock();
        inner.now.get_mut(&Coll::Pg(PG)).unwrap().objects.remove(&named("o3"));
    };
    found_and_mended(lose, false, (0, 1 << 1));
}

#[test]
fn a_wrong_attribute_and_a_cut_object() {
    let attr = |c: &mut Cluster, osd: usize| {
        spoil(c, osd, "o3", |o| {
            o.attrs.insert("_mine".into(), "x".into());
        });
    };
    found_and_mended(attr, false, (1 << 8, 0));
    let cut = |c: &mut Cluster, osd: usize| spoil(c, osd, "o3", |o| o.data.truncate(9));
    found_and_mended(cut, false, (1 << 4 | 1 << 6, 1 << 9 | 1 << 11 | 1 << 18));
}

/// An object that was removed and is still there somewhere goes; it does not come back.
#[test]
fn a_leftover_object() {
    for at_primary in [true, false] {
        let mut c = filled(5);
        let p = primary(&c);
        let osd = if at_primary { p } else { (p + 1) % 3 };
        let old = c.nodes[osd].store.lock().now[&Coll::Pg(PG)].objects[&named("o3")].clone();
        c.run(POOL, "o3", vec![OsdOp::new(op::DELETE, Bytes::new())]);
        c.settle();
        let put = |c: &mut Cluster| {
            let mut inner = c.nodes[osd].store.lock();
            let objects = &mut inner.now.get_mut(&Coll::Pg(PG)).unwrap().objects;
            objects.insert(named("o3"), old.clone());
        };
        put(&mut c);
        let found = scrub(&mut c, "scrub");
        assert_eq!(found.last().unwrap(), "1.0 scrub 1 errors", "{found:?}");
        scrub(&mut c, "repair");
        c.settle();
        copies_are_equal(&c);
        assert_eq!(c.run(POOL, "o3", read()).result, -2);
        assert_eq!(scrub(&mut c, "deep-scrub"), Vec::<String>::new());
    }
}

/// Two copies of three are lost: the one that is left is what counts.
#[test]
fn the_last_copy_counts() {
    let mut c = filled(6);
    let p = primary(&c);
    for osd in [p, (p + 1) % 3] {
        let mut inner = c.nodes[osd].store.lock();
        inner.now.get_mut(&Coll::Pg(PG)).unwrap().objects.remove(&named("o3"));
    }
    let text = scrub(&mut c, "repair");
    assert!(text.contains(&"1.0 repair 2 errors, 2 fixed".to_owned()), "{text:?}");
    c.settle();
    copies_are_equal(&c);
    assert!(c.run(POOL, "o3", read()).ops[0].data.starts_with(b"what is written"));
}

/// What no copy can give stays reported, and its PG says that the repair failed.
#[test]
fn what_cannot_be_mended_is_said() {
    let mut c = filled(7);
    for osd in 0..3 {
        c.nodes[osd].store.lock().damaged.insert((Coll::Pg(PG), named("o3")));
    }
    let text = scrub(&mut c, "repair");
    assert!(text.contains(&"1.0 repair 3 errors, 0 fixed".to_owned()), "{text:?}");
    assert_eq!(errors(&c).0, 3);
    assert_eq!(summary(&c).state.to_string(), "active+clean+inconsistent+failed_repair");
}

/// A read meets a damaged copy: the client gets the data, and the copy is mended.
#[test]
fn reads_of_damaged_copies_are_served_and_mend_them() {
    for seed in 0..6 {
        let mut c = filled(10 + seed);
        let p = primary(&c);
        c.nodes[p].store.lock().damaged.insert((Coll::Pg(PG), named("o3")));
        // The second read waits with the first.
        let (a, b) = (c.ask(POOL, "o3", read()), c.ask(POOL, "o3", read()));
        c.settle();
        for tid in [a, b] {
            let reply = c.answers.remove(&tid).expect("an answer");
            assert_eq!(reply.result, 0, "seed {seed}");
            assert!(reply.ops[0].data.starts_with(b"what is written"));
        }
        assert!(c.nodes[p].store.lock().damaged.is_empty(), "it is mended");
        copies_are_equal(&c);
        assert_eq!(c.nodes[p].osd.as_ref().unwrap().pgs[&PG].info.scrub.repaired, 1);
    }
    // Alone there is nothing to mend it from.
    let mut c = Cluster::ready(1, 1, 1, 1);
    c.run(POOL, "o3", write(b"x"));
    c.nodes[0].store.lock().damaged.insert((Coll::Pg(PG), named("o3")));
    assert_eq!(c.run(POOL, "o3", read()).result, -5);
}

/// A clone has its bytes in common with a head that is damaged here. What is brought for it
/// stays its own.
#[test]
fn a_clone_of_what_is_damaged_is_mended() {
    let mut c = filled(31);
    let p = primary(&c);
    c.nodes[p].store.lock().spoil(Coll::Pg(PG), named("o3"));
    let more = vec![OsdOp::extent(op::APPEND, 0, 1, Bytes::from_static(b"!"))];
    let tid = c.ask(POOL, "o3", more);
    let msg = &mut c.asked.back_mut().unwrap().msg;
    (msg.snap_seq, msg.snaps) = (SnapId(1), vec![SnapId(1)]);
    assert_eq!(c.wait(tid).result, 0);
    for (snap, last) in [(SnapId(1), b'd'), (SnapId::HEAD, b'!')] {
        let tid = c.ask(POOL, "o3", read());
        c.asked.back_mut().unwrap().msg.snapid = snap;
        c.settle();
        let reply = c.answers.remove(&tid).expect("an answer");
        assert_eq!((reply.result, reply.ops[0].data.last()), (0, Some(&last)), "{snap}");
    }
    assert!(c.nodes[p].store.lock().damaged.is_empty(), "both are mended");
    copies_are_equal(&c);
}

/// Copies that had nothing when the PG peered have all of it now: they give what is damaged.
#[test]
fn copies_that_had_nothing_give_what_is_damaged() {
    let mut c = Cluster::ready(3, 1, 1, 32);
    c.run(POOL, "o3", write(b"what is written here is what is read"));
    c.set_pool(POOL, |pool| (pool.size, pool.min_size) = (3, 2));
    c.settle();
    copies_are_equal(&c);
    let p = primary(&c);
    c.nodes[p].store.lock().damaged.insert((Coll::Pg(PG), named("o3")));
    assert_eq!(c.run(POOL, "o3", read()).result, 0);
    assert!(c.nodes[p].store.lock().damaged.is_empty(), "it is mended");
    copies_are_equal(&c);
}

/// Recovery that meets a damaged copy takes another.
#[test]
fn a_damaged_source_is_left_for_another() {
    let mut c = filled(30);
    let p = primary(&c);
    let gone = (p + 1) % 3;
    c.kill(gone);
    c.mark_down(gone);
    c.run(POOL, "o3", omap("more", "x"));
    c.nodes[p].store.lock().damaged.insert((Coll::Pg(PG), named("o3")));
    c.start(gone);
    c.settle();
    copies_are_equal(&c);
}

/// Scrubs come by themselves, not while a flag forbids it, and not more at once than allowed.
#[test]
fn scrubs_are_due() {
    let mut c = Cluster::ready(3, 3, 8, 9);
    c.settle();
    let stamps = |c: &Cluster| -> Vec<(u64, u64)> {
        let osds = c.nodes.iter().map(|n| n.osd.as_ref().unwrap());
        let led = osds.flat_map(|o| o.pgs.values()).filter(|p| p.leads);
        led.map(|p| (p.info.scrub.last_ns, p.info.scrub.last_deep_ns)).collect()
    };
    let first = stamps(&c);
    assert!(first.iter().all(|s| s.0 > 0));
    c.set_flag(maps::OsdMapFlags::NOSCRUB, true);
    c.set_flag(maps::OsdMapFlags::NODEEP_SCRUB, true);
    c.settle();
    c.tick(40 * 3_600_000);
    c.settle();
    assert_eq!(stamps(&c), first, "flags forbid it");
    c.set_flag(maps::OsdMapFlags::NOSCRUB, false);
    for _ in 0..40 {
        while c.step() {}
        c.tick(1_000);
        for n in &c.nodes {
            let osd = n.osd.as_ref().unwrap();
            assert!(osd.c.slots.scrubs.taken() <= 3 && osd.c.slots.scrubs_lent.taken() <= 3);
        }
    }
    let light = stamps(&c);
    for (now, then) in light.iter().zip(&first) {
        assert!(now.0 > then.0 && now.1 == then.1, "a light one each");
    }
    c.set_flag(maps::OsdMapFlags::NODEEP_SCRUB, false);
    c.tick(10 * 24 * 3_600_000);
    for _ in 0..40 {
        while c.step() {}
        c.tick(1_000);
    }
    assert!(stamps(&c).iter().zip(&light).all(|(now, then)| now.1 > then.1), "a deep one each");
    for n in &c.nodes {
        let slots = &n.osd.as_ref().unwrap().c.slots;
        assert_eq!((slots.scrubs.taken(), slots.scrubs_lent.taken()), (0, 0));
    }
}

/// Writes go on while a scrub looks at their objects, and nothing false is found.
#[test]
fn writes_under_scrubs() {
    for seed in 0..8 {
        let mut c = filled(40 + seed);
        let p = primary(&c);
        let (mut asked, mut said) = (Vec::new(), Vec::new());
        for round in 0..60 {
            if round % 10 == 0 {
                let what = if round % 20 == 0 { "deep-scrub" } else { "repair" };
                c.admin(p, &format!(r#"{{"prefix":"{what}","pgid":"{PG}"}}"#));
                said.extend(lines(&mut c));
            }
            let o = c.random(20);
            asked.push(c.ask(POOL, &format!("o{o}"), write(b"something else, for a change")));
            c.client_step();
            for _ in 0..c.random(40) {
                c.step();
            }
            if c.random(6) == 0 {
                c.tick(600);
            }
        }
        c.settle();
        said.extend(lines(&mut c));
        assert_eq!(said, Vec::<String>::new(), "seed {seed}");
        for tid in asked {
            assert_eq!(c.answers[&tid].result, 0);
        }
        copies_are_equal(&c);
        assert_eq!(OsdId(p as i32), OsdId(primary(&c) as i32));
    }
}
