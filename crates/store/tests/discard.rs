//! What becomes free goes back to the file system, and nothing else does.
#![allow(clippy::disallowed_methods)] // waits for another thread, with an end

mod common;

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::Dir;
use store::{Coll, MkfsOptions, OpenOptions, Store, Transaction};
use types::{HObject, PoolId, Uuid};

const C: Coll = Coll::Meta;
const MIB: usize = 1 << 20;

fn object(n: u8) -> HObject {
    HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::from(vec![b'o', n]))
}

#[test]
fn a_sparse_file_shrinks() {
    let dir = Dir::new("discard");
    let block = dir.block();
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([2; 16]),
        size: 256 << 20,
        log_bytes: 1 << 20,
        ..MkfsOptions::default()
    };
    Store::mkfs(&block, &options).unwrap();
    let bytes = || std::fs::metadata(&block).unwrap().blocks() * 512;
    for discard in [false, true] {
        let options = OpenOptions { discard, ..OpenOptions::default() };
        let mut store = Store::open(&block, options).unwrap();
        let mut txn = Transaction::new();
        txn.create_collection(C);
        for n in 0..32 {
            txn.write(C, &object(n), 0, Bytes::from(vec![n; 2 * MIB]));
            store.submit(std::mem::take(&mut txn)).unwrap();
        }
        store.checkpoint().unwrap();
        let before = bytes();
        assert!(before > 64 << 20);
        for n in (0..32).filter(|n| n % 8 != 3) {
            txn.remove(C, &object(n));
        }
        store.submit(txn).unwrap();
        let until = Instant::now() + Duration::from_secs(if discard { 30 } else { 1 });
        while bytes() > before / 2 && Instant::now() < until {
            // Freed blocks rest until a later group says that they are.
            let mut txn = Transaction::new();
            txn.coll_set(C, "beat", Bytes::new());
            store.submit(txn).unwrap();
            store.checkpoint().unwrap();
        }
        assert_eq!(bytes() <= before / 2, discard, "{} of {before}", bytes());
        let left = |store: &mut Store| {
            for n in [3, 11, 19, 27] {
                let data = store.read(C, &object(n), 0, u64::MAX).unwrap();
                assert!(data.len() == 2 * MIB && data.iter().all(|b| *b == n));
            }
            assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new());
        };
        left(&mut store);
        store.close().unwrap();
        left(&mut Store::open(&block, OpenOptions::default()).unwrap());
    }
}
