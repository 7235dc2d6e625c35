//! Power cuts: whatever part of the unflushed writes a disk did, in whatever order and torn
//! at sectors, the store opens, is sound, holds every acknowledged transaction whole, and of
//! the others a whole number, in order.
//!
//! `STORE_SEEDS` workloads (`STORE_SEED` for one); `cargo xtask sim store` tries many more.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::explore::{Effort, Seen, explore};
use common::seeds;
use store::{Coll, DiskEvent, MkfsOptions, OpenOptions, SimDisk, Store, Transaction};

#[test]
fn power_cuts_lose_nothing_acknowledged() {
    let mut seen = Seen::default();
    // Of each kind of work one, then the log elsewhere and nowhere, and one that ends twice before
    // what the log's last groups let go of is proven.
    for seed in seeds(5).chain([5, 16, 9]) {
        seen.add(&explore(seed, Effort { lives: 2, steps: 40, states: 3 }));
    }
    println!("{seen:?}");
    assert!(seen.recoveries > 0 && seen.merges > 0, "{seen:?}");
    assert!(seen.ahead > 0, "{seen:?}");
    assert!(seen.removals > 0 && seen.half_swept > 0, "{seen:?}");
}

fn open(disk: &Arc<SimDisk>) -> Store {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    Store::open_on(disk.clone(), options).unwrap()
}

fn set(store: &mut Store, key: &'static str) {
    let mut txn = Transaction::new();
    txn.create_collection(Coll::Meta).coll_set(Coll::Meta, key, Bytes::from_static(b"set"));
    store.submit(txn).unwrap();
}

fn is_set(store: &Store, key: &str) -> bool {
    store.coll_get(Coll::Meta, key.as_bytes()).unwrap().is_some()
}

/// Two groups were under way when the power went, and the second alone was written. The next mount
/// puts another in the place of the first, and makes a checkpoint of it: what lies behind that is
/// still the second of the mount before, with the number of the next, and does not count.
#[test]
fn what_goes_on_behind_a_checkpoint_is_of_its_mount() {
    let disk = Arc::new(SimDisk::new(64 << 20, true));
    let options = MkfsOptions { log_bytes: 2 << 20, ..MkfsOptions::default() };
    Store::mkfs_on(disk.clone(), &options).unwrap();
    let mut store = open(&disk);
    set(&mut store, "before");
    store.sync().unwrap();
    let torn = Arc::new(disk.copy(true));
    disk.forget_events();
    for key in ["first", "second"] {
        set(&mut store, key);
        assert!(store.begin_group());
    }
    let writes = disk.events();
    assert!(matches!(writes[..], [DiskEvent::Write(..), DiskEvent::Write(..)]), "{writes:?}");
    torn.apply(&writes[1]);

    let mut store = open(&torn);
    assert!(is_set(&store, "before") && !is_set(&store, "first") && !is_set(&store, "second"));
    set(&mut store, "other");
    store.checkpoint().unwrap();
    let cut = Arc::new(torn.copy(false));
    drop(store);

    let mut store = open(&cut);
    assert!(is_set(&store, "other"));
    assert!(!is_set(&store, "second"), "it was never acknowledged, and others took its place");
    assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new());
}
