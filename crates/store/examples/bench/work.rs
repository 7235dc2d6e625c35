//! Loads on a store, and what they cost.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use store::{AlignedBuf, Coll, Fetch, OpenOptions, Store, Transaction};
use types::{HObject, PgId, PoolId, ShardId, SpgId};

/// PGs that objects are spread over.
pub const PGS: u64 = 32;

/// CPU seconds of this process.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let mut fields = stat.rsplit(')').next().unwrap_or("").split_whitespace().skip(11);
    let ticks: f64 = (0..2).filter_map(|_| fields.next()?.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// Bytes this process made the kernel write to devices.
pub fn bytes_written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find(|l| l.starts_with("write_bytes"));
    line.and_then(|l| l.split(' ').nth(1)?.parse().ok()).unwrap_or(0)
}

/// MiB of memory of this process: `VmRSS:` now, `VmHWM:` at most.
pub fn memory_mib(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with(name));
    let kb = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1024.0
}

pub fn pg(n: u64) -> Coll {
    Coll::Pg(SpgId { pg: PgId::new(1, n as u32), shard: ShardId::NONE })
}

pub fn object(n: u64) -> HObject {
    let name = Bytes::from(format!("benchmark_data_host_12345_object{n}"));
    HObject::head(PoolId(1), Bytes::new(), Bytes::new(), name)
}

/// Bytes that do not compress, aligned as the messenger's are.
pub fn payload(n: usize) -> Bytes {
    let mut data = vec![0; n];
    env::Random::fill(&mut env::Seeded(n as u64), &mut data);
    let mut buf = AlignedBuf::with_capacity(n);
    buf.put(&data);
    buf.freeze()
}

/// Operations in a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    pub ops: u64,
    pub secs: f64,
    pub cpu: f64,
    pub p50: Duration,
    pub p99: Duration,
}

impl Rate {
    pub fn per_sec(&self) -> f64 {
        self.ops as f64 / self.secs
    }

    pub fn cpu_us(&self) -> f64 {
        self.cpu / self.ops as f64 * 1e6
    }
}

/// Measures what lies between its making and its end.
pub struct Meter {
    start: Instant,
    cpu: f64,
}

impl Meter {
    pub fn start() -> Self {
        Self { start: Instant::now(), cpu: cpu() }
    }

    pub fn secs(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    pub fn end(&self, ops: u64, mut latencies: Vec<Duration>) -> Rate {
        let (secs, cpu) = (self.secs(), cpu() - self.cpu);
        latencies.sort_unstable();
        let at = |p: usize| latencies.get(latencies.len() * p / 100).copied().unwrap_or_default();
        Rate { ops, secs, cpu, p50: at(50), p99: at(99) }
    }
}

/// A store and what wakes its owner.
pub struct Open {
    pub store: Store,
    woken: Receiver<()>,
}

impl Open {
    pub fn at(path: &Path) -> Self {
        let (sender, woken) = sync_channel(1);
        let waker = Box::new(move || {
            let _ = sender.try_send(());
        });
        // As an OSD with the usual memory has it.
        let options = OpenOptions {
            checkpoint_bytes: 128 << 20,
            onode_cache_bytes: 128 << 20,
            table_cache_bytes: 64 << 20,
            gather: true,
            waker,
            ..OpenOptions::default()
        };
        Self { store: Store::open(path, options).expect("opens"), woken }
    }

    pub fn make_pgs(&mut self) {
        let mut txn = Transaction::new();
        for n in 0..PGS {
            txn.create_collection(pg(n));
        }
        self.store.submit(txn).expect("submits");
    }

    /// Writes until `until` says so (given seconds and operations), `depth` at a time.
    /// `place` gives object and offset.
    pub fn write(
        &mut self,
        (depth, size): (usize, usize),
        until: impl Fn(f64, u64) -> bool,
        mut place: impl FnMut(u64) -> (u64, u64),
    ) -> Rate {
        let data = payload(size);
        let meter = Meter::start();
        let mut flying: VecDeque<(u64, Instant)> = VecDeque::new();
        let (mut ops, mut latencies) = (0, Vec::new());
        while !until(meter.secs(), ops) {
            while flying.len() < depth {
                let (o, off) = place(ops);
                let txn = write_txn(ops, o, off, data.clone());
                flying.push_back((self.store.submit(txn).expect("submits"), Instant::now()));
                ops += 1;
            }
            self.store.kick();
            if !self.store.wait_written() {
                let _ = self.woken.recv_timeout(Duration::from_millis(100));
            }
            let durable = self.store.complete().expect("goes well");
            let now = Instant::now();
            while flying.front().is_some_and(|(seq, _)| *seq <= durable) {
                let (_, since) = flying.pop_front().expect("there is a front");
                latencies.push(now - since);
            }
        }
        self.store.sync().expect("syncs");
        meter.end(ops, latencies)
    }

    /// Reads at random places, `depth` at a time, for so many seconds.
    pub fn read(
        &mut self,
        secs: f64,
        depth: usize,
        len: u64,
        mut place: impl FnMut(u64) -> (u64, u64),
    ) -> Rate {
        let meter = Meter::start();
        let (mut ops, mut done, mut flying) = (0u64, 0u64, 0);
        while meter.secs() < secs {
            while flying < depth {
                let (n, off) = place(ops);
                ops += 1;
                let fetch = if depth == 1 {
                    Fetch::Ready(self.store.read(pg(n % PGS), &object(n), off, len).expect("reads"))
                } else {
                    self.store.fetch(pg(n % PGS), &object(n), off, len).expect("reads")
                };
                match fetch {
                    Fetch::Ready(_) => {
                        done += 1;
                        if depth == 1 {
                            break;
                        }
                    }
                    Fetch::Later(_) => flying += 1,
                }
            }
            if flying > 0 {
                self.store.wait_fetched();
                while let Some((_, data)) = self.store.fetched() {
                    data.expect("reads");
                    flying -= 1;
                    done += 1;
                }
            }
        }
        meter.end(done, Vec::new())
    }
}

/// As an OSD does it: data, two attributes, a log entry, the PG's info; old entries go.
fn write_txn(n: u64, object_no: u64, off: u64, data: Bytes) -> Transaction {
    let c = pg(object_no % PGS);
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
    // Of any PG, so that what is written 20,000 later finds it.
    txn.coll_set(pg(n % PGS), format!("log.{n:016x}"), Bytes::from(vec![n as u8; 180]));
    txn.coll_set(c, "info", Bytes::from(vec![n as u8; 120]));
    if n > 20_000 {
        txn.coll_rm(pg((n - 20_000) % PGS), format!("log.{:016x}", n - 20_000));
    }
    txn
}
