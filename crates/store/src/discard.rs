//! Telling the device what is free, so that a sparse file shrinks and a flash device need
//! not carry along what nobody reads.
//!
//! Blocks are told of in batches, by a thread, once enough have become free. They are taken
//! meanwhile, so nobody is given what is being thrown away. Whatever may be written anew may
//! be thrown away: what became free since the store was opened, and has rested.

use std::sync::Arc;
use std::thread::JoinHandle;

use env::Disk;

use crate::Store;
use crate::file::give_way;
use crate::onode::BLOCK;

/// Bytes that become free before the device is told, and of one batch at most; less on a
/// small device.
const BATCH: u64 = 64 << 20;

/// What is being told.
#[derive(Default)]
pub(crate) struct Discards {
    on: bool,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    /// Runs that are taken.
    pub runs: Vec<(u64, u64)>,
}

fn tell(disk: &dyn Disk, runs: &[(u64, u64)]) -> std::io::Result<()> {
    runs.iter().try_for_each(|(start, len)| disk.discard(start * BLOCK, len * BLOCK))
}

impl Discards {
    pub fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(|(_, len)| len).sum()
    }
}

impl Store {
    /// Takes over a batch that is done, and begins another where that is due.
    pub(crate) fn discard(&mut self) {
        if !self.discards.on {
            return;
        }
        if let Some(thread) = self.discards.thread.take_if(|t| t.is_finished()) {
            self.end_discard(thread);
        }
        if !self.discards.runs.is_empty() {
            return;
        }
        let due = (BATCH / BLOCK).min(self.superblock.size / BLOCK / 64);
        let mut alloc = self.state.space.alloc.lock().expect("no holder of this lock panics");
        if alloc.stale() < due.max(1) {
            return;
        }
        let runs = alloc.take_stale(due);
        drop(alloc);
        self.discards.runs.clone_from(&runs);
        let disk: Arc<dyn Disk> = self.state.space.disk.clone();
        if self.threads.is_none() {
            let told = tell(&*disk, &runs);
            self.discarded(told);
            return;
        }
        let commit = self.commit.clone();
        let thread = std::thread::Builder::new().name("store-discard".into());
        let spawned = thread.spawn(move || {
            give_way();
            let told = tell(&*disk, &runs);
            commit.wake_owner();
            told
        });
        match spawned {
            Ok(thread) => self.discards.thread = Some(thread),
            Err(e) => self.discarded(Err(e)),
        }
    }

    /// Waits for the batch under way, if one is.
    pub(crate) fn finish_discard(&mut self) {
        if let Some(thread) = self.discards.thread.take() {
            self.end_discard(thread);
        }
    }

    fn end_discard(&mut self, thread: JoinHandle<std::io::Result<()>>) {
        let panicked = |_| Err(std::io::Error::other("the thread panicked"));
        self.discarded(thread.join().unwrap_or_else(panicked));
    }

    fn discarded(&mut self, told: std::io::Result<()>) {
        if let Err(e) = told {
            tracing::warn!("the device is not told any more what is free: {e}");
            self.discards.on = false;
        }
        let mut alloc = self.state.space.alloc.lock().expect("no holder of this lock panics");
        for (start, len) in self.discards.runs.drain(..) {
            alloc.give_back_told(start, len);
        }
    }
}
