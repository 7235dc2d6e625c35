//! The store beside the raw device: `bench [DIR] [SECONDS] [only PART]` prints a table for
//! `bench/results`. Raw and store use files of one file system, and take turns.
#![allow(clippy::disallowed_methods)] // a bench asks for the time

mod raw;
mod work;

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use bytes::Bytes;
use store::{FileDisk, LogPlacement, MkfsOptions, Store, Transaction};
use types::Uuid;
use work::{Open, PGS, Rate, memory_mib, object, pg};

/// As the daemons have it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const MIB: f64 = 1_048_576.0;

fn make(dir: &Path, size: u64, log: LogPlacement, journal: Option<&Path>) -> PathBuf {
    let path = dir.join("block");
    let _ = std::fs::remove_file(&path);
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([3; 16]),
        size,
        log,
        log_path: journal.map(Path::to_path_buf),
        ..MkfsOptions::default()
    };
    Store::mkfs(&path, &options).expect("mkfs");
    if let Some(journal) = journal {
        let _ = std::fs::remove_file(dir.join("journal"));
        std::os::unix::fs::symlink(journal, dir.join("journal")).expect("links");
    }
    path
}

fn open_new(dir: &Path, size: u64) -> (PathBuf, Open) {
    let path = make(dir, size, LogPlacement::Device, None);
    let mut open = Open::at(&path);
    open.make_pgs();
    (path, open)
}

fn row(what: &str, ours: String, raw: String, ratio: f64, want: &str) {
    let ratio = if ratio > 0.0 { format!("{ratio:.2}") } else { String::new() };
    println!("| {what} | {ours} | {raw} | {ratio} | {want} |");
}

fn mib(r: &Rate, size: u64) -> String {
    let rate = r.per_sec() * size as f64 / MIB;
    format!("{rate:.0} MiB/s, {:.0} µs CPU", r.cpu_us())
}

fn iops(r: &Rate) -> String {
    let p = if r.p50.is_zero() {
        String::new()
    } else {
        format!(", p50 {} p99 {} µs", r.p50.as_micros(), r.p99.as_micros())
    };
    format!("{:.0}/s, {:.0} µs CPU{p}", r.per_sec(), r.cpu_us())
}

/// Large writes: onto a sparse file, and where all was written before.
fn large(dir: &Path, secs: f64) {
    let file = dir.join("raw");
    let _ = std::fs::remove_file(&file);
    let len = 8 << 30;
    FileDisk::create(&file, len).expect("creates");
    let (_, mut s) = open_new(dir, 6 << 30);
    for what in ["fresh file", "rewritten"] {
        if what == "rewritten" {
            // Until all of the device has been written once.
            s.write((16, 4 << 20), |_, n| n >= 1800, |n| (n % 900, 0));
        }
        // Half before and half after: the device's mood changes.
        let raw1 = raw::sequential(&file, (0, len), secs / 2.0);
        let ours = s.write((16, 4 << 20), |t, n| t >= secs || n >= 900, |n| (n % 900, 0));
        let raw2 = raw::sequential(&file, (raw1.ops << 22, len), secs / 2.0);
        let raw = Rate { ops: raw1.ops + raw2.ops, secs: raw1.secs + raw2.secs, ..raw1 };
        let what = format!("4 MiB object writes, 16 in flight, {what}");
        let ratio = ours.per_sec() / raw.per_sec();
        row(&what, mib(&ours, 4 << 20), mib(&raw, 4 << 20), ratio, "0.90");
    }
    drop(s);
    let _ = std::fs::remove_file(&file);
}

/// Small writes against appends of what as many transactions hold.
fn small(dir: &Path, secs: f64) {
    let file = dir.join("raw");
    FileDisk::create(&file, 256 << 20).expect("creates");
    raw::sequential(&file, (0, 256 << 20), 10.0);
    let (_, mut s) = open_new(dir, 6 << 30);
    s.write((64, 4096), |_, n| n >= 40_000, |n| (n, 0));
    s.store.checkpoint().expect("goes well");
    for (depth, want) in [(16, "0.60"), (64, ""), (1, "")] {
        let raw1 = raw::appends(&file, depth * 4096, secs / 2.0);
        let ours = s.write((depth, 4096), |t, _| t >= secs, |n| (n * 7919 % 40_000, 0));
        let raw2 = raw::appends(&file, depth * 4096, secs / 2.0);
        let groups = raw1.ops + raw2.ops;
        let raw = Rate {
            ops: groups * depth as u64,
            secs: raw1.secs + raw2.secs,
            cpu: raw1.cpu + raw2.cpu,
            ..Rate::default()
        };
        let what = format!("4 KiB durable overwrites, {depth} in flight");
        row(&what, iops(&ours), iops(&raw), ours.per_sec() / raw.per_sec(), want);
        if depth == 16 {
            // 25,000/s where the device writes 80,000 blocks.
            let raw = raw::random_writes(&file, 256 << 20, secs, 16);
            let ratio = ours.per_sec() / raw.per_sec();
            let what = "the same beside writes at random places without a flush";
            row(what, iops(&ours), iops(&raw), ratio, "0.31");
        }
    }
    let ours = s.write((16, 65_536), |t, _| t >= secs, |n| ((1 << 40) | (n % 20_000), 0));
    row("64 KiB new objects, 16 in flight", mib(&ours, 65_536), String::new(), 0.0, "");
    drop(s);
    let _ = std::fs::remove_file(&file);
}

/// Random reads of what the kernel has forgotten.
fn reads(dir: &Path, secs: f64) {
    let (objects, size) = (1000u64, 4u64 << 20);
    let (path, mut s) = open_new(dir, 6 << 30);
    s.write((8, size as usize), |_, n| n >= objects, |n| (n, 0));
    s.store.checkpoint().expect("goes well");
    let file = dir.join("raw");
    FileDisk::create(&file, objects * size).expect("creates");
    raw::sequential(&file, (0, objects * size), 60.0);
    for depth in [1u64, 16] {
        let raw = raw::random_reads(&file, objects * size, secs, depth);
        raw::forget(&path);
        let mut chance = env::Seeded(7);
        let ours = s.read(secs, depth as usize, 4096, |_| {
            let n = env::Random::u64(&mut chance);
            (n % objects, ((n >> 32) % (size >> 12)) << 12)
        });
        let what = format!("4 KiB random reads of 4 GiB not in memory, {depth} at a time");
        row(&what, iops(&ours), iops(&raw), ours.per_sec() / raw.per_sec(), "0.85");
    }
    drop(s);
    let _ = std::fs::remove_file(&file);
}

/// Whole objects that were overwritten here and there, as those of an image are: each is in some
/// 600 pieces.
fn pieces(dir: &Path, secs: f64) {
    let (objects, size) = (256u64, 4u64 << 20);
    let (path, mut s) = open_new(dir, 6 << 30);
    s.write((8, size as usize), |_, n| n >= objects, |n| (n, 0));
    let mut chance = env::Seeded(11);
    let place = |_| {
        let x = env::Random::u64(&mut chance);
        (x % objects, ((x >> 32) % (size >> 12)) << 12)
    };
    let made = s.write((16, 4096), |_, n| n >= objects * 400, place);
    row("4 KiB overwrites of 1 GiB, 16 in flight", iops(&made), String::new(), 0.0, "");
    s.store.checkpoint().expect("goes well");
    for depth in [1usize, 16] {
        raw::forget(&path);
        let read = s.read(secs, depth, size, |n| (n % objects, 0));
        let what = format!("4 MiB reads of that, not in memory, {depth} at a time");
        row(&what, mib(&read, size), String::new(), 0.0, "");
    }
}

/// Small writes on devices of other sizes, sparse: what a checkpoint costs must not depend on that.
fn sizes(dir: &Path, secs: f64) {
    for gib in [16u64, 1 << 10, 8 << 10] {
        let (_, mut s) = open_new(dir, gib << 30);
        s.write((16, 4096), |_, n| n >= 40_000, |n| (n, 0));
        s.store.checkpoint().expect("goes well");
        let before = work::bytes_written();
        let rate = s.write((16, 4096), |t, _| t >= secs, |n| (n * 7919 % 40_000, 0));
        let written = (work::bytes_written() - before) as f64 / (rate.ops * 4096) as f64;
        let what = format!("4 KiB durable overwrites, 16 in flight, a device of {gib} GiB");
        let memory = memory_mib("VmRSS:");
        let ours =
            format!("{}, {written:.1} written per byte, memory {memory:.0} MiB", iops(&rate));
        row(&what, ours, String::new(), 0.0, "");
    }
}

/// Bytes written for bytes stored, closing included.
fn amplification(dir: &Path) {
    for (name, size, count, want) in [
        ("4 MiB", 4u64 << 20, 400u64, "1.02"),
        ("64 KiB", 64 << 10, 15_000, "1.1"),
        ("4 KiB", 4096, 200_000, "2.5"),
    ] {
        let (_, mut s) = open_new(dir, 6 << 30);
        // The ring's preparation, once in a store's life, is not counted.
        std::thread::sleep(std::time::Duration::from_secs(2));
        s.store.sync().expect("goes well");
        let before = work::bytes_written();
        s.write((16, size as usize), |_, n| n >= count, |n| (n, 0));
        s.store.close().expect("closes");
        let written = (work::bytes_written() - before) as f64 / (count * size) as f64;
        let what = format!("bytes written per byte stored, {count} objects of {name}");
        row(&what, format!("{written:.3}"), String::new(), 0.0, want);
    }
}

/// So many millions of small objects, opened by processes of their own.
fn million(dir: &Path, millions: u64) {
    let objects = millions * 1_000_000;
    let (path, mut s) = open_new(dir, (8 << 30) + (millions << 32));
    let made = s.write((64, 300), |_, n| n >= objects, |n| (n, 0));
    let many = if millions == 1 { "a million".into() } else { format!("{millions} million") };
    row(&format!("{many} objects of 300 B, 64 in flight"), iops(&made), String::new(), 0.0, "");
    s.store.close().expect("closes");
    let child = |what: &str| {
        let exe = std::env::current_exe().expect("has a path");
        let mut open = Command::new(exe);
        let out = open.arg("open").arg(&path).arg(what).arg(objects.to_string()).output();
        let out = out.expect("runs");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        assert_eq!(numbers.len(), 3, "{text} {}", String::from_utf8_lossy(&out.stderr));
        numbers
    };
    let clean = child("clean");
    let text = |secs: f64| format!("{secs:.2} s");
    row(
        &format!("open after a clean stop, {many} objects"),
        text(clean[0]),
        String::new(),
        0.0,
        "1 s",
    );
    let memory = format!("{:.0} MiB, {:.0} MiB after 200,000 stats", clean[1], clean[2]);
    row("memory then", memory, String::new(), 0.0, "caches: 192 MiB");
    let mut s = Open::at(&path);
    // As much log as there ever is before a checkpoint.
    s.write((64, 4096), |_, n| n >= 11_000, |n| (n * 7919 % objects, 0));
    drop(s);
    let crashed = child("crashed");
    row(
        &format!("open after a crash, {many} objects"),
        text(crashed[0]),
        String::new(),
        0.0,
        "5 s",
    );
}

/// In a process of its own: opens, and says how long it took and what it needs.
fn open_alone(path: &Path, what: &str, objects: u64) {
    let start = Instant::now();
    let s = Open::at(path);
    let opened = start.elapsed().as_secs_f64();
    let memory = memory_mib("VmRSS:");
    if what == "clean" {
        for i in 0..200_000u64 {
            let n = i * 7919 % objects;
            s.store.stat(pg(n % PGS), &object(n)).expect("is there");
        }
    }
    println!("{opened} {memory} {}", memory_mib("VmRSS:"));
}

/// A store filled to 90 %, then overwritten a million times at random.
fn nearly_full(dir: &Path, overwrites: u64) {
    let size = 4u64 << 30;
    let (_, mut s) = open_new(dir, size);
    let mut n = 0;
    loop {
        let f = s.store.statfs();
        if f.used >= size / 100 * 95 || f.available < 8 << 20 {
            break;
        }
        s.write((16, 65_536), |_, m| m >= 64, |m| (n + m, 0));
        n += 64;
    }
    s.store.checkpoint().expect("goes well");
    let f = s.store.statfs();
    let full = format!("{:.1} % used", f.used as f64 / f.total as f64 * 100.0);
    let mut chance = env::Seeded(9);
    let mut place = |_| {
        let x = env::Random::u64(&mut chance);
        (x % n, (x >> 32) % 16 * 4096)
    };
    let first = s.write((16, 4096), |_, m| m >= 20_000, &mut place);
    s.write((16, 4096), |_, m| m >= overwrites, &mut place);
    let last = s.write((16, 4096), |_, m| m >= 20_000, &mut place);
    let what = format!("4 KiB overwrites, {full}: after {overwrites} others | {}", iops(&last));
    let ratio = last.per_sec() / first.per_sec();
    println!("| {what} | at first: {} | {ratio:.2} | |", iops(&first));
    let start = Instant::now();
    assert_eq!(s.store.fsck(false).expect("reads").errors, Vec::<String>::new());
    row("fsck then", format!("{:.2} s", start.elapsed().as_secs_f64()), String::new(), 0.0, "");
    let mut txn = Transaction::new();
    for n in 0..PGS {
        txn.remove_collection(pg(n));
    }
    let start = Instant::now();
    s.store.submit(txn).expect("removes");
    let gone = start.elapsed().as_secs_f64();
    while s.store.dead_collections() > 0 {
        s.store.sync().expect("syncs");
    }
    row("removing it all: gone", format!("{:.1} ms", gone * 1e3), String::new(), 0.0, "");
    row(
        "removing it all: its space is free",
        format!("{:.2} s", start.elapsed().as_secs_f64()),
        String::new(),
        0.0,
        "",
    );
}

/// One object with ten million omap keys.
fn omap(dir: &Path) {
    const KEYS: u64 = 10_000_000;
    const BATCH: u64 = 1000;
    let (_, mut s) = open_new(dir, 12 << 30);
    let (c, o) = (pg(0), object(0));
    // Keys come in no order: each batch takes every so many.
    let batches = KEYS / BATCH;
    let key = |n: u64| Bytes::from(format!("key{n:012}"));
    let start = Instant::now();
    for batch in 0..batches {
        let at = batch * 7919 % batches;
        let pairs = (0..BATCH).map(|i| (key(i * batches + at), Bytes::from_static(&[7; 20])));
        let mut txn = Transaction::new();
        txn.omap_set(c, &o, pairs);
        s.store.submit(txn).expect("submits");
        s.store.kick();
        s.store.complete().expect("goes well");
    }
    s.store.checkpoint().expect("goes well");
    let secs = start.elapsed().as_secs_f64();
    let made = format!("{:.0} keys/s, memory {:.0} MiB", KEYS as f64 / secs, memory_mib("VmRSS:"));
    row("10 million omap keys on one object, made", made, String::new(), 0.0, "");
    let (start, mut n) = (Instant::now(), 0);
    let walk = &mut |k: &[u8], _: &Bytes| {
        assert_eq!(k, &key(n)[..], "in order, and all of them");
        n += 1;
        true
    };
    s.store.omap_walk(c, &o, Bound::Unbounded, walk).expect("reads");
    assert_eq!(n, KEYS);
    let rate = KEYS as f64 / start.elapsed().as_secs_f64();
    let text = format!("{rate:.0} keys/s, memory {:.0} MiB", memory_mib("VmRSS:"));
    row("all of them in order", text, String::new(), 0.0, "");
    let start = Instant::now();
    for i in 0..10_000u64 {
        let from = key(i * 7919 * 131 % KEYS);
        let part = s.store.omap_iter(c, &o, Bound::Included(&from), 10).expect("reads");
        assert_eq!(part[0].0, from);
    }
    let text = format!("{:.0} µs", start.elapsed().as_secs_f64() * 100.0);
    row("ten keys from a random one on", text, String::new(), 0.0, "");
    let start = Instant::now();
    let mut txn = Transaction::new();
    txn.remove(c, &o);
    s.store.submit(txn).expect("submits");
    s.store.sync().expect("goes well");
    let text = format!("{:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    row("removing the object", text, String::new(), 0.0, "");
}

/// The three places of a log.
fn placements(dir: &Path, secs: f64) {
    let shm = PathBuf::from(format!("/dev/shm/store-bench-{}", std::process::id()));
    let own = dir.join("own-journal");
    let places = [
        ("on the device", LogPlacement::Device, None),
        ("in a file of its own, same disk", LogPlacement::Own, Some(&own)),
        ("in a file of its own, tmpfs", LogPlacement::Own, Some(&shm)),
        ("in memory (unsafe)", LogPlacement::Memory, None),
    ];
    for (name, log, journal) in places {
        if let Some(journal) = journal {
            let _ = std::fs::remove_file(journal);
        }
        let _ = std::fs::remove_file(dir.join("journal"));
        let path = make(dir, 6 << 30, log, journal.map(PathBuf::as_path));
        let mut s = Open::at(&path);
        s.make_pgs();
        let tiny = s.write((16, 4096), |t, _| t >= secs, |n| (n % 40_000, 0));
        let big = s.write((16, 4 << 20), |t, n| t >= secs || n >= 900, |n| ((1 << 40) | n, 0));
        let what = format!("log {name}: 4 KiB, 16 in flight; 4 MiB, 16 in flight");
        row(&what, format!("{}; {}", iops(&tiny), mib(&big, 4 << 20)), String::new(), 0.0, "");
        drop(s);
        if let Some(journal) = journal {
            let _ = std::fs::remove_file(journal);
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [verb, path, what, objects] = args.as_slice()
        && verb == "open"
    {
        return open_alone(Path::new(path), what, objects.parse().expect("a number"));
    }
    let dir = args.first().map_or_else(std::env::temp_dir, PathBuf::from).join("store-bench");
    let secs: f64 = args.get(1).and_then(|s| s.parse().ok()).unwrap_or(4.0);
    let only = args.get(2).map_or("", String::as_str);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("makes a directory");
    println!("\n| work | store | raw | ratio | wanted |\n|---|---|---|---|---|");
    let parts: [(&str, &dyn Fn()); 10] = [
        ("large", &|| large(&dir, secs)),
        ("small", &|| small(&dir, secs)),
        ("reads", &|| reads(&dir, secs)),
        ("pieces", &|| pieces(&dir, secs)),
        ("sizes", &|| sizes(&dir, 2.0 * secs)),
        ("amplification", &|| amplification(&dir)),
        ("million", &|| million(&dir, 1)),
        ("full", &|| nearly_full(&dir, 1_000_000)),
        ("omap", &|| omap(&dir)),
        ("placements", &|| placements(&dir, secs / 2.0)),
    ];
    // Takes minutes, and 10 GiB.
    if only == "millions" {
        million(&dir, 10);
    }
    for (name, part) in parts {
        if only.is_empty() || only == name {
            part();
        }
    }
    println!("\nmost memory of this process: {:.0} MiB", memory_mib("VmHWM:"));
    let _ = std::fs::remove_dir_all(&dir);
}
