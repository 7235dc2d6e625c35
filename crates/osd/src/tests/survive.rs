//! What was acknowledged is there, whatever happens.

use std::collections::BTreeMap;

use bytes::Bytes;
use messages::{OsdOp, op};
use types::PoolId;

use super::cluster::Cluster;
use crate::backing::Coll;

const POOL: PoolId = PoolId(1);

/// `n` seeds from `first` on; `ARGONAUT_SEEDS` asks for that many times more.
pub fn seeds(first: u64, n: u64) -> std::ops::Range<u64> {
    let more = std::env::var("ARGONAUT_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    first..first + n * more
}

fn write_full(data: Vec<u8>) -> Vec<OsdOp> {
    vec![OsdOp::extent(op::WRITEFULL, 0, data.len() as u64, data.into())]
}

fn append(data: Vec<u8>) -> Vec<OsdOp> {
    vec![OsdOp::extent(op::APPEND, 0, data.len() as u64, data.into())]
}

/// Version `v` of an object: its length and every byte tell which.
fn body(name: usize, v: u32) -> Vec<u8> {
    let len = 8 + (v as usize * 37 + name * 11) % 300;
    let mut b = vec![(v % 251) as u8; len];
    b[..4].copy_from_slice(&v.to_le_bytes());
    b
}

/// All copies of every PG hold the same objects.
pub fn check_copies(c: &Cluster) {
    let mut seen: BTreeMap<Coll, BTreeMap<types::HObject, crate::memory::Object>> = BTreeMap::new();
    for (i, n) in c.nodes.iter().enumerate() {
        let osd = n.osd.as_ref().expect("all run");
        for (id, pg) in &osd.pgs {
            if !pg.info.acting.contains(&types::OsdId(i as i32)) {
                continue; // not yet removed
            }
            assert!(pg.missing.is_empty(), "osd.{i} {id}");
            let coll = Coll::Pg(*id);
            let objects = n.store.lock().now[&coll].objects.clone();
            match seen.get(&coll) {
                Some(first) => {
                    let names: Vec<_> = first.keys().collect();
                    assert_eq!(names, objects.keys().collect::<Vec<_>>(), "{id}");
                    assert_eq!(first, &objects, "{id}: copies differ");
                }
                None => {
                    seen.insert(coll, objects);
                }
            }
        }
    }
}

/// The primaries' counters say what is there.
fn check_counts(c: &Cluster) {
    for n in &c.nodes {
        for (id, pg) in n.osd.as_ref().expect("all run").pgs.iter().filter(|(_, p)| p.leads) {
            let store = n.store.lock();
            let objects = &store.now[&Coll::Pg(*id)].objects;
            let bytes: usize = objects.values().map(|o| o.data.len()).sum();
            let counts = pg.counts();
            assert_eq!(
                (counts.objects, counts.bytes),
                (objects.len() as i64, bytes as i64),
                "{id}"
            );
        }
    }
}

pub struct Faults {
    pub kill: bool,
    pub kill_all: bool,
    pub wires: bool,
}

/// Writers with many writes in flight, while the faults happen; then everything heals and
/// each object is a version not older than the last acknowledged one; appends are there
/// exactly once, in order, and none that was acknowledged is lost.
fn storm(seed: u64, f: &Faults, size: u8, osds: usize) {
    storm_on(Cluster::ready(osds, size, 4, seed), seed, f);
}

/// See [`storm`].
pub fn storm_on(mut c: Cluster, seed: u64, f: &Faults) {
    let osds = c.nodes.len();
    let coded = c.map.pool(POOL).is_some_and(maps::PgPool::is_erasure);
    let (objects, rounds) = (6usize, 60u32);
    let mut sent: BTreeMap<u64, (usize, u32)> = BTreeMap::new();
    let mut appended: BTreeMap<u64, u32> = BTreeMap::new();
    let mut acked = vec![0u32; objects];
    let mut versions = vec![0u32; objects];
    let (mut appends, mut appends_acked) = (0u32, 0u32);
    let collect = |c: &mut Cluster,
                   sent: &BTreeMap<u64, (usize, u32)>,
                   appended: &BTreeMap<u64, u32>,
                   acked: &mut Vec<u32>,
                   appends_acked: &mut u32| {
        for (tid, reply) in std::mem::take(&mut c.answers) {
            assert_eq!(reply.result, 0, "seed {seed} tid {tid}");
            if let Some((o, v)) = sent.get(&tid) {
                acked[*o] = acked[*o].max(*v);
            }
            if let Some(n) = appended.get(&tid) {
                *appends_acked = (*appends_acked).max(*n);
            }
        }
    };
    for _ in 0..rounds {
        for _ in 0..c.random(4) {
            let o = c.random(objects);
            versions[o] += 1;
            let tid = c.ask(POOL, &format!("o{o}"), write_full(body(o, versions[o])));
            sent.insert(tid, (o, versions[o]));
        }
        appends += 1;
        let tid = c.ask(POOL, "log", append(appends.to_le_bytes().to_vec()));
        appended.insert(tid, appends);
        c.client_step();
        for _ in 0..c.random(60) {
            if !c.step() {
                break;
            }
        }
        if c.random(4) == 0 {
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
            1 | 2 if f.kill || f.kill_all => {
                for i in 0..osds {
                    if c.nodes[i].osd.is_none() {
                        c.start(i);
                    }
                }
            }
            3 if f.kill_all => {
                for i in 0..osds {
                    if c.nodes[i].osd.is_some() {
                        c.kill(i);
                    }
                }
            }
            4 | 5 if f.wires && a != b => c.break_wire(a, b),
            6 if f.wires => c.break_client(a),
            7 if f.kill => c.mark_down(a),
            8 if f.kill && osds == 4 => c.grow_pool(POOL),
            11 if f.kill && osds == 4 => c.shrink_pool(POOL),
            9 | 10 => c.scrub_all(a),
            _ => {}
        }
        collect(&mut c, &sent, &appended, &mut acked, &mut appends_acked);
    }
    for i in 0..osds {
        if c.nodes[i].osd.is_none() {
            c.start(i);
        }
    }
    c.settle();
    collect(&mut c, &sent, &appended, &mut acked, &mut appends_acked);
    (0..osds).for_each(|i| c.scrub_all(i));
    c.settle();
    for effect in &c.effects_seen {
        if let crate::Effect::ClusterLog { text, .. } = effect {
            panic!("seed {seed}: a scrub found what is not: {text}");
        }
    }
    if coded {
        super::coded::check_shards(&c);
    } else {
        check_copies(&c);
        check_counts(&c);
    }
    assert_eq!(appends_acked, appends, "seed {seed}: every append is answered in the end");
    for (o, newest) in versions.into_iter().enumerate().filter(|(_, v)| *v > 0) {
        let read = vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())];
        let reply = c.run(POOL, &format!("o{o}"), read);
        assert_eq!(reply.result, 0, "seed {seed} o{o}");
        let data = &reply.ops[0].data;
        let v = u32::from_le_bytes(data[..4].try_into().unwrap());
        assert_eq!(v, newest, "seed {seed}: the last write counts");
        assert_eq!(data.as_ref(), body(o, v), "seed {seed}: o{o} is torn");
    }
    let reply = c.run(POOL, "log", vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]);
    let found: Vec<u32> = reply.ops[0]
        .data
        .chunks(4)
        .map(|b| u32::from_le_bytes(b.try_into().expect("whole numbers")))
        .collect();
    assert_eq!(found, (1..=appends).collect::<Vec<_>>(), "seed {seed}: appends once, in order");
}

#[test]
fn connections_break() {
    for seed in seeds(0, 15) {
        storm(seed, &Faults { kill: false, kill_all: false, wires: true }, 3, 3);
    }
}

#[test]
fn single_osds_die() {
    for seed in seeds(1_000_000, 20) {
        storm(seed, &Faults { kill: true, kill_all: false, wires: true }, 3, 3);
    }
}

#[test]
fn data_moves_as_osds_come_and_go() {
    for seed in seeds(2_000_000, 15) {
        storm(seed, &Faults { kill: true, kill_all: false, wires: false }, 2, 5);
    }
}

#[test]
fn all_osds_die_at_once() {
    for seed in seeds(3_000_000, 20) {
        storm(seed, &Faults { kill: true, kill_all: true, wires: true }, 3, 3);
    }
}

/// The pool gets more PGs, and fewer, again and again, under writes and faults.
#[test]
fn pools_split_and_merge() {
    for seed in seeds(4_000_000, 12) {
        storm(seed, &Faults { kill: true, kill_all: seed % 2 == 0, wires: true }, 3, 4);
    }
}

/// What an OSD acknowledged before all died, and before the client heard it, is not done
/// twice: the answer to the resend is the first one's.
#[test]
fn resends_are_recognised_after_a_restart() {
    let mut c = Cluster::ready(3, 3, 1, 5);
    c.ask(POOL, "x", append(b"once".to_vec()));
    c.client_step();
    // Until it is on all disks but not with the client.
    for _ in 0..200 {
        let done = c.nodes.iter().all(|n| {
            let s = n.store.lock();
            s.queued() == 0 && s.now.values().any(|c| !c.objects.is_empty())
        });
        if done {
            break;
        }
        c.step();
    }
    for i in 0..3 {
        c.kill(i);
    }
    for i in 0..3 {
        c.start(i);
    }
    c.settle();
    let reply = c.run(POOL, "x", vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]);
    assert_eq!(reply.ops[0].data.as_ref(), b"once");
}

/// An OSD that comes back after the others have written on, beyond what their logs hold,
/// gets everything; and an empty one too.
#[test]
fn copies_without_common_log_are_compared() {
    for seed in 0..6 {
        let mut c = Cluster::ready(3, 3, 1, seed);
        for i in 0..40 {
            c.run(POOL, &format!("a{i}"), write_full(body(i, 1)));
        }
        c.kill(0);
        c.mark_down(0);
        if seed % 2 == 1 {
            // Its disk is replaced.
            c.nodes[0].store = crate::memory::MemStore::default();
        }
        for i in 0..700usize {
            let name = format!("a{}", i % 60);
            if i % 13 == 5 {
                c.run(POOL, &name, vec![OsdOp::new(op::DELETE, Bytes::new())]);
            } else {
                c.run(POOL, &name, write_full(body(i, i as u32 + 2)));
            }
        }
        c.start(0);
        c.settle();
        check_copies(&c);
    }
}
