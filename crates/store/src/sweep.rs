//! Removed collections: gone at once, swept in steps.
//!
//! Removing a collection takes its name away and leaves a mark that calls its number dead: as
//! much work for a large one as for a small one. What it held goes behind that, step by step:
//! its objects, then its keys, then the mark. A step is a transaction of the store's own and says
//! how many it removed. Nothing is ever added to a dead collection, so the first so many are the
//! same ones in replay.
//!
//! A step begins when the one before is durable. So sweeping keeps neither the owner nor the log
//! busy, and the groups it makes drive it on where there is nothing else to do. Who is short of
//! space sweeps on the spot, see `Store::require`.

use std::ops::Bound;

use crate::keys::{self, Key};
use crate::onode::BLOCK;
use crate::state::{Entry, SHARED_BLOCKS, State};
use crate::transaction::{Op, Transaction};
use crate::{Seq, Store, StoreError};

type Result<T> = std::result::Result<T, StoreError>;

/// Objects of one step, at most.
pub(crate) const OBJECTS: usize = 8;
/// For each object, a step may remove so many keys.
const KEYS: usize = 8;
/// Runs of blocks that one step lets go of, about; a group of shared ones counts [`SHARED_COST`]
/// times. An object is never divided.
const RUNS: u64 = 1024;
const SHARED_COST: u64 = 4;
/// Bytes of the log that a step takes, at most.
const RECORD: u64 = 64;

/// What one step removes, at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    objects: usize,
    keys: usize,
    runs: u64,
}

impl Bounds {
    /// Objects, or as many more keys.
    pub fn new(objects: usize) -> Self {
        let objects = objects.max(1);
        Self { objects, keys: objects * KEYS, runs: RUNS }
    }

    /// As many as the log says.
    pub fn exactly(n: u32) -> Self {
        Self { objects: n as usize, keys: n as usize, runs: u64::MAX }
    }
}

/// How far it is.
#[derive(Debug)]
pub(crate) struct Sweeps {
    pub bounds: Bounds,
    /// The last step.
    pub last: Seq,
    /// None begins any more.
    pub ended: bool,
}

/// The first key behind `key`.
fn behind(key: &Key) -> Key {
    [&**key, &[0]].concat().into()
}

impl State {
    /// The collection of that number has lost its name.
    pub fn bury(&mut self, id: u32) {
        self.dead.insert(id, keys::coll_start(keys::ONODE, id));
    }

    /// Nothing is left of it.
    pub fn forget_dead(&mut self, id: u32) {
        if !self.stuck.contains(&id) && self.dead.remove(&id).is_some() {
            self.put(keys::dead_coll(id), Entry::Removed);
        }
    }

    /// A dead collection that can be swept.
    pub fn next_dead(&self) -> Option<u32> {
        self.dead.keys().find(|id| !self.stuck.contains(id)).copied()
    }

    /// Removes the first objects, or when none are left the first keys, of a dead collection.
    /// How many: 0 when nothing is left, `None` when the first cannot be read. What cannot be
    /// read stays, with all behind it, until the store is opened again: a damaged table must not
    /// keep everybody else from working.
    pub fn sweep(&mut self, id: u32, bounds: Bounds) -> Option<u32> {
        if self.stuck.contains(&id) {
            return None;
        }
        let mut n = 0;
        if let Err(e) = self.sweep_some(id, bounds, &mut n) {
            tracing::error!("collection {id}, which was removed, keeps its space for now: {e}");
            self.stuck.insert(id);
            return (n > 0).then_some(n);
        }
        Some(n)
    }

    fn sweep_some(&mut self, id: u32, bounds: Bounds, n: &mut u32) -> Result<()> {
        let Some(mut from) = self.dead.get(&id).cloned() else { return Ok(()) };
        if from[0] == keys::ONODE {
            let found = self.first_keys(&from, &keys::coll_end(keys::ONODE, id), bounds.objects)?;
            let mut runs = 0;
            for key in &found {
                runs += self.sweep_onode(key)?;
                self.dead.insert(id, behind(key));
                *n += 1;
                if runs >= bounds.runs {
                    break;
                }
            }
            if !found.is_empty() {
                return Ok(());
            }
            from = keys::coll_start(keys::COLL_KEY, id);
        }
        let found = self.first_keys(&from, &keys::coll_end(keys::COLL_KEY, id), bounds.keys)?;
        // What is gone is not walked over again.
        self.dead.insert(id, found.last().map_or(from, behind));
        *n = found.len() as u32;
        for key in found {
            self.put(key, Entry::Removed);
        }
        Ok(())
    }

    fn first_keys(&self, from: &Key, end: &Key, max: usize) -> Result<Vec<Key>> {
        let mut out = Vec::with_capacity(max.min(1024));
        if max > 0 {
            self.scan_keys(Bound::Included(from), end, &mut |k| {
                out.push(k.into());
                out.len() < max
            })?;
        }
        Ok(out)
    }

    /// Removes an object. What may fail does so before anything is changed. Returns what it cost,
    /// in runs of blocks.
    fn sweep_onode(&mut self, key: &Key) -> Result<u64> {
        let found = match self.take_onode(key)? {
            Some(found) => found,
            None => self.onode(key)?,
        };
        let Some(o) = found else { return Ok(1) };
        let mut cost = 1;
        for f in o.device_runs() {
            cost += 1;
            if f.shared {
                let groups = f.phys / SHARED_BLOCKS..(f.phys + f.blocks).div_ceil(SHARED_BLOCKS);
                cost += (groups.end - groups.start) * SHARED_COST;
                groups.into_iter().try_for_each(|n| self.keep_at_hand(n))?;
            }
        }
        self.remove_known(key, types::PoolId(keys::pool(key)), &o)?;
        Ok(cost)
    }

    /// Brings the reference counts of a group of blocks into memory.
    fn keep_at_hand(&mut self, group: u64) -> Result<()> {
        let key = keys::numbered(keys::SHARED, group);
        if !self.is_in_memory(&key)
            && let Some(counts) = self.get(&key)?
        {
            self.put(key, Entry::Value(counts));
        }
        Ok(())
    }
}

impl Store {
    /// Removed collections of which something is left: their space comes back step by step, at
    /// calls of [`Store::complete`] and when it is wanted.
    #[must_use]
    pub fn dead_collections(&self) -> usize {
        self.state.dead.len()
    }

    /// Makes a step, when the one before is durable.
    pub(crate) fn sweep_if_due(&mut self) -> Result<()> {
        if self.sweeps.ended
            || self.durable() < self.sweeps.last
            || self.state.next_dead().is_none()
        {
            return Ok(());
        }
        if !self.commit.has_room(RECORD) {
            return self.freeze();
        }
        if self.sweep_step() {
            // It takes a block of the log, where nobody else writes.
            self.since_freeze += BLOCK;
            // Its owner may have nothing to write for which it would do this.
            self.commit.begin();
        }
        self.freeze_if_due()
    }

    /// Sweeps until there are `need` bytes, counting what is about to be free.
    pub(crate) fn sweep_for(&mut self, need: u64) -> Result<()> {
        while need > self.state.available(self.soon_free(), self.merge_blocks())
            && self.state.next_dead().is_some()
        {
            self.await_room(RECORD)?;
            self.sweep_step();
        }
        Ok(())
    }

    /// Whether anything was removed.
    fn sweep_step(&mut self) -> bool {
        while let Some(id) = self.state.next_dead() {
            let before = self.state.active_bytes;
            let Some(n) = self.state.sweep(id, self.sweeps.bounds) else { continue };
            if n == 0 {
                self.state.forget_dead(id);
            }
            self.sweeps.last = self.seq + 1;
            let txn = Transaction { ops: vec![Op::Sweep(id, n)], ..Transaction::default() };
            self.queue(self.sweeps.last, &txn, Vec::new());
            // Its record is short, what it leaves in memory until a checkpoint is not.
            self.since_freeze += self.state.active_bytes.saturating_sub(before);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use types::{HObject, PgId, PoolId, ShardId, SpgId};

    use super::*;
    use crate::{Coll, MkfsOptions, OpenOptions, SimDisk};

    fn pg(n: u32) -> Coll {
        Coll::Pg(SpgId { pg: PgId::new(1, n), shard: ShardId::NONE })
    }

    fn object(n: u32) -> HObject {
        HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::from(format!("o{n:03}")))
    }

    fn made(size: u64) -> Arc<SimDisk> {
        let disk = Arc::new(SimDisk::new(size, false));
        let options = MkfsOptions { log_bytes: 2 << 20, ..MkfsOptions::default() };
        Store::mkfs_on(disk.clone(), &options).unwrap();
        disk
    }

    /// Without caches: what is damaged is noticed.
    fn open(disk: &Arc<SimDisk>) -> Store {
        let options = OpenOptions {
            threads: false,
            onode_cache_bytes: 0,
            table_cache_bytes: 0,
            ..OpenOptions::default()
        };
        Store::open_on(disk.clone(), options).unwrap()
    }

    fn submit(store: &mut Store, f: impl FnOnce(&mut Transaction)) {
        let mut txn = Transaction::new();
        f(&mut txn);
        store.submit(txn).unwrap();
    }

    /// Until nothing goes on any more.
    fn settle(store: &mut Store) {
        for _ in 0..500 {
            let worked = store.step();
            if store.complete().unwrap() == store.submitted() && !worked {
                return;
            }
        }
        panic!("it goes on and on");
    }

    fn is_sound(store: &mut Store) {
        assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new());
    }

    /// Older versions gave the space of a removed collection to others at once, in the same log.
    #[test]
    fn older_removals_are_replayed_as_they_were() {
        let disk = made(32 << 20);
        let mut store = open(&disk);
        submit(&mut store, |txn| {
            txn.create_collection(pg(0)).create_collection(pg(1));
        });
        let data = |n: u32| Bytes::from(vec![n as u8; 1 << 20]);
        for n in 0..12 {
            submit(&mut store, |txn| {
                txn.write(pg(0), &object(n), 0, data(n));
            });
            store.sync().unwrap();
        }
        store.submit_own(Op::RemoveCollection(pg(0))).unwrap();
        assert_eq!((store.statfs().allocated, store.dead_collections()), (0, 0));
        // More than was free beside it.
        for n in 20..40 {
            submit(&mut store, |txn| {
                txn.write(pg(1), &object(n), 0, data(n));
            });
            store.sync().unwrap();
        }
        store.sync().unwrap();
        assert_eq!(store.checkpointed, 0, "all of it is in the log");
        drop(store);
        let mut store = open(&disk);
        assert_eq!(store.list_collections(), [pg(1)]);
        assert_eq!(store.dead_collections(), 0);
        for n in 20..40 {
            assert_eq!(store.read(pg(1), &object(n), 0, u64::MAX).unwrap(), data(n));
        }
        is_sound(&mut store);
    }

    /// Two large collections and a small one, in a table.
    fn three() -> Arc<SimDisk> {
        let disk = made(64 << 20);
        let mut store = open(&disk);
        for c in 0..3 {
            submit(&mut store, |txn| {
                txn.create_collection(pg(c));
            });
            for n in 0..[60, 1, 40][c as usize] {
                submit(&mut store, |txn| {
                    txn.write(pg(c), &object(n), 0, Bytes::from(vec![n as u8; 9000]));
                    txn.set_attr(pg(c), &object(n), "_", Bytes::from(vec![c as u8; 1000]));
                });
            }
        }
        store.close().unwrap();
        disk
    }

    /// Spoils a block of the table, with objects of the first collection.
    fn damage(disk: &SimDisk, store: &Store) {
        let start = store.state.tables[0].meta.runs.device(0);
        disk.flip(start + (30 << 10), 3);
    }

    /// What cannot be read stays where it is, is looked at once, and keeps nobody from working.
    #[test]
    fn what_cannot_be_read_stays() {
        let disk = three();
        let mut store = open(&disk);
        damage(&disk, &store);
        submit(&mut store, |txn| {
            txn.remove_collection(pg(0));
        });
        settle(&mut store);
        let left = store.statfs().pools[&PoolId(1)].objects - 41;
        assert!((1..60).contains(&left), "{left} objects are left");
        assert_eq!((store.dead_collections(), store.state.stuck.len()), (1, 1));
        // Others are swept, and the store works.
        submit(&mut store, |txn| {
            txn.remove_collection(pg(2));
        });
        submit(&mut store, |txn| {
            txn.touch(pg(1), &object(7));
        });
        settle(&mut store);
        assert_eq!(store.dead_collections(), 1);
        assert_eq!(store.statfs().pools[&PoolId(1)].objects, left + 2);
        // Opened again, it is tried once more.
        drop(store);
        let mut store = open(&disk);
        assert_eq!(store.statfs().pools[&PoolId(1)].objects, left + 2);
        settle(&mut store);
        assert_eq!((store.dead_collections(), store.state.stuck.len()), (1, 1));
        assert_eq!(store.list_collections(), [pg(1)]);
        assert_eq!(store.read(pg(1), &object(0), 0, 10).unwrap().len(), 10);
        store.close().unwrap();
    }

    /// References to blocks that cannot be read keep their object, whole and counted.
    #[test]
    fn objects_go_as_a_whole() {
        let disk = made(64 << 20);
        let mut store = open(&disk);
        submit(&mut store, |txn| {
            txn.create_collection(pg(0));
        });
        for n in 0..20 {
            submit(&mut store, |txn| {
                txn.write(pg(0), &object(n), 0, Bytes::from(vec![n as u8; 1 << 20]));
                if n > 1 {
                    txn.clone_object(pg(0), &object(n), &object(n + 50));
                }
            });
        }
        store.close().unwrap();
        let mut store = open(&disk);
        let all = store.statfs().pools[&PoolId(1)];
        // References are what it ends with, more than a block of them.
        let table = &store.state.tables[0];
        disk.flip(table.meta.runs.device(table.blocks_end() - 1), 3);
        submit(&mut store, |txn| {
            txn.remove_collection(pg(0));
        });
        settle(&mut store);
        assert_eq!((store.dead_collections(), store.state.stuck.len()), (1, 1));
        let (from, end) = ([keys::ONODE], [keys::ONODE + 1]);
        let left = store.state.keys_in(&from, &end).unwrap();
        let onodes: Vec<_> =
            left.iter().map(|key| store.state.onode(key).unwrap().unwrap()).collect();
        let stats = store.statfs().pools[&PoolId(1)];
        assert_eq!(stats.objects, onodes.len() as u64);
        assert_eq!(stats.stored, onodes.iter().map(|o| o.size).sum::<u64>());
        assert_eq!(stats.allocated, onodes.iter().map(|o| o.allocated()).sum::<u64>());
        assert!(onodes.iter().any(|o| o.extents.iter().any(|e| e.shared)));
        assert!(stats.objects < all.objects);
    }

    /// A table that is damaged after a sweep, before the next checkpoint: the store opens.
    #[test]
    fn replay_leaves_what_it_cannot_read() {
        let disk = three();
        let mut store = open(&disk);
        submit(&mut store, |txn| {
            txn.remove_collection(pg(0));
        });
        settle(&mut store);
        assert_eq!(store.dead_collections(), 0);
        assert_eq!(store.statfs().pools[&PoolId(1)].objects, 41);
        let tables = store.state.tables.len();
        damage(&disk, &store);
        drop(store);
        let mut store = open(&disk);
        assert_eq!(store.state.tables.len(), tables, "it replays the sweep");
        assert_eq!((store.dead_collections(), store.state.stuck.len()), (1, 1));
        assert!(store.statfs().pools[&PoolId(1)].objects > 41);
        submit(&mut store, |txn| {
            txn.remove_collection(pg(2));
        });
        settle(&mut store);
        assert_eq!(store.dead_collections(), 1);
        assert_eq!(store.read(pg(1), &object(0), 0, 10).unwrap().len(), 10);
    }
}
