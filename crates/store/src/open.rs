//! Opening: the last checkpoint, and the log after it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use env::Disk;
use types::PoolId;

use crate::alloc::Alloc;
use crate::buf::Pool;
use crate::checkpoint::Own;
use crate::fetch::{Way, read_blocks};
use crate::log::{Found, Place, Reader, Ring};
use crate::onode::BLOCK;
use crate::space::Space;
use crate::state::{Caches, Known, Map, State};
use crate::superblock::{Manifest, Superblock};
use crate::table::Table;
use crate::transaction::Op;
use crate::{OpenOptions, PoolStats, Seq, StoreError, keys, record};

type Result<T> = std::result::Result<T, StoreError>;

/// The state of the last checkpoint.
pub(crate) fn load(
    disk: &Arc<dyn Disk>,
    superblock: &Superblock,
    manifest: &Manifest,
    own: &Own,
    options: &OpenOptions,
) -> Result<State> {
    let mut used = manifest.used.read(&**disk, superblock.size / BLOCK)?;
    for (start, len) in own.blocks() {
        let lies = start.checked_add(len).is_some_and(|end| end <= used.blocks());
        if !lies || !used.set(start, len) {
            return Err(StoreError::Format("the manifest lies on used blocks".into()));
        }
    }
    let mut tables = Vec::new();
    // The newest first: these are asked for every key.
    let mut room = options.table_cache_bytes / 2;
    for meta in manifest.tables.iter().rev() {
        let table = Table::open(&**disk, meta.clone(), room)?;
        room = room.saturating_sub(table.kept_bytes());
        tables.push(Arc::new(table));
    }
    tables.reverse();
    let alloc = Arc::new(Mutex::new(Alloc::new(used)));
    let mut state = State {
        space: Space { disk: disk.clone(), alloc, ledger: None },
        active: Map::new(),
        active_bytes: 0,
        active_blocks: 0,
        frozen: None,
        frozen_bytes: 0,
        frozen_blocks: 0,
        tables: Arc::new(tables),
        colls: BTreeMap::new(),
        dead: BTreeMap::new(),
        stuck: BTreeSet::new(),
        next_id: manifest.next_id,
        next_coll: manifest.next_coll,
        tables_coll: manifest.next_coll,
        pools: BTreeMap::new(),
        compression: BTreeMap::new(),
        packing: BTreeSet::new(),
        renamed: HashMap::new(),
        flight: BTreeMap::new(),
        freed: Vec::new(),
        caches: RefCell::new(Caches::new(options)),
        table_cache_bytes: options.table_cache_bytes,
        pool: Pool::default(),
    };
    state.tables_changed();
    for (pool, (objects, (stored, allocated))) in &manifest.pools {
        let (objects, stored, allocated) = (*objects, *stored, *allocated);
        let stats = PoolStats { objects, stored, allocated, ..PoolStats::default() };
        state.pools.insert(PoolId(*pool), stats);
    }
    for (pool, packed) in &manifest.packed {
        state.pools.entry(PoolId(*pool)).or_default().add_packed(*packed);
        state.packing.insert(PoolId(*pool));
    }
    let mut colls = BTreeMap::new();
    state.scan(Bound::Included(&[keys::COLL]), &[keys::COLL + 1], &mut |k, v| {
        let id = v.and_then(|v| v.get(..4)).map(|raw| raw.try_into().expect("four bytes"));
        if let (Some(c), Some(id)) = (keys::parse_coll(k), id) {
            colls.insert(c, u32::from_le_bytes(id));
        }
        true
    })?;
    state.colls = colls;
    let (from, end) = ([keys::DEAD_COLL], [keys::DEAD_COLL + 1]);
    for mark in state.keys_in(&from, &end)? {
        keys::coll_id(&mark).into_iter().for_each(|id| state.bury(id));
    }
    Ok(state)
}

/// What the log had.
pub(crate) struct Replayed {
    /// Its last transaction.
    pub seq: Seq,
    /// Where it goes on.
    pub place: Place,
    /// Runs of blocks that its last groups let go of, by transaction. No later group calls these
    /// proven: what they name is looked at again when this opening ends before one does, so
    /// nothing may be written there until then.
    pub resting: Vec<(Seq, (u64, u64))>,
}

/// Applies the log from the checkpoint that `manifest` tells of on; `generation` is that of the
/// superblock which named it. With `past_damage` the log ends where it is damaged.
pub(crate) fn replay(
    state: &mut State,
    disk: &dyn Disk,
    ring: Ring,
    (generation, past_damage): (u64, bool),
    manifest: &Manifest,
) -> Result<Replayed> {
    let mut done = Replayed { seq: manifest.seq, place: manifest.place(), resting: Vec::new() };
    let mut log = Reader::new(disk, ring, done.place, manifest.mount);
    // Groups that no later one has called durable yet.
    let mut unproven: VecDeque<Found> = VecDeque::new();
    loop {
        let next = log.next()?;
        if next.is_none()
            && let Some(device) = log.lost()?
        {
            let what = format!("group {} of the log", log.at.group);
            if !past_damage {
                return Err(StoreError::Corrupt { what, offset: 0, device });
            }
            tracing::warn!(device, "{what} is damaged: nothing behind it is there");
        }
        let proven = next.as_ref().map_or(0, |f| f.proven);
        while let Some(group) = unproven.front() {
            if group.group > proven {
                if next.is_some() {
                    break;
                }
                if !data_is_whole(state, group)? {
                    tracing::warn!(
                        group = group.group,
                        "the last group of the log was cut off and does not count"
                    );
                    return Ok(done);
                }
            }
            let group = unproven.pop_front().expect("there is a front");
            if group.generation > generation {
                // Space of this checkpoint may have been used again since.
                let what = "superblock: the log knows a newer one".to_owned();
                return Err(StoreError::Corrupt { what, offset: 0, device: 0 });
            }
            if group.first != done.seq + 1 {
                return Err(StoreError::Format(format!(
                    "the log goes on with transaction {} after {}",
                    group.first, done.seq
                )));
            }
            for raw in &group.records {
                done.seq += 1;
                let seq = done.seq;
                let txn = record::decode(raw)?;
                state.apply(seq, &txn, &mut Known::of(txn.targets.len()), true)?;
                let mut alloc = state.space.alloc.lock().expect("no holder of this lock panics");
                for (start, blocks) in state.freed.drain(..) {
                    if !alloc.give_back(start, blocks) {
                        return Err(StoreError::Format(format!(
                            "transaction {seq} of the log frees blocks {start}+{blocks}, \
                             which are free"
                        )));
                    }
                    if group.group > proven {
                        alloc.take(start, blocks);
                        done.resting.push((seq, (start, blocks)));
                    }
                }
            }
            done.place = Place { group: group.group + 1, pos: group.end };
        }
        match next {
            Some(group) => unproven.push_back(group),
            None => return Ok(done),
        }
    }
}

/// Whether the data that a group's records name is on the device.
fn data_is_whole(state: &State, group: &Found) -> Result<bool> {
    for raw in &group.records {
        for op in &record::decode(raw)?.ops {
            let Op::Extents(_, p) = op else { continue };
            let mut crcs = p.crcs.as_slice();
            for (start, len) in &p.runs {
                let (mine, rest) = crcs.split_at(*len as usize);
                crcs = rest;
                let mut buf = vec![0; mine.len() * BLOCK as usize];
                let name = || "the log's last group".to_owned();
                let disk = &*state.space.disk;
                match read_blocks(disk, *start, mine, &mut buf, Way::Direct, &name, 0) {
                    Ok(()) => {}
                    Err(StoreError::Corrupt { .. }) => return Ok(false),
                    Err(e) => return Err(e),
                }
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use types::{HObject, PgId, ShardId, SpgId};

    use super::*;
    use crate::checkpoint::write_manifest;
    use crate::superblock::Used;
    use crate::{Coll, MkfsOptions, SimDisk, Store, Transaction};

    fn open(disk: &Arc<dyn Disk>) -> Store {
        let options = OpenOptions { threads: false, ..OpenOptions::default() };
        let mut store = Store::open_on(disk.clone(), options).expect("it is a store");
        let report = store.fsck(true).expect("it can be read");
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        store
    }

    /// The superblock, and the manifest it leads to.
    fn last(disk: &dyn Disk) -> (Superblock, Manifest) {
        let superblock = Superblock::read(disk).expect("it was written");
        let (manifest, _) = Manifest::read(disk, &superblock).expect("it was written");
        (superblock, manifest)
    }

    /// A store whose map of used blocks is in its manifest, as they were before 28 November 2026,
    /// goes on with one beside it.
    #[test]
    fn a_map_in_the_manifest_is_read() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(64 << 20, false));
        let options = MkfsOptions { log_bytes: 4 << 20, ..MkfsOptions::default() };
        Store::mkfs_on(disk.clone(), &options).expect("there is room");
        let pg = Coll::Pg(SpgId { pg: PgId::new(1, 0), shard: ShardId::NONE });
        let name = |n: u8| {
            HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::copy_from_slice(&[n]))
        };
        let write = |store: &mut Store, n: u8| {
            let mut txn = Transaction::new();
            txn.write(pg, &name(n), 0, vec![n; 100_000].into());
            store.submit(txn).expect("there is room");
        };
        let mut store = open(&disk);
        store.submit(Transaction::new().create_collection(pg).clone()).expect("there is room");
        (0..8).for_each(|n| write(&mut store, n));
        store.close().expect("goes well");

        let (superblock, mut manifest) = last(&*disk);
        let map = manifest.used.read(&*disk, superblock.size / BLOCK).expect("it was written");
        let raw: Vec<u8> = map.words().iter().flat_map(|w| w.to_le_bytes()).collect();
        manifest.used = Used::Here(raw.into());
        let alloc = Arc::new(Mutex::new(Alloc::new(map)));
        let space = Space { disk: disk.clone(), alloc, ledger: None };
        write_manifest(&space, &manifest, &superblock).expect("there is room");
        assert_eq!(last(&*disk).1, manifest);

        let mut store = open(&disk);
        (4..12).for_each(|n| write(&mut store, n));
        store.close().expect("goes well");
        assert!(matches!(last(&*disk).1.used, Used::Apart(_)));
        let store = open(&disk);
        for n in 0..12 {
            let data = store.read(pg, &name(n), 0, 1 << 20).expect("it is there");
            assert_eq!(data, vec![n; 100_000]);
        }
    }

    /// A part of a table's index that is damaged, and stays in memory where it can be read: the store
    /// opens, what it does not tell of is missed by who asks, and new collections ask for nothing.
    #[test]
    fn what_a_table_cannot_tell_is_missed_by_who_asks() {
        let disk = Arc::new(SimDisk::new(64 << 20, false));
        let options = MkfsOptions { log_bytes: 4 << 20, ..MkfsOptions::default() };
        Store::mkfs_on(disk.clone(), &options).expect("there is room");
        let pg = |n| Coll::Pg(SpgId { pg: PgId::new(1, n), shard: ShardId::NONE });
        let name =
            |n: u32| HObject::head(PoolId(1), Bytes::new(), Bytes::new(), format!("{n:05}").into());
        let disk_of: Arc<dyn Disk> = disk.clone();
        let mut store = open(&disk_of);
        store.submit(Transaction::new().create_collection(pg(0)).clone()).expect("there is room");
        for n in 0..3_000 {
            let mut txn = Transaction::new();
            txn.write(pg(0), &name(n), 0, vec![1; 100].into());
            // Behind all objects, so that the last part is of these.
            txn.coll_set(pg(0), format!("{n:05}"), Bytes::from(vec![2; 100]));
            store.submit(txn).expect("there is room");
        }
        store.close().expect("goes well");

        let (_, manifest) = last(&*disk);
        let [meta] = &manifest.tables[..] else { panic!("one checkpoint makes one table") };
        let table = Table::open(&*disk, meta.clone(), 0).expect("it was written");
        let behind = keys::coll_start(keys::ONODE, 2);
        let place = table.part_place(&behind);
        let parts = [keys::COLL, keys::COLL_KEY + 1].map(|k| table.part_place(&[k]));
        assert!(!parts.contains(&place), "it is neither the first nor the last");
        disk.flip(place + 30, 5);

        let options = OpenOptions { threads: false, ..OpenOptions::default() };
        let mut store = Store::open_on(disk_of, options).expect("the rest can be read");
        let reads = (0..3_000).map(|n| store.read(pg(0), &name(n), 0, 100));
        let (good, bad): (Vec<_>, Vec<_>) = reads.partition(Result::is_ok);
        assert!(good.len() > 1_000 && !bad.is_empty(), "{} and {}", good.len(), bad.len());
        assert!(bad.iter().all(|e| matches!(e, Err(StoreError::Corrupt { .. }))));
        assert_eq!(
            store.coll_get(pg(0), b"02999").expect("it is there").as_deref(),
            Some(&[2; 100][..])
        );

        let report = store.fsck(true).expect("it says so");
        assert_eq!(report.errors.len(), 1, "{:?}", report.errors);
        assert!(report.errors[0].contains("index of table"), "{:?}", report.errors);

        let mut txn = Transaction::new();
        txn.create_collection(pg(1));
        txn.write(pg(1), &name(0), 0, vec![3; 100].into());
        store.submit(txn).expect("nothing is asked of tables");
        assert_eq!(store.read(pg(1), &name(0), 0, 100).expect("it is there"), vec![3; 100]);
    }
}
