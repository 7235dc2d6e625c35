//! Disks that lie: writes that are lost or go elsewhere, reads that fail, no space at any
//! call. Whatever happens is found or harmless: no read is ever wrong, nothing panics, and
//! what the store refuses it refuses with a reason.

mod common;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use common::{Dice, Model, Scale, algorithm, compress, seeds};
use store::{
    Coll, DiskFault, MkfsOptions, OpenOptions, Seq, SimDisk, Store, StoreError, Transaction,
};
use types::{HObject, PgId, PoolId, ShardId, SpgId, Uuid};

const SIZE: u64 = 48 << 20;

fn open(disk: &Arc<SimDisk>, seed: u64) -> Result<Store, StoreError> {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    let mut store = Store::open_on(disk.clone(), options)?;
    if let Some(algorithm) = algorithm(seed) {
        compress(&mut store, algorithm);
    }
    Ok(store)
}

fn mkfs() -> SimDisk {
    let disk = Arc::new(SimDisk::new(SIZE, false));
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([2; 16]),
        // Takes the largest transaction that `Model::random` makes of compressed data.
        log_bytes: 4 << 20,
        ..MkfsOptions::default()
    };
    Store::mkfs_on(disk.clone(), &options).unwrap();
    disk.copy(false)
}

/// An error that says that the disk is at fault.
fn is_honest(e: &StoreError) -> bool {
    use StoreError as E;
    matches!(e, E::Corrupt { .. } | E::Format(_) | E::Io { .. } | E::Stopped(_))
}

/// Everything that can be read is right. Returns what cannot.
fn wrong(store: &Store, model: &Model) -> Result<u64, String> {
    let mut errors = 0;
    let mut check = |what: String, ok: Result<bool, StoreError>| match ok {
        Ok(true) => Ok(()),
        Err(e) if is_honest(&e) => {
            errors += 1;
            Ok(())
        }
        Ok(false) => Err(format!("{what}: wrong")),
        Err(e) => Err(format!("{what}: {e}")),
    };
    if !store.list_collections().iter().eq(model.colls.keys()) {
        return Err("collections differ".into());
    }
    for (c, coll) in &model.colls {
        let c = *c;
        let names = store.list(c, &HObject::min(), 1000);
        check(format!("{c}"), names.map(|l| l.objects.iter().eq(coll.objects.keys())))?;
        let keys = store.coll_iter(c, Bound::Unbounded, 1000);
        check(format!("{c} keys"), keys.map(|k| k.iter().map(|(k, v)| (k, v)).eq(&coll.keys)))?;
        for (o, x) in &coll.objects {
            check(format!("{c} {o}"), store.read(c, o, 0, u64::MAX).map(|d| d == x.data))?;
            check(format!("{c} {o} attrs"), store.get_attrs(c, o).map(|a| a == x.attrs))?;
            let omap = store.omap_iter(c, o, Bound::Unbounded, 1000);
            let omap = omap.map(|m| m.iter().map(|(k, v)| (k, v)).eq(&x.omap));
            check(format!("{c} {o} omap"), omap)?;
        }
    }
    Ok(errors)
}

#[derive(Debug, Default)]
struct Seen {
    /// The fault never came.
    unmet: u64,
    /// The running store refused something.
    stopped: u64,
    /// It did not open again.
    refused: u64,
    /// Some reads were refused, the rest right.
    errors: u64,
    /// No difference was seen.
    harmless: u64,
    /// The last groups of the log were lost by the disk, and nobody can tell.
    forgotten: u64,
}

fn meet(seed: u64, fresh: &SimDisk, fault: DiskFault, n: u64, seen: &mut Seen) {
    let mut dice = Dice::new(seed ^ 0x0bad);
    dice.repeats = algorithm(seed).is_some();
    let disk = Arc::new(fresh.copy(false));
    let (mut store, mut model) = (open(&disk, seed).unwrap(), Model::default());
    let mut models = BTreeMap::<Seq, Model>::from([(0, model.clone())]);
    disk.fault_in(Some((n, fault)));
    let (mut acked, mut stopped) = (0, false);
    for _ in 0..90 {
        if disk.is_fault_due() {
            acked = store.durable();
        }
        let result = match dice.below(10) {
            0 => store.begin_checkpoint(),
            1 => {
                let _ = store.step_checkpoint() || store.step_merge();
                Ok(())
            }
            2 | 3 => {
                store.step();
                Ok(())
            }
            4 => store.complete().map(drop),
            5 if dice.below(4) == 0 => store.checkpoint(),
            _ => {
                let before = model.clone();
                let txn = model.random(&mut dice, Scale { objects: 8, size: 1 << 17 });
                let result = store.submit(txn);
                match &result {
                    Ok(seq) => drop(models.insert(*seq, model.clone())),
                    Err(_) => model = before,
                }
                result.map(drop)
            }
        };
        if let Err(e) = result {
            assert!(is_honest(&e), "{e}");
            stopped = true;
            // A read that failed refuses what needed it, and nothing else.
            if store.complete().is_err() {
                break;
            }
        }
    }
    let unmet = disk.is_fault_due();
    disk.fault_in(None);
    let mut errors = 0;
    if !stopped {
        errors += wrong(&store, &model).unwrap_or_else(|e| panic!("while it ran: {e}"));
    }
    let durable = store.durable();
    drop(store);
    match open(&disk, seed) {
        Err(e) => {
            assert!(matches!(e, StoreError::Corrupt { .. } | StoreError::Format(_)), "{e}");
            assert!(!matches!(fault, DiskFault::NoSpace | DiskFault::Read), "opens: {e}");
            seen.refused += 1;
            return;
        }
        Ok(store) => {
            let at = store.opened_at();
            assert!(at >= acked, "{at} are there, {acked} were durable before the fault");
            let (_, model) = models.range(..=at).next_back().unwrap();
            errors += wrong(&store, model).unwrap_or_else(|e| panic!("opened again: {e}"));
            if at < durable {
                assert!(matches!(fault, DiskFault::Lost | DiskFault::Misdirected(_)));
                seen.forgotten += 1;
            }
        }
    }
    *match (unmet, errors) {
        (true, _) => &mut seen.unmet,
        (_, 1..) => &mut seen.errors,
        _ if stopped => &mut seen.stopped,
        _ => &mut seen.harmless,
    } += 1;
}

fn try_all(name: &str, step: u64, fault: impl Fn(&mut Dice) -> DiskFault) -> Seen {
    let fresh = mkfs();
    let mut seen = Seen::default();
    // 15: changes of compressed blocks, several in a transaction, that cannot be read.
    for seed in seeds(3).chain([15]) {
        let mut dice = Dice::new(seed ^ 0xd15c);
        let mut n = 1;
        loop {
            let fault = fault(&mut dice);
            let before = seen.unmet;
            let met = catch_unwind(AssertUnwindSafe(|| meet(seed, &fresh, fault, n, &mut seen)));
            met.unwrap_or_else(|_| panic!("{name}: seed {seed}, {fault:?} at call {n}: see above"));
            if seen.unmet > before {
                break;
            }
            n += 1 + dice.below(step);
        }
    }
    println!("{name}: {seen:?}");
    seen
}

/// Every third write, and every one with `STORE_ALL`.
fn step(n: u64) -> u64 {
    if std::env::var_os("STORE_ALL").is_some() { 1 } else { n }
}

#[test]
fn lost_writes_are_found() {
    let seen = try_all("lost", step(4), |_| DiskFault::Lost);
    assert!(seen.refused > 0 && seen.errors > 0, "{seen:?}");
}

#[test]
fn misdirected_writes_are_found() {
    let seen = try_all("misdirected", step(4), |dice| {
        // A superblock, the log, data, what checkpoints write.
        let places = [0, 64 << 10, 1 << 20, 2 << 20, SIZE / 4 * 3];
        let reach = [1, 1, 32 << 10, 64 << 10, 64 << 10];
        let at = dice.below(5) as usize;
        DiskFault::Misdirected(places[at] + dice.below(reach[at]))
    });
    assert!(seen.refused > 0 && seen.errors > 0, "{seen:?}");
}

#[test]
fn failed_reads_are_contained() {
    let seen = try_all("reads", step(4), |_| DiskFault::Read);
    assert!(seen.refused == 0 && seen.forgotten == 0, "{seen:?}");
}

#[test]
fn no_space_at_any_call_stops_and_loses_nothing() {
    let seen = try_all("no space", step(4), |_| DiskFault::NoSpace);
    assert!(seen.refused == 0 && seen.forgotten == 0, "{seen:?}");
}

/// A compressed block that cannot be read is changed in part, and acknowledged: that, and all
/// behind it, outlives a crash, and what is lost stays lost.
#[test]
fn what_follows_a_damaged_block_is_kept() {
    let disk = Arc::new(mkfs().copy(false));
    let mut store = open(&disk, 1).unwrap();
    let c = Coll::Pg(SpgId { pg: PgId::new(1, 0), shard: ShardId::NONE });
    let o = HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::from_static(b"o"));
    let mut txn = Transaction::new();
    txn.create_collection(c);
    txn.write(c, &o, 0, vec![7; 128 << 10].into());
    store.submit(txn).unwrap();
    store.checkpoint().unwrap();
    drop(store);

    let mut store = open(&disk, 1).unwrap();
    disk.fault_in(Some((1, DiskFault::Read)));
    let mut last = 0;
    for at in [5_000, 200_000] {
        let mut txn = Transaction::new();
        txn.write(c, &o, at, vec![8; 100].into());
        last = store.submit(txn).unwrap();
    }
    assert!(!disk.is_fault_due(), "the rest of the block was read");
    while store.durable() < last {
        store.step();
    }
    drop(store); // without a checkpoint
    let store = open(&disk, 1).unwrap();
    assert_eq!(store.opened_at(), last);
    assert!(matches!(store.read(c, &o, 4_096, 4_096), Err(StoreError::Corrupt { .. })));
    assert_eq!(store.read(c, &o, 0, 4_096).unwrap(), vec![7; 4_096]);
    assert_eq!(store.read(c, &o, 200_000, 100).unwrap(), vec![8; 100]);
}

/// What is copied of a damaged block is damaged in the copy, too, and no reason to refuse the
/// transaction: the rest of it counts, also after a crash and a checkpoint.
#[test]
fn copies_of_damaged_data_are_damaged() {
    let disk = Arc::new(mkfs().copy(false));
    let mut store = open(&disk, 1).unwrap();
    let c = Coll::Pg(SpgId { pg: PgId::new(1, 0), shard: ShardId::NONE });
    let object =
        |name: &'static str| HObject::head(PoolId(2), Bytes::new(), Bytes::new(), name.into());
    let (o, few, many) = (object("o"), object("few"), object("many"));
    let mut txn = Transaction::new();
    txn.create_collection(c);
    txn.write(c, &o, 0, vec![7; 300_000].into());
    store.submit(txn).unwrap();
    store.checkpoint().unwrap();
    let (start, _) = store.device_ranges(c, &o).unwrap()[0];
    disk.flip(start + 4_096, 3);

    let mut txn = Transaction::new();
    txn.clone_range(c, &o, &few, 5_000, 100, 5_000);
    txn.clone_range(c, &o, &many, 1, 200_000, 100);
    txn.write(c, &o, 20_000, vec![8; 100].into());
    let last = store.submit(txn).unwrap();
    while store.durable() < last {
        store.step();
    }
    for round in ["at once", "after a crash", "after a checkpoint"] {
        for (o, off) in [(&o, 5_000), (&few, 5_000), (&few, 4_096), (&many, 5_000)] {
            let read = store.read(c, o, off, 10);
            assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{round} {o} {off}: {read:?}");
        }
        assert_eq!(store.read(c, &o, 20_000, 100).unwrap(), vec![8; 100], "{round}");
        assert_eq!(store.read(c, &few, 0, 10).unwrap(), vec![0; 10], "{round}");
        let sizes = [&few, &many].map(|o| store.stat(c, o).unwrap().size);
        assert_eq!(sizes, [5_100, 200_100], "{round}");
        let errors = store.fsck(false).unwrap().errors;
        assert!(errors.is_empty(), "{round}: {errors:?}");
        drop(store);
        store = open(&disk, 1).unwrap();
        if round == "after a crash" {
            store.checkpoint().unwrap();
        }
    }
}
