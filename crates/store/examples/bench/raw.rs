//! The device without a store.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use env::Disk;
use store::FileDisk;

use crate::work::{Meter, Rate, payload};

/// Sequential writes of 4 MiB to the bytes `at..end` of a file, direct, flushed once at the
/// end.
pub fn sequential(path: &Path, (at, end): (u64, u64), secs: f64) -> Rate {
    let disk = FileDisk::open(path).expect("opens");
    let data = payload(4 << 20);
    let (meter, mut ops) = (Meter::start(), 0);
    while meter.secs() < secs && at + ((ops + 1) << 22) <= end {
        disk.write(at + (ops << 22), &data).expect("writes");
        ops += 1;
    }
    disk.flush().expect("flushes");
    meter.end(ops, Vec::new())
}

/// Appends of `size` bytes with a flush each, as a log has them.
pub fn appends(path: &Path, size: usize, secs: f64) -> Rate {
    let disk = FileDisk::open(path).expect("opens");
    let data = payload(size);
    let (meter, mut ops) = (Meter::start(), 0);
    while meter.secs() < secs {
        disk.commit(&[(ops * size as u64 % (256 << 20), &data)]).expect("writes");
        ops += 1;
    }
    meter.end(ops, Vec::new())
}

/// Direct writes of 4 KiB to random places of a file's first `len` bytes, by `threads` threads;
/// none is flushed.
pub fn random_writes(path: &Path, len: u64, secs: f64, threads: u64) -> Rate {
    let disk = &FileDisk::open(path).expect("opens");
    let meter = Meter::start();
    let one = |seed: u64| {
        let (data, mut ops, mut chance) = (payload(4096), 0, env::Seeded(seed));
        let meter = Meter::start();
        while meter.secs() < secs {
            let at = (env::Random::u64(&mut chance) % (len >> 12)) << 12;
            disk.write(at, &data).expect("writes");
            ops += 1;
        }
        ops
    };
    let total = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|seed| scope.spawn(move || one(seed))).collect();
        handles.into_iter().map(|h| h.join().expect("writes")).sum()
    });
    meter.end(total, Vec::new())
}

/// What the kernel keeps of a file goes.
pub fn forget(path: &Path) {
    let file = File::open(path).expect("opens");
    file.sync_all().expect("syncs");
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
}

/// Reads of 4 KiB at random places of a file's first `len` bytes, by `threads` threads.
pub fn random_reads(path: &Path, len: u64, secs: f64, threads: u64) -> Rate {
    forget(path);
    let meter = Meter::start();
    let total = std::thread::scope(|scope| {
        let one = |seed: u64| {
            let file = File::open(path).expect("opens");
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
            let (mut buf, mut ops, mut chance) = ([0; 4096], 0, env::Seeded(seed));
            let meter = Meter::start();
            while meter.secs() < secs {
                let at = (env::Random::u64(&mut chance) % (len >> 12)) << 12;
                file.read_exact_at(&mut buf, at).expect("reads");
                std::hint::black_box(stdx::crc32c(!0, &buf));
                ops += 1;
            }
            ops
        };
        let handles: Vec<_> = (0..threads).map(|seed| scope.spawn(move || one(seed))).collect();
        handles.into_iter().map(|h| h.join().expect("reads")).sum()
    });
    meter.end(total, Vec::new())
}
