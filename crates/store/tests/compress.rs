//! Compressed pools: space, and what becomes of compressed data that changes.

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::{Dice, compress};
use store::{
    Algorithm, Coll, Compressible, Compression, MkfsOptions, OpenOptions, SimDisk, Store,
    StoreError, Transaction,
};
use types::{HObject, PgId, PoolId, ShardId, SpgId, Uuid};

const PG: Coll = Coll::Pg(SpgId { pg: PgId { pool: PoolId(1), ps: 0 }, shard: ShardId::NONE });
const POOL: PoolId = PoolId(1);

fn open(disk: &Arc<SimDisk>) -> Store {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    Store::open_on(disk.clone(), options).unwrap()
}

fn new() -> (Arc<SimDisk>, Store) {
    let disk = Arc::new(SimDisk::new(64 << 20, false));
    let options =
        MkfsOptions { osd_uuid: Uuid([2; 16]), log_bytes: 4 << 20, ..MkfsOptions::default() };
    Store::mkfs_on(disk.clone(), &options).unwrap();
    let mut store = open(&disk);
    store.submit(Transaction::new().create_collection(PG).clone()).unwrap();
    (disk, store)
}

fn name(n: u32) -> HObject {
    HObject::head(POOL, Bytes::new(), Bytes::new(), format!("o{n}").into())
}

fn put(store: &mut Store, n: u32, off: u64, data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    store.submit(Transaction::new().write(PG, &name(n), off, data).clone()).unwrap();
}

/// Half of each page repeats itself.
fn half(len: usize) -> Vec<u8> {
    let mut data = Dice::new(7).bytes(len).to_vec();
    for page in data.chunks_mut(4096) {
        page[2048..].fill(b'x');
    }
    data
}

/// Bytes of space the object takes.
fn space(store: &Store, n: u32) -> u64 {
    store.stat(PG, &name(n)).unwrap().allocated
}

fn is_sound(store: &mut Store) {
    store.checkpoint().unwrap();
    assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new());
}

#[test]
fn all_algorithms_save_space_and_are_counted() {
    for algorithm in [Algorithm::Snappy, Algorithm::Zstd, Algorithm::Lz4] {
        let (disk, mut store) = new();
        compress(&mut store, algorithm);
        let data = half(1 << 20);
        put(&mut store, 1, 0, &data);
        let noise = Dice::new(1).bytes(1 << 20);
        put(&mut store, 2, 0, &noise);
        for _ in 0..2 {
            let saved = space(&store, 1);
            assert!(saved < 700 << 10, "{algorithm:?}: {saved}");
            assert_eq!(space(&store, 2), 1 << 20);
            let stats = store.statfs().pools[&POOL];
            assert_eq!((stats.compressed, stats.uncompressed), (saved, 1 << 20));
            assert_eq!(stats.allocated, saved + (1 << 20));
            for (off, len) in [(0, 1 << 20), (5, 9), (65_530, 20), (300_000, 200_000)] {
                let read = store.read(PG, &name(1), off, len).unwrap();
                assert!(read == data[off as usize..(off + len) as usize], "{off} {len}");
            }
            is_sound(&mut store);
            // Reading needs no setting.
            store = {
                drop(store);
                open(&disk)
            };
        }
        store.submit(Transaction::new().remove(PG, &name(1)).clone()).unwrap();
        let stats = store.statfs().pools[&POOL];
        assert_eq!((stats.compressed, stats.uncompressed, stats.allocated), (0, 0, 1 << 20));
    }
}

#[test]
fn hints_and_modes_decide() {
    let (_, mut store) = new();
    let data = Bytes::from(half(256 << 10));
    let mut n = 0;
    // (unasked, always): passive, aggressive, force.
    for (unasked, always, want) in [
        (false, false, [false, true, false]),
        (true, false, [true, true, false]),
        (true, true, [true, true, true]),
    ] {
        let how = Compression {
            algorithm: Algorithm::Lz4,
            unasked,
            always,
            required_ratio: 0.875,
            part: 64 << 10,
            least: 4096,
        };
        store.set_compression(POOL, Some(how));
        for (hint, want) in
            [Compressible::Unknown, Compressible::Yes, Compressible::No].into_iter().zip(want)
        {
            n += 1;
            let mut txn = Transaction::new();
            txn.expect(PG, &name(n), hint).write(PG, &name(n), 0, data.clone());
            store.submit(txn).unwrap();
            assert_eq!(space(&store, n) < 200 << 10, want, "{unasked} {always} {hint:?}");
        }
    }
    store.set_compression(POOL, None);
    put(&mut store, 100, 0, &data);
    assert_eq!(space(&store, 100), 256 << 10);
    is_sound(&mut store);
}

/// What is left of a blob is kept while it saves space, and written as it is after that.
#[test]
fn overwritten_blobs_go() {
    let (disk, mut store) = new();
    compress(&mut store, Algorithm::Zstd);
    let mut data = half(64 << 10);
    put(&mut store, 1, 0, &data);
    let blob = space(&store, 1);
    assert!(blob < 44 << 10, "{blob}");
    for i in 0..16usize {
        let at = (i * 7 % 16) * 4096 + 100; // a part of a block, never two of one
        data[at..at + 50].fill(i as u8);
        put(&mut store, 1, at as u64, &data[at..at + 50]);
        assert!(store.read(PG, &name(1), 0, 1 << 20).unwrap() == data, "{i}");
        if i % 3 == 1 {
            is_sound(&mut store);
            let (space, stats) = (space(&store, 1), store.statfs().pools[&POOL]);
            assert!(space <= 64 << 10, "never more than without: {space}");
            assert_eq!(stats.allocated, space);
            assert!(stats.compressed <= stats.uncompressed, "{stats:?}");
        }
        if i == 8 {
            store.sync().unwrap();
            store = {
                drop(store);
                open(&disk)
            };
        }
    }
    assert_eq!(store.statfs().pools[&POOL].compressed, 0);
    is_sound(&mut store);
}

#[test]
fn clones_share_blobs() {
    let (_, mut store) = new();
    compress(&mut store, Algorithm::Lz4);
    let data = half(256 << 10);
    put(&mut store, 1, 0, &data);
    is_sound(&mut store);
    let free = store.statfs().available;
    store.submit(Transaction::new().clone_object(PG, &name(1), &name(2)).clone()).unwrap();
    put(&mut store, 1, 5000, b"changed");
    store.submit(Transaction::new().truncate(PG, &name(1), 70_001).clone()).unwrap();
    assert!(store.read(PG, &name(2), 0, 1 << 20).unwrap() == data);
    is_sound(&mut store);
    assert!(free - store.statfs().available < 100 << 10, "the blobs are there once");
    store.submit(Transaction::new().remove(PG, &name(2)).clone()).unwrap();
    let mut want = data[..70_001].to_vec();
    want[5000..5007].copy_from_slice(b"changed");
    assert!(store.read(PG, &name(1), 0, 1 << 20).unwrap() == want);
    is_sound(&mut store);
    store.submit(Transaction::new().remove(PG, &name(1)).clone()).unwrap();
    is_sound(&mut store);
    assert_eq!(store.statfs().pools[&POOL].allocated, 0);
}

/// A blob that lies on damaged blocks: its data cannot be read, and a write to a part of a
/// block of it does not make the rest of the block pass for whole.
#[test]
fn damage_stays_damage() {
    let (disk, mut store) = new();
    compress(&mut store, Algorithm::Snappy);
    let data = half(64 << 10);
    put(&mut store, 1, 0, &data);
    store.checkpoint().unwrap();
    let mut raw = vec![0; 64 << 20];
    env::Disk::read(&*disk, 0, &mut raw).unwrap();
    // The first of the random bytes stand in the blob as they are.
    let at = raw.windows(64).position(|w| w == &data[100..164]).expect("on the device");
    raw[at] ^= 1;
    let block = at / 4096 * 4096;
    env::Disk::write(&*disk, block as u64, &raw[block..block + 4096]).unwrap();
    let read = |store: &Store, off, len| store.read(PG, &name(1), off, len);
    assert!(matches!(read(&store, 9000, 10), Err(StoreError::Corrupt { .. })));
    put(&mut store, 1, 9000, b"over it");
    put(&mut store, 1, 4096 * 5, &data[..4096]);
    store.submit(Transaction::new().truncate(PG, &name(1), 61_000).clone()).unwrap();
    for round in 0..2 {
        for (off, len) in [(8192, 10), (9000, 7), (0, 100), (60_990, 10)] {
            let read = read(&store, off, len);
            assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{round} {off}: {read:?}");
        }
        assert!(read(&store, 4096 * 5, 4096).unwrap() == data[..4096], "a whole block is new");
        store.checkpoint().unwrap();
    }
    // Written whole, it is whole.
    put(&mut store, 1, 0, &data);
    assert!(read(&store, 0, 1 << 20).unwrap() == data);
    is_sound(&mut store);
}

/// At the brim, what cuts compressed data goes through: what is left of a blob is written anew
/// before the blob is free.
#[test]
fn at_the_brim_compressed_objects_are_cut() {
    let (disk, mut store) = new();
    compress(&mut store, Algorithm::Lz4);
    let data = half(1 << 20);
    let mut n = 0;
    loop {
        let mut txn = Transaction::new();
        // The last ones are small, so that little is left.
        let len = if n < 1000 { 1 << 20 } else { 4096 };
        txn.write(PG, &name(n), 0, Bytes::copy_from_slice(&data[..len]));
        match store.submit(txn) {
            Ok(_) => n += 1,
            Err(StoreError::NoSpace { .. }) if n < 1000 => n = 1000,
            Err(StoreError::NoSpace { .. }) => break,
            Err(e) => panic!("{e}"),
        }
        store.sync().unwrap();
    }
    let cut = |n: u32| 500_001 + u64::from(n) * 4099;
    let large: Vec<u32> = (0..20).collect();
    for n in &large {
        let mut txn = Transaction::new();
        match n % 2 {
            0 => txn.truncate(PG, &name(*n), cut(*n)),
            _ => txn.zero(PG, &name(*n), cut(*n), 300_000),
        };
        assert!(store.would_fit(&txn).is_ok(), "{n}");
        store.submit(txn).unwrap_or_else(|e| panic!("{n}: {e}"));
        store.sync().unwrap();
    }
    drop(store);
    let mut store = open(&disk);
    for n in large {
        let mut want = data.clone();
        match n % 2 {
            0 => want.truncate(cut(n) as usize),
            _ => want[cut(n) as usize..][..300_000].fill(0),
        }
        assert!(store.read(PG, &name(n), 0, u64::MAX).unwrap() == want, "{n}");
    }
    is_sound(&mut store);
}
