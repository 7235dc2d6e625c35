//! Measures the store against the raw file: `bench [DIR] [SECONDS]`.
#![allow(clippy::disallowed_methods)] // a bench asks for the time

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use env::Disk;
use store::{AlignedBuf, Coll, FileDisk, MkfsOptions, OpenOptions, Store, Transaction};
use types::{HObject, PgId, PoolId, ShardId, SpgId, Uuid};

/// CPU seconds of this process.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let mut fields = stat.rsplit(')').next().unwrap_or("").split_whitespace().skip(11);
    let ticks: f64 = (0..2).filter_map(|_| fields.next()?.parse::<f64>().ok()).sum();
    ticks / 100.0
}

fn bytes_written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find(|l| l.starts_with("write_bytes"));
    line.and_then(|l| l.split(' ').nth(1)?.parse().ok()).unwrap_or(0)
}

fn memory_mb(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with(name));
    let kb = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1024.0
}

fn rss_mb() -> f64 {
    memory_mb("VmHWM:")
}

fn rss_now_mb() -> f64 {
    memory_mb("VmRSS:")
}

fn pg(n: u64) -> Coll {
    Coll::Pg(SpgId { pg: PgId::new(1, n as u32), shard: ShardId::NONE })
}

fn object(n: u64) -> HObject {
    let name = Bytes::from(format!("benchmark_data_host_12345_object{n}"));
    HObject::head(PoolId(1), Bytes::new(), Bytes::new(), name)
}

fn payload(n: usize) -> Bytes {
    let mut buf = AlignedBuf::with_capacity(n);
    let data: Vec<u8> = (0..n).map(|i| (i * 7 + i / 4096) as u8).collect();
    buf.put(&data);
    buf.freeze()
}

fn open(path: &Path) -> (Store, Receiver<()>) {
    let (sender, woken) = channel();
    let options = OpenOptions {
        io_uring: std::env::var_os("PLAIN").is_none(),
        waker: Box::new(move || {
            let _ = sender.send(());
        }),
        ..OpenOptions::default()
    };
    (Store::open(path, options).expect("opens"), woken)
}

struct Report {
    start: Instant,
    cpu: f64,
    written: u64,
}

impl Report {
    fn start() -> Self {
        Self { start: Instant::now(), cpu: cpu(), written: bytes_written() }
    }

    fn show(&self, what: &str, ops: u64, bytes: u64, mut latencies: Vec<Duration>) {
        let secs = self.start.elapsed().as_secs_f64();
        let cpu = cpu() - self.cpu;
        latencies.sort_unstable();
        let at = |p: f64| match latencies.len() {
            0 => 0,
            n => latencies[((n - 1) as f64 * p) as usize].as_micros(),
        };
        println!(
            "{what:34} {:9.0}/s {:8.1} MB/s  cpu {:6.1} µs/op ({:4.0} %)  p50 {:6} p99 {:6} max {:7} µs  written {:.2}x",
            ops as f64 / secs,
            bytes as f64 / secs / 1e6,
            cpu / ops as f64 * 1e6,
            cpu / secs * 100.0,
            at(0.5),
            at(0.99),
            at(1.0),
            (bytes_written() - self.written) as f64 / bytes as f64,
        );
    }
}

/// As an OSD does it: data, two attributes, a log entry, the PG's info; old entries go.
fn write_txn(n: u64, object_no: u64, off: u64, data: Bytes, pgs: u64) -> Transaction {
    let c = pg(object_no % pgs);
    let o = object(object_no);
    let mut txn = Transaction::new();
    txn.write(c, &o, off, data);
    txn.set_attrs(
        c,
        &o,
        [
            (Bytes::from_static(b"_"), Bytes::from(vec![n as u8; 250])),
            (Bytes::from_static(b"snapset"), Bytes::from_static(&[1; 31])),
        ],
    );
    txn.coll_set(c, format!("log.{n:016x}"), Bytes::from(vec![n as u8; 180]));
    txn.coll_set(c, "info", Bytes::from(vec![n as u8; 120]));
    if n > 20_000 {
        txn.coll_rm(pg((n - 20_000) % pgs), format!("log.{:016x}", n - 20_000));
    }
    txn
}

#[allow(clippy::too_many_arguments)] // a bench's knobs
fn writes(
    what: &str,
    store: &mut Store,
    woken: &Receiver<()>,
    secs: f64,
    depth: usize,
    size: usize,
    mut place: impl FnMut(u64) -> (u64, u64),
) {
    let data = payload(size);
    let report = Report::start();
    let mut flying: VecDeque<(u64, Instant)> = VecDeque::new();
    let (mut ops, mut latencies) = (0, Vec::new());
    while report.start.elapsed().as_secs_f64() < secs && (secs < 600.0 || ops < 1_000_000) {
        while flying.len() < depth {
            let (o, off) = place(ops);
            let seq = store.submit(write_txn(ops, o, off, data.clone(), 32)).expect("submits");
            flying.push_back((seq, Instant::now()));
            ops += 1;
        }
        let _ = woken.recv_timeout(Duration::from_millis(100));
        let durable = store.complete().expect("goes well");
        let now = Instant::now();
        while flying.front().is_some_and(|(seq, _)| *seq <= durable) {
            let (_, since) = flying.pop_front().expect("there is a front");
            latencies.push(now - since);
        }
    }
    store.sync().expect("syncs");
    report.show(what, ops, ops * size as u64, latencies);
}

fn raw(dir: &Path, secs: f64) {
    let path = dir.join("raw");
    FileDisk::create(&path, 4 << 30).expect("creates");
    let disk = Arc::new(FileDisk::open(&path).expect("opens"));
    let data = payload(4 << 20);
    // Twice: the first time around, the file's blocks are still to be found.
    for what in ["raw 4 MiB O_DIRECT, fresh", "raw 4 MiB O_DIRECT, rewritten"] {
        let report = Report::start();
        let mut ops = 0;
        while report.start.elapsed().as_secs_f64() < secs && ops < 1024 {
            disk.write((ops * (4 << 20)) % (4 << 30), &data).expect("writes");
            ops += 1;
            if ops % 8 == 0 {
                disk.flush().expect("flushes");
            }
        }
        report.show(what, ops, ops << 22, Vec::new());
    }
    for (size, uring) in [(8 << 10, false), (40 << 10, false), (8 << 10, true), (40 << 10, true)] {
        if uring {
            disk.use_io_uring();
        }
        let data = payload(size);
        let report = Report::start();
        let (mut ops, mut latencies) = (0, Vec::new());
        while report.start.elapsed().as_secs_f64() < secs {
            let at = Instant::now();
            disk.commit(&[(ops * size as u64 % (256 << 20), &data)]).expect("writes");
            latencies.push(at.elapsed());
            ops += 1;
        }
        let what =
            format!("raw append+flush {} KiB{}", size >> 10, if uring { ", uring" } else { "" });
        report.show(&what, ops, ops * size as u64, latencies);
    }
    drop(disk);
    let _ = std::fs::remove_file(&path);
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from).join("store-bench");
    let secs: f64 = args.next().and_then(|s| s.parse().ok()).unwrap_or(4.0);
    let only = args.next().unwrap_or_default();
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("makes a directory");
    if only.is_empty() || only == "raw" {
        raw(&dir, secs);
    }
    let path = dir.join("block");
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([3; 16]),
        size: 12 << 30,
        ..MkfsOptions::default()
    };
    let at = Instant::now();
    Store::mkfs(&path, &options).expect("mkfs");
    println!("mkfs {:?}", at.elapsed());
    let (mut store, woken) = open(&path);
    let mut txn = Transaction::new();
    for n in 0..32 {
        txn.create_collection(pg(n));
    }
    store.submit(txn).expect("submits");
    let (s, w) = (&mut store, &woken);
    if only.is_empty() || only == "small" {
        writes("4 KiB new objects, 16 in flight", s, w, secs, 16, 4096, |n| (n, 0));
        writes("4 KiB overwrites of 4k, 16", s, w, secs, 16, 4096, |n| (n * 7919 % 4000, 0));
        let near = |n: u64| ((1 << 40) | (n * 7919 % 64), n * 104_729 % 1024 * 4096);
        writes("4 KiB in 4 MiB objects, 16", s, w, secs, 16, 4096, near);
        writes("4 KiB overwrites, 64 in flight", s, w, secs, 64, 4096, |n| (n * 7919 % 4000, 0));
        writes("4 KiB overwrites, 1 in flight", s, w, secs, 1, 4096, |n| (n * 7919 % 4000, 0));
    }
    if only == "million" {
        let ends = Instant::now();
        writes("300 B, a million new objects, 64", s, w, 600.0, 64, 300, |i| (i, 0));
        println!("made in {:?}", ends.elapsed());
    }
    if only.is_empty() || only == "large" {
        writes("4 MiB new objects, 16 in flight", s, w, secs, 16, 4 << 20, |n| {
            ((1 << 41) | (n % 1500), 0)
        });
        writes("64 KiB new objects, 16 in flight", s, w, secs, 16, 64 << 10, |n| {
            ((1 << 42) | (n % 20_000), 0)
        });
        let report = Report::start();
        let mut ops = 0;
        while report.start.elapsed().as_secs_f64() < secs / 2.0 {
            let n = ops % 100;
            store.read(pg(n % 32), &object(1 << 41 | n), 0, 4 << 20).expect("reads");
            ops += 1;
        }
        report.show("4 MiB reads", ops, ops << 22, Vec::new());
    }
    let at = Instant::now();
    store.close().expect("closes");
    println!("close {:?}, most memory {:.0} MB", at.elapsed(), rss_mb());
    let at = Instant::now();
    let (store, _woken) = open(&path);
    println!("open {:?}, memory {:.0} MB", at.elapsed(), rss_now_mb());
    if only == "million" {
        let at = Instant::now();
        for i in 0..20_000u64 {
            let n = i * 7919 % 1_000_000;
            store.stat(pg(n % 32), &object(n)).expect("is there");
        }
        println!("random stat {:?} each", at.elapsed() / 20_000);
        let at = Instant::now();
        for i in 0..20_000u64 {
            assert!(!store.exists(pg(i % 32), &object(2_000_000 + i)).expect("reads"));
        }
        println!("absent {:?} each", at.elapsed() / 20_000);
        let at = Instant::now();
        let (mut n, mut from) = (0, HObject::min());
        while !from.max {
            let part = store.list(pg(3), &from, 1000).expect("lists");
            n += part.objects.len();
            from = part.next;
        }
        println!("list {n} in {:?}, memory {:.0} MB", at.elapsed(), rss_now_mb());
    }
    println!("{:?}", store.statfs());
    drop(store);
    let _ = std::fs::remove_dir_all(&dir);
}
