//! Draining OSDs of erasure-coded pools: a shard's copy counts until the new one is whole.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use maps::PgState;
use messages::{OsdOp, op};
use types::{Denc, EVersion, Features, HObject, OsdId, PgId, PoolId, ShardId, SpgId};

use super::cluster::Cluster;
use super::coded::check_shards;
use crate::backing::Coll;
use crate::object::{INFO_ATTR, ObjectInfo};

const POOL: PoolId = PoolId(1);
const OUT: u32 = 0;

fn write(off: u64, data: Vec<u8>) -> Vec<OsdOp> {
    vec![OsdOp::extent(op::WRITE, off, data.len() as u64, data.into())]
}

/// What an operator does to drain OSDs.
#[derive(Clone, Copy, Debug)]
enum Way {
    Out,
    Reweight,
    CrushWeight,
    CrushRemove,
    Upmap,
    TwoOut,
}

fn drain(c: &mut Cluster, way: Way, osd: i32) {
    let mut inc = c.next_inc();
    let crush = |f: &dyn Fn(&mut crush::CrushMap)| {
        let mut crush = crush::CrushMap::clone(c.map.crush.map());
        f(&mut crush);
        crush.to_bytes_for(Features::TENTACLE_WORD)
    };
    let osds = c.nodes.len() as i32;
    match way {
        Way::Out => drop(inc.new_weight.insert(OsdId(osd), OUT)),
        Way::Reweight => drop(inc.new_weight.insert(OsdId(osd), 0x3000)),
        Way::CrushWeight => {
            inc.crush = crush(&|m| drop(m.adjust_item_weight(osd, 0x1000, false)));
        }
        Way::CrushRemove => {
            inc.crush = crush(&|m| drop(m.adjust_item_weight(osd, 0, false)));
        }
        Way::Upmap => {
            for ps in 0..c.map.pool(POOL).expect("there is a pool").pg_num {
                let pg = PgId { pool: POOL, ps };
                let up = c.map.pg_to_up_acting(pg).up;
                let free = (0..osds).map(OsdId).find(|o| !up.contains(o));
                if let Some(to) = free.filter(|_| up.contains(&OsdId(osd))) {
                    let moved = |o: &OsdId| if o.0 == osd { to } else { *o };
                    inc.new_pg_upmap.insert(pg, up.iter().map(moved).collect());
                }
            }
        }
        Way::TwoOut => {
            inc.new_weight.insert(OsdId(osd), OUT);
            inc.new_weight.insert(OsdId((osd + 1) % osds), OUT);
        }
    }
    c.publish(inc);
}

/// On how many shards each object is in one version, whoever has them; the least.
fn fewest(c: &Cluster) -> usize {
    let mut all: BTreeMap<(PgId, HObject, EVersion), BTreeSet<ShardId>> = BTreeMap::new();
    for node in c.nodes.iter().filter(|n| n.osd.is_some()) {
        for (coll, held) in &node.store.lock().now {
            let Coll::Pg(spg) = coll else { continue };
            for (oid, object) in held.objects.iter().filter(|(o, _)| o.pool == POOL) {
                let Some(raw) = object.attrs.get(&Bytes::from_static(INFO_ATTR)) else { continue };
                let version = ObjectInfo::from_bytes(raw).expect("a record").version;
                all.entry((spg.pg, oid.clone(), version)).or_default().insert(spg.shard);
            }
        }
    }
    let mut best: BTreeMap<(PgId, HObject), usize> = BTreeMap::new();
    for ((pg, oid, _), shards) in all {
        let n = best.entry((pg, oid)).or_default();
        *n = (*n).max(shards.len());
    }
    best.into_values().min().unwrap_or(0)
}

/// Every request is answered.
fn answer_all(c: &mut Cluster) {
    for _ in 0..100_000 {
        c.client_step();
        if c.asked.is_empty() {
            return;
        }
        if !c.step() {
            c.tick(200);
        }
    }
    panic!("requests are not answered: {:?}", c.map.pg_to_up_acting(PgId { pool: POOL, ps: 0 }));
}

/// The states of PGs that OSDs lead.
fn led(c: &Cluster) -> Vec<PgState> {
    let all = c.nodes.iter().filter_map(|n| n.osd.as_ref()).flat_map(crate::Osd::pg_summaries);
    all.filter(|s| s.leads && s.id.pg.pool == POOL).map(|s| s.state).collect()
}

/// Whatever way OSDs are drained, with or without others to go to, and with writes all the while:
/// every object is on as many shards as before, at every moment in which no write is under way, no
/// PG is short of a shard, and in the end all are clean.
#[test]
fn draining_takes_no_shard_away() {
    let ways =
        [Way::Out, Way::Reweight, Way::CrushWeight, Way::CrushRemove, Way::Upmap, Way::TwoOut];
    for (seed, way) in ways.into_iter().cycle().take(18).enumerate() {
        let (osds, (k, m)) = [(3, (2, 1)), (5, (2, 1)), (6, (2, 2))][seed / 6];
        let mut c = Cluster::ready_coded(osds, (k, m), 3, seed as u64);
        let body = |i: usize| vec![i as u8 | 1; 40 + i % 300];
        let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for i in 0..450 {
            c.ask(POOL, &format!("o{i}"), write(0, body(i)));
            model.insert(format!("o{i}"), body(i));
        }
        c.settle();
        let before = fewest(&c);
        assert_eq!(before, k + m, "seed {seed} {way:?}");
        let drained = c.random(osds) as i32;
        drain(&mut c, way, drained);
        for round in 0..60 {
            for _ in 0..3 {
                let name = format!("o{}", c.random(500));
                let (off, data) = (c.random(200), vec![c.random(250) as u8 + 1; 70]);
                let object = model.entry(name.clone()).or_default();
                object.resize(object.len().max(off + 70), 0);
                object[off..off + 70].copy_from_slice(&data);
                c.ask(POOL, &name, write(off as u64, data));
            }
            if round % 7 == 0 {
                let name = format!("o{}", c.random(500));
                if model.remove(&name).is_some() {
                    c.ask(POOL, &name, vec![OsdOp::new(op::DELETE, Bytes::new())]);
                }
            }
            answer_all(&mut c);
            assert_eq!(fewest(&c), before, "seed {seed} {way:?} round {round}");
            let short = led(&c).iter().any(|s| s.has(PgState::UNDERSIZED));
            assert!(!short, "seed {seed} {way:?} round {round}");
            for _ in 0..c.random(60) {
                if !c.step() {
                    c.tick(200);
                }
            }
        }
        c.settle();
        assert_eq!(fewest(&c), before, "seed {seed} {way:?}");
        check_shards(&c);
        let states = led(&c);
        assert!(states.len() == 3 && states.iter().all(|s| s.has(PgState::CLEAN)), "{states:?}");
        for ps in 0..3 {
            let sets = c.map.pg_to_up_acting(PgId { pool: POOL, ps });
            // Where CRUSH finds too few places, everything stays that it cannot move.
            let all = sets.up.iter().all(|o| *o != OsdId::NONE);
            assert!(sets.up == sets.acting || !all, "seed {seed} {way:?}: {sets:?}");
        }
        for (name, want) in model {
            let r = c.run(POOL, &name, vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]);
            assert_eq!((r.result, &r.ops[0].data[..]), (0, &want[..]), "seed {seed} {name}");
        }
    }
}

/// Where CRUSH finds nobody for a shard, its OSD goes on: `active+clean+remapped`. Once it is lost
/// the PG is short of it, and when the drain ends all is as CRUSH wants it.
#[test]
fn a_shard_without_a_place_stays() {
    let mut c = Cluster::ready_coded(3, (2, 1), 1, 5);
    for i in 0..20 {
        c.run(POOL, &format!("o{i}"), write(0, vec![7; 100]));
    }
    let pg = PgId { pool: POOL, ps: 0 };
    let old = c.map.pg_to_up_acting(pg).acting;
    drain(&mut c, Way::Out, old[2].0);
    c.settle();
    let sets = c.map.pg_to_up_acting(pg);
    assert_eq!((&sets.up[..], &sets.acting), (&[old[0], old[1], OsdId::NONE][..], &old));
    let state = led(&c)[0];
    for bit in [PgState::ACTIVE, PgState::CLEAN, PgState::REMAPPED] {
        assert!(state.has(bit), "{state}");
    }
    assert!(!state.has(PgState::UNDERSIZED) && !state.has(PgState::DEGRADED), "{state}");
    // Any one may be lost.
    for lost in old.iter().map(|o| o.0 as usize) {
        c.kill(lost);
        c.mark_down(lost);
        let r = c.run(POOL, "o3", vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]);
        assert_eq!((r.result, &r.ops[0].data[..]), (0, &[7; 100][..]), "without osd.{lost}");
        c.run(POOL, "o3", write(0, vec![7; 100]));
        c.start(lost);
        c.settle();
        drain(&mut c, Way::Out, old[2].0); // one that boots comes in here
        c.settle();
        check_shards(&c);
    }
    let mut inc = c.next_inc();
    inc.new_weight.insert(old[2], 0x1_0000);
    c.publish(inc);
    c.settle();
    let sets = c.map.pg_to_up_acting(pg);
    assert_eq!((sets.up, sets.acting), (old.clone(), old));
}

/// The OSD that follows dies, or the one whose shard it takes over, or the connection breaks: what
/// was acknowledged is there, and copying ends.
#[test]
fn copies_of_shards_outlive_their_ends() {
    for seed in 0..16 {
        let mut c = Cluster::ready_coded(5, (2, 1), 1, seed);
        let pg = PgId { pool: POOL, ps: 0 };
        for i in 0..300 {
            c.ask(POOL, &format!("o{i}"), write(0, vec![i as u8 | 1; 90]));
        }
        c.settle();
        let old = c.map.pg_to_up_acting(pg).acting;
        let at = c.random(3);
        let new = (0..5).map(OsdId).find(|o| !old.contains(o)).expect("a spare one");
        let mut up = old.clone();
        up[at] = new;
        let mut inc = c.next_inc();
        inc.new_pg_upmap.insert(pg, up.clone());
        c.publish(inc);
        let spg = SpgId { pg, shard: ShardId(at as i8) };
        let has = |c: &Cluster| {
            let role = c.nodes[new.0 as usize].osd.as_ref();
            let pg = role.and_then(|o| o.pgs.get(&spg)).filter(|p| !p.log.entries.is_empty());
            pg.map_or(0, |p| 300 - p.missing.len())
        };
        for round in 0..200_000 {
            c.client_step();
            if round % 40 == 0 {
                c.ask(POOL, &format!("o{}", round % 300), write(30, vec![200; 40]));
            }
            if !c.step() {
                c.tick(200);
            }
            if has(&c) >= 100 {
                break;
            }
        }
        assert!((100..300).contains(&has(&c)), "seed {seed}: {}", has(&c));
        assert_eq!(c.map.pg_to_up_acting(pg).acting, old, "seed {seed}: who has the shards acts");
        let ends = [new, old[at], old[(at + 1) % 3], old[0]][seed as usize % 4].0 as usize;
        if seed < 8 {
            c.kill(ends);
            c.mark_down(ends);
            for i in 0..10 {
                c.ask(POOL, &format!("o{i}"), write(0, vec![99; 20]));
            }
            while c.step() {}
            c.tick(500);
            c.start(ends);
        } else {
            let led = c.map.pg_to_up_acting(pg).acting_primary.expect("it is led").0 as usize;
            c.break_wire(led, if ends == led { new.0 as usize } else { ends });
        }
        c.settle();
        let sets = c.map.pg_to_up_acting(pg);
        assert_eq!((&sets.up, &sets.acting), (&up, &up), "seed {seed}");
        check_shards(&c);
        assert_eq!(fewest(&c), 3, "seed {seed}");
        let store = c.nodes[old[at].0 as usize].store.lock();
        assert!(!store.now.contains_key(&Coll::Pg(spg)), "seed {seed}: the old shard is gone");
    }
}
