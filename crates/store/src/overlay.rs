//! A disk that is read and never written: what is written stays in memory.
//!
//! For a look at a damaged store. Opening a store writes to it, and what the owner has not seen yet is
//! not to be lost by a look.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use env::Disk;

const BLOCK: usize = 4096;

/// See the module's page.
pub struct Overlay {
    below: Arc<dyn Disk>,
    /// Blocks that were written, by number.
    over: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl Overlay {
    /// Over a disk that nobody writes meanwhile.
    #[must_use]
    pub fn new(below: Arc<dyn Disk>) -> Self {
        Self { below, over: Mutex::default() }
    }

    fn over(&self) -> MutexGuard<'_, BTreeMap<u64, Box<[u8]>>> {
        self.over.lock().expect("no panic while held")
    }
}

/// The parts of a range that lie in one block each: block, offset in it, range of the buffer.
fn parts(off: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let here = off + at as u64;
        let within = (here % BLOCK as u64) as usize;
        let take = (BLOCK - within).min(len - at);
        let part = (here / BLOCK as u64, within, at..at + take);
        at += take;
        (take > 0).then_some(part)
    })
}

impl Disk for Overlay {
    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<()> {
        let over = self.over();
        self.below.read(off, buf)?;
        for (block, within, range) in parts(off, buf.len()) {
            if let Some(data) = over.get(&block) {
                let len = range.len();
                buf[range].copy_from_slice(&data[within..within + len]);
            }
        }
        Ok(())
    }

    fn write(&self, off: u64, data: &[u8]) -> io::Result<()> {
        let mut over = self.over();
        for (block, within, range) in parts(off, data.len()) {
            let len = range.len();
            let to = match over.entry(block) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    let mut whole = vec![0; BLOCK];
                    if len < BLOCK {
                        self.below.read(block * BLOCK as u64, &mut whole)?;
                    }
                    entry.insert(whole.into())
                }
            };
            to[within..within + len].copy_from_slice(&data[range]);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
