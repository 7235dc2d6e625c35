//! Tables whose index is larger than what stays of it in memory.

mod common;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use common::Dice;
use store::{Coll, MkfsOptions, OpenOptions, SimDisk, Store, Transaction};
use types::{HObject, PgId, PoolId, ShardId, SpgId};

fn pg() -> Coll {
    Coll::Pg(SpgId { pg: PgId::new(1, 0), shard: ShardId::NONE })
}

fn object() -> HObject {
    HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::from_static(b"o"))
}

fn open(disk: &Arc<SimDisk>, table_cache_bytes: u64) -> Store {
    let options = OpenOptions { threads: false, table_cache_bytes, ..OpenOptions::default() };
    Store::open_on(disk.clone(), options).unwrap()
}

fn key(n: u64) -> Bytes {
    format!("a key that is as long as keys are, {n:08}").into_bytes().into()
}

type Model = BTreeMap<Bytes, Bytes>;

fn compare(store: &Store, model: &Model, dice: &mut Dice) {
    for _ in 0..200 {
        let from = key(dice.below(130_000));
        let found = store.omap_iter(pg(), &object(), Bound::Included(&from), 5).unwrap();
        let want = model.range(from..).take(5);
        let want: Vec<_> = want.map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(found, want);
        let some: Vec<Bytes> = (0..4).map(|_| key(dice.below(130_000))).collect();
        let found = store.omap_get_keys(pg(), &object(), &some).unwrap();
        let want = some.iter().filter_map(|k| model.get(k).map(|v| (k.clone(), v.clone())));
        assert_eq!(found, want.collect());
    }
    let mut all = model.iter();
    let mut same = true;
    store
        .omap_walk(pg(), &object(), Bound::Unbounded, &mut |k, v| {
            same &= all.next().is_some_and(|(a, b)| (&**a, b) == (k, v));
            same
        })
        .unwrap();
    assert!(same && all.next().is_none(), "in order, and all of them");
}

/// Keys are found, listed and walked through whether the index stays in memory or is read, in
/// tables that were merged and after a cut.
#[test]
fn what_is_read_does_not_depend_on_the_cache() {
    let disk = Arc::new(SimDisk::new(512 << 20, false));
    let options = MkfsOptions { log_bytes: 32 << 20, ..MkfsOptions::default() };
    Store::mkfs_on(disk.clone(), &options).unwrap();
    let (mut dice, mut model) = (Dice::new(5), Model::new());
    let mut store = open(&disk, 0);
    store.submit(Transaction::new().create_collection(pg()).clone()).unwrap();
    for round in 0..8u64 {
        // Of the first 120,000 numbers those of one remainder, and some of before again.
        let new = (0..15_000u64).map(|i| 8 * i + round);
        let again: Vec<u64> = (0..2_000).map(|_| dice.below(120_000)).collect();
        let pairs: Model = new.chain(again).map(|n| (key(n), dice.bytes(60))).collect();
        let gone: Vec<Bytes> = (0..500).map(|_| key(dice.below(120_000))).collect();
        let mut txn = Transaction::new();
        txn.omap_set(pg(), &object(), pairs.clone());
        txn.omap_rm_keys(pg(), &object(), gone.clone());
        store.submit(txn).unwrap();
        model.extend(pairs);
        gone.iter().for_each(|k| drop(model.remove(k)));
        if round < 7 {
            store.checkpoint().unwrap();
            store.step_merge();
        }
        compare(&store, &model, &mut dice);
        // With and without room for what is read, after a stop and after a cut.
        if round % 2 == 0 {
            store.close().unwrap();
        } else {
            store.sync().unwrap();
            drop(store);
        }
        store = open(&disk, [0, 1 << 20, 64 << 20][round as usize % 3]);
        compare(&store, &model, &mut dice);
    }
    let report = store.fsck(true).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}
