//! Appends to the log that the store's owner has under way itself, by io_uring: no thread is
//! woken for them, and none wakes the owner.
//!
//! Only groups without data for other places: those are written by a thread, which waits for
//! all parts before it flushes. Both kinds are flights of the [`Committer`] and become durable
//! in its order.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::commit::{Committer, ForOwner, Taken};
use crate::uring::Ring;

pub(crate) struct LogRing {
    ring: Ring<Taken>,
    commit: Arc<Committer>,
    /// Something was to be begun and could not be yet.
    held: bool,
    /// The kernel does not do it this way, or not any more.
    refused: bool,
}

impl LogRing {
    /// `file` is where the log is; it is open for writing. `None` where the kernel does not
    /// allow it. What it gives with it is readable when something is written.
    pub fn new(file: File, commit: Arc<Committer>) -> Option<(Self, OwnedFd)> {
        let ring = Ring::new(file)?;
        let fd = ring.fd().ok()?;
        Some((Self { ring, commit, held: false, refused: false }, fd))
    }

    /// Whether it is of no use any more.
    pub fn is_over(&self) -> bool {
        self.refused && self.ring.len() == 0
    }

    /// Begins to write what is queued, as far as it may be begun now.
    pub fn begin(&mut self) {
        self.held = false;
        if self.refused {
            return self.commit.begin();
        }
        loop {
            match self.commit.take_for_owner() {
                ForOwner::Group(at, taken) => {
                    self.ring.write_durably(*taken, at, Taken::bytes);
                }
                ForOwner::Later => {
                    self.held = true;
                    break;
                }
                ForOwner::Nothing => break,
            }
        }
        if self.ring.untold() > 0 {
            self.submit(0);
        }
    }

    /// Takes over what is written, and begins what had to wait for it.
    pub fn reap(&mut self) {
        let mut some = false;
        while let Some((taken, done)) = self.ring.next() {
            some = true;
            if done == Some(taken.bytes().len()) {
                self.commit.finish(taken);
                continue;
            }
            // By plain calls, which say why they cannot.
            tracing::info!("io_uring is not used for the log any more");
            self.refused = true;
            self.commit.write(taken);
        }
        if some && self.held {
            self.begin();
        }
    }

    /// Waits until one is written. Whether any was under way.
    pub fn wait(&mut self) -> bool {
        let some = self.ring.len() > 0;
        if some {
            self.submit(1);
            self.reap();
        }
        some
    }

    fn submit(&mut self, wait: usize) {
        if let Err(e) = self.ring.submit(wait) {
            self.refused = true;
            // What is under way may be written or not; its memory is the kernel's.
            self.ring.end(drop, std::mem::forget);
            self.commit.fail(format!("writing the log by io_uring: {e}"));
        }
    }
}

impl Drop for LogRing {
    /// What is under way is waited for.
    fn drop(&mut self) {
        while self.wait() {}
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Coll, MkfsOptions, OpenOptions, Store, Transaction};

    /// What the kernel refuses is written by plain calls, in its order, and so is the rest.
    #[test]
    fn what_is_refused_goes_another_way() {
        let path = std::env::temp_dir().join(format!("store-logring-{}", std::process::id()));
        let options = MkfsOptions { size: 64 << 20, log_bytes: 2 << 20, ..MkfsOptions::default() };
        Store::mkfs(&path, &options).unwrap();
        let options = || OpenOptions { gather: true, ..OpenOptions::default() };
        let mut store = Store::open(&path, options()).unwrap();
        // What goes where the log is being prepared is left to threads.
        let preparer = store.threads.as_ref().and_then(|t| t.preparer.as_ref());
        while preparer.is_some_and(|thread| !thread.is_finished()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // Not open for writing.
        let file = File::open(&path).unwrap();
        let Some((ring, _fd)) = LogRing::new(file, store.commit.clone()) else { return };
        store.log_ring = Some(ring);
        let value = |n: u8| Bytes::from(vec![n; 10]);
        for n in 0..10 {
            let mut txn = Transaction::new();
            txn.create_collection(Coll::Meta);
            txn.coll_set(Coll::Meta, vec![n], value(n));
            store.submit(txn).unwrap();
            store.kick();
        }
        store.sync().unwrap();
        assert!(store.log_ring.is_none(), "it is of no use");
        drop(store);
        let store = Store::open(&path, options()).unwrap();
        for n in 0..10 {
            assert_eq!(store.coll_get(Coll::Meta, &[n]).unwrap(), Some(value(n)));
        }
        std::fs::remove_file(&path).unwrap();
    }
}
