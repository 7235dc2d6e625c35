//! Power cuts: whatever part of the unflushed writes a disk did, in whatever order and torn
//! at sectors, the store opens, is sound, holds every acknowledged transaction whole, and of
//! the others a whole number, in order.
//!
//! `STORE_SEEDS` workloads (`STORE_SEED` for one); `cargo xtask sim store` tries many more.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::explore::{Effort, Seen, durable, explore};
use common::seeds;
use env::Disk;
use store::{Coll, DiskEvent, LogPlacement, MkfsOptions, OpenOptions, SimDisk, Store, Transaction};
use types::HObject;

#[test]
fn power_cuts_lose_nothing_acknowledged() {
    let mut seen = Seen::default();
    // Of each kind of work one, then the log elsewhere and nowhere.
    for seed in seeds(5).chain([5, 16]) {
        seen.add(&explore(seed, Effort { lives: 2, steps: 40, states: 3 }));
    }
    println!("{seen:?}");
    assert!(seen.recoveries > 0 && seen.merges > 0, "{seen:?}");
    assert!(seen.ahead > 0 && seen.unflushed > 0, "{seen:?}");
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

/// A store in which "before" is set, durably.
fn with_one_key() -> (Arc<SimDisk>, Store) {
    let disk = Arc::new(SimDisk::new(64 << 20, true));
    let options = MkfsOptions { log_bytes: 2 << 20, ..MkfsOptions::default() };
    Store::mkfs_on(disk.clone(), &options).unwrap();
    let mut store = open(&disk);
    set(&mut store, "before");
    store.sync().unwrap();
    (disk, store)
}

fn is_set(store: &Store, key: &str) -> bool {
    store.coll_get(Coll::Meta, key.as_bytes()).unwrap().is_some()
}

/// Two groups were under way when the power went, and the second alone was written. The next mount
/// puts another in the place of the first, and makes a checkpoint of it: what lies behind that is
/// still the second of the mount before, with the number of the next, and does not count.
#[test]
fn what_goes_on_behind_a_checkpoint_is_of_its_mount() {
    let (disk, mut store) = with_one_key();
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

/// The process ended with a group written and not flushed, its data on one device and itself on
/// another. The next one finds it and goes on from there, so the power may not take it any more.
#[test]
fn what_an_ended_process_left_is_durable_once_the_next_has_opened() {
    const SIZE: u64 = 64 << 20;
    const LOG: u64 = 2 << 20;
    let disk = Arc::new(SimDisk::new(SIZE + LOG + 4096, true));
    let parts = |disk: &Arc<SimDisk>| -> (Arc<dyn Disk>, Option<Arc<dyn Disk>>) {
        (Arc::new(disk.part(0, SIZE)), Some(Arc::new(disk.part(SIZE, LOG + 4096))))
    };
    let options = MkfsOptions { log_bytes: LOG, log: LogPlacement::Own, ..MkfsOptions::default() };
    let (block, log) = parts(&disk);
    Store::mkfs_with(block, log, &options).unwrap();
    let open = |disk| {
        let (block, log) = parts(disk);
        let options = OpenOptions { threads: false, ..OpenOptions::default() };
        Store::open_with(block, log, options).unwrap()
    };
    let mut store = open(&disk);
    store.sync().unwrap();
    let before = disk.copy(false);
    disk.forget_events();
    let o = HObject { name: "a".into(), ..HObject::min() };
    let mut txn = Transaction::new();
    txn.create_collection(Coll::Meta).write(Coll::Meta, &o, 0, Bytes::from(vec![7; 1 << 20]));
    let seq = store.submit(txn).unwrap();
    assert!(store.begin_group());
    let mut events = disk.events();
    assert!(!events.iter().any(|e| !matches!(e, DiskEvent::Write(..))), "{events:?}");

    let next = Arc::new(disk.copy(true));
    let found = open(&next);
    assert_eq!(found.opened_at(), seq);
    events.extend(next.events());
    let cut = Arc::new(durable(&before, &events));
    let store = open(&cut);
    assert_eq!(store.opened_at(), seq);
    assert_eq!(store.read(Coll::Meta, &o, 0, 1 << 20).unwrap(), vec![7; 1 << 20]);
}

/// The log ends with a group that removes what the one before it wrote, and none behind calls
/// either proven. What the next mount writes ahead of its first group does not go there: were the
/// power to go again, the first of the two would pass for cut off, and both be gone.
#[test]
fn what_the_last_groups_let_go_of_is_not_written_before_they_are_proven() {
    let (disk, mut store) = with_one_key();
    let o = HObject { name: "a".into(), ..HObject::min() };
    let mut write = Transaction::new();
    write.write(Coll::Meta, &o, 0, Bytes::from(vec![7; 1 << 20]));
    store.submit(write).unwrap();
    assert!(store.begin_group());
    let mut remove = Transaction::new();
    remove.remove(Coll::Meta, &o);
    let removed = store.submit(remove).unwrap();
    assert!(store.begin_group());
    assert!(store.end_group() && store.end_group());
    assert_eq!(store.durable(), removed);

    let next = Arc::new(disk.copy(false));
    let mut store = open(&next);
    assert_eq!(store.opened_at(), removed);
    let mut staged = 0;
    while store.stage(&Bytes::from(vec![staged; 1 << 20])).unwrap().is_some() {
        staged += 1;
    }
    assert!(staged > 32, "most of the device is written: {staged}");
    let cut = Arc::new(next.copy(false));
    let store = open(&cut);
    assert_eq!(store.opened_at(), removed);
}
