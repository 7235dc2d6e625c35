//! The object store's log, superblocks and manifest: a store that was used and cut off is
//! opened after bytes of it changed, with checksums that fit and with ones that do not.
//! Opening says what is wrong; it does not panic, and what opens can be read and checked.
//!
//! Input, once or more: u8 what, u32 where, u8 length, bytes. What: 0 any place behind the
//! superblocks, 1 a superblock, 2 or 3 the records of a log group, whose checksum then is
//! made to fit.
#![no_main]
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use denc::{Bytes, Reader};
use env::Disk;
use store::{Coll, MkfsOptions, OpenOptions, Store, Transaction};
use types::{HObject, PgId, ShardId, SpgId};

const SIZE: u64 = 11 << 20;
const LOG: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// A disk in memory that shares what nobody changed with its copies.
#[derive(Default)]
struct Sheets {
    base: Arc<BTreeMap<u64, Vec<u8>>>,
    own: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Sheets {
    fn block(&self, n: u64) -> Vec<u8> {
        let own = self.own.lock().expect("one thread");
        let block = own.get(&n).or_else(|| self.base.get(&n));
        block.cloned().unwrap_or_else(|| vec![0; BLOCK])
    }
}

impl Disk for Sheets {
    fn size(&self) -> u64 {
        SIZE
    }
    fn read(&self, off: u64, buf: &mut [u8]) -> std::io::Result<()> {
        if off + buf.len() as u64 > SIZE {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < buf.len() {
            let at = off + done as u64;
            let (n, skip) = (at / BLOCK as u64, at as usize % BLOCK);
            let len = (BLOCK - skip).min(buf.len() - done);
            buf[done..done + len].copy_from_slice(&self.block(n)[skip..skip + len]);
            done += len;
        }
        Ok(())
    }
    fn write(&self, off: u64, data: &[u8]) -> std::io::Result<()> {
        if off + data.len() as u64 > SIZE {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let mut own = self.own.lock().expect("one thread");
        for (i, block) in data.chunks(BLOCK).enumerate() {
            own.insert(off / BLOCK as u64 + i as u64, block.to_vec());
        }
        Ok(())
    }
    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

fn options() -> OpenOptions {
    OpenOptions { threads: false, ..OpenOptions::default() }
}

fn object(name: &'static str) -> HObject {
    HObject { hash: 7, name: Bytes::from_static(name.as_bytes()), ..HObject::min() }
}

/// A store with a checkpoint, and four groups of every kind of change in its log.
static USED: LazyLock<Arc<BTreeMap<u64, Vec<u8>>>> = LazyLock::new(|| {
    let disk = Arc::new(Sheets::default());
    let made = MkfsOptions { log_bytes: LOG, ..MkfsOptions::default() };
    Store::mkfs_on(disk.clone(), &made).expect("it is large enough");
    let mut store = Store::open_on(disk.clone(), options()).expect("just made");
    let coll = Coll::Pg(SpgId { pg: PgId::new(1, 0), shard: ShardId::NONE });
    let (a, b) = (object("a"), object("b"));
    for round in 0..5u8 {
        let mut t = Transaction::new();
        if round == 0 {
            t.create_collection(coll);
        }
        t.write(coll, &a, u64::from(round) * 1000, vec![round; 5000].into());
        t.write(coll, &b, 0, vec![round; 70_000].into());
        t.set_attr(coll, &a, Bytes::from_static(b"_"), Bytes::from(vec![round; 50]));
        t.omap_set(coll, &a, vec![(Bytes::from(vec![round]), Bytes::from_static(b"v"))]);
        t.coll_set(coll, Bytes::from(vec![b'l', round]), Bytes::from_static(b"entry"));
        t.zero(coll, &b, 100, 9000);
        t.clone_object(coll, &b, &object("c"));
        t.truncate(coll, &b, 69_000);
        t.remove(coll, &object("c"));
        store.submit(t).expect("there is room");
        while store.step() {}
        if round == 0 {
            store.begin_checkpoint().expect("nothing is wrong");
            while store.step() || store.step_checkpoint() {}
            store.complete().expect("nothing is wrong");
        }
    }
    drop(store);
    let disk = Arc::try_unwrap(disk).unwrap_or_else(|_| panic!("the store let go of it"));
    Arc::new(disk.own.into_inner().expect("one thread"))
});

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

/// Places of the log's groups: block and length with header.
static GROUPS: LazyLock<Vec<(u64, usize)>> = LazyLock::new(|| {
    let log = (1 << 20) / BLOCK as u64..((1 << 20) + LOG) / BLOCK as u64;
    let groups = USED.range(log).filter(|(_, b)| u32_at(b, 0) == 0x4c47_5241);
    groups.map(|(n, b)| (*n, 64 + u32_at(b, 52) as usize)).collect()
});

fn patch(disk: &Sheets, off: u64, bytes: &[u8]) {
    let mut own = disk.own.lock().expect("one thread");
    for (i, byte) in bytes.iter().enumerate() {
        let at = off + i as u64;
        let n = at / BLOCK as u64;
        let block = own
            .entry(n)
            .or_insert_with(|| disk.base.get(&n).cloned().unwrap_or_else(|| vec![0; BLOCK]));
        block[at as usize % BLOCK] = *byte;
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let disk = Arc::new(Sheets { base: USED.clone(), own: Mutex::default() });
    let mut r = Reader::new(data);
    while let (Ok(what), Ok(at), Ok(len)) = (r.u8(), r.u32(), r.u8()) {
        let at = u64::from(at);
        let bytes = r.take("bytes", usize::from(len).min(r.left())).expect("cut to what is left");
        match what % 4 {
            0 => {
                // Where something is written, the log and the places of data.
                let n = at / BLOCK as u64 % USED.len() as u64;
                let block = *USED.keys().nth(n as usize).expect("counted");
                let off = block * BLOCK as u64 + at % BLOCK as u64;
                let room = (SIZE - off) as usize;
                patch(&disk, off, &bytes[..bytes.len().min(room)]);
            }
            1 => {
                let off = at % 2 * (64 << 10) + at / 2 % 300;
                patch(&disk, off, bytes);
            }
            _ => {
                let (block, len) = GROUPS[at as usize % GROUPS.len()];
                let (start, room) = (block * BLOCK as u64, len - 64);
                let skip = (at as usize / GROUPS.len()) % room;
                let bytes = &bytes[..bytes.len().min(room - skip)];
                patch(&disk, start + 64 + skip as u64, bytes);
                let mut group = vec![0; len];
                disk.read(start, &mut group).expect("it is there");
                let crc = stdx::crc32c(!0, &group[8..]);
                patch(&disk, start + 4, &crc.to_le_bytes());
            }
        }
    }
    let Ok(mut store) = Store::open_on(disk, options()) else { return };
    let _ = store.statfs();
    let mut largest = 0;
    for coll in store.list_collections() {
        let Ok(list) = store.list(coll, &HObject::min(), 100) else { continue };
        for o in list.objects {
            let _ = (store.read(coll, &o, 0, 1 << 20), store.get_attrs(coll, &o));
            largest = largest.max(store.stat(coll, &o).map_or(0, |s| s.size));
        }
    }
    // A deep check reads objects whole.
    let _ = store.fsck(largest < 64 << 20);
});
