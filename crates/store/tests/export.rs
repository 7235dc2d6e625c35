//! A PG carried from one store to another is the same; a damaged export brings nothing.

mod common;

use std::sync::Arc;

use common::{Collection, Dice, Model, Scale, difference, seeds};
use store::{Coll, MkfsOptions, OpenOptions, SimDisk, Store, StoreError, Transaction};
use types::{OsdId, Uuid};

fn fresh(osd: i32) -> (Arc<SimDisk>, Store) {
    let disk = Arc::new(SimDisk::new(96 << 20, false));
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd: OsdId(osd),
        osd_uuid: Uuid([2; 16]),
        log_bytes: 2 << 20,
        ..MkfsOptions::default()
    };
    Store::mkfs_on(disk.clone(), &options).unwrap();
    let store = open(&disk);
    (disk, store)
}

fn open(disk: &Arc<SimDisk>) -> Store {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    Store::open_on(disk.clone(), options).unwrap()
}

#[test]
fn a_pg_moves_whole_or_not_at_all() {
    for seed in seeds(6) {
        let mut dice = Dice::new(seed ^ 0xe407);
        let (_, mut from) = fresh(3);
        let mut model = Model::default();
        for _ in 0..120 {
            from.submit(model.random(&mut dice, Scale { objects: 12, size: 1 << 18 })).unwrap();
        }
        let Some((c, coll)) = model.colls.iter_mut().max_by_key(|(_, c)| c.objects.len()) else {
            continue;
        };
        let (c, Coll::Pg(pg)) = (*c, *c) else { unreachable!() };
        // What is imported has keys; a collection without them is a part of one.
        let mut txn = Transaction::new();
        txn.coll_set(c, "i", "info".into());
        from.submit(txn).unwrap();
        coll.keys.insert("i".into(), "info".into());
        let coll: Collection = coll.clone();

        let mut bytes = Vec::new();
        let out = from.export(pg, &mut bytes).unwrap();
        assert_eq!((out.objects, out.keys), (coll.objects.len() as u64, coll.keys.len() as u64));
        let want = Model { colls: [(c, coll)].into() };
        let (disk, mut to) = fresh(4);
        assert_eq!(to.import(&mut &*bytes, false).unwrap(), out, "seed {seed}");
        assert_eq!(difference(&to, &want), None, "seed {seed}");
        assert!(
            matches!(to.import(&mut &*bytes, false), Err(StoreError::Invalid(_))),
            "seed {seed}"
        );
        drop(to);
        let mut to = open(&disk);
        assert_eq!(difference(&to, &want), None, "seed {seed}, opened again");
        assert_eq!(to.fsck(true).unwrap().errors, Vec::<String>::new());

        for round in 0..20 {
            let (_, mut to) = fresh(4);
            let mut bad = bytes.clone();
            let at = dice.below(bad.len() as u64) as usize;
            match round % 2 {
                0 => bad.truncate(at),
                _ => bad[at] ^= 1 << dice.below(8),
            }
            let e = to.import(&mut &*bad, false).expect_err("is damaged");
            let known = matches!(e, StoreError::Format(_) | StoreError::NewerFormat { .. });
            assert!(known, "seed {seed}, at {at}: {e}");
            assert_eq!(difference(&to, &Model::default()), None, "seed {seed}, at {at}");
        }
    }
}
