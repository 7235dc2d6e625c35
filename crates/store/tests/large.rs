//! The largest transactions that a log takes, and those that are larger.

mod common;

use bytes::Bytes;
use common::Dir;
use store::{Coll, LogPlacement, MkfsOptions, OpenOptions, Store, StoreError, Transaction};
use types::{HObject, PgId, PoolId, ShardId, SpgId};

const PG: Coll = Coll::Pg(SpgId { pg: PgId { pool: PoolId(1), ps: 0 }, shard: ShardId::NONE });

fn object(name: &'static str) -> HObject {
    let none = Bytes::new;
    HObject::head(PoolId(1), none(), none(), Bytes::from_static(name.as_bytes()))
}

fn made(n: usize, seed: u8) -> Bytes {
    (0..n).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
}

/// An attribute, or one omap value, of so many bytes beside a small change.
fn large(n: usize, seed: u8) -> Transaction {
    let mut txn = Transaction::new();
    txn.coll_set(PG, vec![b'l', seed], made(100, seed));
    match seed % 2 {
        0 => txn.set_attr(PG, &object("a"), "big", made(n, seed)),
        _ => txn.omap_set(PG, &object("o"), [(Bytes::from("big"), made(n, seed))]),
    };
    txn
}

fn holds(store: &Store, n: usize, last: u8) {
    for seed in [last, last - 1] {
        let found = match seed % 2 {
            0 => store.get_attr(PG, &object("a"), b"big").unwrap(),
            _ => {
                let key = [Bytes::from("big")];
                store.omap_get_keys(PG, &object("o"), &key).unwrap().into_values().next()
            }
        };
        assert!(found == Some(made(n, seed)), "change {seed} is there whole");
    }
}

/// A log takes transactions of nearly a third of it one after the other, whatever was in it
/// before, and has them after a restart; a larger one is refused, and changes nothing.
#[test]
fn a_log_takes_the_largest_one_after_the_other() {
    for (log, gather) in [(LogPlacement::Device, false), (LogPlacement::Memory, true)] {
        let dir = Dir::new(if gather { "large-memory" } else { "large" });
        let path = dir.block();
        let options =
            MkfsOptions { size: 512 << 20, log_bytes: 16 << 20, log, ..MkfsOptions::default() };
        Store::mkfs(&path, &options).unwrap();
        let open = || Store::open(&path, OpenOptions { gather, ..OpenOptions::default() }).unwrap();
        let mut store = open();
        let most = store.record_max() as usize;
        assert!(most > (16 << 20) * 3 / 10, "{most}");
        let n = most - 2048;
        let mut txn = Transaction::new();
        txn.create_collection(PG);
        store.submit(txn).unwrap();
        for seed in 1..=8u8 {
            for small in 0..seed {
                let mut txn = Transaction::new();
                txn.coll_set(PG, vec![b's', small], made(5000, seed));
                store.submit(txn).unwrap();
            }
            store.submit(large(n, seed)).unwrap();
            if seed == 3 {
                store.kick();
                store.sync().unwrap();
            }
        }
        holds(&store, n, 8);
        for seed in [100, 101] {
            let refused = store.submit(large(most + 8192, seed));
            assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
            assert_eq!(refused.unwrap_err().errno(), 90);
            assert_eq!(store.coll_get(PG, &[b'l', seed]).unwrap(), None);
        }
        store.kick();
        store.sync().unwrap();
        drop(store);
        let mut store = open();
        holds(&store, n, 8);
        store.checkpoint().unwrap();
        holds(&store, n, 8);
        drop(store);
        holds(&open(), n, 8);
    }
}

/// The log as it is made unless told otherwise takes what the peer's clients send at once: an
/// attribute of 60 MB, omap of 80 MB.
#[test]
fn a_log_of_the_usual_size_takes_what_clients_send() {
    let dir = Dir::new("large-usual");
    let path = dir.block();
    let options = MkfsOptions { size: 2 << 30, ..MkfsOptions::default() };
    Store::mkfs(&path, &options).unwrap();
    let mut store = Store::open(&path, OpenOptions::default()).unwrap();
    let mut txn = Transaction::new();
    txn.create_collection(PG).set_attr(PG, &object("a"), "big", made(60_000_000, 1));
    store.submit(txn).unwrap();
    let value = made(1_000_000, 2);
    let mut txn = Transaction::new();
    txn.omap_set(PG, &object("o"), (0..80).map(|n| (Bytes::from(format!("{n}")), value.clone())));
    store.submit(txn).unwrap();
    store.sync().unwrap();
    drop(store);
    let store = Store::open(&path, OpenOptions::default()).unwrap();
    assert_eq!(store.get_attr(PG, &object("a"), b"big").unwrap().unwrap().len(), 60_000_000);
    let keys = [Bytes::from("79")];
    assert_eq!(store.omap_get_keys(PG, &object("o"), &keys).unwrap()[&keys[0]], value);
}

/// Small changes of objects with large attributes: each holds the whole object in memory, but not more
/// of them than two checkpoints' worth.
#[test]
fn small_changes_of_large_objects_are_bounded() {
    const ATTR: usize = 2 << 20;
    const OBJECTS: u32 = 60;
    let dir = Dir::new("large-attrs");
    let options = MkfsOptions { size: 1 << 30, log_bytes: 32 << 20, ..MkfsOptions::default() };
    Store::mkfs(&dir.block(), &options).unwrap();
    let mut store = Store::open(&dir.block(), OpenOptions::default()).unwrap();
    let object =
        |n: u32| HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::from(format!("o{n}")));
    let mut txn = Transaction::new();
    txn.create_collection(PG);
    store.submit(txn).unwrap();
    for n in 0..OBJECTS {
        let mut txn = Transaction::new();
        txn.set_attr(PG, &object(n), "large", made(ATTR, n as u8));
        store.submit(txn).unwrap();
    }
    let mut most = 0;
    for round in 0..3u8 {
        for n in 0..OBJECTS {
            let mut txn = Transaction::new();
            txn.set_attr(PG, &object(n), "small", vec![round].into());
            store.submit(txn).unwrap();
            most = most.max(store.memory().changes.1);
        }
    }
    // A checkpoint begins with each 8 MiB of the log: 24 MiB and one object, twice.
    assert!(most <= 56 << 20, "{} MiB in memory", most >> 20);
    for n in 0..OBJECTS {
        let large = store.get_attr(PG, &object(n), b"large").unwrap();
        assert!(large == Some(made(ATTR, n as u8)), "{n}");
        assert_eq!(store.get_attr(PG, &object(n), b"small").unwrap().as_deref(), Some(&[2][..]));
    }
}

/// A list of objects with large attributes takes memory by their names, in one table or several,
/// and leaves out what was removed.
#[test]
fn a_list_leaves_large_attributes_on_the_device() {
    const ATTR: usize = 1 << 20;
    const OBJECTS: u32 = 24;
    let dir = Dir::new("large-listed");
    let options = MkfsOptions { size: 1 << 30, log_bytes: 32 << 20, ..MkfsOptions::default() };
    Store::mkfs(&dir.block(), &options).unwrap();
    let open = || Store::open(&dir.block(), OpenOptions::default()).unwrap();
    let object = |n: u32| {
        HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::from(format!("o{n:02}")))
    };
    let mut store = open();
    let mut txn = Transaction::new();
    txn.create_collection(PG);
    store.submit(txn).unwrap();
    for part in 0..3 {
        for n in (part..OBJECTS).step_by(3) {
            let mut txn = Transaction::new();
            txn.set_attr(PG, &object(n), "large", made(ATTR, n as u8));
            store.submit(txn).unwrap();
        }
        let mut txn = Transaction::new();
        txn.remove(PG, &object(part));
        store.submit(txn).unwrap();
        drop(store);
        store = open();
    }
    let before = store.memory().tables.1;
    let mut want: Vec<HObject> = (3..OBJECTS).map(object).collect();
    want.sort();
    let listed = store.list(PG, &HObject::min(), 100).unwrap().objects;
    assert_eq!(listed, want);
    let from = store.list(PG, &want[5], 4).unwrap();
    assert_eq!((&*from.objects, &from.next), (&want[5..9], &want[9]));
    let took = store.memory().tables.1 - before;
    assert!(took < ATTR as u64, "{took} bytes");
    let large = store.get_attr(PG, &object(7), b"large").unwrap();
    assert!(large == Some(made(ATTR, 7)), "the value is there");
}
