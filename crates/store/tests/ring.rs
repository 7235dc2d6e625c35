//! Small reads of a real file, by io_uring where that is allowed, and without it.
#![allow(clippy::disallowed_methods)] // a test may wait

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use env::{Random, Seeded};
use store::{Coll, Fetch, FetchId, MkfsOptions, OpenOptions, Store, StoreError, Transaction};
use types::{HObject, PgId, PoolId, ShardId, SpgId};

const LARGE: usize = 1 << 20;
const OBJECTS: usize = 4;

fn pg() -> Coll {
    Coll::Pg(SpgId { pg: PgId::new(1, 0), shard: ShardId::NONE })
}

fn object(n: usize) -> HObject {
    HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::from(format!("o{n}")))
}

/// A file that is removed in the end.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Fixture {
    file: Temporary,
    store: Store,
    /// What the objects hold.
    data: Vec<Vec<u8>>,
}

/// A store in a file of its own, with objects that are on the device.
fn fixture(name: &str, io_uring: bool) -> Fixture {
    let path = std::env::temp_dir().join(format!("store-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let options = MkfsOptions { size: 128 << 20, log_bytes: 4 << 20, ..MkfsOptions::default() };
    Store::mkfs(&path, &options).unwrap();
    let options = OpenOptions { io_uring, ..OpenOptions::default() };
    let mut store = Store::open(&path, options).unwrap();
    let mut txn = Transaction::new();
    txn.create_collection(pg());
    let mut chance = Seeded(5);
    let mut data = vec![vec![0; LARGE]; OBJECTS];
    for (n, data) in data.iter_mut().enumerate() {
        Random::fill(&mut chance, data);
        txn.write(pg(), &object(n), 0, Bytes::from(data.clone()));
    }
    store.submit(txn).unwrap();
    store.checkpoint().unwrap();
    Fixture { file: Temporary(path), store, data }
}

/// What the kernel keeps of it goes.
fn forget(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// A read that the device has to do. The kernel may keep a page although it is asked to forget it.
fn from_device(f: &mut Fixture, n: usize, off: u64, len: u64) -> FetchId {
    for _ in 0..1_000 {
        forget(&f.file.0);
        if let Fetch::Later(id) = f.store.fetch(pg(), &object(n), off, len).unwrap() {
            return id;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the kernel does not forget it");
}

/// Waits for all that is under way.
fn gather(f: &mut Fixture, mut flying: HashMap<FetchId, Vec<u8>>) {
    while !flying.is_empty() {
        f.store.wait_fetched();
        while let Some((id, data)) = f.store.fetched() {
            let want = flying.remove(&id).expect("it was asked for once");
            assert!(data.unwrap() == want, "read {id}");
        }
    }
}

/// Each read gives what was written, with what lies over it in memory, however many are under
/// way: fewer and more than the ring takes.
#[test]
fn small_reads_give_what_was_written() {
    for io_uring in [true, false] {
        let mut f = fixture("ring-reads", io_uring);
        let mut chance = Seeded(6);
        let mut below = |n: usize| (Random::u64(&mut chance) % n as u64) as usize;
        let mut later = 0;
        for flight in [1, 2, 5, 16, 60, 64, 300, 1, 40] {
            forget(&f.file.0);
            // Over what is on the device.
            let (n, off) = (below(OBJECTS), below(LARGE - 100));
            f.data[n][off..off + 100].fill(flight as u8);
            let mut txn = Transaction::new();
            txn.write(pg(), &object(n), off as u64, Bytes::from(vec![flight as u8; 100]));
            f.store.submit(txn).unwrap();
            let mut flying = HashMap::new();
            for _ in 0..flight {
                let (n, len) = (below(OBJECTS), 1 + below(70_000));
                let off = below(LARGE - len);
                let want = f.data[n][off..off + len].to_vec();
                match f.store.fetch(pg(), &object(n), off as u64, len as u64).unwrap() {
                    Fetch::Ready(data) => assert!(data == want),
                    Fetch::Later(id) => assert!(flying.insert(id, want).is_none()),
                }
            }
            later += flying.len();
            gather(&mut f, flying);
        }
        assert!(later > 200, "{later} reads had to wait for the device");
        let allowed = io_uring::IoUring::new(2).is_ok();
        assert_eq!(f.store.ring_fds().len(), usize::from(io_uring && allowed));
    }
}

/// Who sleeps until the descriptor is readable is told of each read; nobody is woken for it.
#[test]
fn a_descriptor_tells_of_reads() {
    let mut f = fixture("ring-tells", true);
    let Some(fd) = f.store.ring_fds().pop() else { return };
    assert!(f.store.ring_fds().is_empty(), "given once");
    let is_readable = |ms: i64| {
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let most = rustix::event::Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
        rustix::event::poll(&mut fds, Some(&most)).unwrap() == 1
    };
    for n in 0..20usize {
        let off = n as u64 * 40_000;
        let id = from_device(&mut f, 1, off, 4096);
        assert!(!is_readable(0), "the kernel does not know of it yet");
        f.store.kick_reads();
        assert!((0..100).any(|_| is_readable(200)));
        let (found, data) = f.store.fetched().expect("one is done");
        assert!(found == id && data.unwrap() == f.data[1][off as usize..][..4096]);
        assert!(!is_readable(0) && f.store.fetched().is_none());
    }
}

/// What was damaged on the device is an error that says where, and not the end of the reads.
#[test]
fn damage_is_found_by_small_reads() {
    for io_uring in [true, false] {
        let mut f = fixture("ring-damage", io_uring);
        let (at, _) = f.store.device_ranges(pg(), &object(3)).unwrap()[0];
        let file = File::options().write(true).open(&f.file.0).unwrap();
        file.write_all_at(&[0x55; 512], at + 8192).unwrap();
        from_device(&mut f, 3, 9000, 100);
        let found = loop {
            f.store.wait_fetched();
            if let Some(found) = f.store.fetched() {
                break found.1;
            }
        };
        assert!(f.store.fetched().is_none(), "one was under way");
        match found {
            Err(StoreError::Corrupt { offset, device, .. }) => {
                assert_eq!((offset, device), (8192, at + 8192));
            }
            other => panic!("{other:?}"),
        }
        let want = f.data[3][20_000..20_100].to_vec();
        match f.store.fetch(pg(), &object(3), 20_000, 100).unwrap() {
            Fetch::Ready(data) => assert!(data == want),
            Fetch::Later(id) => gather(&mut f, HashMap::from([(id, want)])),
        }
    }
}

/// Data that was overwritten here and there, so that it is in more pieces than the ring takes, is
/// read whole; and what is damaged of it is an error that says where.
#[test]
fn data_in_many_places_is_read_whole() {
    for io_uring in [true, false] {
        let mut f = fixture("ring-pieces", io_uring);
        let mut txn = Transaction::new();
        let mut chance = Seeded(7);
        for off in (0..LARGE).step_by(8192) {
            let block = &mut f.data[0][off..off + 4096];
            Random::fill(&mut chance, block);
            txn.write(pg(), &object(0), off as u64, Bytes::from(block.to_vec()));
        }
        f.store.submit(txn).unwrap();
        f.store.checkpoint().unwrap();
        let ranges = f.store.device_ranges(pg(), &object(0)).unwrap();
        assert!(ranges.len() > 200, "{} ranges", ranges.len());
        // Large ones go past the caches, smaller ones through them.
        for (off, len) in [(0, LARGE), (5_000, 300_000), (4_096, 100_000), (9_000, 60_000)] {
            forget(&f.file.0);
            let read = f.store.read(pg(), &object(0), off as u64, len as u64).unwrap();
            assert!(read == f.data[0][off..off + len], "{off} {len}");
        }
        let read = f.store.fetch_gently(pg(), &object(0), 5_000, 600_000).unwrap();
        let want = f.data[0][5_000..605_000].to_vec();
        match read {
            Fetch::Ready(data) => assert!(data == want),
            Fetch::Later(id) => gather(&mut f, HashMap::from([(id, want)])),
        }
        let device = ranges[100].0;
        let file = File::options().write(true).open(&f.file.0).unwrap();
        file.write_all_at(&[0x55; 512], device).unwrap();
        file.sync_all().unwrap();
        for (off, len) in [(0, LARGE), (400_000, 60_000)] {
            match f.store.read(pg(), &object(0), off as u64, len as u64) {
                Err(StoreError::Corrupt { offset, device: at, .. }) => {
                    assert_eq!((offset, at), (409_600, device), "{off} {len}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A store is closed while reads are under way.
#[test]
fn a_store_ends_with_reads_under_way() {
    for _ in 0..5 {
        let mut f = fixture("ring-ends", true);
        forget(&f.file.0);
        for n in 0..100 {
            f.store
                .fetch(pg(), &object(n % OBJECTS), (n as u64 * 8192) % LARGE as u64, 4096)
                .unwrap();
        }
        f.store.close().unwrap();
    }
}
