//! Merging tables of like size into one, beside everything else.
//!
//! A merge reads tables, which never change, and writes a new one to free space. Its result
//! takes the old ones' place in memory at once; on the device with the next checkpoint,
//! whose manifest names it. Until that is durable the old tables stay as they are, and a
//! crash loses nothing but the work.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::StoreError;
use crate::keys;
use crate::space::Space;
use crate::table::{Builder, Cursor, Slot, Table};

type Result<T> = std::result::Result<T, StoreError>;

/// Tables of like size that are merged into one.
const MERGE_AT: usize = 4;
/// Tables at most, whatever their sizes.
const TABLES_MAX: usize = 14;
/// Merges for the sake of space free as much at least, if all is as it seems.
const SHRINK_MIN: u64 = 1 << 20;
/// Entries between two looks at whether to give up.
const PATIENCE: u32 = 1024;

/// The first of the tables to merge, all behind it among them; `None` for not now. A table goes
/// with those behind it when it is at most twice as large as the largest of them: what was merged
/// waits for others of its size, and is not written again with each few that follow.
pub(crate) fn due(tables: &[Arc<Table>]) -> Option<usize> {
    let sizes: Vec<u64> = tables.iter().map(|t| t.bytes()).collect();
    due_of(&sizes)
}

fn due_of(sizes: &[u64]) -> Option<usize> {
    let mut first = sizes.len().checked_sub(1)?;
    let mut largest = sizes[first];
    while first > 0 && sizes[first - 1] <= 2 * largest {
        first -= 1;
        largest = largest.max(sizes[first]);
    }
    if sizes.len() - first >= MERGE_AT {
        Some(first)
    } else {
        (sizes.len() > TABLES_MAX).then(|| sizes.len() - TABLES_MAX / 2)
    }
}

/// Bytes that a merge of all tables may free, where that is worth writing them anew: what was
/// written since the largest was, if that is a good part of it.
pub(crate) fn shrinks_by(tables: &[Arc<Table>]) -> Option<u64> {
    let largest = tables.iter().map(|t| t.bytes()).max()?;
    let all: u64 = tables.iter().map(|t| t.bytes()).sum();
    (all - largest >= (largest / 2).max(SHRINK_MIN)).then_some(all - largest)
}

/// Tables next to one another, oldest first, and what to make of them.
pub(crate) struct Job {
    pub tables: Vec<Arc<Table>>,
    /// Whether there is nothing below, so that what is removed need not be remembered.
    pub all: bool,
    pub id: u64,
    pub space: Space,
    /// Bytes of its index that a table keeps in memory, at most.
    pub keep_index: u64,
    pub give_up: Arc<AtomicBool>,
}

/// How far it is.
pub(crate) enum Progress {
    /// On its own thread.
    Thread(JoinHandle<Result<Option<Table>>>),
    /// Until the owner runs it, where there are no threads.
    Waiting(Box<Job>),
    Done(Result<Option<Table>>),
}

/// A merge under way, as its owner sees it.
pub(crate) struct Merging {
    /// Numbers of the old tables.
    pub old: Vec<u64>,
    pub progress: Progress,
    pub give_up: Arc<AtomicBool>,
}

/// Does it; `None` when nothing is left.
pub(crate) fn run(job: Job) -> Result<Option<Table>> {
    let disk = &*job.space.disk;
    let mut cursors: Vec<Cursor> = job.tables.iter().rev().cloned().map(Cursor::new).collect();
    let mut out = Builder::new(job.space.clone(), job.keep_index);
    let mut dead = HashSet::new();
    let mut key = Vec::new();
    let mut count = 0u32;
    loop {
        count += 1;
        if count.is_multiple_of(PATIENCE) && job.give_up.load(Ordering::Relaxed) {
            return Err(StoreError::Stopped("the merge was given up".into()));
        }
        let mut best: Option<usize> = None;
        for (i, cursor) in cursors.iter_mut().enumerate() {
            let Some(k) = cursor.peek(disk)? else { continue };
            if best.is_none() || *k < *key {
                key.clear();
                key.extend_from_slice(k);
                best = Some(i);
            }
        }
        let Some(winner) = best else { break };
        let slot = cursors[winner].take();
        for c in &mut cursors[winner + 1..] {
            if c.peek(disk)?.is_some_and(|k| *k == *key) {
                c.take();
            }
        }
        if job.all && key[0] == keys::DEAD {
            // Sorts before the keys of any omap, which all are in these tables.
            dead.extend(keys::number(&key));
            continue;
        }
        if job.all && key[0] == keys::OMAP && keys::number(&key).is_some_and(|n| dead.contains(&n))
        {
            continue;
        }
        match slot {
            Slot::Value(v) => out.add(&key, Some(&v))?,
            Slot::Removed if !job.all => out.add(&key, None)?,
            Slot::Removed => {}
        }
    }
    out.finish(job.id)
}

#[cfg(test)]
mod tests {
    use super::{TABLES_MAX, due_of};

    /// With tables of one size after another, each byte is written again once for each time
    /// that there is four times as much; the tables stay few, whatever their sizes.
    #[test]
    fn tables_of_like_size_are_merged() {
        let (mut sizes, mut written, mut most) = (Vec::new(), 0, 0);
        for _ in 0..256u64 {
            sizes.push(10u64);
            while let Some(first) = due_of(&sizes) {
                let merged = sizes.drain(first..).sum();
                written += merged;
                sizes.push(merged);
            }
            most = most.max(sizes.len());
        }
        assert_eq!((sizes, written, most), (vec![2_560], 4 * 2_560, 12));
        let mut sizes: Vec<u64> = Vec::new();
        for i in (0..100).rev() {
            sizes.push(1 << (i % 60));
            if let Some(first) = due_of(&sizes) {
                let merged = sizes.drain(first..).sum();
                sizes.push(merged);
            }
            assert!(sizes.len() <= TABLES_MAX);
        }
    }
}
