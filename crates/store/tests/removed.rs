//! Removed collections: gone at once, in the same time whatever they hold; what they held goes by
//! itself, through restarts and damage, and its space is there for who wants it.
#![allow(clippy::disallowed_methods)] // one test has real threads, and waits for them

mod common;

use std::ops::Bound;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use bytes::Bytes;
use common::Dice;
use store::{Coll, MkfsOptions, OpenOptions, SimDisk, Store, StoreError, Transaction};
use types::{HObject, PgId, PoolId, ShardId, SnapId, SpgId, Uuid};

const OBJECTS: u64 = 90;
const KEYS: u64 = 1500;

fn pg(n: u32) -> Coll {
    Coll::Pg(SpgId { pg: PgId::new(1, n), shard: ShardId::NONE })
}

fn object(n: u64) -> HObject {
    HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::from(format!("o{n}")))
}

fn made(size: u64) -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new(size, false));
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([2; 16]),
        log_bytes: 2 << 20,
        ..MkfsOptions::default()
    };
    Store::mkfs_on(disk.clone(), &options).unwrap();
    disk
}

fn open(disk: &Arc<SimDisk>, sweep_objects: usize) -> Store {
    let options = OpenOptions { threads: false, sweep_objects, ..OpenOptions::default() };
    Store::open_on(disk.clone(), options).unwrap()
}

/// A collection as a PG has them: objects with all there is, clones of some, a log.
fn fill(store: &mut Store, c: Coll, dice: &mut Dice) {
    let mut txn = Transaction::new();
    txn.create_collection(c);
    store.submit(txn).unwrap();
    for n in 0..OBJECTS {
        let (o, mut txn) = (object(n), Transaction::new());
        txn.write(c, &o, 0, dice.bytes(if n % 3 == 0 { 700 } else { 100_000 }));
        txn.set_attr(c, &o, "_", dice.bytes(200));
        txn.omap_set(c, &o, [("k".into(), dice.bytes(50))]);
        if n % 4 == 0 {
            txn.clone_object(c, &o, &o.with_snap(SnapId(4)));
            txn.write(c, &o, 5000, dice.bytes(9000));
        }
        store.submit(txn).unwrap();
        store.step();
    }
    for n in 0..KEYS {
        let mut txn = Transaction::new();
        txn.coll_set(c, format!("log{n:06}"), dice.bytes(100));
        store.submit(txn).unwrap();
    }
    store.sync().unwrap();
}

fn remove(store: &mut Store, c: Coll) {
    let mut txn = Transaction::new();
    txn.remove_collection(c);
    store.submit(txn).unwrap();
}

fn is_sound(store: &mut Store) {
    assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new());
}

/// What the store's device and owner do when nothing else is to be done.
fn turn(store: &mut Store) -> bool {
    let worked = store.step() || store.step_checkpoint();
    store.complete().unwrap() < store.submitted() || worked
}

/// Tables are merged until nothing is left of what they had.
fn settle(store: &mut Store) {
    for n in 0..12 {
        let mut txn = Transaction::new();
        txn.coll_set(Coll::Meta, "n", Bytes::from(vec![n; 10]));
        store.submit(txn).unwrap();
        store.checkpoint().unwrap();
        store.step_merge();
        store.complete().unwrap();
    }
}

/// The call returns with nothing done but the name gone. The rest goes in steps, each woken by
/// the one before, until the store is as empty as it was.
#[test]
fn what_a_collection_held_goes_by_itself() {
    let disk = made(96 << 20);
    let mut store = open(&disk, 4);
    let mut dice = Dice::new(1);
    let mut txn = Transaction::new();
    txn.create_collection(Coll::Meta);
    store.submit(txn).unwrap();
    settle(&mut store);
    let empty = store.statfs();
    fill(&mut store, pg(0), &mut dice);
    store.checkpoint().unwrap();
    let full = store.statfs();
    assert!(full.allocated > 6 << 20 && full.used > empty.used + (6 << 20));

    let submitted = store.submitted();
    remove(&mut store, pg(0));
    assert_eq!(store.submitted(), submitted + 1, "one transaction");
    assert_eq!(store.statfs().pools, full.pools, "nothing has gone");
    assert_eq!(store.list_collections(), [Coll::Meta]);
    assert!(!store.collection_exists(pg(0)) && !store.exists(pg(0), &object(0)).unwrap());
    let listed = store.list(pg(0), &HObject::min(), 10);
    assert!(matches!(listed, Err(StoreError::NoCollection(_))));
    let read = store.coll_get(pg(0), b"log000001");
    assert!(matches!(read, Err(StoreError::NoCollection(_))));

    // The same name again: empty, and not touched by what goes on behind.
    let mut txn = Transaction::new();
    txn.create_collection(pg(0));
    store.submit(txn).unwrap();
    assert_eq!(store.list(pg(0), &HObject::min(), 10).unwrap().objects, []);
    assert_eq!(store.coll_iter(pg(0), Bound::Unbounded, 10).unwrap(), []);
    let data = dice.bytes(200_000);
    let mut txn = Transaction::new();
    txn.write(pg(0), &object(1), 0, data.clone()).coll_set(pg(0), "log000001", data.slice(..9));
    store.submit(txn).unwrap();

    let (mut turns, mut left) = (0, store.statfs().pools[&PoolId(1)].objects);
    while turn(&mut store) {
        let objects = store.statfs().pools[&PoolId(1)].objects;
        assert!(left - objects <= 4, "{left} objects, then {objects}");
        (turns, left) = (turns + 1, objects);
        if turns % 10 == 0 {
            is_sound(&mut store);
        }
    }
    assert_eq!((store.dead_collections(), left), (0, 1));
    assert!(turns >= OBJECTS / 4 + KEYS / 64, "{turns} turns");
    assert_eq!(store.read(pg(0), &object(1), 0, u64::MAX).unwrap(), data);
    assert_eq!(store.coll_iter(pg(0), Bound::Unbounded, 10).unwrap().len(), 1);
    is_sound(&mut store);

    remove(&mut store, pg(0));
    while turn(&mut store) {}
    settle(&mut store);
    let (now, was) = (store.statfs(), empty);
    assert_eq!((now.stored, now.allocated), (0, 0));
    // All but older tables, which wait for others of their size.
    let more = now.used - was.used;
    assert!(more <= now.internal - was.internal + (64 << 10), "{more} bytes more");
    assert!(more < 1 << 20, "{more} bytes more");
}

/// With threads, and an owner who kicks only for what it submits itself: a turn for each wake-up.
#[test]
fn an_idle_owner_sweeps_by_its_wake_ups() {
    let disk = made(96 << 20);
    let (wake, woken) = sync_channel::<()>(1);
    let waker = Box::new(move || {
        let _ = wake.try_send(());
    });
    let options = OpenOptions { gather: true, waker, sweep_objects: 4, ..OpenOptions::default() };
    let mut store = Store::open_on(disk.clone(), options).unwrap();
    fill(&mut store, pg(0), &mut Dice::new(2));
    store.checkpoint().unwrap();
    remove(&mut store, pg(0));
    assert_eq!(store.dead_collections(), 1);
    store.kick();
    while store.dead_collections() > 0 {
        woken.recv_timeout(Duration::from_secs(20)).expect("it goes on by itself");
        store.complete().unwrap();
    }
    assert_eq!(store.statfs().allocated, 0);
    is_sound(&mut store);
}

/// Objects that left a collection before it was removed, and blocks that it shared with them, stay.
#[test]
fn what_others_share_stays() {
    let disk = made(96 << 20);
    let mut store = open(&disk, 1);
    let mut dice = Dice::new(3);
    fill(&mut store, pg(0), &mut dice);
    let mut txn = Transaction::new();
    txn.create_collection(pg(1));
    // A copy by its clone, one by a range of blocks, one that leaves as it is.
    txn.clone_object(pg(0), &object(1), &object(501));
    txn.clone_range(pg(0), &object(2), &object(502), 4096, 81_920, 0);
    let want: Vec<Bytes> =
        (1..4).map(|n| store.read(pg(0), &object(n), 0, u64::MAX).unwrap()).collect();
    for (from, to) in [(501, 1), (502, 2), (3, 3)] {
        txn.move_object(pg(0), &object(from), pg(1), &object(to));
    }
    txn.remove_collection(pg(0));
    store.submit(txn).unwrap();
    let check = |store: &mut Store| {
        let read = |n| store.read(pg(1), &object(n), 0, u64::MAX).unwrap();
        assert_eq!(read(1), want[0]);
        assert_eq!(read(2), want[1].slice(4096..86_016));
        assert_eq!(read(3), want[2]);
        is_sound(store);
    };
    let mut turns = 0;
    while turn(&mut store) {
        turns += 1;
        if turns % 16 == 0 {
            check(&mut store);
        }
    }
    assert_eq!(store.dead_collections(), 0);
    check(&mut store);
    assert_eq!(store.statfs().pools[&PoolId(1)].objects, 3);
    store.close().unwrap();
    check(&mut open(&disk, 1));
}

/// The store is closed, or dies, after so many steps, again and again: it goes on each time.
#[test]
fn restarts_go_on_where_it_ended() {
    for (seed, clean) in [(4, true), (5, false)] {
        let disk = made(96 << 20);
        let mut store = open(&disk, 7);
        let mut dice = Dice::new(seed);
        fill(&mut store, pg(0), &mut dice);
        if clean {
            store.checkpoint().unwrap();
        }
        remove(&mut store, pg(0));
        store.sync().unwrap();
        let mut lives = 0;
        while store.dead_collections() > 0 {
            lives += 1;
            for _ in 0..2 + dice.below(4) {
                turn(&mut store);
            }
            if dice.below(3) == 0 {
                // Some of it in tables, some in the log.
                store.checkpoint().unwrap();
            }
            if clean {
                store.close().unwrap();
            } else {
                drop(store);
            }
            store = open(&disk, 7);
            assert!(store.list_collections().is_empty());
            // Whether or not anybody has something to do.
            assert!(store.dead_collections() == 0 || store.step());
            is_sound(&mut store);
        }
        assert!(lives > 5, "{lives} lives");
        let stats = store.statfs();
        assert_eq!((stats.allocated, stats.stored), (0, 0));
        assert_eq!(store.fsck(true).unwrap().objects, 0);
        is_sound(&mut store);
    }
}

/// A full store whose largest collection goes takes at once what needs its space.
#[test]
fn space_is_there_when_it_is_wanted() {
    space_is_there(0);
    // A checkpoint is due all the time.
    space_is_there(1);
}

fn space_is_there(checkpoint_bytes: u64) {
    let disk = made(64 << 20);
    let options = OpenOptions { threads: false, checkpoint_bytes, ..OpenOptions::default() };
    let mut store = Store::open_on(disk, options).unwrap();
    let mut txn = Transaction::new();
    txn.create_collection(pg(0)).create_collection(pg(1));
    store.submit(txn).unwrap();
    let data = Dice::new(6).bytes(1 << 20);
    let write = |store: &mut Store, c: Coll, n: u64| {
        let mut txn = Transaction::new();
        txn.write(c, &object(n), 0, data.slice(..256 << 10));
        store.submit(txn)
    };
    let mut held = 0;
    while write(&mut store, pg(0), held).is_ok() {
        held += 1;
        store.step();
    }
    assert!(held > 100, "{held} objects");
    let refused = write(&mut store, pg(1), 0);
    assert!(matches!(refused, Err(StoreError::NoSpace { .. })), "{refused:?}");
    let stored = store.statfs().allocated;
    remove(&mut store, pg(0));
    assert_eq!(store.statfs().allocated, stored, "nothing has gone");
    // New tables hold the old objects' names.
    for n in 0..held - 4 {
        write(&mut store, pg(1), n).unwrap_or_else(|e| panic!("object {n} of {held}: {e}"));
        if n == 0 {
            let allocated = store.statfs().allocated;
            assert!(allocated > stored / 2, "no more is swept than is wanted: {allocated}");
        }
        store.step();
    }
    is_sound(&mut store);
    for n in 0..held - 4 {
        let read = store.read(pg(1), &object(n), 0, u64::MAX).unwrap();
        assert_eq!(read, data.slice(..256 << 10));
    }
}

/// Far more than the log holds, if each step took a block of it: checkpoints come between, and
/// who submits meanwhile never waits for more than one.
#[test]
fn the_log_does_not_fill() {
    let disk = made(96 << 20);
    let mut store = open(&disk, 1);
    let mut txn = Transaction::new();
    txn.create_collection(pg(0));
    store.submit(txn).unwrap();
    for n in 0..1500 {
        let mut txn = Transaction::new();
        txn.touch(pg(0), &object(n));
        store.submit(txn).unwrap();
    }
    store.checkpoint().unwrap();
    remove(&mut store, pg(0));
    let mut checkpoints = 0;
    while store.dead_collections() > 0 {
        if !store.step() {
            assert!(store.step_checkpoint(), "it waits for a checkpoint only");
            checkpoints += 1;
        }
        store.complete().unwrap();
    }
    is_sound(&mut store);
    println!("{checkpoints} checkpoints");
}
