//! A monitor's file in memory, on a disk that loses what was not flushed: for the simulator.
//!
//! What is written is seen at once and durable when the world flushes it, one write after
//! the other; a crash keeps what was flushed and some of what followed, in order. That is
//! what the file promises, and no more.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::store::{Change, StoreError, Text, founding};

/// The tables of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub(super) meta: BTreeMap<Text, Bytes>,
    pub(super) log: BTreeMap<u64, Bytes>,
    pub(super) state: BTreeMap<Text, Bytes>,
}

impl Tables {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Meta(key, value) => drop(self.meta.insert(key, value.clone())),
            Change::State(key, value) => drop(self.state.insert(key, value.clone())),
            Change::Entry(index, value) => drop(self.log.insert(*index, value.clone())),
            Change::Truncate(from) => drop(self.log.split_off(from)),
            Change::Purge(upto) => self.log = self.log.split_off(&(upto + 1)),
        }
    }
}

/// A write that is not durable, and who waits for it.
struct Write {
    changes: Vec<Change>,
    done: oneshot::Sender<()>,
}

#[derive(Default)]
struct Inner {
    now: Tables,
    disk: Tables,
    queue: VecDeque<Write>,
    forgets_votes: bool,
}

/// A file, shared with the world; it outlives the monitor.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Inner>>);

impl Memory {
    /// A monitor's first file; see [`super::create`].
    #[must_use]
    pub fn new(node: u64, founders: &BTreeMap<u64, String>, first_state: &Bytes) -> Self {
        let this = Self::default();
        for change in founding(node, founders, first_state) {
            this.lock().now.apply(&change);
            this.lock().disk.apply(&change);
        }
        this
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nothing panics in here")
    }

    /// Writes that are not durable.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.lock().queue.len()
    }

    /// Makes up to `n` writes durable.
    pub fn flush(&self, n: usize) {
        for _ in 0..n {
            let mut inner = self.lock();
            let Some(write) = inner.queue.pop_front() else { return };
            for change in &write.changes {
                if !(inner.forgets_votes && matches!(change, Change::Meta("vote", _))) {
                    inner.disk.apply(change);
                }
            }
            write.done.send(()).ok();
        }
    }

    /// The process ends: `kept` of the queued writes were flushed all the same.
    pub fn crash(&self, kept: usize) {
        self.flush(kept);
        let mut inner = self.lock();
        inner.queue.clear();
        inner.now = inner.disk.clone();
    }

    /// From now on votes are not kept across crashes: a bug, for checkers to find.
    pub fn forget_votes(&self) {
        self.lock().forgets_votes = true;
    }

    pub(super) fn tables<T>(&self, look: impl FnOnce(&Tables) -> T) -> T {
        look(&self.lock().now)
    }

    pub(super) async fn write(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let (done, is_done) = oneshot::channel();
        {
            let mut inner = self.lock();
            for change in &changes {
                inner.now.apply(change);
            }
            inner.queue.push_back(Write { changes, done });
        }
        is_done.await.map_err(|_| StoreError::Damaged("a write was cut off; the store"))
    }
}
