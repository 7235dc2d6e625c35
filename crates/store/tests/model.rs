//! Random transactions against a model, compared after each reopening.

mod common;

use std::sync::Arc;

use common::{Dice, Model, Scale, algorithm, compress, difference, seeds};
use store::{MkfsOptions, OpenOptions, SimDisk, Store};
use types::Uuid;

fn mkfs(disk: &Arc<SimDisk>) {
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([2; 16]),
        log_bytes: 8 << 20,
        ..MkfsOptions::default()
    };
    Store::mkfs_on(disk.clone(), &options).unwrap();
}

fn open(disk: &Arc<SimDisk>, seed: u64) -> Store {
    let map_changes_bytes = if seed.is_multiple_of(4) { 0 } else { 64 << 10 };
    let table_cache_bytes = if seed.is_multiple_of(3) { 0 } else { 16 << 20 };
    let options = OpenOptions {
        threads: false,
        map_changes_bytes,
        table_cache_bytes,
        ..OpenOptions::default()
    };
    let mut store = Store::open_on(disk.clone(), options).unwrap();
    if let Some(algorithm) = algorithm(seed) {
        compress(&mut store, algorithm);
    }
    store
}

/// Whatever was done, and wherever a checkpoint stands, the store holds what the model does.
#[test]
fn agrees_with_the_model() {
    for seed in seeds(30) {
        let mut dice = Dice::new(seed);
        dice.repeats = algorithm(seed).is_some();
        let disk = Arc::new(SimDisk::new(96 << 20, false));
        mkfs(&disk);
        let (mut store, mut model) = (open(&disk, seed), Model::default());
        let scale = Scale { objects: 4 + dice.below(20), size: 4096 << dice.below(8) };
        for step in 0..300 {
            match dice.below(20) {
                0 => store.begin_checkpoint().unwrap(),
                1 => drop(store.step_checkpoint() || store.step_merge()),
                2..=4 => drop(store.step()),
                5..=6 => drop(store.complete().unwrap()),
                7 if dice.below(5) == 0 => {
                    let report = store.fsck(true).unwrap();
                    assert!(report.errors.is_empty(), "seed {seed}: {:?}", report.errors);
                }
                8 if dice.below(5) == 0 => {
                    if dice.below(2) == 0 {
                        store.close().unwrap();
                    } else {
                        store.sync().unwrap();
                        drop(store);
                    }
                    store = open(&disk, seed);
                    let wrong = difference(&store, &model);
                    assert_eq!(wrong, None, "seed {seed}, step {step}, after reopening");
                }
                9 => {
                    let wrong = difference(&store, &model);
                    assert_eq!(wrong, None, "seed {seed}, step {step}");
                }
                _ => {
                    let txn = model.random(&mut dice, scale);
                    let shown = format!("{txn:?}");
                    store.submit(txn).unwrap_or_else(|e| {
                        panic!("seed {seed}, step {step}: {e} for {:.3000}", shown)
                    });
                }
            }
        }
        assert_eq!(difference(&store, &model), None, "seed {seed}");
        store.close().unwrap();
        let mut store = open(&disk, seed);
        assert_eq!(difference(&store, &model), None, "seed {seed}");
        assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new(), "seed {seed}");
    }
}
