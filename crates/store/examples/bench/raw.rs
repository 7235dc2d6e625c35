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

/// What `threads` threads do in `secs`, each on what `open` gives it, at random places of 4 KiB
/// in the first `len` bytes.
fn at_random<T>(
    (len, secs, threads): (u64, f64, u64),
    open: impl Fn() -> T + Sync,
    act: impl Fn(&T, &mut [u8], u64) + Sync,
) -> Rate {
    let one = |seed: u64| {
        let (on, mut block) = (open(), payload(4096).to_vec());
        let (mut ops, mut chance, meter) = (0, env::Seeded(seed), Meter::start());
        while meter.secs() < secs {
            let at = (env::Random::u64(&mut chance) % (len >> 12)) << 12;
            act(&on, &mut block, at);
            ops += 1;
        }
        ops
    };
    let meter = Meter::start();
    let total = std::thread::scope(|scope| {
        let one = &one;
        let handles: Vec<_> = (0..threads).map(|seed| scope.spawn(move || one(seed))).collect();
        handles.into_iter().map(|h| h.join().expect("does it")).sum()
    });
    meter.end(total, Vec::new())
}

/// Direct writes of 4 KiB to random places of a file's first `len` bytes, by `threads` threads;
/// none is flushed.
pub fn random_writes(path: &Path, len: u64, secs: f64, threads: u64) -> Rate {
    let (disk, data) = (FileDisk::open(path).expect("opens"), payload(4096));
    let write = |(): &(), _: &mut [u8], at| disk.write(at, &data).expect("writes");
    at_random((len, secs, threads), || (), write)
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
    let open = || {
        let file = File::open(path).expect("opens");
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        file
    };
    at_random((len, secs, threads), open, |file, block, at| {
        file.read_exact_at(block, at).expect("reads");
        std::hint::black_box(stdx::crc32c(!0, block));
    })
}
