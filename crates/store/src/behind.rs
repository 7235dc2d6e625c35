//! What goes on behind the store's owner: checkpoints that begin and end, blocks that rest, the
//! threads, and what is done step by step where there are none.

use std::sync::Arc;
use std::sync::mpsc::{Sender, sync_channel};
use std::thread::JoinHandle;

use crate::checkpoint::{self, Job, Outcome};
use crate::commit::{Committer, FLIGHTS};
use crate::file::give_way;
use crate::merge::Progress;
use crate::placement::LogPlacement;
use crate::space::Space;
use crate::stage::Staged;
use crate::state::Frozen;
use crate::store::{Threads, Work};
use crate::usedmap::Changes;
use crate::{Seq, Store, StoreError};

type Result<T> = std::result::Result<T, StoreError>;

/// Runs of blocks that become free at a time, so that the owner's turns stay short.
const RESTED: u64 = 256;

/// Changes of tiny objects take nearly three times as much memory as they take of the log. When they take
/// more, a checkpoint begins earlier than the log asks for it.
const MEMORY_PER_LOG: u64 = 3;

impl Store {
    /// Without threads: makes one group durable. Returns whether there was one.
    pub fn step(&mut self) -> bool {
        self.threads.is_none() && (self.end_group() || self.commit.step())
    }

    /// Without threads: writes a group, which [`Store::end_group`] flushes: time may pass in
    /// between, and one more group be begun. Returns whether there was one.
    pub fn begin_group(&mut self) -> bool {
        if self.threads.is_some() || self.begun.len() >= FLIGHTS {
            return false;
        }
        let taken = self.commit.begin_step();
        let some = taken.is_some();
        self.begun.extend(taken);
        some
    }

    /// Without threads: flushes the older of the groups that were begun. Returns whether there
    /// was one.
    pub fn end_group(&mut self) -> bool {
        let Some(taken) = self.begun.pop_front() else { return false };
        self.commit.end_step(taken);
        true
    }

    /// Without threads: groups that were begun and are not durable.
    #[must_use]
    pub fn groups_begun(&self) -> usize {
        self.begun.len()
    }

    /// Without threads: whether a checkpoint waits for [`Store::step_checkpoint`], and all that
    /// it writes is durable in the log.
    #[must_use]
    pub fn is_checkpoint_ready(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.frozen.seq <= self.commit.durable())
    }

    /// Without threads: whether a checkpoint or a merge waits to be made.
    #[must_use]
    pub fn has_work_behind(&self) -> bool {
        let merge = self.merging.as_ref().map(|m| &m.progress);
        self.job.is_some() || matches!(merge, Some(Progress::Waiting(_)))
    }

    /// Without threads: writes two groups before either is flushed, as the threads may.
    /// Returns whether there were two.
    pub fn step_two(&mut self) -> bool {
        self.threads.is_none() && self.commit.step_two()
    }

    /// Without threads: makes the checkpoint that has begun, if one has; the next
    /// [`Store::complete`] takes it over. Returns whether there was one.
    pub fn step_checkpoint(&mut self) -> bool {
        let Some(job) = self.job.take() else { return false };
        // It waits for the transactions before it.
        while self.commit.durable() < job.frozen.seq && self.step() {}
        let outcome = checkpoint::run(&self.state.space, &self.commit, job);
        self.outcome_sender.send(outcome).expect("the receiver is ours");
        true
    }

    /// Without threads: begins a checkpoint, where none is under way.
    ///
    /// # Errors
    /// As [`Store::complete`].
    pub fn begin_checkpoint(&mut self) -> Result<()> {
        self.freeze()
    }

    /// Begins a checkpoint, where none is under way, if changes since the last take more than
    /// `least` bytes of memory. What is changed again counts again. Waits for nothing.
    ///
    /// # Errors
    /// As [`Store::complete`].
    pub fn spill(&mut self, least: u64) -> Result<()> {
        if self.stopped || self.state.active_bytes <= least {
            return Ok(());
        }
        self.freeze()
    }

    fn is_thread_gone(threads: &Threads) -> bool {
        threads.io.iter().chain([&threads.checkpointer]).any(JoinHandle::is_finished)
    }

    pub(crate) fn wait_a_little(&mut self) -> Result<()> {
        match &self.threads {
            None => {
                let _ = self.step() || self.step_checkpoint();
            }
            Some(threads) if Self::is_thread_gone(threads) => {
                self.commit.fail("a thread of the store is gone".into());
            }
            Some(_) => {
                if !self.wait_written() {
                    self.commit.wait_a_group();
                }
            }
        }
        self.background()
    }

    /// The owner's part of what goes on behind: blocks that have rested, data that has
    /// arrived, a checkpoint that is done.
    pub(crate) fn background(&mut self) -> Result<()> {
        if self.stopped {
            return Err(StoreError::Stopped("an earlier transaction failed".into()));
        }
        if let Some(e) = self.commit.failed() {
            return Err(e);
        }
        if !self.state.flight.is_empty() {
            let durable = self.commit.durable();
            self.state.flight.retain(|_, (_, seq)| *seq > durable);
        }
        if self.state.frozen.is_some()
            && let Ok(outcome) = self.outcomes.try_recv()
        {
            let taken = outcome.and_then(|o| self.install(o));
            if let Err(e) = taken {
                self.commit.fail(format!("checkpoint: {e}"));
                return Err(StoreError::Stopped(e.to_string()));
            }
        }
        self.warm_up();
        self.take_merge();
        self.settle_resting(RESTED);
        self.discard();
        Ok(())
    }

    /// Blocks that nothing refers to once `seq` is durable.
    pub(crate) fn rest(&mut self, seq: Seq, freed: Vec<(u64, u64)>) {
        self.freed_runs += freed.len() as u64;
        for (start, blocks) in freed {
            self.resting.push_back((seq, start, blocks));
            self.resting_blocks += blocks;
        }
    }

    /// Blocks that have rested are free, of `most` runs.
    pub(crate) fn settle_resting(&mut self, most: u64) {
        if self.state.frozen.is_some() || self.resting.is_empty() {
            return;
        }
        let proven = match self.superblock.placement {
            LogPlacement::Device | LogPlacement::Own => self.commit.proven(),
            // No log leads on from the last checkpoint, and what that refers to stays.
            LogPlacement::Memory => self.checkpointed,
        };
        // A read under way may need what was freed since it began.
        let read = self.fetches.oldest().unwrap_or(u64::MAX);
        let mut front = self.freed_runs - self.resting.len() as u64;
        let mut alloc = self.state.space.alloc.lock().expect("no holder of this lock panics");
        let end = front.saturating_add(most);
        while front < end
            && let Some((seq, start, blocks)) = self.resting.front().copied()
        {
            if seq > proven || front >= read {
                break;
            }
            front += 1;
            alloc.release(start, blocks);
            self.resting_blocks -= blocks;
            self.resting.pop_front();
        }
    }

    pub(crate) fn freeze_if_due(&mut self) -> Result<()> {
        let due = self.since_freeze >= self.checkpoint_bytes || self.is_heavy();
        if due && self.state.frozen.is_none() {
            return self.freeze();
        }
        Ok(())
    }

    /// Whether changes since the last freeze take much memory. A small change of an object is in memory
    /// with all the object's attributes, so it may take any number of times what it takes of the log.
    pub(crate) fn is_heavy(&self) -> bool {
        self.state.active_bytes >= MEMORY_PER_LOG * self.checkpoint_bytes
    }

    /// Begins a checkpoint of everything submitted.
    pub(crate) fn freeze(&mut self) -> Result<()> {
        if self.state.frozen.is_some() {
            return Ok(());
        }
        let state = &mut self.state;
        let frozen = Arc::new(Frozen { map: std::mem::take(&mut state.active), seq: self.seq });
        self.commit.set_mark(self.seq);
        let mut alloc = state.space.alloc.lock().expect("no holder of this lock panics");
        alloc.restart();
        // What a merge writes is nobody's before it is done.
        let ledger = self.ledger.lock().expect("no holder of this lock panics");
        self.retiring = std::mem::take(&mut self.retired);
        let merged = ledger.iter().chain(&self.retiring).copied();
        let resting = self.resting.iter().map(|(_, start, blocks)| (*start, *blocks));
        let discards = self.discards.runs.iter().copied();
        let staged = self.staged.iter().flat_map(Staged::runs);
        let uncounted: Vec<_> = merged.chain(resting).chain(discards).chain(staged).collect();
        let changes = Changes::new(alloc.used.hold(&uncounted), uncounted);
        drop((ledger, alloc));
        self.next_table += 1;
        if let Some(threads) = &mut self.threads
            && let Some(preparer) = threads.preparer.take_if(|p| p.is_finished())
        {
            self.superblock.log_ready = preparer.join().unwrap_or(false);
        }
        state.frozen = Some(frozen.clone());
        state.tables_coll = state.next_coll;
        state.frozen_bytes = std::mem::take(&mut state.active_bytes);
        state.frozen_blocks = std::mem::take(&mut state.active_blocks);
        let pools = state.pools.iter();
        let job = Job {
            frozen,
            tables: state.tables.clone(),
            superblock: self.superblock.clone(),
            own: self.own.clone(),
            changes,
            map_changes_bytes: self.map_changes_bytes,
            keep_index: state.index_room(&[]),
            next_id: state.next_id,
            next_coll: state.next_coll,
            table: self.next_table,
            pools: pools.map(|(p, s)| (p.0, *s)).collect(),
        };
        self.since_freeze = 0;
        self.warm.clear();
        match &self.threads {
            Some(threads) => threads
                .jobs
                .send(Work::Checkpoint(Box::new(job)))
                .map_err(|_| StoreError::Stopped("the checkpointer is gone".into())),
            None => {
                self.job = Some(job);
                Ok(())
            }
        }
    }

    /// Waits for the checkpoint under way, if one is, and takes it over.
    pub(crate) fn finish_checkpoint(&mut self) -> Result<()> {
        while self.state.frozen.is_some() {
            self.wait_a_little()?;
        }
        Ok(())
    }
}

pub(crate) fn start_threads(
    space: &Space,
    commit: &Arc<Committer>,
    outcomes: &Sender<Result<Outcome>>,
    log_ready: bool,
) -> Result<Threads> {
    let what = "starting a thread";
    let (jobs, received) = sync_channel::<Work>(2);
    let for_preparer = commit.clone();
    let mut io = Vec::new();
    for _ in 0..FLIGHTS {
        let commit = commit.clone();
        let thread = std::thread::Builder::new().name("store-log".into());
        io.push(thread.spawn(move || commit.run()).map_err(StoreError::io(what))?);
    }
    let (space, commit, outcomes) = (space.clone(), commit.clone(), outcomes.clone());
    let checkpointer = std::thread::Builder::new()
        .name("store-ckpt".into())
        .spawn(move || {
            give_way();
            for work in received {
                let job = match work {
                    Work::Checkpoint(job) => job,
                    Work::Drop(frozen, unchanged) => {
                        drop((frozen, unchanged));
                        continue;
                    }
                };
                let outcome = checkpoint::run(&space, &commit, *job);
                if outcomes.send(outcome).is_err() {
                    return;
                }
                commit.wake_owner();
            }
        })
        .map_err(StoreError::io(what))?;
    let preparer = if log_ready {
        None
    } else {
        let prepare = move || match for_preparer.prepare_ring() {
            Ok(all) => all,
            Err(e) => {
                tracing::warn!("the log could not be prepared, and is only slower for it: {e}");
                false
            }
        };
        let thread = std::thread::Builder::new().name("store-prepare".into());
        Some(thread.spawn(prepare).map_err(StoreError::io(what))?)
    };
    Ok(Threads { io, preparer, checkpointer, jobs })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use types::{HObject, PgId, ShardId, SpgId};

    use super::*;
    use crate::{Coll, MkfsOptions, OpenOptions, SimDisk, Transaction};

    const ATTRS: usize = 30 << 20;

    /// Objects with large attributes are written whole however little of them changes: space is kept
    /// for that.
    #[test]
    fn attributes_count_when_little_changes() {
        let disk = Arc::new(SimDisk::new(1 << 30, false));
        let made = MkfsOptions { size: 1 << 30, log_bytes: 256 << 20, ..MkfsOptions::default() };
        Store::mkfs_on(disk.clone(), &made).unwrap();
        let options = OpenOptions { threads: false, ..OpenOptions::default() };
        let mut store = Store::open_on(disk, options).unwrap();
        let coll = Coll::Pg(SpgId { pg: PgId::new(1, 0), shard: ShardId::NONE });
        let object = |n: u8| HObject { hash: n.into(), name: vec![n].into(), ..HObject::min() };
        let mut first = Transaction::new();
        first.create_collection(coll);
        store.submit(first).unwrap();
        for n in 0..5 {
            let mut txn = Transaction::new();
            txn.set_attr(coll, &object(n), "large", Bytes::from(vec![n; ATTRS]));
            store.submit(txn).unwrap();
            store.sync().unwrap();
        }
        store.checkpoint().unwrap();
        assert!(store.state.kept_for_changes() < 1 << 20);
        for n in 0..5 {
            let mut txn = Transaction::new();
            txn.set_attr(coll, &object(n), "small", Bytes::from_static(b"x"));
            store.submit(txn).unwrap();
            let all = (u64::from(n) + 1) * ATTRS as u64;
            assert!(store.state.kept_for_changes() >= 2 * all, "space for all of them");
        }
        store.sync().unwrap();
        // A checkpoint takes them out of memory, if it is asked to.
        store.spill(u64::MAX).unwrap();
        assert!(store.job.is_none());
        store.spill(ATTRS as u64).unwrap();
        assert!(store.step_checkpoint());
        store.complete().unwrap();
        assert!(store.state.kept_for_changes() < 1 << 20, "{}", store.state.kept_for_changes());
        store.spill(ATTRS as u64).unwrap();
        assert!(store.job.is_none(), "nothing changed since");
        store.checkpoint().unwrap();
        assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new());
    }
}
