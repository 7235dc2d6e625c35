//! The log on a device of its own, and in memory.

mod common;

use std::path::Path;

use bytes::Bytes;
use common::Dir;
use store::{Coll, LogPlacement, MkfsOptions, OpenOptions, Store, StoreError, Transaction};
use types::{HObject, OsdId, PoolId, Uuid};

fn make(dir: &Dir, log: LogPlacement, osd: i32) {
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd: OsdId(osd),
        osd_uuid: Uuid([osd as u8 + 1; 16]),
        size: 64 << 20,
        log_bytes: 8 << 20,
        log,
        log_path: None,
    };
    Store::mkfs(&dir.block(), &options).unwrap();
}

fn open(block: &Path) -> Result<Store, StoreError> {
    Store::open(block, OpenOptions::default())
}

fn object(n: u64) -> HObject {
    let name = Bytes::from(format!("o{n}"));
    HObject::head(PoolId(1), Bytes::new(), Bytes::new(), name)
}

fn write(store: &mut Store, n: u64) {
    let mut txn = Transaction::new();
    txn.create_collection(Coll::Meta);
    txn.write(Coll::Meta, &object(n), 0, vec![n as u8; 3000 + 50_000 * n as usize].into());
    store.submit(txn).unwrap();
    store.sync().unwrap();
}

fn holds(store: &Store, n: u64) -> bool {
    let want = vec![n as u8; 3000 + 50_000 * n as usize];
    store.read(Coll::Meta, &object(n), 0, u64::MAX).is_ok_and(|d| d == want)
}

#[test]
fn a_log_of_its_own_is_replayed_and_nobody_elses() {
    let dir = Dir::new("own-log");
    make(&dir, LogPlacement::Own, 0);
    let mut store = open(&dir.block()).unwrap();
    assert_eq!(store.log_placement(), LogPlacement::Own);
    for n in 0..5 {
        write(&mut store, n);
    }
    drop(store); // not closed: the log has it
    let mut store = open(&dir.block()).unwrap();
    assert!((0..5).all(|n| holds(&store, n)));
    assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new());
    write(&mut store, 5);
    drop(store);

    let other = Dir::new("other-log");
    make(&other, LogPlacement::Own, 1);
    let options = OpenOptions { log_path: Some(other.0.join("journal")), ..OpenOptions::default() };
    let e = Store::open(&dir.block(), options).err().expect("another store's log").to_string();
    assert!(e.contains("log is that of osd.1"), "{e}");
    let options = MkfsOptions {
        osd: OsdId(7),
        size: 64 << 20,
        log_bytes: 8 << 20,
        log: LogPlacement::Own,
        log_path: Some(other.0.join("journal")),
        ..MkfsOptions::default()
    };
    let e = Store::mkfs(&dir.0.join("new"), &options).expect_err("osd.1 needs it").to_string();
    assert!(e.contains("holds the log of osd.1"), "{e}");
    std::fs::rename(dir.0.join("journal"), dir.0.join("elsewhere")).unwrap();
    assert!(matches!(open(&dir.block()), Err(StoreError::Io { .. })), "the log is missing");
    let options = OpenOptions { log_path: Some(dir.0.join("elsewhere")), ..OpenOptions::default() };
    let store = Store::open(&dir.block(), options).unwrap();
    assert!((0..6).all(|n| holds(&store, n)));
}

#[test]
fn without_a_log_a_crash_goes_back_to_the_checkpoint() {
    let dir = Dir::new("no-log");
    make(&dir, LogPlacement::Memory, 0);
    let mut store = open(&dir.block()).unwrap();
    assert_eq!(store.log_placement(), LogPlacement::Memory);
    write(&mut store, 1);
    store.checkpoint().unwrap();
    write(&mut store, 2);
    drop(store);
    let mut store = open(&dir.block()).unwrap();
    assert!(holds(&store, 1) && !store.exists(Coll::Meta, &object(2)).unwrap());
    write(&mut store, 3);
    store.close().unwrap();
    let mut store = open(&dir.block()).unwrap();
    assert!(holds(&store, 1) && holds(&store, 3), "closing keeps everything");
    assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new());
}
