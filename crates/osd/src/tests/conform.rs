//! The real store behind the OSD's trait does what the one in memory does.

use std::collections::BTreeMap;

use bytes::Bytes;
use env::{Random, Seeded};
use messages::Mutation;
use types::{HObject, OsdId, PgId, PoolId, SnapId, Uuid};

use crate::backing::{Coll, ObjectStore, StoreOp};
use crate::memory::MemStore;
use crate::{StoreBacking, pg::log_range};

struct Dir(std::path::PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn open(dir: &Dir) -> StoreBacking {
    let options = store::OpenOptions { threads: false, ..store::OpenOptions::default() };
    let cache = crate::DataCache::new(1 << 20);
    cache.set_read_here([PgId::new(1, 1), PgId::new(1, 3)].into_iter().collect());
    StoreBacking::new(store::Store::open(&dir.0.join("block"), options).unwrap(), cache)
}

fn oid(n: u64) -> HObject {
    let name = Bytes::from(format!("o{n}"));
    HObject {
        pool: PoolId(1),
        hash: (n as u32).wrapping_mul(2_654_435_761) & !1,
        name,
        snap: SnapId::HEAD,
        ..HObject::min()
    }
}

fn bytes(r: &mut Seeded, max: u64) -> Bytes {
    let mut b = vec![0; (r.u64() % max) as usize + 1];
    r.fill(&mut b);
    b.into()
}

fn key(r: &mut Seeded) -> Bytes {
    format!("k{}", r.u64() % 20).into()
}

fn mutation(r: &mut Seeded) -> Mutation {
    match r.u64() % 12 {
        0 => Mutation::Touch,
        1 | 2 => Mutation::Write { off: r.u64() % 9_000, data: bytes(r, 70_000) },
        3 => Mutation::Write { off: r.u64() % 300_000, data: bytes(r, 200) },
        4 => Mutation::Truncate(r.u64() % 100_000),
        5 => Mutation::SetAttr(key(r), bytes(r, 300)),
        6 => Mutation::RmAttr(key(r)),
        7 => Mutation::OmapHeader(bytes(r, 50)),
        8 => Mutation::OmapSet((0..5).map(|_| (key(r), bytes(r, 100))).collect()),
        9 => Mutation::OmapRm(vec![key(r), key(r)]),
        10 => {
            let (a, b) = (key(r), key(r));
            Mutation::OmapRmRange(a.clone().min(b.clone()), a.max(b))
        }
        _ => Mutation::OmapClear,
    }
}

type Seen = (Bytes, Vec<(Bytes, Bytes)>, Bytes, Vec<(Bytes, Bytes)>);

fn look(s: &dyn ObjectStore, c: Coll) -> (BTreeMap<HObject, Seen>, Vec<(Bytes, Bytes)>) {
    let mut all = BTreeMap::new();
    let mut from = HObject::min();
    loop {
        let page = s.list(c, &from, 3).unwrap();
        let Some(last) = page.last().cloned() else { break };
        for o in page {
            let mut omap = Vec::new();
            s.omap_walk(c, &o, b"", &mut |k, v| {
                omap.push((Bytes::copy_from_slice(k), v.clone()));
                true
            })
            .unwrap();
            let data = s.read(c, &o, 0, 1 << 30).unwrap().unwrap();
            let mut attrs = s.attrs(c, &o).unwrap();
            attrs.sort();
            for (k, v) in &attrs {
                assert_eq!(s.attr(c, &o, k).unwrap().as_ref(), Some(v));
            }
            for (k, v) in &omap {
                assert_eq!(s.omap_get(c, &o, k).unwrap().as_ref(), Some(v));
            }
            all.insert(o.clone(), (data, attrs, s.omap_header(c, &o).unwrap(), omap));
        }
        from = last.with_snap(SnapId(last.snap.0 + 1));
    }
    let mut keys = Vec::new();
    let (a, b) = log_range();
    s.walk(c, &a, &b, &mut |k, v| {
        keys.push((Bytes::copy_from_slice(k), v.clone()));
        true
    })
    .unwrap();
    (all, keys)
}

/// Random transactions, a division of a collection, and a restart in between.
#[test]
fn both_stores_agree() {
    let dir = Dir(std::env::temp_dir().join(format!("osd-conform-{}", std::process::id())));
    std::fs::create_dir_all(&dir.0).unwrap();
    let mkfs = store::MkfsOptions {
        fsid: Uuid([1; 16]),
        osd: OsdId(0),
        osd_uuid: Uuid([2; 16]),
        size: 256 << 20,
        log_bytes: 32 << 20,
        ..store::MkfsOptions::default()
    };
    store::Store::mkfs(&dir.0.join("block"), &mkfs).unwrap();
    let (mut real, mut mem) = (open(&dir), MemStore::default());
    let mut r = Seeded(11);
    let (parent, child): (types::SpgId, types::SpgId) =
        (PgId::new(1, 1).into(), PgId::new(1, 3).into());
    let mut colls = vec![Coll::Meta, Coll::Pg(parent)];
    let mut ticket = 0;
    let mut both = |real: &mut StoreBacking, mem: &mut MemStore, ops: Vec<StoreOp>| {
        ticket += 1;
        real.submit(ops.clone(), ticket);
        mem.submit(ops, ticket);
    };
    both(&mut real, &mut mem, colls.iter().map(|c| StoreOp::Create(*c)).collect());
    for round in 0..300 {
        let mut ops = Vec::new();
        for _ in 0..r.u64() % 4 {
            let c = colls[(r.u64() % colls.len() as u64) as usize];
            // In the PGs, objects that belong there.
            let mut o = oid(r.u64() % 12);
            o.hash |= 1;
            if c == Coll::Pg(child) {
                o.hash |= 3;
            } else if colls.len() == 3 && c == Coll::Pg(parent) {
                o.hash = o.hash & !2 | 1;
            }
            let log = |r: &mut Seeded| Bytes::from(format!("l{:03}", r.u64() % 200));
            ops.push(match r.u64() % 8 {
                0 => StoreOp::Object(c, o, vec![Mutation::Remove]),
                1 => StoreOp::Put(c, log(&mut r), bytes(&mut r, 100)),
                2 => StoreOp::Rm(c, log(&mut r)),
                3 => {
                    let (a, b) = (log(&mut r), log(&mut r));
                    StoreOp::RmRange(c, a.clone().min(b.clone()), a.max(b))
                }
                _ => {
                    let n = 1 + r.u64() % 4;
                    let mut all = vec![Mutation::Touch];
                    all.extend((0..n).map(|_| mutation(&mut r)));
                    StoreOp::Object(c, o, all)
                }
            });
        }
        both(&mut real, &mut mem, ops);
        if round == 150 {
            let ops =
                vec![StoreOp::Create(Coll::Pg(child)), StoreOp::Split(Coll::Pg(parent), child, 2)];
            both(&mut real, &mut mem, ops);
            colls.push(Coll::Pg(child));
        }
        if round % 10 == 0 || round == 150 {
            for c in &colls {
                assert_eq!(look(&real, *c), look(&mem, *c), "round {round}, {c:?}");
            }
        }
        if round == 200 {
            real.into_inner().close().unwrap();
            real = open(&dir);
        }
    }
    let mut found = real.collections();
    found.sort();
    assert_eq!(found, mem.collections());
    both(&mut real, &mut mem, vec![StoreOp::Drop(Coll::Pg(child))]);
    assert_eq!(real.collections().len(), 2);
}
