//! Each operation once, on real files.

mod common;

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use common::Dir;
use store::{Coll, MkfsOptions, OpenOptions, SimDisk, Store, StoreError, Transaction};
use types::{HObject, PgId, PoolId, ShardId, SnapId, SpgId, Uuid};

fn pg(n: u32) -> Coll {
    Coll::Pg(SpgId { pg: PgId::new(1, n), shard: ShardId::NONE })
}

fn object(name: &'static str) -> HObject {
    let none = Bytes::new;
    HObject::head(PoolId(1), none(), none(), Bytes::from_static(name.as_bytes()))
}

fn bytes(n: usize, seed: u8) -> Bytes {
    (0..n).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
}

fn mkfs(dir: &Dir) -> PathBuf {
    let path = dir.0.join("block");
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([2; 16]),
        size: 256 << 20,
        log_bytes: 32 << 20,
        ..MkfsOptions::default()
    };
    Store::mkfs(&path, &options).unwrap();
    path
}

/// What is written is read at once, after a reopening, and after a checkpoint.
#[test]
fn objects_keep_what_they_were_given() {
    let dir = Dir::new("objects");
    let path = mkfs(&dir);
    assert!(matches!(Store::mkfs(&path, &MkfsOptions::default()), Err(StoreError::Format(_))));
    let (c, a, b) = (pg(0), object("a"), object("b"));
    let large = bytes(300_001, 7);
    let mut store = Store::open(&path, OpenOptions::default()).unwrap();
    assert!(matches!(Store::open(&path, OpenOptions::default()), Err(StoreError::InUse(_))));

    let mut txn = Transaction::new();
    txn.write(c, &a, 0, bytes(10, 0));
    assert!(matches!(store.submit(txn), Err(StoreError::NoCollection(_))));

    let mut txn = Transaction::new();
    txn.create_collection(c).write(c, &a, 100, bytes(1000, 1));
    txn.write(c, &b, 5, large.clone());
    txn.set_attr(c, &a, "_", bytes(20, 2)).set_attr(c, &a, "snapset", bytes(3, 2));
    txn.omap_set(c, &b, [(Bytes::from("k2"), bytes(5, 1)), (Bytes::from("k1"), bytes(6, 1))]);
    txn.omap_set_header(c, &b, bytes(7, 3));
    txn.coll_set(c, "info", bytes(9, 9)).coll_set(c, "log.1", bytes(9, 1));
    let seq = store.submit(txn).unwrap();

    let check = |store: &Store| {
        assert_eq!(store.list_collections(), [c]);
        assert_eq!(store.stat(c, &a).unwrap().size, 1100);
        assert_eq!(store.read(c, &a, 0, 4096).unwrap()[..100], [0; 100]);
        assert_eq!(store.read(c, &a, 100, 4096).unwrap(), bytes(1000, 1));
        assert_eq!(store.read(c, &b, 5, 1 << 20).unwrap(), large);
        assert_eq!(store.read(c, &b, 5000, 100_000).unwrap(), large[4995..104_995]);
        assert_eq!(store.get_attr(c, &a, b"_").unwrap(), Some(bytes(20, 2)));
        assert_eq!(store.get_attrs(c, &a).unwrap().len(), 2);
        assert_eq!(store.omap_get_header(c, &b).unwrap(), bytes(7, 3));
        let keys: Vec<_> = store.omap_iter(c, &b, Bound::Unbounded, 10).unwrap();
        assert_eq!(keys, [("k1".into(), bytes(6, 1)), ("k2".into(), bytes(5, 1))]);
        assert_eq!(store.omap_iter(c, &b, Bound::Excluded(b"k1"), 10).unwrap(), keys[1..]);
        assert_eq!(store.coll_get(c, b"info").unwrap(), Some(bytes(9, 9)));
        assert_eq!(store.coll_iter(c, Bound::Included(b"l"), 10).unwrap().len(), 1);
        let mut all = vec![a.clone(), b.clone()];
        all.sort();
        assert_eq!(store.list(c, &HObject::min(), 10).unwrap().objects, all);
        let first = store.list(c, &HObject::min(), 1).unwrap();
        assert_eq!((first.objects.len(), &first.next), (1, &all[1]));
        let stats = store.statfs();
        assert_eq!((stats.pools[&PoolId(1)].objects, stats.stored), (2, 1100 + 300_006));
    };
    check(&store);
    store.sync().unwrap();
    assert!(store.durable() >= seq);
    drop(store);

    let mut store = Store::open(&path, OpenOptions::default()).unwrap();
    check(&store);
    store.checkpoint().unwrap();
    check(&store);
    store.close().unwrap();
    let store = Store::open(&path, OpenOptions::default()).unwrap();
    check(&store);
    store.close().unwrap();
}

/// Clones share what they can, and each keeps its own.
#[test]
fn clones_part_from_their_source() {
    let dir = Dir::new("clones");
    let path = mkfs(&dir);
    let (c, a, snap) = (pg(0), object("a"), object("a").with_snap(SnapId(4)));
    let mut store = Store::open(&path, OpenOptions::default()).unwrap();
    let mut txn = Transaction::new();
    txn.create_collection(c).write(c, &a, 0, bytes(1 << 20, 1));
    txn.omap_set(c, &a, [(Bytes::from("k"), bytes(5, 1))]);
    store.submit(txn).unwrap();
    store.checkpoint().unwrap();
    let used = store.statfs().used;
    let mut txn = Transaction::new();
    txn.clone_object(c, &a, &snap).write(c, &a, 4096, bytes(100, 9));
    txn.omap_rm_keys(c, &a, [Bytes::from("k")]);
    store.submit(txn).unwrap();
    let check = |store: &Store| {
        assert_eq!(store.read(c, &snap, 0, 1 << 21).unwrap(), bytes(1 << 20, 1));
        assert_eq!(store.read(c, &a, 4096, 100).unwrap(), bytes(100, 9));
        assert_eq!(store.read(c, &a, 8192, 5000).unwrap(), bytes(1 << 20, 1)[8192..13192]);
        assert_eq!(store.omap_iter(c, &snap, Bound::Unbounded, 9).unwrap().len(), 1);
        assert_eq!(store.omap_iter(c, &a, Bound::Unbounded, 9).unwrap().len(), 0);
    };
    check(&store);
    store.checkpoint().unwrap();
    check(&store);
    assert!(store.statfs().used < used + (200 << 10), "data is shared");
    store.close().unwrap();
    let mut store = Store::open(&path, OpenOptions::default()).unwrap();
    check(&store);
    let mut txn = Transaction::new();
    txn.remove(c, &a);
    store.submit(txn).unwrap();
    assert_eq!(store.read(c, &snap, 0, 1 << 21).unwrap(), bytes(1 << 20, 1));
    let mut txn = Transaction::new();
    txn.remove_collection(c);
    store.submit(txn).unwrap();
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    assert_eq!(store.statfs().allocated, 0);
    assert!(store.statfs().used < used - (1 << 19), "space comes back");
}

/// A disk whose commits take their time.
struct Slow(SimDisk);

impl env::Disk for Slow {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read(&self, off: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.0.read(off, buf)
    }
    fn write(&self, off: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(off, data)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.0.flush()
    }
    fn commit(&self, writes: &[(u64, &[u8])]) -> std::io::Result<()> {
        std::thread::sleep(std::time::Duration::from_millis(60));
        writes.iter().try_for_each(|(off, data)| self.write(*off, data))?;
        self.flush()
    }
}

/// A checkpoint that begins while the data under a small write is on its way waits for it.
#[test]
fn checkpoints_wait_for_the_data_under_small_writes() {
    let disk = Arc::new(Slow(SimDisk::new(64 << 20, false)));
    let options = MkfsOptions { log_bytes: 4 << 20, ..MkfsOptions::default() };
    Store::mkfs_on(disk.clone(), &options).unwrap();
    let mut store = Store::open_on(disk, OpenOptions::default()).unwrap();
    let (c, a) = (pg(0), object("a"));
    let mut txn = Transaction::new();
    txn.create_collection(c).write(c, &a, 0, bytes(128 << 10, 1));
    txn.write(c, &a, 100, bytes(50, 2));
    store.submit(txn).unwrap();
    store.begin_checkpoint().unwrap();
    store.checkpoint().unwrap();
    let mut want = bytes(128 << 10, 1).to_vec();
    want[100..150].copy_from_slice(&bytes(50, 2));
    assert_eq!(store.read(c, &a, 0, 1 << 20).unwrap(), want);
    store.close().unwrap();
}

/// Without threads a group is written first and durable once it is flushed; two may be under
/// way, and the later one is not durable before the earlier.
#[test]
fn groups_are_durable_when_they_are_flushed() {
    let disk = Arc::new(SimDisk::new(64 << 20, true));
    let made = MkfsOptions { log_bytes: 4 << 20, ..MkfsOptions::default() };
    Store::mkfs_on(disk.clone(), &made).unwrap();
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    let mut store = Store::open_on(disk.clone(), options).unwrap();
    assert!(!store.begin_group() && !store.end_group(), "nothing was submitted");
    let submit = |store: &mut Store, n: u8| {
        let mut txn = Transaction::new();
        if n == 1 {
            txn.create_collection(pg(0));
        }
        txn.write(pg(0), &object("a"), 0, bytes(100_000, n));
        store.submit(txn).unwrap()
    };
    let (one, flushes) = (submit(&mut store, 1), flushes(&disk));
    assert!(store.begin_group());
    let two = submit(&mut store, 2);
    assert!(store.begin_group());
    let three = submit(&mut store, 3);
    assert!(!store.begin_group(), "two at a time");
    assert_eq!((store.groups_begun(), store.durable() < one), (2, true));
    assert_eq!(self::flushes(&disk), flushes, "nothing is flushed so far");
    assert!(store.end_group());
    assert_eq!((store.durable(), self::flushes(&disk)), (one, flushes + 1));
    assert!(store.step(), "the one that was begun comes first");
    assert_eq!(store.durable(), two);
    store.sync().unwrap();
    assert_eq!(store.durable(), three);
}

fn flushes(disk: &SimDisk) -> usize {
    let events = disk.events().into_iter();
    events.filter(|e| matches!(e, store::DiskEvent::Flush)).count()
}
