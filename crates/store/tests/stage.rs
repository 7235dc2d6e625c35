//! Data that is durable before its transaction: where it goes, and what becomes of its space.
#![allow(clippy::disallowed_methods)] // a test may wait

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::Dice;
use store::{
    Coll, DiskEvent, DiskFault, Fetch, MkfsOptions, OpenOptions, SimDisk, Store, StoreError,
    Transaction,
};
use types::{HObject, PgId, PoolId, ShardId, SpgId};

const LEN: usize = 512 << 10;

fn pg() -> Coll {
    Coll::Pg(SpgId { pg: PgId::new(1, 0), shard: ShardId::NONE })
}

fn object() -> HObject {
    let none = Bytes::new;
    HObject::head(PoolId(1), none(), none(), Bytes::from_static(b"o"))
}

fn fill(seed: u64) -> Bytes {
    Dice::new(seed).bytes(LEN)
}

fn write(store: &mut Store, data: &Bytes) -> Result<u64, StoreError> {
    let mut txn = Transaction::new();
    txn.write(pg(), &object(), 0, data.clone());
    store.submit(txn)
}

fn open(disk: &Arc<SimDisk>, threads: bool) -> Store {
    Store::open_on(disk.clone(), OpenOptions { threads, ..OpenOptions::default() }).unwrap()
}

fn made(threads: bool) -> (Arc<SimDisk>, Store) {
    let disk = Arc::new(SimDisk::new(64 << 20, true));
    let options = MkfsOptions { log_bytes: 4 << 20, ..MkfsOptions::default() };
    Store::mkfs_on(disk.clone(), &options).unwrap();
    let mut store = open(&disk, threads);
    store.submit(Transaction::new().create_collection(pg()).clone()).unwrap();
    store.checkpoint().unwrap();
    disk.forget_events();
    (disk, store)
}

/// What a power cut leaves when the disk had done all: opened, and sound.
fn after_cut(disk: &SimDisk) -> Store {
    let mut store = open(&Arc::new(disk.copy(false)), false);
    let report = store.fsck(true).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    store
}

fn holds(store: &Store, data: &Bytes) -> bool {
    store.read(pg(), &object(), 0, LEN as u64).is_ok_and(|found| found == *data)
}

/// It goes in steps, each durable before the next; its transaction writes only a record.
#[test]
fn it_is_there_before_its_transaction() {
    let (disk, mut store) = made(false);
    let data = fill(1);
    assert!(matches!(store.stage(&data), Ok(Some(Fetch::Ready(found))) if found == data));
    let events = disk.events();
    assert_eq!(events.len(), 8, "{}", events.len());
    for pair in events.chunks(2) {
        assert!(matches!(&pair[0], DiskEvent::Write(_, step) if step.len() == 128 << 10));
        assert!(matches!(pair[1], DiskEvent::Flush | DiskEvent::FlushPart(..)), "{:?}", pair[1]);
    }
    disk.forget_events();
    write(&mut store, &data).unwrap();
    while store.step() {}
    let bytes = |e: &DiskEvent| if let DiskEvent::Write(_, data) = e { data.len() } else { 0 };
    assert!(disk.events().iter().map(bytes).sum::<usize>() < 16 << 10);
    let free = store.statfs().available;
    store.unstage(&data);
    assert_eq!(store.statfs().available, free, "what was used is the transaction's");
    assert!(holds(&store, &data) && holds(&after_cut(&disk), &data));
    store.checkpoint().unwrap();
    assert!(holds(&after_cut(&disk), &data));
    // It is overwritten by what comes as ever.
    write(&mut store, &fill(2)).unwrap();
    assert!(holds(&store, &fill(2)));
    store.close().unwrap();
}

/// Without a transaction it is nowhere: after a cut, a checkpoint, or because nobody wants it.
#[test]
fn it_is_nobodys_without_one() {
    let (disk, mut store) = made(false);
    let free = store.statfs().available;
    let data = fill(1);
    assert!(store.stage(&data).unwrap().is_some());
    assert!(store.statfs().available <= free - LEN as u64);
    assert_eq!(after_cut(&disk).statfs().available, free);
    store.checkpoint().unwrap();
    let report = store.fsck(true).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    // What the checkpoint wrote about itself takes a block more.
    let free = store.statfs().available + LEN as u64;
    assert_eq!(after_cut(&disk).statfs().available, free, "no checkpoint has it");
    store.unstage(&data);
    assert_eq!(store.statfs().available, free);
    store.unstage(&data);
    assert_eq!(store.statfs().available, free, "once");
    // Equal bytes elsewhere are not these.
    assert!(store.stage(&data).unwrap().is_some());
    write(&mut store, &fill(1)).unwrap();
    while store.step() {}
    store.unstage(&data);
    assert!(holds(&store, &data) && holds(&after_cut(&disk), &data));
}

/// A checkpoint between the two takes nothing from either.
#[test]
fn a_checkpoint_may_come_between() {
    let (disk, mut store) = made(false);
    let data = fill(3);
    store.stage(&data).unwrap().unwrap();
    store.begin_checkpoint().unwrap();
    write(&mut store, &data).unwrap();
    while store.step_checkpoint() || store.step() {
        store.complete().unwrap();
        after_cut(&disk);
    }
    assert!(holds(&store, &data) && holds(&after_cut(&disk), &data));
    store.checkpoint().unwrap();
    assert!(holds(&after_cut(&disk), &data));
    store.close().unwrap();
}

/// A thread does it where there are threads; the store may be closed before.
#[test]
fn a_thread_writes_it() {
    let (disk, mut store) = made(true);
    for seed in 0..20 {
        let data = fill(seed);
        let Ok(Some(Fetch::Later(id))) = store.stage(&data) else { panic!("a thread does it") };
        let until = Instant::now() + Duration::from_secs(20);
        let (found, done) = loop {
            match store.fetched() {
                Some(done) => break done,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
            assert!(Instant::now() < until, "it never ends");
        };
        assert!(found == id && done.unwrap() == data);
        write(&mut store, &data).unwrap();
        store.unstage(&data);
        assert!(holds(&store, &data));
    }
    for seed in 0..20 {
        store.stage(&fill(seed)).unwrap().unwrap();
    }
    store.close().unwrap();
    assert!(holds(&after_cut(&disk), &fill(19)));
}

/// What is not worth it, or cannot be had, is not done; a device that fails is told of, and
/// the space is free again.
#[test]
fn what_cannot_be_is_refused() {
    let (disk, mut store) = made(false);
    for len in [0, 4096, (64 << 10) - 4096, (64 << 10) + 1] {
        assert!(store.stage(&fill(1).slice(..len)).unwrap().is_none(), "{len}");
    }
    let large = Bytes::from(vec![7; 60 << 20]);
    assert!(store.stage(&large).unwrap().is_none(), "there is no room");
    let free = store.statfs().available;
    disk.fault_in(Some((1, DiskFault::NoSpace)));
    assert!(matches!(store.stage(&fill(1)), Err(StoreError::Io { .. })));
    assert_eq!(store.statfs().available, free);
    assert!(store.stage(&fill(1)).unwrap().is_some(), "once");
}
