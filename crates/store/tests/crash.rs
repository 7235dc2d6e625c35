//! Power cuts: whatever part of the unflushed writes a disk did, in whatever order and torn
//! at sectors, the store opens, is sound, holds every acknowledged transaction whole, and of
//! the others a whole number, in order.
//!
//! `STORE_SEEDS` workloads (`STORE_SEED` for one) of `STORE_STEPS` steps with `STORE_CUTS`
//! cuts each.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{Dice, Model, Scale, difference, seeds};
use store::{DiskEvent, MkfsOptions, OpenOptions, Seq, SimDisk, Store, StoreError};
use types::Uuid;

fn open(disk: &Arc<SimDisk>) -> Result<Store, StoreError> {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    Store::open_on(disk.clone(), options)
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// A run on a recording disk; what the store should hold after each transaction.
fn work(seed: u64, disk: &Arc<SimDisk>) -> BTreeMap<Seq, Model> {
    let mut dice = Dice::new(seed);
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([2; 16]),
        log_bytes: 1 << 20,
        ..MkfsOptions::default()
    };
    Store::mkfs_on(disk.clone(), &options).unwrap();
    disk.mark(0);
    let mut store = open(disk).unwrap();
    let mut model = Model::default();
    let mut models = BTreeMap::from([(0, model.clone())]);
    let scale = Scale { objects: 3 + dice.below(12), size: 4096 << dice.below(7) };
    for _ in 0..number("STORE_STEPS", 150) {
        match dice.below(20) {
            0 => store.begin_checkpoint().unwrap(),
            1 => drop(store.step_checkpoint() || store.step_merge()),
            2..=6 => drop(store.step()),
            7..=8 => drop(store.complete().unwrap()),
            9 if dice.below(4) == 0 => store.sync().unwrap(),
            10 if dice.below(8) == 0 => {
                store.close().unwrap();
                store = open(disk).unwrap();
            }
            _ => {
                let before = model.clone();
                let txn = model.random(&mut dice, scale);
                match store.submit(txn) {
                    Ok(seq) => drop(models.insert(seq, model.clone())),
                    // The log is small here, and takes no more of it.
                    Err(StoreError::Invalid(_)) => model = before,
                    Err(e) => panic!("seed {seed}: {e}"),
                }
            }
        }
        disk.mark(store.durable());
    }
    models
}

/// Opens what a power cut left, and judges it. The disk that was written on meanwhile.
fn judge(what: &str, disk: &Arc<SimDisk>, models: &BTreeMap<Seq, Model>, acked: Seq) -> Seq {
    let mut store = open(disk).unwrap_or_else(|e| panic!("{what}: {e}"));
    let at = store.opened_at();
    assert!(at >= acked, "{what}: holds {at} transactions, {acked} were acknowledged");
    let (_, model) = models.range(..=at).next_back().expect("the first is 0");
    assert_eq!(difference(&store, model), None, "{what}: after {at} transactions");
    let report = store.fsck(true).unwrap();
    assert_eq!(report.errors, Vec::<String>::new(), "{what}: after {at} transactions");
    at
}

#[test]
fn power_cuts_lose_nothing_acknowledged() {
    let cuts = number("STORE_CUTS", 40);
    let mut states = 0;
    for seed in seeds(12) {
        let size = 64 << 20;
        let disk = Arc::new(SimDisk::new(size, true));
        let models = work(seed, &disk);
        let events = disk.events();
        let mkfs_done = events.iter().position(|e| matches!(e, DiskEvent::Mark(0))).unwrap();
        let mut dice = Dice::new(seed ^ 0xc7a5);
        let mut points: Vec<usize> = (0..cuts)
            .map(|_| mkfs_done + dice.below((events.len() - mkfs_done) as u64) as usize)
            .collect();
        points.sort_unstable();

        // What is certainly on the disk, and what may be.
        let flushed = SimDisk::new(size, false);
        let (mut next, mut acked) = (0, 0);
        let mut pending: Vec<DiskEvent> = Vec::new();
        for (cut, point) in points.into_iter().enumerate() {
            for event in &events[next..point] {
                match event {
                    DiskEvent::Write(..) => pending.push(event.clone()),
                    DiskEvent::Flush => pending.drain(..).for_each(|e| flushed.apply(&e)),
                    DiskEvent::Mark(n) => acked = acked.max(*n),
                }
            }
            next = point;
            let left = flushed.copy(true);
            left.apply_unflushed(&pending, &mut dice.0);
            let left = Arc::new(left);
            let before = left.copy(false);
            let what = format!("seed {seed}, cut {cut} at event {point}");
            let at = judge(&what, &left, &models, acked);
            states += 1;
            // And again while it was opening.
            let recovery = left.events();
            if dice.below(3) == 0 && !recovery.is_empty() {
                let n = dice.below(recovery.len() as u64) as usize;
                let mut open: Vec<DiskEvent> = Vec::new();
                for event in &recovery[..n] {
                    match event {
                        DiskEvent::Flush => open.drain(..).for_each(|e| before.apply(&e)),
                        event => open.push(event.clone()),
                    }
                }
                before.apply_unflushed(&open, &mut dice.0);
                let again = judge(&format!("{what}, and again"), &Arc::new(before), &models, acked);
                assert_eq!(again, at, "{what}: what one opening found the next finds, too");
                states += 1;
            }
        }
    }
    println!("{states} crash states");
}
