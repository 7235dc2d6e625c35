//! Directories that several clients change.
//!
//! Who changes a directory takes `F` of it back from all others. Where several change it, each would
//! take it from the one before, and wait for that one's answer. So for a while nobody has it, and
//! who wants to know what the directory adds up to asks. Who lists it has it again, until the next
//! change: libcephfs ends itself where a listing that differs from the one that it keeps comes without.
//!
//! Source: the peer's `filelock` of such a directory stays in `LOCK_MIX`, and goes to `LOCK_SYNC` for
//! who lists it (`Locker.cc`).

use std::collections::BTreeMap;

use types::Ino;

/// So long nobody has `F` after somebody took it back.
const LASTS_MS: u64 = 500;
/// As many directories at once; others are as if only one client changed them.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// When it ends.
    until: BTreeMap<Ino, u64>,
}

impl Shared {
    /// Several clients change a directory now.
    pub fn note(&mut self, dir: Ino, now_ms: u64) {
        if self.until.len() < MOST || self.until.contains_key(&dir) {
            self.until.insert(dir, now_ms + LASTS_MS);
        }
    }

    /// Whether nobody has `F` of a directory.
    pub fn has(&self, dir: Ino) -> bool {
        self.until.contains_key(&dir)
    }

    /// Somebody lists a directory.
    pub fn end(&mut self, dir: Ino) {
        self.until.remove(&dir);
    }

    /// Takes those that several changed, and lately no longer.
    pub fn take_quiet(&mut self, now_ms: u64) -> Vec<Ino> {
        let quiet = |_: &Ino, until: &mut u64| *until <= now_ms;
        self.until.extract_if(.., quiet).map(|(dir, _)| dir).collect()
    }
}
