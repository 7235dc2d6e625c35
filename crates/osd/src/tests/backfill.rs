//! Copies that are made while clients go on.

use bytes::Bytes;
use maps::{OsdMapFlags, PgState};
use messages::{OsdOp, op};
use types::{Epoch, OsdId, PgId, PoolId, ShardId, SpgId};

use super::cluster::Cluster;
use crate::PgSummary;
use crate::backing::Coll;

const POOL: PoolId = PoolId(1);
const PG: SpgId = SpgId { pg: PgId { pool: POOL, ps: 0 }, shard: ShardId::NONE };

fn write(data: String) -> Vec<OsdOp> {
    vec![OsdOp::extent(op::WRITEFULL, 0, data.len() as u64, data.into())]
}

fn read() -> Vec<OsdOp> {
    vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]
}

/// Four OSDs, one PG with two copies, some hundred objects.
fn filled(seed: u64) -> Cluster {
    let mut c = Cluster::ready(4, 2, 1, seed);
    for i in 0..300 {
        c.ask(POOL, &format!("o{i}"), write(format!("first {i}")));
    }
    c.settle();
    c
}

fn leader(c: &Cluster) -> Option<PgSummary> {
    let p = c.map.pg_to_up_acting(PG.pg).acting_primary.expect("it is led").0 as usize;
    let osd = c.nodes[p].osd.as_ref().expect("it runs");
    osd.pg_summaries().into_iter().find(|s| s.id == PG)
}

fn empty_osds(c: &Cluster) -> Vec<OsdId> {
    let acting = c.map.pg_to_up_acting(PG.pg).acting;
    (0..4).map(OsdId).filter(|o| !acting.contains(o)).collect()
}

/// CRUSH is told to choose these OSDs.
fn move_to(c: &mut Cluster, osds: &[OsdId]) {
    let mut inc = c.next_inc();
    inc.new_pg_upmap.insert(PG.pg, osds.to_vec());
    c.publish(inc);
}

fn copies_are_equal(c: &Cluster) {
    let acting = c.map.pg_to_up_acting(PG.pg).acting;
    let of = |o: OsdId| c.nodes[o.0 as usize].store.lock().now[&Coll::Pg(PG)].objects.clone();
    assert!(of(acting[0]) == of(acting[1]), "copies differ");
}

/// The whole PG moves to OSDs without data: those with data serve on, no write waits for what
/// is copied, and in the end the new ones have all of it, with what was written meanwhile.
#[test]
fn a_pg_moves_under_clients() {
    for seed in 0..4 {
        let mut c = filled(seed);
        let (old, new) = (c.map.pg_to_up_acting(PG.pg).acting, empty_osds(&c));
        move_to(&mut c, &new);
        let (mut served, mut copied_under_writes) = (0, 0);
        for round in 0..4_000 {
            c.client_step();
            if round % 20 == 0 {
                let i = c.random(300);
                c.ask(POOL, &format!("o{i}"), write(format!("second {round} {i}")));
                if round % 60 == 0 {
                    c.ask(POOL, &format!("o{}", 300 + round), write("new".into()));
                }
                if round % 80 == 0 {
                    let gone = OsdOp::new(op::DELETE, Bytes::new());
                    c.ask(POOL, &format!("o{}", c.map.epoch.0 % 300), vec![gone]);
                }
            }
            if !c.step() {
                c.tick(200);
            }
            served = served.max(c.answers.len());
            let sets = c.map.pg_to_up_acting(PG.pg);
            let state = leader(&c).map(|s| s.state).unwrap_or_default();
            if sets.up == new && sets.acting == old && state.has(PgState::ACTIVE) {
                assert!(state.has(PgState::REMAPPED));
                copied_under_writes = c.answers.len().max(copied_under_writes);
            }
            if sets.acting == new && leader(&c).is_some_and(|s| s.clean) {
                break;
            }
        }
        c.settle();
        assert!(copied_under_writes > 10, "seed {seed}: {copied_under_writes} of {served}");
        let sets = c.map.pg_to_up_acting(PG.pg);
        assert_eq!((sets.up, sets.acting), (new.clone(), new), "seed {seed}");
        assert!(c.map.pg_temp.is_empty());
        copies_are_equal(&c);
        for osd in old {
            let store = c.nodes[osd.0 as usize].store.lock();
            assert!(!store.now.contains_key(&Coll::Pg(PG)), "the old copies are gone");
        }
    }
}

/// A copy that was being made goes on where it stopped, whoever stopped.
#[test]
fn copies_are_resumed() {
    for (seed, ends) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
        let mut c = filled(seed);
        let (old, new) = (c.map.pg_to_up_acting(PG.pg).acting, empty_osds(&c));
        move_to(&mut c, &[old[0], new[0]]);
        let target = new[0].0 as usize;
        let has = |c: &Cluster| {
            let osd = c.nodes[target].osd.as_ref();
            let pg = osd.and_then(|o| o.pgs.get(&PG));
            pg.map_or(0, |p| if p.log.entries.is_empty() { 0 } else { 300 - p.missing.len() })
        };
        for _ in 0..200_000 {
            c.client_step();
            if !c.step() {
                c.tick(200);
            }
            if has(&c) >= 150 {
                break;
            }
        }
        assert!((150..300).contains(&has(&c)), "seed {seed}: {}", has(&c));
        let ended = if ends == 0 { target } else { old[0].0 as usize };
        c.kill(ended);
        c.mark_down(ended);
        while c.step() {}
        c.tick(500);
        c.start(ended);
        c.settle();
        let copied: u64 = c
            .nodes
            .iter()
            .map(|n| n.osd.as_ref().unwrap().pgs.get(&PG))
            .fold(0, |all, pg| all + pg.map_or(0, |p| p.recovered.0));
        copies_are_equal(&c);
        assert!(copied < 300 + 200, "seed {seed}: {copied} objects were moved");
        assert_eq!(c.run(POOL, "o7", read()).ops[0].data.as_ref(), b"first 7");
    }
}

/// Flags put copying off, and say so in the PG's state.
#[test]
fn flags_put_it_off() {
    for flag in [OsdMapFlags::NOBACKFILL, OsdMapFlags::NOREBALANCE] {
        let mut c = filled(9);
        c.set_flag(flag, true);
        let (old, new) = (c.map.pg_to_up_acting(PG.pg).acting, empty_osds(&c));
        move_to(&mut c, &new);
        for _ in 0..20 {
            while c.step() {}
            c.tick(1_000);
            c.client_step();
        }
        assert_eq!(c.map.pg_to_up_acting(PG.pg).acting, old);
        let state = leader(&c).expect("it leads").state.to_string();
        assert_eq!(state, "active+remapped+backfill_wait");
        assert_eq!(c.run(POOL, "o7", write("on".into())).result, 0);
        c.set_flag(flag, false);
        c.settle();
        assert_eq!(c.map.pg_to_up_acting(PG.pg).acting, new);
        copies_are_equal(&c);
    }
}

/// No OSD copies more PGs at once than it may.
#[test]
fn slots_are_kept() {
    let mut c = Cluster::ready(4, 2, 12, 6);
    for i in 0..400 {
        c.ask(POOL, &format!("o{i}"), write(format!("first {i}")));
    }
    c.settle();
    let mut inc = c.next_inc();
    for ps in 0..12 {
        let pg = PgId { pool: POOL, ps };
        let acting = c.map.pg_to_up_acting(pg).acting;
        let to: Vec<OsdId> = (0..4).map(OsdId).filter(|o| !acting.contains(o)).collect();
        inc.new_pg_upmap.insert(pg, to);
    }
    c.publish(inc);
    let mut most = 0;
    for _ in 0..200_000 {
        c.client_step();
        if !c.step() {
            c.tick(300);
        }
        for n in &c.nodes {
            let slots = &n.osd.as_ref().unwrap().c.slots;
            assert!(slots.backfills.taken() <= 1 && slots.backfills_lent.taken() <= 1);
            most = most.max(slots.backfills_lent.taken());
        }
        if c.map.pg_temp.is_empty() && most > 0 {
            break;
        }
    }
    c.settle();
    assert_eq!(most, 1);
    assert!(c.map.pg_temp.is_empty());
}

/// An object whose last copies are gone is reported, and given up on request: to what it was
/// before, or for good. What waited for it goes on.
#[test]
fn unfound_objects_are_given_up() {
    for revert in [true, false] {
        let mut c = Cluster::ready(2, 2, 1, 8);
        c.set_pool(POOL, |p| p.min_size = 1);
        c.run(POOL, "a", write("old".into()));
        c.settle();
        // The primary misses a write, and the copy that has it cannot be read.
        let acting = c.map.pg_to_up_acting(PG.pg).acting;
        let (p, other) = (acting[0].0 as usize, acting[1].0 as usize);
        c.kill(p);
        c.mark_down(p);
        while c.step() {}
        c.run(POOL, "a", write("new".into()));
        c.run(POOL, "b", write("new".into()));
        for o in ["a", "b"] {
            let oid = types::HObject::head(POOL, Bytes::new(), Bytes::new(), Bytes::from(o));
            c.nodes[other].store.lock().damaged.insert((Coll::Pg(PG), oid));
        }
        c.start(p);
        let rounds = |c: &mut Cluster| {
            for _ in 0..30 {
                c.client_step();
                while c.step() {}
                c.tick(1_000);
            }
        };
        rounds(&mut c);
        assert_eq!(c.map.pg_to_up_acting(PG.pg).acting_primary, Some(OsdId(p as i32)));
        let what = if revert { "revert" } else { "delete" };
        let ask = format!(r#"{{"prefix":"mark_unfound_lost","pgid":"1.0","mulcmd":"{what}"}}"#);
        let listed = c.admin(p, r#"{"prefix":"list_unfound","pgid":"1.0"}"#).1;
        assert!(listed.contains(r#""num_unfound": 2"#), "{listed}");
        assert!(listed.contains("already probed"), "{listed}");
        let waiting = c.ask(POOL, "a", read());
        rounds(&mut c);
        assert!(!c.answers.contains_key(&waiting), "it waits for the object");
        assert_eq!(c.admin(p, &ask).0, 0);
        c.settle();
        let reply = &c.answers[&waiting];
        if revert {
            assert_eq!((reply.result, reply.ops[0].data.as_ref()), (0, &b"old"[..]));
        } else {
            assert_eq!(reply.result, -2);
        }
        assert_eq!(c.run(POOL, "b", read()).result, -2);
        assert_eq!(c.admin(p, &ask).0, -2, "nothing is unfound any more");
        copies_are_equal(&c);
        assert_eq!(c.run(POOL, "a", write("on".into())).result, 0);
    }
}

/// CRUSH finds no place for a copy whose OSD is out: that one goes on acting. All copies are
/// there, so the PG is clean, and its objects are misplaced.
#[test]
fn a_pg_that_has_no_other_place_is_clean() {
    let mut c = Cluster::ready(3, 3, 1, 1);
    for i in 0..5 {
        c.ask(POOL, &format!("o{i}"), write(format!("first {i}")));
    }
    c.settle();
    let out = *c.map.pg_to_up_acting(PG.pg).acting.last().expect("three act");
    let mut inc = c.next_inc();
    inc.new_weight.insert(out, 0);
    c.publish(inc);
    for _ in 0..100 {
        c.client_step();
        if !c.step() {
            c.tick(200);
        }
    }
    let sets = c.map.pg_to_up_acting(PG.pg);
    assert_eq!((sets.up.len(), sets.acting.len()), (2, 3));
    let state = leader(&c).expect("it is led").state;
    for bit in [PgState::ACTIVE, PgState::CLEAN, PgState::REMAPPED] {
        assert!(state.has(bit), "{state}");
    }
    assert!(!state.has(PgState::DEGRADED) && !state.has(PgState::UNDERSIZED), "{state}");
    let at = sets.acting_primary.expect("it is led").0 as usize;
    let osd = c.nodes[at].osd.as_ref().expect("it runs");
    assert_eq!(osd.pgs[&PG].misplaced(), 5);
}

/// What has no objects is undersized, but nothing of it is degraded.
#[test]
fn an_empty_pg_is_not_degraded() {
    let mut c = Cluster::ready(3, 3, 1, 1);
    let run = |c: &mut Cluster| {
        for _ in 0..100 {
            c.client_step();
            if !c.step() {
                c.tick(200);
            }
        }
        leader(c).expect("it is led").state
    };
    let gone = c.map.pg_to_up_acting(PG.pg).acting.last().expect("three act").0 as usize;
    c.kill(gone);
    c.mark_down(gone);
    let state = run(&mut c);
    assert!(state.has(PgState::UNDERSIZED) && !state.has(PgState::DEGRADED), "{state}");
    c.ask(POOL, "one", write("first".into()));
    let state = run(&mut c);
    assert!(state.has(PgState::UNDERSIZED) && state.has(PgState::DEGRADED), "{state}");
}

/// Monitors place an OSD where it starts, and tell a start from a return by its first epoch.
#[test]
fn a_start_is_told_from_a_return() {
    let mut c = Cluster::ready(2, 2, 1, 8);
    let first = c.map.up_from(OsdId(1));
    let boots = |c: &mut Cluster| -> Vec<Epoch> {
        c.settle();
        let all = std::mem::take(&mut c.boots).into_iter();
        all.filter(|(osd, _)| *osd == OsdId(1)).map(|(_, epoch)| epoch).collect()
    };
    assert!(boots(&mut c).iter().all(|epoch| *epoch == Epoch(0)));
    c.mark_down(1);
    let said = boots(&mut c);
    assert!(!said.is_empty() && said.iter().all(|epoch| *epoch == first), "{said:?}");
    c.kill(1);
    c.mark_down(1);
    c.start(1);
    let said = boots(&mut c);
    assert!(!said.is_empty() && said.iter().all(|epoch| *epoch == Epoch(0)), "{said:?}");
}

/// CRUSH finds too few places while an OSD is down, and chooses another for one of them: once that is
/// whole it acts, beside whoever else has a copy.
#[test]
fn who_was_filled_acts_beside_those_that_stay() {
    let mut c = Cluster::ready(4, 3, 1, 8);
    for i in 0..300 {
        c.run(POOL, &format!("o{i}"), write(format!("first {i}")));
    }
    c.settle();
    let acting = c.map.pg_to_up_acting(PG.pg).acting;
    let new = (0..4).map(OsdId).find(|o| !acting.contains(o)).unwrap();
    let [first, moved, down] = [acting[0], acting[1], acting[2]];
    c.kill(down.0 as usize);
    c.mark_down(down.0 as usize);
    c.settle();
    let mut inc = c.next_inc();
    inc.new_pg_upmap.insert(PG.pg, vec![first, new, down]);
    c.publish(inc);
    for _ in 0..50 {
        c.settle();
        c.tick(1_000);
    }
    let place = c.map.pg_to_up_acting(PG.pg);
    assert_eq!(place.up, [first, new]);
    assert_eq!(place.acting, [first, new, moved]);
    let leads = c.nodes[first.0 as usize].osd.as_ref().unwrap().pg_summaries();
    let state = leads.into_iter().find(|s| s.id == PG && s.leads).unwrap().state;
    for (word, there) in [
        (maps::PgState::CLEAN, true),
        (maps::PgState::BACKFILLING, false),
        (maps::PgState::UNDERSIZED, false),
    ] {
        assert_eq!(state.has(word), there, "{state:?}");
    }
}
