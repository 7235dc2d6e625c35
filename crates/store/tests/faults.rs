//! Bad disks: flipped bits, failing writes, no space.

mod common;

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use common::{Dice, Model, Scale, difference, seeds};
use env::Disk;
use store::{Coll, MkfsOptions, OpenOptions, SimDisk, Store, StoreError, Transaction};
use types::{HObject, PgId, PoolId, ShardId, SpgId, Uuid};

const PG: Coll = Coll::Pg(SpgId { pg: PgId::new(1, 0), shard: ShardId::NONE });

fn mkfs(disk: &Arc<SimDisk>) {
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([2; 16]),
        log_bytes: 1 << 20,
        ..MkfsOptions::default()
    };
    Store::mkfs_on(disk.clone(), &options).unwrap();
}

fn open(disk: &Arc<SimDisk>) -> Result<Store, StoreError> {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    Store::open_on(disk.clone(), options)
}

fn object(n: u64) -> HObject {
    let name = Bytes::from(format!("o{n}"));
    HObject::head(PoolId(1), Bytes::new(), Bytes::new(), name)
}

/// Everything that can be read is right; the rest is an error. Returns the errors.
fn right_or_refused(store: &Store, model: &Model) -> Result<u64, String> {
    let mut errors = 0;
    let mut check = |what: &str, ok: Result<bool, StoreError>| match ok {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{what}: wrong")),
        Err(StoreError::Corrupt { .. } | StoreError::Format(_)) => {
            errors += 1;
            Ok(())
        }
        Err(e) => Err(format!("{what}: {e}")),
    };
    if !store.list_collections().iter().eq(model.colls.keys()) {
        return Err("collections differ".into());
    }
    for (c, coll) in &model.colls {
        let c = *c;
        let names = store.list(c, &HObject::min(), 1000);
        check("list", names.map(|l| l.objects.iter().eq(coll.objects.keys())))?;
        let keys = store.coll_iter(c, Bound::Unbounded, 1000);
        check("keys", keys.map(|k| k.iter().map(|(k, v)| (k, v)).eq(&coll.keys)))?;
        for (o, x) in &coll.objects {
            check("read", store.read(c, o, 0, u64::MAX).map(|d| d == x.data))?;
            check("attrs", store.get_attrs(c, o).map(|a| a == x.attrs))?;
            let omap = store.omap_iter(c, o, Bound::Unbounded, 1000);
            check("omap", omap.map(|m| m.iter().map(|(k, v)| (k, v)).eq(&x.omap)))?;
        }
    }
    Ok(errors)
}

/// One flipped bit anywhere: the store refuses to open, or each read is right or refused.
#[test]
fn flipped_bits_are_found() {
    let (mut refused, mut found, mut harmless) = (0, 0, 0);
    for seed in seeds(2) {
        let mut dice = Dice::new(seed ^ 0xb17);
        let disk = Arc::new(SimDisk::new(48 << 20, false));
        mkfs(&disk);
        let (mut store, mut model) = (open(&disk).unwrap(), Model::default());
        for step in 0..80 {
            store.submit(model.random(&mut dice, Scale { objects: 8, size: 1 << 18 })).unwrap();
            if step == 40 {
                store.checkpoint().unwrap();
            }
            store.step();
        }
        store.sync().unwrap();
        // A last group, so that all before it are known to have been durable.
        store.submit(Transaction::new()).unwrap();
        store.sync().unwrap();
        drop(store);
        let last = disk.written();
        for page in last {
            let bad = Arc::new(disk.copy(false));
            let at = page + dice.below(4096);
            bad.flip(at, dice.below(8) as u8);
            let what = format!("seed {seed}, flip in {at:#x}");
            let judged = catch_unwind(AssertUnwindSafe(|| match open(&bad) {
                Err(StoreError::Corrupt { .. } | StoreError::Format(_)) => refused += 1,
                Err(e) => panic!("{what}: {e}"),
                Ok(store) => match right_or_refused(&store, &model) {
                    Ok(0) => harmless += 1,
                    Ok(_) => found += 1,
                    // The last group is empty, and may be missing.
                    Err(e) => panic!("{what}: {e}"),
                },
            }));
            judged.unwrap_or_else(|_| panic!("{what}: see above"));
        }
    }
    println!("{refused} refused, {found} found, {harmless} harmless");
    assert!(refused > 0 && found > 0);
}

/// The Nth write or flush fails: the store says so and stops; opened on the repaired disk it
/// holds what was acknowledged.
#[test]
fn failing_writes_stop_the_store() {
    for seed in seeds(60) {
        let mut dice = Dice::new(seed ^ 0xfa11);
        let disk = Arc::new(SimDisk::new(48 << 20, false));
        mkfs(&disk);
        let (mut store, mut model) = (open(&disk).unwrap(), Model::default());
        let mut models = std::collections::BTreeMap::from([(0, model.clone())]);
        disk.fail_in(1 + dice.below(120));
        let mut failed = false;
        for _ in 0..200 {
            let result = match dice.below(8) {
                0 => store.begin_checkpoint(),
                1 => {
                    let _ = store.step_checkpoint() || store.step_merge();
                    Ok(())
                }
                2 | 3 => {
                    store.step();
                    Ok(())
                }
                4 => store.complete().map(drop),
                _ => {
                    let txn = model.random(&mut dice, Scale { objects: 8, size: 1 << 17 });
                    store.submit(txn).map(|seq| drop(models.insert(seq, model.clone())))
                }
            };
            if let Err(e) = result {
                assert!(matches!(e, StoreError::Stopped(_)), "seed {seed}: {e}");
                failed = true;
                break;
            }
        }
        let acked = store.durable();
        drop(store);
        disk.fail_in(0);
        let store = open(&disk).unwrap();
        assert!(store.opened_at() >= acked, "seed {seed}, failed {failed}");
        let (_, model) = models.range(..=store.opened_at()).next_back().unwrap();
        assert_eq!(difference(&store, model), None, "seed {seed}");
    }
}

/// A full store refuses what grows, applies nothing of it, still removes, and then has room.
#[test]
fn full_is_refused_and_never_fatal() {
    for seed in seeds(6) {
        let mut dice = Dice::new(seed ^ 0xf0_11);
        let disk = Arc::new(SimDisk::new((24 + dice.below(24)) << 20, false));
        mkfs(&disk);
        let mut store = open(&disk).unwrap();
        let c = Coll::Meta;
        let mut txn = Transaction::new();
        txn.create_collection(c);
        store.submit(txn).unwrap();
        let mut held = std::collections::BTreeMap::new();
        let (mut full, mut removed) = (0, 0);
        for step in 0..3000u64 {
            let (n, mut txn) = (dice.below(4000), Transaction::new());
            let len = match dice.below(3) {
                0 => dice.below(300),
                1 => dice.below(20_000),
                _ => dice.below(400_000),
            };
            let data = Bytes::from(vec![step as u8; len as usize]);
            if full > 0 && dice.below(3) == 0 {
                if let Some(n) = held.keys().nth(dice.below(held.len() as u64) as usize).copied() {
                    let data = held.remove(&n).expect("just found");
                    if dice.below(3) == 0 {
                        // Moved aside, as what may have to be taken back.
                        txn.clone_object(c, &object(n), &object(n + 10_000));
                        held.insert(n + 10_000, data);
                    }
                    txn.remove(c, &object(n)).coll_set(c, "log", Bytes::from_static(b"removed"));
                    store.submit(txn).unwrap_or_else(|e| panic!("seed {seed}: remove: {e}"));
                    removed += 1;
                }
            } else {
                txn.write_full(c, &object(n), data.clone());
                txn.omap_set(c, &object(n), [(Bytes::from("k"), data.slice(..data.len().min(99)))]);
                match store.submit(txn) {
                    Ok(_) => drop(held.insert(n, data)),
                    Err(StoreError::NoSpace { .. }) => full += 1,
                    Err(e) => panic!("seed {seed}, step {step}: {e}"),
                }
            }
            match dice.below(6) {
                0 => drop(store.step()),
                1 => drop(store.complete().unwrap()),
                2 if dice.below(10) == 0 => store.begin_checkpoint().unwrap(),
                _ => {}
            }
        }
        assert!(full > 10 && removed > 10, "seed {seed}: it got full");
        let stats = store.statfs();
        let bytes: u64 = held.values().map(|d| d.len() as u64).sum();
        assert_eq!(stats.stored, bytes, "seed {seed}");
        assert!(stats.used <= stats.total && stats.available < stats.total - stats.used);
        assert!(bytes > stats.total / 4, "seed {seed}: {bytes} of {} were usable", stats.total);
        for (n, data) in &held {
            assert_eq!(store.read(c, &object(*n), 0, u64::MAX).unwrap(), data, "seed {seed}");
        }
        assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new(), "seed {seed}");
        store.close().unwrap();
        let mut store = open(&disk).unwrap();
        assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new(), "seed {seed}");
    }
}

/// A damaged block of which nothing is left but what was written anew is whole again, though the
/// object ends within it.
#[test]
fn what_is_replaced_heals() {
    let sizes = [
        (3000, 3500),
        (5000, 6000),
        (66_000, 67_000),
        (8192, 100),
        (8192, 5000),
        (100_000, 69_000),
    ];
    for (before, after) in sizes {
        let disk = Arc::new(SimDisk::new(64 << 20, false));
        mkfs(&disk);
        let mut store = open(&disk).unwrap();
        let mut txn = Transaction::new();
        txn.create_collection(Coll::Meta);
        txn.write(Coll::Meta, &object(1), 0, vec![7; before].into());
        store.submit(txn).unwrap();
        store.checkpoint().unwrap();
        // Each of its blocks.
        for (at, len) in store.device_ranges(Coll::Meta, &object(1)).unwrap() {
            (at..at + len).step_by(4096).for_each(|at| disk.flip(at + 17, 3));
        }
        assert!(store.read(Coll::Meta, &object(1), 0, 1).is_err(), "seen to be damaged");
        let data = Bytes::from(vec![9; after]);
        let mut txn = Transaction::new();
        txn.write(Coll::Meta, &object(1), 0, data.clone());
        if after < before {
            txn.truncate(Coll::Meta, &object(1), after as u64);
        }
        store.submit(txn).unwrap();
        store.checkpoint().unwrap();
        let read = |store: &Store| store.read(Coll::Meta, &object(1), 0, u64::MAX).unwrap();
        assert_eq!(read(&store), data, "{before} to {after}");
        assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new());
        // What comes behind its end is as if nothing had been there.
        let mut txn = Transaction::new();
        txn.truncate(Coll::Meta, &object(1), after as u64 + 500);
        store.submit(txn).unwrap();
        store.checkpoint().unwrap();
        assert_eq!(read(&store)[after..], [0; 500]);
    }
}

/// The places of the log's groups on a disk, in their order.
fn groups(disk: &SimDisk) -> Vec<u64> {
    let mut found = Vec::new();
    let mut block = vec![0; 4096];
    for off in (0..disk.size()).step_by(4096) {
        disk.read(off, &mut block).unwrap();
        if block[..4] == 0x4c47_5241_u32.to_le_bytes() {
            let number = u64::from_le_bytes(block[24..32].try_into().unwrap());
            found.push((number, off));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, off)| off).collect()
}

/// A flipped bit in the middle of the log makes the store refuse to open, for what was acknowledged
/// would be missing. A look shows what was written before, and leaves the disk as it is.
#[test]
fn a_look_ends_where_the_log_is_damaged() {
    let disk = Arc::new(SimDisk::new(48 << 20, false));
    mkfs(&disk);
    let mut store = open(&disk).unwrap();
    let mut txn = Transaction::new();
    txn.create_collection(PG);
    store.submit(txn).unwrap();
    store.sync().unwrap();
    for n in 0..8 {
        let mut txn = Transaction::new();
        txn.write(PG, &object(n), 0, Bytes::from(vec![n as u8; 100]));
        store.submit(txn).unwrap();
        store.sync().unwrap();
    }
    drop(store);
    let groups = groups(&disk);
    assert!(groups.len() >= 9, "{groups:?}");
    disk.flip(groups[groups.len() - 4] + 70, 3);
    assert!(matches!(open(&disk), Err(StoreError::Corrupt { .. })));
    let image = || {
        let mut all = vec![0; disk.size() as usize];
        disk.read(0, &mut all).unwrap();
        stdx::crc32c(0, &all)
    };
    let before = image();
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    let mut look = Store::look_on(disk.clone(), None, options).unwrap();
    let there = |look: &Store| (0..8).filter(|n| look.exists(PG, &object(*n)).unwrap()).count();
    assert_eq!(there(&look), 4, "those of before the damage");
    assert_eq!(look.read(PG, &object(3), 0, 200).unwrap(), vec![3; 100]);
    let mut txn = Transaction::new();
    txn.write(PG, &object(9), 0, Bytes::from_static(b"gone"));
    look.submit(txn).unwrap();
    look.sync().unwrap();
    drop(look);
    assert_eq!(image(), before, "a look changes nothing");
    assert!(matches!(open(&disk), Err(StoreError::Corrupt { .. })));
}
