//! The log's part of groups, which the store's owner has under way itself by io_uring.
#![allow(clippy::disallowed_methods)] // a test may wait

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use store::{Coll, LogPlacement, MkfsOptions, OpenOptions, Seq, Store, Transaction};
use types::{HObject, PgId, PoolId, ShardId, SpgId};

fn pg() -> Coll {
    Coll::Pg(SpgId { pg: PgId::new(1, 0), shard: ShardId::NONE })
}

fn object(n: u64) -> HObject {
    HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::from(format!("o{n}")))
}

/// A folder that is removed in the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("store-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn block(&self) -> PathBuf {
        self.0.join("block")
    }

    fn make(&self, log: LogPlacement) {
        let log_path = (log == LogPlacement::Own).then(|| self.0.join("journal"));
        let options = MkfsOptions {
            size: 128 << 20,
            log_bytes: 4 << 20,
            log,
            log_path,
            ..MkfsOptions::default()
        };
        Store::mkfs(&self.block(), &options).unwrap();
    }

    /// The store, and how often its owner was woken.
    fn open(&self, io_uring: bool) -> (Store, Arc<AtomicU64>) {
        let woken = Arc::new(AtomicU64::new(0));
        let counts = woken.clone();
        let waker = Box::new(move || {
            counts.fetch_add(1, Ordering::SeqCst);
        });
        let options = OpenOptions { io_uring, gather: true, waker, ..OpenOptions::default() };
        (Store::open(&self.block(), options).unwrap(), woken)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn allowed() -> bool {
    io_uring::IoUring::new(2).is_ok()
}

fn write(store: &mut Store, n: u64, len: usize) -> Seq {
    let mut txn = Transaction::new();
    txn.create_collection(pg());
    txn.write(pg(), &object(n), 0, Bytes::from(vec![n as u8; len]));
    store.submit(txn).unwrap()
}

/// Waits as an owner does until `seq` is durable; how often it had the log under way itself.
fn wait(store: &mut Store, seq: Seq) -> u64 {
    let mut own = 0;
    for _ in 0..100_000 {
        // First, so that what a fast disk has written already counts, too.
        let by_ring = store.wait_written();
        own += u64::from(by_ring);
        if store.complete().unwrap() >= seq {
            return own;
        }
        if !by_ring {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }
    panic!("not durable after 10 s");
}

fn has(store: &Store, n: u64, len: usize) -> bool {
    let read = store.read(pg(), &object(n), 0, len as u64 + 1).unwrap();
    read == vec![n as u8; len]
}

/// Small groups go by the ring and wake nobody, those with data by threads, in any mix and
/// however many wait; all of it is there for who opens the store after a crash.
#[test]
fn what_is_durable_is_there() {
    for log in [LogPlacement::Device, LogPlacement::Own] {
        for io_uring in [true, false] {
            let dir = Temporary::new("logring-durable");
            dir.make(log);
            let (mut store, woken) = dir.open(io_uring);
            let len = |n: u64| if n % 7 == 3 { 100_000 } else { 100 + n as usize };
            let (mut n, mut own) = (0, 0);
            for round in 0..200u64 {
                let mut last = 0;
                for part in 0..=round % 3 {
                    for _ in 0..=round % 5 {
                        last = write(&mut store, n, len(n));
                        n += 1;
                    }
                    // More than may be under way: the others follow by themselves.
                    if part < round % 3 || round % 2 == 0 {
                        store.kick();
                    }
                }
                store.kick();
                own += wait(&mut store, last);
            }
            let by_ring = io_uring && allowed();
            assert!(if by_ring { own > 100 } else { own == 0 }, "{own} by the ring");
            // From here on only small ones: a thread wakes the owner for each that it writes.
            let before = woken.load(Ordering::SeqCst);
            for _ in 0..50 {
                let seq = write(&mut store, n, 10);
                n += 1;
                store.kick();
                wait(&mut store, seq);
            }
            // A thread that wrote an earlier one, or a checkpoint, may still tell.
            let told = woken.load(Ordering::SeqCst) - before;
            assert!(if by_ring { told < 10 } else { told >= 40 }, "woken {told} times");
            drop(store); // no checkpoint: the log is replayed
            let (mut store, _) = dir.open(io_uring);
            for i in 0..n {
                let len = if i + 50 < n { len(i) } else { 10 };
                assert!(has(&store, i, len), "object {i} of {n}, log {log:?}");
            }
            assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new());
        }
    }
}

/// What is under way when a store is dropped or closed ends first.
#[test]
fn a_store_ends_with_the_log_under_way() {
    let dir = Temporary::new("logring-ends");
    dir.make(LogPlacement::Device);
    let mut n = 0;
    for round in 0..20 {
        let (mut store, _) = dir.open(true);
        for _ in 0..3 {
            write(&mut store, n, 5_000);
            n += 1;
            store.kick();
        }
        if round % 2 == 0 {
            store.close().unwrap();
        }
    }
    let (store, _) = dir.open(true);
    assert!((0..n).all(|n| has(&store, n, 5_000)));
}

/// Who sleeps until one of the descriptors is readable or is woken is told of each group.
#[test]
fn a_descriptor_tells_of_groups() {
    let dir = Temporary::new("logring-tells");
    dir.make(LogPlacement::Device);
    let (mut store, woken) = dir.open(true);
    let fds = store.ring_fds();
    assert_eq!(fds.len(), if allowed() { 2 } else { 0 });
    let is_readable = |ms: i64| {
        let poll = |fd| rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN);
        let mut fds: Vec<_> = fds.iter().map(poll).collect();
        let most = rustix::event::Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
        rustix::event::poll(&mut fds, Some(&most)).unwrap() > 0
    };
    let mut by_descriptor = 0;
    for n in 0..if allowed() { 50 } else { 0 } {
        let before = woken.load(Ordering::SeqCst);
        let seq = write(&mut store, n, 4096);
        assert!(!is_readable(0), "nothing is under way");
        store.kick();
        let readable = (0..2_000).find_map(|_| match is_readable(10) {
            true => Some(true),
            // Where the log is being written for the first time, a thread does it.
            false => (woken.load(Ordering::SeqCst) > before).then_some(false),
        });
        by_descriptor += u32::from(readable.expect("something tells"));
        assert_eq!(store.complete().unwrap(), seq);
        assert!(!is_readable(0));
    }
    assert!(by_descriptor > 20 || !allowed(), "{by_descriptor} of 50");
}
