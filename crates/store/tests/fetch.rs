//! Reads that come later show the data of when they began.
#![allow(clippy::disallowed_methods)] // a test may wait

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use env::Disk;
use stdx::BlockSums;
use store::{
    Coll, Fetch, FetchId, MkfsOptions, OpenOptions, SimDisk, Store, StoreError, Transaction,
};
use types::{HObject, PgId, PoolId, ShardId, SpgId};

const LARGE: usize = 1 << 20;

fn pg() -> Coll {
    Coll::Pg(SpgId { pg: PgId::new(1, 0), shard: ShardId::NONE })
}

fn object(n: usize) -> HObject {
    let none = Bytes::new;
    HObject::head(PoolId(1), none(), none(), Bytes::from(format!("o{n}")))
}

/// Each block begins with its number.
fn fill(seed: usize) -> Bytes {
    let mut out = vec![seed as u8; LARGE];
    for (i, block) in out.chunks_exact_mut(4096).enumerate() {
        block[..16].copy_from_slice(&((seed as u128) << 64 | i as u128).to_le_bytes());
    }
    out.into()
}

fn write(store: &mut Store, n: usize, seed: usize) -> Result<u64, StoreError> {
    let mut txn = Transaction::new();
    txn.write(pg(), &object(n), 0, fill(seed));
    store.submit(txn)
}

fn wait(store: &mut Store, id: FetchId) -> Result<Bytes, StoreError> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some((found, data)) = store.fetched() {
            assert_eq!(found, id, "one is under way");
            return data;
        }
        assert!(Instant::now() < until, "the read never ends");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A disk on which the threads that read wait while the gate is shut.
struct Gated {
    disk: SimDisk,
    shut: Mutex<bool>,
    opened: Condvar,
    /// Bytes of each read that passed it.
    read: Mutex<Vec<usize>>,
}

impl Gated {
    fn set(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        if std::thread::current().name() == Some("store-read") {
            let shut = self.shut.lock().unwrap();
            drop(self.opened.wait_while(shut, |shut| *shut).unwrap());
        }
    }
}

impl Disk for Gated {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<()> {
        self.pass();
        self.read.lock().unwrap().push(buf.len());
        self.disk.read(off, buf)
    }

    fn write(&self, off: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write(off, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk.flush()
    }
}

fn open(bytes: u64) -> (Arc<Gated>, Store) {
    let disk = SimDisk::new(bytes, false);
    let gated = Arc::new(Gated {
        disk,
        shut: Mutex::default(),
        opened: Condvar::new(),
        read: Mutex::default(),
    });
    let options = MkfsOptions { log_bytes: 4 << 20, ..MkfsOptions::default() };
    Store::mkfs_on(gated.clone(), &options).unwrap();
    let mut store = Store::open_on(gated.clone(), OpenOptions::default()).unwrap();
    let mut txn = Transaction::new();
    txn.create_collection(pg());
    store.submit(txn).unwrap();
    (gated, store)
}

/// An object is overwritten again and again while a read of it is under way: the device is
/// so small that its old blocks would be used again many times over.
#[test]
fn what_is_read_is_the_data_of_when_it_began() {
    let (disk, mut store) = open(48 << 20);
    for round in 0..5 {
        write(&mut store, 0, round).unwrap();
        store.checkpoint().unwrap();
        disk.set(true);
        let Fetch::Later(id) = store.fetch(pg(), &object(0), 0, LARGE as u64).unwrap() else {
            panic!("data of {LARGE} bytes is not kept in memory");
        };
        let mut refused = 0;
        for n in 0..40 {
            match write(&mut store, n % 3, 1000 + n) {
                Ok(_) => {}
                // The blocks of all those before are held back.
                Err(StoreError::NoSpace { .. }) => refused += 1,
                Err(e) => panic!("{e}"),
            }
            if n % 8 == 0 {
                store.checkpoint().unwrap();
            }
        }
        disk.set(false);
        assert!((1..40).contains(&refused), "{refused}: some fitted, then space was out");
        assert_eq!(wait(&mut store, id).unwrap(), fill(round), "round {round}");
        // Once it is taken, the space is there again.
        store.checkpoint().unwrap();
        store.checkpoint().unwrap();
        write(&mut store, 1, round).unwrap();
    }
    let report = store.fsck(true).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

/// Many at once; each gives its own range, whatever the order.
#[test]
fn many_reads_at_once() {
    let (_, mut store) = open(128 << 20);
    for n in 0..20 {
        write(&mut store, n, n).unwrap();
    }
    store.checkpoint().unwrap();
    let mut open = std::collections::HashMap::new();
    for n in 0..200 {
        let (o, off, len) = (n % 20, (n * 4999) % LARGE, 1 + (n * 7919) % 300_000);
        let want = fill(o).slice(off..(off + len).min(LARGE));
        match store.fetch(pg(), &object(o), off as u64, len as u64).unwrap() {
            Fetch::Ready(data) => assert_eq!(data, want),
            Fetch::Later(id) => assert!(open.insert(id, want).is_none()),
        }
    }
    let until = Instant::now() + Duration::from_secs(20);
    while !open.is_empty() {
        if let Some((id, data)) = store.fetched() {
            assert_eq!(data.unwrap(), open.remove(&id).expect("it was asked for once"));
        }
        assert!(Instant::now() < until, "{} reads never end", open.len());
    }
    assert!(store.fetched().is_none());
    assert!(matches!(store.fetch(pg(), &object(99), 0, 1), Err(StoreError::NoObject(_))));
    store.close().unwrap();
}

/// Sums that a writer knows are taken over, and given to who reads whole blocks of large data; they
/// are never those of other data.
#[test]
fn sums_are_taken_over_and_given() {
    let (_, mut store) = open(128 << 20);
    let data = fill(1);
    let sums = BlockSums::of(&data).expect("whole blocks");
    let mut txn = Transaction::new();
    txn.know_sums(&data, &sums);
    txn.write(pg(), &object(1), 0, data.clone());
    // Of other data, of as many bytes; and of a part.
    txn.write(pg(), &object(2), 0, fill(2));
    txn.write(pg(), &object(3), 0, data.slice(..LARGE / 2));
    txn.write(pg(), &object(4), 100, data.clone());
    txn.write(pg(), &object(4), 8192, Bytes::from_static(b"over it"));
    store.submit(txn).unwrap();
    store.checkpoint().unwrap();
    let mut read = |n: usize, off: usize, len: usize| {
        let fetched = store.fetch(pg(), &object(n), off as u64, len as u64).unwrap();
        let Fetch::Later(id) = fetched else { panic!("it is not in memory") };
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some((found, data)) = store.fetched_with_sums() {
                assert_eq!(found, id, "one is under way");
                return data.unwrap();
            }
            assert!(Instant::now() < until, "the read never ends");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    assert_eq!(read(1, 0, LARGE), (data.clone(), Some(sums)));
    for (n, off, len) in [(1, 65_536, 300 * 1024), (2, 0, LARGE), (3, 0, LARGE / 2), (4, 0, LARGE)]
    {
        let (data, sums) = read(n, off, len);
        assert_eq!(data.len(), len);
        let want = BlockSums::of(&data).expect("whole blocks");
        assert!(sums.is_none_or(|sums| sums == want), "object {n}");
    }
    assert_eq!(read(1, 1, LARGE - 4096).1, None, "not whole blocks");
    // Sums that are wrong are found like any damage.
    let mut txn = Transaction::new();
    let other = fill(5);
    txn.know_sums(&other, &BlockSums::of(&fill(6)).expect("whole blocks"));
    txn.write(pg(), &object(5), 0, other);
    store.submit(txn).unwrap();
    store.checkpoint().unwrap();
    let found = store.read(pg(), &object(5), 0, LARGE as u64);
    assert!(matches!(found, Err(StoreError::Corrupt { .. })), "{found:?}");
    store.close().unwrap();
}

/// What is read gently leaves the device to others again and again; damage is found as ever.
#[test]
fn gently_is_in_steps() {
    let (disk, mut store) = open(128 << 20);
    write(&mut store, 0, 7).unwrap();
    store.checkpoint().unwrap();
    let read = |store: &mut Store, gently: bool, off: u64, len: u64| {
        disk.read.lock().unwrap().clear();
        let fetch = match gently {
            true => store.fetch_gently(pg(), &object(0), off, len),
            false => store.fetch(pg(), &object(0), off, len),
        };
        let Fetch::Later(id) = fetch.unwrap() else { panic!("large data is not in memory") };
        let data = wait(store, id);
        (data, std::mem::take(&mut *disk.read.lock().unwrap()))
    };
    for (gently, off, len) in [(false, 0, LARGE), (true, 0, LARGE), (true, 5_000, 300_000)] {
        let (data, reads) = read(&mut store, gently, off as u64, len as u64);
        assert!(data.unwrap() == fill(7).slice(off..off + len), "{off}~{len}");
        assert!(reads.iter().sum::<usize>() >= len, "{reads:?}");
        assert_eq!(reads.iter().all(|n| *n <= 128 << 10), gently, "{reads:?}");
    }
    let (off, _) = store.device_ranges(pg(), &object(0)).unwrap()[0];
    disk.disk.write(off + (600 << 10), &[9; 4096]).unwrap();
    let (data, _) = read(&mut store, true, 0, LARGE as u64);
    assert!(matches!(data, Err(StoreError::Corrupt { offset, .. }) if offset == 600 << 10));
}

/// An owner that looks only when it is woken hears of each read, though several that are done
/// together wake it once.
#[test]
fn reads_wake_their_owner() {
    let disk = Arc::new(SimDisk::new(128 << 20, false));
    let options = MkfsOptions { log_bytes: 4 << 20, ..MkfsOptions::default() };
    Store::mkfs_on(disk.clone(), &options).unwrap();
    let (wake, woken) = std::sync::mpsc::channel();
    let waker = Box::new(move || {
        let _ = wake.send(());
    });
    let mut store = Store::open_on(disk, OpenOptions { waker, ..OpenOptions::default() }).unwrap();
    let mut txn = Transaction::new();
    txn.create_collection(pg());
    store.submit(txn).unwrap();
    write(&mut store, 0, 0).unwrap();
    store.checkpoint().unwrap();
    while woken.try_recv().is_ok() {}
    for flight in (1..=20).cycle().take(2_000) {
        let mut flying = 0;
        for n in 0..flight {
            match store.fetch(pg(), &object(0), n * 4_096, 4_096).unwrap() {
                Fetch::Ready(data) => panic!("{} bytes of a large object in memory", data.len()),
                Fetch::Later(_) => flying += 1,
            }
        }
        while flying > 0 {
            woken.recv_timeout(Duration::from_secs(20)).expect("the owner is woken");
            while let Some((_, data)) = store.fetched() {
                data.unwrap();
                flying -= 1;
            }
        }
    }
}
