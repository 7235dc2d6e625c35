//! What a log takes, in memory and on its way to a copy, is bounded in bytes.

use bytes::Bytes;
use messages::{OsdOp, op};
use types::PoolId;

use super::cluster::Cluster;
use super::survive::{Faults, check_copies, seeds, storm_on};

const POOL: PoolId = PoolId(1);

/// All OSDs anew, with this share of bytes for logs.
fn bounded(c: Cluster, bytes: &'static str) -> Cluster {
    with(c, vec![("osd_target_pg_log_bytes_per_osd", bytes)])
}

/// All OSDs anew, with these options.
fn with(mut c: Cluster, options: Vec<(&'static str, &'static str)>) -> Cluster {
    c.options = options;
    for i in 0..c.nodes.len() {
        c.kill(i);
        c.start(i);
    }
    c.settle();
    c
}

fn write(c: &mut Cluster, rounds: u32, name: &str) {
    for i in 0..rounds {
        let data = Bytes::copy_from_slice(&i.to_le_bytes());
        c.ask(POOL, name, vec![OsdOp::extent(op::WRITEFULL, 0, 4, data)]);
        if i % 40 == 39 {
            c.settle();
        }
    }
    c.settle();
    assert!(c.answers.values().all(|a| a.result == 0));
    c.answers.clear();
}

/// Objects with names of 2,000 bytes: neither memory nor what a new copy is sent grows with the
/// number of writes, and a copy that was away for less than the log is brought up by it.
#[test]
fn long_names_do_not_add_up() {
    let mut c = bounded(Cluster::ready(3, 3, 1, 5), "1M");
    let name = "n".repeat(2_000);
    write(&mut c, 1_200, &name);
    for i in 0..3 {
        let (r, out) = c.admin(i, r#"{"prefix":"dump_mempools"}"#);
        let out: serde_json::Value = serde_json::from_str(&out).unwrap();
        let log = &out["mempool"]["by_pool"]["osd_pglog"];
        let (items, bytes) = (log["items"].as_u64().unwrap(), log["bytes"].as_u64().unwrap());
        assert!(r == 0 && items > 300 && bytes > 300 << 10 && bytes < 700 << 10, "osd.{i}: {log}");
    }
    c.kill(2);
    c.mark_down(2);
    write(&mut c, 80, &name);
    c.start(2);
    c.settle();
    check_copies(&c);
    // A new disk: it is sent the newest of the log, and of what is remembered below no names.
    c.kill(2);
    c.mark_down(2);
    c.nodes[2].store = crate::memory::MemStore::default();
    c.largest = 0;
    c.start(2);
    c.settle();
    check_copies(&c);
    assert!(c.largest > 400 << 10, "the log was not sent: {}", c.largest);
    assert!(c.largest < 800_000, "{} bytes in one message", c.largest);
}

/// As [`super::survive`] has it, with logs that are as short as bytes can make them: what is
/// not on all copies stays in them, and resends are recognised.
#[test]
fn short_of_bytes_in_a_storm() {
    for seed in seeds(700, 12) {
        let osds = 3 + (seed % 2) as usize;
        let c = bounded(Cluster::ready(osds, 3, 4, seed), "0");
        storm_on(c, seed, &Faults { kill: true, kill_all: seed % 3 == 0, wires: true });
    }
    for seed in seeds(720, 8) {
        let c = bounded(Cluster::ready_coded(5, (2, 2), 2, seed), "0");
        storm_on(c, seed, &Faults { kill: true, kill_all: seed % 3 == 0, wires: true });
    }
}

/// A request that comes again, and waits until the log has forgotten that it was done, is not
/// done twice: it was recognised when it came.
#[test]
fn what_was_recognised_stays_so() {
    let mut c = bounded(Cluster::ready(3, 3, 1, 1), "0");
    let append = |data: &'static [u8]| OsdOp::extent(op::APPEND, 0, 4, Bytes::from_static(data));
    c.ask(POOL, "x", vec![append(b"once")]);
    c.client_step();
    c.run_unheard();
    // A copy lacks the object, and has no room for it.
    let sets = c.map.pg_to_up_acting(types::PgId { pool: POOL, ps: 0 });
    let (primary, other) = (sets.acting[0].0 as usize, sets.acting[1]);
    let taken = c.nodes[other.0 as usize].store.lock().taken();
    c.nodes[other.0 as usize].store.lock().capacity = Some(taken);
    c.event(primary, |osd, now, out| {
        let pg = *osd.pgs.keys().next().expect("its PG");
        osd.with_pg(now, pg, out, |pg, cx| {
            let oid = pg.obcs.keys().find(|o| o.name.as_ref() == b"x").expect("just written");
            let (oid, shard) = (oid.clone(), types::ShardId::NONE);
            let version = pg.version_of(&oid, cx).expect("it is there");
            pg.mark_damaged(maps::PgShard { osd: other, shard }, &oid, version, cx);
        });
    });
    c.asked[0].msg.retry_attempt = 1;
    c.break_client(primary);
    c.run_unheard();
    assert_eq!(c.asked.len(), 1, "it waits");
    let touch = |value: [u8; 4]| {
        let mut o = OsdOp::new(op::SETXATTR, Bytes::from([b"a".as_slice(), &value].concat()));
        o.put_u32(0, 1);
        o.put_u32(4, 4);
        o
    };
    for i in 0..1_000u32 {
        c.ask(POOL, "y", vec![touch(i.to_le_bytes())]);
        if i % 40 == 39 {
            c.client_step();
            while c.step() {}
            c.tick(1_000);
        }
    }
    assert_eq!(c.asked.len(), 1, "it still does, alone");
    c.nodes[other.0 as usize].store.lock().capacity = None;
    c.settle();
    let read = vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())];
    assert_eq!(c.run(POOL, "x", read).ops[0].data.as_ref(), b"once");
    check_copies(&c);
}

/// A copy that begins anew is sent the newest entries and as many requests as are remembered, not
/// the whole log; one that is sent again from below its tail is not done twice.
#[test]
fn a_new_copy_gets_a_short_log() {
    for (log_max, requests) in [("400", "on disk"), ("800", "in memory")] {
        let options = vec![
            ("osd_min_pg_log_entries", "30"),
            ("osd_max_pg_log_entries", log_max),
            ("osd_pg_log_dups_tracked", "300"),
        ];
        let mut c = with(Cluster::ready(3, 2, 1, 3), options);
        write(&mut c, 1_000, "y");
        let append = OsdOp::extent(op::APPEND, 0, 4, Bytes::from_static(b"once"));
        c.ask(POOL, "x", vec![append]);
        c.client_step();
        c.run_unheard();
        for i in 0..200u32 {
            let data = Bytes::copy_from_slice(&i.to_le_bytes());
            c.ask(POOL, "y", vec![OsdOp::extent(op::WRITEFULL, 0, 4, data)]);
            c.client_step();
            c.run_unheard();
        }
        let pg =
            types::SpgId { pg: types::PgId { pool: POOL, ps: 0 }, shard: types::ShardId::NONE };
        let acting = c.map.pg_to_up_acting(pg.pg).acting;
        let (old, new) = (acting[0].0 as usize, acting[1].0 as usize);
        c.kill(new);
        c.mark_down(new);
        c.nodes[new].store = crate::memory::MemStore::default();
        c.start(new);
        c.run_unheard();
        for _ in 0..200 {
            c.tick(200);
            c.run_unheard();
        }
        let log = &c.nodes[new].osd.as_ref().expect("it runs").pgs[&pg].log;
        assert!((30..60).contains(&log.entries.len()), "{requests}: {}", log.entries.len());
        assert!((250..=340).contains(&log.dup_count()), "{requests}: {}", log.dup_count());
        // It leads, and is sent what it only knows from below its tail.
        let mut inc = c.next_inc();
        inc.new_pg_upmap.insert(pg.pg, vec![acting[1], acting[0]]);
        c.publish(inc);
        c.break_client(old);
        c.settle();
        let acting = c.map.pg_to_up_acting(pg.pg).acting;
        assert_eq!(acting[0].0 as usize, new, "{requests}: it leads");
        let read = vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())];
        assert_eq!(c.run(POOL, "x", read).ops[0].data.as_ref(), b"once", "{requests}");
        check_copies(&c);
    }
}

/// A copy that began anew knows requests without their objects. It keeps them for both parts
/// when its PG is divided, whichever object they were of.
#[test]
fn requests_of_a_new_copy_stay_in_both_parts() {
    let few = vec![("osd_min_pg_log_entries", "100"), ("osd_max_pg_log_entries", "200")];
    let mut c = with(Cluster::ready(3, 3, 1, 1), few);
    for n in 0..20 {
        write(&mut c, 20, &format!("object {n}"));
    }
    let acting = c.map.pg_to_up_acting(types::PgId { pool: POOL, ps: 0 }).acting;
    let (whole, anew) = (acting[0].0 as usize, acting[1].0 as usize);
    c.kill(anew);
    c.mark_down(anew);
    c.nodes[anew].store = crate::memory::MemStore::default();
    c.start(anew);
    c.settle();
    // As it is on disk.
    c.kill(anew);
    c.start(anew);
    c.settle();
    let asked = |c: &mut Cluster, i: usize| {
        let mut all = std::collections::BTreeMap::new();
        c.event(i, |osd, _, _| {
            for (id, pg) in &osd.pgs {
                let told = pg.log.requests_upto(pg.log.head(), usize::MAX);
                let answered = told.into_iter().flat_map(|e| e.answered);
                all.insert(*id, answered.map(|a| (a.reqid, a.user_version)).collect::<Vec<_>>());
            }
        });
        all
    };
    let sizes = |c: &mut Cluster, i: usize| {
        let mut all = Vec::new();
        c.event(i, |osd, _, _| {
            let old = |pg: &crate::pg::Pg| pg.log.oldest_old().map_or(0, |(_, count)| count);
            all.extend(osd.pgs.values().map(|pg| (pg.log.entries.len(), old(pg))));
        });
        all
    };
    assert_eq!(sizes(&mut c, anew), [(100, 5)], "it has the newest entries, and few for the rest");
    let before: Vec<_> = asked(&mut c, anew).into_values().flatten().collect();
    assert_eq!(before.len(), 400);
    c.set_pool(POOL, |p| super::cluster::set_pg_num(p, 2));
    c.settle();
    let (whole, anew) = (asked(&mut c, whole), asked(&mut c, anew));
    assert_eq!(whole.values().map(Vec::len).sum::<usize>(), 400);
    for (id, requests) in whole {
        assert!((50..350).contains(&requests.len()), "{id}: {}", requests.len());
        let lost = requests.iter().filter(|r| !anew[&id].contains(r)).count();
        assert_eq!(lost, 0, "{id}");
    }
    check_copies(&c);
}
