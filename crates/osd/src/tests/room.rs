//! Stores and pools that are full.

use bytes::Bytes;
use maps::PoolFlags;
use messages::{OsdOp, op, req_flag};
use types::{Epoch, HObject, PoolId, SnapId};

use super::cluster::Cluster;

const POOL: PoolId = PoolId(1);

fn full(data: &'static [u8]) -> Vec<OsdOp> {
    vec![OsdOp::extent(op::WRITEFULL, 0, data.len() as u64, Bytes::from_static(data))]
}

fn append(data: Vec<u8>) -> Vec<OsdOp> {
    vec![OsdOp::extent(op::APPEND, 0, data.len() as u64, data.into())]
}

fn read() -> Vec<OsdOp> {
    vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]
}

fn delete() -> Vec<OsdOp> {
    vec![OsdOp::new(op::DELETE, Bytes::new())]
}

/// Some seconds pass.
fn wait(c: &mut Cluster, secs: u64) {
    for _ in 0..secs {
        c.client_step();
        while c.step() {}
        c.tick(1_000);
    }
    c.client_step();
    while c.step() {}
}

fn result(c: &Cluster, tid: u64) -> Option<i32> {
    c.answers.get(&tid).map(|a| a.result)
}

/// A store at its failsafe ratio takes no data, not even over other data; what frees goes
/// through. Who asks to try is told; others wait until there is room, or for so long that
/// nobody will mark the pool full.
#[test]
fn full_stores() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    assert_eq!(c.run(POOL, "old", full(b"0123456789")).result, 0);
    c.nodes[0].store.lock().available = Some(1 << 30);
    for name in ["new", "old"] {
        let r = c.run_with(POOL, name, full(b"9876543210"), req_flag::FULL_TRY);
        assert_eq!(r.result, -28, "{name}");
        let r = c.run_with(POOL, name, full(b"9876543210"), req_flag::FULL_FORCE);
        assert_eq!(r.result, -28, "{name}");
    }
    let waits = c.ask(POOL, "new", full(b"x"));
    wait(&mut c, 2);
    assert_eq!(result(&c, waits), None);
    assert_eq!(c.run(POOL, "old", read()).ops[0].data.as_ref(), b"0123456789");
    assert_eq!(c.run(POOL, "old", full(b"less")).result, 0);
    assert_eq!(c.run(POOL, "old", delete()).result, 0);
    c.nodes[0].store.lock().available = None;
    wait(&mut c, 2);
    assert_eq!(result(&c, waits), Some(0));
    c.nodes[0].store.lock().available = Some(1 << 30);
    let waits = c.ask(POOL, "more", full(b"x"));
    wait(&mut c, 25);
    assert_eq!(result(&c, waits), None);
    wait(&mut c, 8);
    assert_eq!(result(&c, waits), Some(-28));
}

/// What one client asks of an object keeps its order, though what frees need not wait.
#[test]
fn what_waits_for_room_keeps_its_order() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    c.run(POOL, "x", full(b"old"));
    c.nodes[0].store.lock().available = Some(1 << 30);
    let (grows, frees) = (c.ask(POOL, "x", full(b"grows")), c.ask(POOL, "x", delete()));
    let other = c.ask(POOL, "y", delete());
    wait(&mut c, 2);
    assert_eq!((result(&c, grows), result(&c, frees)), (None, None));
    assert_eq!(result(&c, other), Some(-2));
    c.nodes[0].store.lock().available = None;
    wait(&mut c, 2);
    assert_eq!((result(&c, grows), result(&c, frees)), (Some(0), Some(0)));
    assert_eq!(c.run(POOL, "x", read()).result, -2);
}

/// A write that was refused stays refused: its answer was lost, and when it comes again there
/// is room, but its client has asked more of the object since.
#[test]
fn what_is_refused_for_want_of_room_stays_so() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    c.run(POOL, "x", full(b"old"));
    c.nodes[0].store.lock().available = Some(1 << 30);
    let (grows, frees) = (c.ask(POOL, "x", full(b"grows")), c.ask(POOL, "x", delete()));
    c.client_step();
    for _ in 0..40 {
        c.run_unheard();
        c.tick(1_000);
    }
    c.run_unheard();
    assert!(c.has_answer(0));
    c.nodes[0].store.lock().available = None;
    c.break_client(0);
    wait(&mut c, 2);
    assert_eq!((result(&c, grows), result(&c, frees)), (Some(-28), Some(0)));
    assert_eq!(c.run(POOL, "x", read()).result, -2);
}

/// A copy without room is as good as none here: writes wait, and go on once it has some.
#[test]
fn full_copies() {
    let mut c = Cluster::ready(3, 3, 1, 1);
    c.run(POOL, "x", full(b"old"));
    let primary = c.map.pg_to_up_acting(types::PgId { pool: POOL, ps: 0 }).acting_primary.unwrap();
    let copy = (primary.0 as usize + 1) % 3;
    c.nodes[copy].store.lock().available = Some(1 << 30);
    wait(&mut c, 2);
    let waits = c.ask(POOL, "x", full(b"newer"));
    wait(&mut c, 15);
    assert_eq!(result(&c, waits), None);
    assert_eq!(c.run_with(POOL, "y", full(b"y"), req_flag::FULL_TRY).result, -28);
    assert_eq!(c.run(POOL, "y", delete()).result, -2);
    c.nodes[copy].store.lock().available = None;
    wait(&mut c, 2);
    assert_eq!(result(&c, waits), Some(0));
}

/// A copy that cannot take what it is sent neither takes nor acknowledges it, nor anything
/// later; its OSD is told to stop. Without it the PG goes on, and it comes back as it was.
#[test]
fn a_copy_that_is_sent_too_much_stops() {
    let mut c = Cluster::ready(3, 3, 1, 1);
    c.run(POOL, "x", full(b"old"));
    let primary = c.map.pg_to_up_acting(types::PgId { pool: POOL, ps: 0 }).acting_primary.unwrap();
    let copy = (primary.0 as usize + 1) % 3;
    c.nodes[copy].store.lock().capacity = Some(4_096);
    let big = c.ask(POOL, "x", append(vec![7; 8_192]));
    wait(&mut c, 1);
    assert_eq!(c.stopped, [copy]);
    assert_eq!(result(&c, big), None);
    c.mark_down(copy);
    wait(&mut c, 15);
    assert_eq!(result(&c, big), Some(0));
    // It comes back, and is not brought what does not fit.
    c.start(copy);
    wait(&mut c, 60);
    assert_eq!(c.stopped, [copy]);
    let data = c.run(POOL, "x", read()).ops[0].data.clone();
    assert_eq!((data.len(), &data[..3]), (3 + 8_192, &b"old"[..]));
    c.nodes[copy].store.lock().capacity = None;
    c.settle(); // whole again
}

/// A full pool takes no more data, but deletions, and who forces it.
#[test]
fn full_pools() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    c.run(POOL, "old", full(b"0123456789"));
    c.set_pool(POOL, |p| p.flags.set(PoolFlags::FULL, true));
    wait(&mut c, 1);
    assert_eq!(c.run_with(POOL, "new", full(b"x"), req_flag::FULL_TRY).result, -28);
    assert_eq!(c.run_with(POOL, "new", full(b"x"), req_flag::FULL_FORCE).result, 0);
    assert_eq!(c.run_with(POOL, "old", full(b"less"), req_flag::FULL_TRY).result, 0);
    c.set_pool(POOL, |p| p.flags.set(PoolFlags::FULL_QUOTA, true));
    wait(&mut c, 1);
    assert_eq!(c.run_with(POOL, "more", full(b"x"), req_flag::FULL_TRY).result, -122);
    assert_eq!(c.run(POOL, "old", delete()).result, 0);
    // Who does not ask to be told waits for a map in which there is room.
    let tid = c.ask(POOL, "waits", full(b"x"));
    wait(&mut c, 40);
    assert!(!c.answers.contains_key(&tid));
}

/// Writes from before a pool was full are sent again once it is not: until then all of them
/// are dropped, what shrinks as well, so that they keep their order. So it is when all is full.
#[test]
fn writes_from_before_a_pool_was_full_are_dropped() {
    let pool =
        |c: &mut Cluster, full: bool| c.set_pool(POOL, |p| p.flags.set(PoolFlags::FULL, full));
    let all = |c: &mut Cluster, full: bool| c.set_flag(maps::OsdMapFlags::FULL, full);
    for mark in [&pool as &dyn Fn(&mut Cluster, bool), &all] {
        let mut c = Cluster::ready(1, 1, 1, 1);
        c.run(POOL, "x", full(b"0123456789"));
        let before: Epoch = c.map.epoch;
        mark(&mut c, true);
        wait(&mut c, 1);
        mark(&mut c, false);
        wait(&mut c, 1);
        let late = c.ask(POOL, "x", delete());
        c.send_with_old_map(before);
        wait(&mut c, 2);
        assert_eq!(result(&c, late), None);
        assert_eq!(c.run(POOL, "x", delete()).result, 0);
    }
}

/// A read that is ordered among writes does not pass those that its client holds back because the
/// pool is full; others do.
#[test]
fn ordered_reads_do_not_pass_writes_of_a_full_pool() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    c.run(POOL, "x", full(b"old"));
    c.set_pool(POOL, |p| p.flags.set(PoolFlags::FULL, true));
    wait(&mut c, 1);
    let grows = c.ask(POOL, "x", full(b"longer"));
    let ordered = c.ask_with(POOL, "x", read(), req_flag::RWORDERED);
    assert_eq!(c.run(POOL, "x", read()).ops[0].data.as_ref(), b"old");
    let tries = c.run_with(POOL, "x", read(), req_flag::RWORDERED | req_flag::FULL_TRY);
    assert_eq!(tries.result, 0);
    wait(&mut c, 2);
    assert_eq!((result(&c, grows), result(&c, ordered)), (None, None));
    let full = c.map.epoch;
    c.set_pool(POOL, |p| p.flags.set(PoolFlags::FULL, false));
    wait(&mut c, 1);
    // One that was sent before its client knew that there is room again.
    let early = c.ask_with(POOL, "x", read(), req_flag::RWORDERED);
    c.send_with_old_map(full);
    wait(&mut c, 1);
    assert_eq!(result(&c, early), None);
    // Its client sends all again.
    c.break_client(0);
    wait(&mut c, 2);
    assert_eq!((result(&c, grows), result(&c, ordered)), (Some(0), Some(0)));
    assert_eq!(c.answers[&ordered].ops[0].data.as_ref(), b"longer");
}

/// A copy that does not fit is made again while there may be room, and given up in time as any
/// write.
#[test]
fn copies_do_not_wait_for_ever() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    assert_eq!(c.run(POOL, "source", append(vec![1; 10_000])).result, 0);
    assert_eq!(c.run(POOL, "rest", append(vec![2; 178_000])).result, 0);
    // Not full by any ratio, and too little.
    let taken = c.nodes[0].store.lock().taken();
    c.nodes[0].store.lock().capacity = Some(taken + 12_000);
    let copy = c.ask(POOL, "copy", super::copies::copy("source", 0));
    wait(&mut c, 20);
    assert_eq!(result(&c, copy), None);
    wait(&mut c, 20);
    assert_eq!(result(&c, copy), Some(-28));
}

/// A store that has no room for one write has it not, and nothing that is thought of later
/// writes in the same moment, as if they came behind it, reaches the others.
#[test]
fn nothing_follows_from_a_store_that_stopped() {
    (1..=20).for_each(nothing_follows);
}

fn nothing_follows(seed: u64) {
    let mut c = Cluster::ready(3, 3, 1, seed);
    c.run(POOL, "x", append(vec![7; 64 << 10]));
    let primary = c.map.pg_to_up_acting(types::PgId { pool: POOL, ps: 0 }).acting_primary.unwrap();
    let primary = primary.0 as usize;
    let taken = c.nodes[primary].store.lock().taken();
    c.nodes[primary].store.lock().capacity = Some(taken + 100);
    // Both wait for room; then there is enough for what they bring, but not for the clone.
    let pair = |k: &str, v: &str| {
        let mut o = OsdOp::new(op::SETXATTR, Bytes::from([k, v].concat()));
        o.put_u32(0, k.len() as u32);
        o.put_u32(4, v.len() as u32);
        o
    };
    let clones = c.ask(POOL, "x", [vec![pair("a", "new")], append(vec![8])].concat());
    let msg = &mut c.asked.back_mut().expect("just asked").msg;
    (msg.snap_seq, msg.snaps) = (SnapId(1), vec![SnapId(1)]);
    let mut is_new = pair("a", "new");
    is_new.code = op::CMPXATTR;
    is_new.raw[8] = 1; // equal
    is_new.raw[9] = 1; // as strings
    let asks = c.ask(POOL, "x", [vec![is_new], append(vec![9])].concat());
    wait(&mut c, 2);
    assert_eq!((result(&c, clones), result(&c, asks)), (None, None));
    c.nodes[primary].store.lock().capacity = Some(taken + (32 << 10));
    c.event(primary, |osd, now, out| {
        let pg = *osd.pgs.keys().next().expect("its PG");
        osd.with_pg(now, pg, out, |pg, cx| pg.tick_room(cx));
    });
    wait(&mut c, 2);
    assert_eq!(c.stopped, [primary]);
    c.mark_down(primary);
    wait(&mut c, 15);
    assert_eq!(result(&c, clones), Some(0));
    assert!(result(&c, asks).is_some_and(|r| r >= 0), "seed {seed}: {:?}", result(&c, asks));
    let data = c.run(POOL, "x", read()).ops[0].data.clone();
    assert_eq!(data[64 << 10..], [8, 9]);
}

/// What waits behind a copy stays there, though what it is made for may be removed now.
#[test]
fn what_waits_behind_a_copy_does_not_pass_it() {
    let mut c = Cluster::ready(3, 3, 1, 1);
    c.run(POOL, "source", full(b"source"));
    c.run(POOL, "x", full(b"old"));
    let sets = c.map.pg_to_up_acting(types::PgId { pool: POOL, ps: 0 });
    let (primary, other) = (sets.acting[0].0 as usize, sets.acting[1]);
    // The source is not quiet: it is asked for again later.
    c.ask(POOL, "source", full(b"newer"));
    let copy = c.ask(POOL, "x", super::copies::copy("source", 0));
    let behind = c.ask(POOL, "x", append(b"+".to_vec()));
    c.client_step();
    while c.step() {}
    c.event(primary, |osd, now, out| {
        let pg = *osd.pgs.keys().next().expect("its PG");
        osd.with_pg(now, pg, out, |pg, cx| {
            let oid: HObject = pg.copying.keys().next().expect("it is being made").clone();
            let other = maps::PgShard { osd: other, shard: types::ShardId::NONE };
            let version = pg.version_of(&oid, cx).expect("it is there");
            pg.mark_damaged(other, &oid, version, cx);
            pg.on_room(other, crate::pg::room::Left { full: true, bare: false }, cx);
        });
    });
    wait(&mut c, 20); // so long it is believed
    assert_eq!((result(&c, copy), result(&c, behind)), (Some(0), Some(0)));
    assert_eq!(c.run(POOL, "x", read()).ops[0].data.as_ref(), b"newer+");
}
