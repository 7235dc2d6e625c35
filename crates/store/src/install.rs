//! What the owner takes over from checkpoints and merges.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stdx::FastMap;
use types::PoolId;

use crate::checkpoint::{Moved, Outcome};
use crate::file::give_way;
use crate::keys::{self, Key};
use crate::merge::{self, Merging, Progress};
use crate::onode::Freed;
use crate::space::Space;
use crate::state::Entry;
use crate::store::Work;
use crate::transaction::{Op, Released};
use crate::{Seq, Store, StoreError};

type Result<T> = std::result::Result<T, StoreError>;

/// Onodes put into the cache at a time.
const WARM_UP: usize = 64;

/// What taking over one checkpoint gathers.
#[derive(Default)]
struct Gathered {
    freed: Vec<(u64, u64)>,
    releases: Vec<Released>,
    grown: HashMap<PoolId, u64>,
}

impl Gathered {
    fn note(&mut self, m: &Moved, pool: i64, freed: &[Freed], grown: u64, taken: &[bool]) {
        self.freed.extend(freed.iter().map(|f| (f.phys, f.blocks)));
        *self.grown.entry(PoolId(pool)).or_default() += grown;
        for (s, taken) in m.blocks.iter().zip(taken) {
            if let (Some(index), Some(phys)) = (s.release, s.base) {
                self.releases.push(Released { index, phys, done: !taken });
            }
        }
    }

    /// The object was changed since: its newer pieces lie on the new blocks, or it is gone
    /// and they are not needed.
    fn changed(&mut self, seq: Seq, m: &Moved, pool: i64, entry: &mut Entry) {
        let mut freed = Vec::new();
        match entry {
            Entry::Onode(o) if o.id == m.id => {
                let o = Arc::make_mut(o);
                let before = o.allocated();
                let taken = o.settle(seq, &m.blocks, &mut freed);
                self.note(m, pool, &freed, o.allocated() - before, &taken);
            }
            _ => {
                let new = |phys| Freed { phys, blocks: 1, shared: false };
                freed.extend(m.blocks.iter().map(|s| new(s.phys)));
                self.note(m, pool, &freed, 0, &vec![false; m.blocks.len()]);
            }
        }
    }

    /// All but those of `changed`, sorted, are as the checkpoint has them.
    fn unchanged(&mut self, moved: &[Moved], all: &Unchanged, changed: &[u32]) {
        for (pool, grown) in &all.grown {
            *self.grown.entry(PoolId(*pool)).or_default() += grown;
        }
        let mut from = 0;
        for to in changed.iter().map(|i| *i as usize).chain([moved.len()]) {
            let part = |ends: &[u32]| ends[from] as usize..ends[to] as usize;
            self.freed.extend_from_slice(&all.freed[part(&all.freed_ends)]);
            self.releases.extend_from_slice(&all.releases[part(&all.release_ends)]);
            if let Some(m) = moved.get(to) {
                *self.grown.entry(PoolId(keys::pool(&m.key))).or_default() -= m.new_bytes();
            }
            from = to + 1;
        }
    }
}

/// What becomes of each moved object if nothing has changed it since: made by the
/// checkpointer, so that the owner looks only at those that something has.
#[derive(Default)]
pub(crate) struct Unchanged {
    /// Which of the moved objects it is.
    by_key: FastMap<Key, u32>,
    /// Runs of blocks that are free then, in the objects' order; those of object `i` lie
    /// between end `i` and end `i + 1`.
    freed: Vec<(u64, u64)>,
    freed_ends: Vec<u32>,
    /// Likewise of blocks that others may share.
    releases: Vec<Released>,
    release_ends: Vec<u32>,
    /// Bytes by the pool's number.
    grown: BTreeMap<i64, u64>,
}

impl Unchanged {
    pub fn of(moved: &[Moved]) -> Self {
        let mut all = Self::default();
        all.by_key.reserve(moved.len());
        all.freed_ends.push(0);
        all.release_ends.push(0);
        for (i, m) in moved.iter().enumerate() {
            let before = all.freed.len();
            for s in &m.blocks {
                match (s.base, s.release) {
                    (None, _) => {}
                    (Some(phys), None) => match all.freed[before..].last_mut() {
                        Some((start, len)) if *start + *len == phys => *len += 1,
                        _ => all.freed.push((phys, 1)),
                    },
                    (Some(phys), Some(index)) => {
                        all.releases.push(Released { index, phys, done: false });
                    }
                }
            }
            all.freed_ends.push(all.freed.len() as u32);
            all.release_ends.push(all.releases.len() as u32);
            *all.grown.entry(keys::pool(&m.key)).or_default() += m.new_bytes();
            all.by_key.insert(m.key.clone(), i as u32);
        }
        all
    }
}

impl Store {
    /// Takes over a finished checkpoint.
    pub(crate) fn install(&mut self, done: Outcome) -> Result<()> {
        let frozen = self.state.frozen.take().expect("a checkpoint was under way");
        assert_eq!(frozen.seq, done.seq, "checkpoints come back one by one");
        let state = &mut self.state;
        if let Some(table) = done.table {
            Arc::make_mut(&mut state.tables).push(table);
            state.tables_changed();
        }
        (state.frozen_bytes, state.frozen_blocks) = (0, 0);
        (self.superblock, self.own) = (done.superblock, Arc::new(done.own));
        self.checkpointed = done.seq;

        let mut all = Gathered::default();
        let Unchanged { by_key, .. } = &done.unchanged;
        let mut changed = Vec::new();
        for (key, entry) in state.active.range_mut::<[u8], _>(keys::ONODES) {
            let Some(i) = by_key.get(key) else { continue };
            let m = &done.moved[*i as usize];
            if !state.renamed.contains_key(&m.id) {
                all.changed(done.seq, m, keys::pool(&m.key), entry);
                changed.push(*i);
            }
        }
        if !state.renamed.is_empty() {
            for (i, m) in done.moved.iter().enumerate() {
                let Some(key) = state.renamed.get(&m.id) else { continue };
                let entry = state.active.get_mut(key);
                all.changed(done.seq, m, keys::pool(key), entry.unwrap_or(&mut Entry::Removed));
                changed.push(i as u32);
            }
            changed.sort_unstable();
        }
        all.unchanged(&done.moved, &done.unchanged, &changed);
        state.renamed.clear();
        for (pool, grown) in all.grown {
            state.pools.entry(pool).or_default().allocated += grown;
        }
        let mut alloc = state.space.alloc.lock().expect("no holder of this lock panics");
        for (start, len) in done.freed.into_iter().chain(self.retiring.drain(..)) {
            alloc.release(start, len);
        }
        drop(alloc);
        self.commit.set_tail(done.place.pos, self.superblock.generation);
        self.rest(self.seq, all.freed);
        self.warm = done.moved;
        if let Some(threads) = &self.threads {
            // A checkpointer that is gone is noticed by whoever waits for it.
            let _ = threads.jobs.try_send(Work::Drop(frozen, done.unchanged));
        }
        if !all.releases.is_empty() {
            self.submit_own(Op::Release(done.seq, all.releases))?;
        }
        self.begin_merge();
        Ok(())
    }

    /// Puts some of the onodes that a checkpoint wrote into the cache.
    pub(crate) fn warm_up(&mut self) {
        if self.warm.is_empty() {
            return;
        }
        let rest = self.warm.len().saturating_sub(WARM_UP);
        let mut caches = self.state.caches.borrow_mut();
        for m in self.warm.drain(rest..) {
            let changed = self.state.active.contains_key(&m.key)
                || self.state.frozen.as_ref().is_some_and(|f| f.map.contains_key(&m.key));
            if !changed {
                let bytes = m.onode.footprint();
                caches.onodes.put(m.key, m.onode, bytes);
            }
        }
    }

    /// Begins to merge tables, where that is due and none is under way.
    pub(crate) fn begin_merge(&mut self) {
        if self.merging.is_some() || self.merges_fail {
            return;
        }
        let short =
            || self.state.available(self.soon_free(), self.merge_blocks()) < self.short_of();
        let shrinks = || merge::shrinks_by(&self.state.tables).is_some();
        let due = merge::due(&self.state.tables);
        let Some(first) = due.or_else(|| (short() && shrinks()).then_some(0)) else { return };
        self.begin_merge_of(first);
    }

    /// With less than this available, bytes, tables are merged for the space they take.
    fn short_of(&self) -> u64 {
        self.superblock.size / 64
    }

    /// Merges all tables for the space that this frees: done when this returns.
    pub(crate) fn merge_all(&mut self) -> Result<()> {
        self.finish_checkpoint()?;
        self.finish_merge();
        if self.state.tables.len() > 1 && !self.merges_fail {
            self.begin_merge_of(0);
            self.finish_merge();
        }
        Ok(())
    }

    fn begin_merge_of(&mut self, first: usize) {
        self.next_table += 1;
        let tables = self.state.tables[first..].to_vec();
        let old = tables.iter().map(|t| t.meta.id).collect();
        let give_up = Arc::new(AtomicBool::new(false));
        let space = Space { ledger: Some(self.ledger.clone()), ..self.state.space.clone() };
        let id = self.next_table;
        let (all, keep_index) = (first == 0, self.state.index_room(&tables));
        let job = merge::Job { tables, all, id, space, keep_index, give_up: give_up.clone() };
        let progress = if self.threads.is_some() {
            let commit = self.commit.clone();
            let thread = std::thread::Builder::new().name("store-merge".into());
            let spawned = thread.spawn(move || {
                give_way();
                let result = merge::run(job);
                commit.wake_owner();
                result
            });
            match spawned {
                Ok(thread) => Progress::Thread(thread),
                Err(e) => Progress::Done(Err(StoreError::io("starting a thread")(e))),
            }
        } else {
            Progress::Waiting(Box::new(job))
        };
        self.merging = Some(Merging { old, progress, give_up });
    }

    /// Without threads: does the merge that has begun, if one has; the next
    /// [`Store::complete`] takes it over. Returns whether there was one.
    pub fn step_merge(&mut self) -> bool {
        match self.merging.take() {
            Some(Merging { old, progress: Progress::Waiting(job), give_up }) => {
                let progress = Progress::Done(merge::run(*job));
                self.merging = Some(Merging { old, progress, give_up });
                true
            }
            other => {
                self.merging = other;
                false
            }
        }
    }

    /// Takes over a finished merge, and begins the next where one is due: a store that is full
    /// gets no checkpoint which would begin it.
    pub(crate) fn take_merge(&mut self) {
        let finished = self.merging.take_if(|m| match &m.progress {
            Progress::Thread(thread) => thread.is_finished(),
            Progress::Waiting(_) => false,
            Progress::Done(_) => true,
        });
        if let Some(merging) = finished
            && self.end_merge(merging)
        {
            self.begin_merge();
        }
    }

    /// Waits for the merge under way, if one is.
    pub(crate) fn finish_merge(&mut self) {
        self.step_merge();
        if let Some(merging) = self.merging.take() {
            self.end_merge(merging);
        }
    }

    /// Gives up the merge under way, if one is.
    pub(crate) fn give_up_merge(&mut self) {
        if let Some(merging) = self.merging.take() {
            merging.give_up.store(true, Ordering::Relaxed);
            self.end_merge(merging);
        }
    }

    /// Whether its table took the place of those that it merged.
    fn end_merge(&mut self, merging: Merging) -> bool {
        let given_up = merging.give_up.load(Ordering::Relaxed);
        let result = match merging.progress {
            Progress::Thread(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(StoreError::Stopped("the merge panicked".into()))),
            Progress::Waiting(_) => Err(StoreError::Stopped("the merge was given up".into())),
            Progress::Done(result) => result,
        };
        let mut ledger = self.ledger.lock().expect("no holder of this lock panics");
        let taken = std::mem::take(&mut *ledger);
        drop(ledger);
        match result {
            Ok(table) => {
                let tables = Arc::make_mut(&mut self.state.tables);
                let at = tables.iter().position(|t| merging.old.contains(&t.meta.id));
                let at = at.expect("tables stay until they are merged");
                for old in tables.splice(at..at + merging.old.len(), table.map(Arc::new)) {
                    self.retired.extend(old.meta.runs.iter());
                }
                self.state.tables_changed();
                true
            }
            Err(e) => {
                let mut alloc =
                    self.state.space.alloc.lock().expect("no holder of this lock panics");
                for (start, len) in taken {
                    alloc.release(start, len);
                }
                if !given_up && !matches!(e, StoreError::NoSpace { .. }) {
                    tracing::error!("tables cannot be merged: {e}");
                    self.merges_fail = true;
                }
                false
            }
        }
    }
}
