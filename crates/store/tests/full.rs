//! A store at its brim: deletes, logs and records of recovery always go through, for as
//! long as it takes, and nothing stops or is lost.

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use common::{Dice, seeds};
use store::{Coll, MkfsOptions, OpenOptions, SimDisk, Store, StoreError, Transaction};
use types::{HObject, PoolId, Uuid};

const C: Coll = Coll::Meta;

fn open(disk: &Arc<SimDisk>) -> Store {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    Store::open_on(disk.clone(), options).unwrap()
}

/// A store on `disk` with one empty collection.
fn made(disk: &Arc<SimDisk>, log_bytes: u64) -> Store {
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([2; 16]),
        log_bytes,
        ..MkfsOptions::default()
    };
    Store::mkfs_on(disk.clone(), &options).unwrap();
    let mut store = open(disk);
    let mut txn = Transaction::new();
    txn.create_collection(C);
    store.submit(txn).unwrap();
    store
}

fn object(n: u64) -> HObject {
    HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::from(format!("o{n}")))
}

/// One more entry of a log that is trimmed to 300 entries, as with each write of a PG.
fn log(txn: &mut Transaction, n: &mut u64) {
    *n += 1;
    txn.coll_set(C, format!("l{n:08}"), Bytes::from(vec![*n as u8; 200]));
    txn.coll_set(C, "info", Bytes::from(vec![*n as u8; 900]));
    if *n > 300 {
        txn.coll_rm(C, format!("l{:08}", *n - 300));
    }
}

#[test]
fn at_the_brim_everything_that_frees_goes_on() {
    for seed in seeds(6) {
        let mut dice = Dice::new(seed ^ 0xb41f);
        let disk = Arc::new(SimDisk::new((16 + dice.below(32)) << 20, false));
        let mut store = made(&disk, 1 << 20);
        let (mut held, mut entries, mut next) = (BTreeMap::<u64, Bytes>::new(), 0u64, 0u64);
        let mut refused = VecDeque::new();
        for step in 0..4000u64 {
            let mut txn = Transaction::new();
            // First it is filled; then it stays full for thousands of steps.
            let filling = refused.is_empty();
            match if filling { 0 } else { dice.below(10) } {
                0 | 1 => {
                    let len = [100, 3000, 70_000, 200_000][dice.below(4) as usize];
                    let data = dice.bytes(len);
                    txn.write(C, &object(next), 0, data.clone());
                    txn.omap_set(C, &object(next), [("k".into(), data.slice(..90))]);
                    log(&mut txn, &mut entries);
                    let fits = store.would_fit(&txn);
                    match store.submit(txn) {
                        Ok(_) => drop(held.insert(next, data)),
                        Err(StoreError::NoSpace { .. }) => {
                            assert!(fits.is_err(), "seed {seed}, step {step}: it said it fits");
                            entries -= 1;
                            refused.push_back(step);
                        }
                        Err(e) => panic!("seed {seed}, step {step}: {e}"),
                    }
                    next += 1;
                }
                2 if dice.below(3) == 0 => {
                    if let Some(n) = held.keys().nth(dice.below(held.len() as u64) as usize) {
                        let n = *n;
                        held.remove(&n);
                        txn.remove(C, &object(n));
                        log(&mut txn, &mut entries);
                        assert!(store.would_fit(&txn).is_ok());
                        store.submit(txn).unwrap_or_else(|e| panic!("seed {seed}, remove: {e}"));
                    }
                }
                3 => {
                    // Recovery's records: attributes, keys, truncation.
                    if let Some(n) = held.keys().next().copied() {
                        txn.set_attr(C, &object(n), "_", dice.bytes(300));
                        log(&mut txn, &mut entries);
                        store.submit(txn).unwrap_or_else(|e| panic!("seed {seed}, attr: {e}"));
                    }
                }
                _ => {
                    log(&mut txn, &mut entries);
                    store.submit(txn).unwrap_or_else(|e| panic!("seed {seed}, log: {e}"));
                }
            }
            match dice.below(8) {
                0 | 1 => drop(store.step()),
                2 => drop(store.complete().unwrap_or_else(|e| panic!("seed {seed}: {e}"))),
                3 if dice.below(6) == 0 => store.begin_checkpoint().unwrap(),
                4 if dice.below(3) == 0 => drop(store.step_checkpoint() || store.step_merge()),
                _ => {}
            }
        }
        assert!(refused.len() > 20, "seed {seed}: it was full, {} times", refused.len());
        for (n, data) in &held {
            assert_eq!(store.read(C, &object(*n), 0, u64::MAX).unwrap(), data, "seed {seed}");
        }
        assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new(), "seed {seed}");
        store.close().unwrap();
        let mut store = open(&disk);
        assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new(), "seed {seed}");
        // Removing everything works at the brim, and gives it all back.
        let mut txn = Transaction::new();
        txn.remove_collection(C);
        store.submit(txn).unwrap();
        store.checkpoint().unwrap();
        let mut txn = Transaction::new();
        txn.create_collection(C);
        txn.write(C, &object(0), 0, Bytes::from(vec![1; 1 << 20]));
        store.submit(txn).unwrap_or_else(|e| panic!("seed {seed}: room again: {e}"));
    }
}

/// At the brim, what was overwritten last is brought back from where it was kept: that takes space
/// before it gives any, and goes through all the same.
#[test]
fn at_the_brim_writes_are_taken_back() {
    const LEN: u64 = 512 << 10;
    for seed in seeds(4) {
        let mut dice = Dice::new(seed ^ 0x7a4e);
        let disk = Arc::new(SimDisk::new(32 << 20, false));
        let mut store = made(&disk, 2 << 20);
        // Each second one does not begin with a block: its ends are copied.
        let objects: Vec<(HObject, HObject, u64)> =
            (0..8).map(|n| (object(n), object(100 + n), n % 2 * 100)).collect();
        let mut before = Vec::new();
        for (o, kept, off) in &objects {
            let (old, new) = (dice.bytes(LEN as usize + 200), dice.bytes(LEN as usize));
            let mut txn = Transaction::new();
            txn.write(C, o, 0, old.clone());
            store.submit(txn).unwrap();
            let mut txn = Transaction::new();
            txn.touch(C, kept).clone_range(C, o, kept, *off, LEN, *off).write(C, o, *off, new);
            store.submit(txn).unwrap();
            before.push(old);
        }
        let mut n = 1000;
        while store.sync().is_ok() {
            let mut txn = Transaction::new();
            txn.write(C, &object(n), 0, dice.bytes(20_000));
            match store.submit(txn) {
                Ok(_) => n += 1,
                Err(StoreError::NoSpace { .. }) => break,
                Err(e) => panic!("seed {seed}: {e}"),
            }
        }
        for (o, kept, off) in &objects {
            let back = |txn: &mut Transaction| {
                txn.clone_range(C, kept, o, *off, LEN, *off).remove(C, kept);
            };
            let mut txn = Transaction::new();
            if *o == objects[0].0 {
                back(&mut txn);
                let refused = store.submit(txn).unwrap_err();
                assert!(matches!(refused, StoreError::NoSpace { .. }), "seed {seed}: {refused}");
                txn = Transaction::new();
            }
            back(&mut txn);
            txn.take_back();
            assert!(store.would_fit(&txn).is_ok());
            store.submit(txn).unwrap_or_else(|e| panic!("seed {seed}, {o}: {e}"));
            if dice.below(2) == 0 {
                store.sync().unwrap();
            }
        }
        store.close().unwrap();
        let mut store = open(&disk);
        for ((o, ..), data) in objects.iter().zip(&before) {
            assert_eq!(store.read(C, o, 0, u64::MAX).unwrap(), data, "seed {seed}, {o}");
        }
        assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new(), "seed {seed}");
    }
}

/// Keys that are set again and again in a store with little room: what tables keep of older values
/// goes when its space is wanted.
#[test]
fn older_values_make_room() {
    const KEYS: u64 = 16_000;
    for seed in seeds(2) {
        let mut dice = Dice::new(seed ^ 0x0e2f);
        let disk = Arc::new(SimDisk::new(64 << 20, false));
        let mut store = made(&disk, 2 << 20);
        let mut txn = Transaction::new();
        txn.touch(C, &object(0));
        store.submit(txn).unwrap();
        for step in 0..KEYS / 16 * 4 {
            let key = |n: u64| Bytes::from(format!("k{n:06}"));
            let mut txn = Transaction::new();
            let pairs: Vec<(Bytes, Bytes)> = (0..16)
                .map(|i| match step * 16 + i {
                    n if n < KEYS => (key(n), dice.bytes(1000)),
                    _ => (key(dice.below(KEYS)), dice.bytes(1000)),
                })
                .collect();
            txn.omap_set(C, &object(0), pairs);
            let submitted = store.submit(txn);
            submitted.unwrap_or_else(|e| panic!("seed {seed}, step {step}: {e}"));
            if step % 4 == 0 {
                while store.step() || store.step_checkpoint() || store.step_merge() {}
                store.complete().unwrap();
            }
        }
        assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new());
    }
}

/// Merges fall behind while checkpoints come fast. Afterwards nothing more is written, as on an
/// OSD that is full: what is due is merged all the same, also when the store is opened anew.
#[test]
fn merges_go_on_when_nothing_is_written() {
    for reopen in [false, true] {
        let disk = Arc::new(SimDisk::new(96 << 20, false));
        let mut store = made(&disk, 8 << 20);
        let mut txn = Transaction::new();
        txn.touch(C, &object(0));
        store.submit(txn).unwrap();
        for n in 0..40u8 {
            let mut txn = Transaction::new();
            txn.omap_set(C, &object(0), [("k".into(), vec![n; 800 << 10].into())]);
            store.submit(txn).unwrap();
            store.begin_checkpoint().unwrap();
            while store.step() || store.step_checkpoint() {}
            store.complete().unwrap();
        }
        store.sync().unwrap();
        let behind = store.statfs().internal;
        assert!(behind > 30 << 20, "merges are behind: {behind} bytes");
        if reopen {
            drop(store);
            store = open(&disk);
        }
        while store.step_merge() {
            store.complete().unwrap();
        }
        let merged = store.statfs().available;
        assert!(merged > 70 << 20, "reopened {reopen}: {merged} bytes are available");
        assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new());
    }
}
