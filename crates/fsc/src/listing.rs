//! Listings: a directory in pages, fragment after fragment.

use bytes::Bytes;
use maps::fs::{Frag, FragTree, dentry_hash};
use messages::fs::{
    Args, DirEntry, DirListing, FilePath, InodeStat, ReaddirArgs, mds_op, readdir_flag,
};
use types::Ino;

use crate::{Ask, Reply};

/// Entries of a page, at most.
const ENTRIES: u32 = 1024;
/// Bytes of a page, about.
const BYTES: u32 = 512 << 10;

/// How far a listing is. Names come once each, in the order of their hashes, also where fragments are
/// divided or merged meanwhile; what is made or removed meanwhile may be in it or not.
#[derive(Clone, Debug)]
pub struct Listing {
    path: FilePath,
    /// Of snapshots.
    snaps: bool,
    tree: FragTree,
    hash_kind: u8,
    /// The next entry's hash is at least this.
    from: u32,
    /// The last name that came.
    last: Option<Bytes>,
    done: bool,
    page: u32,
}

impl Listing {
    /// The entries of a directory; `snaps`: its snapshots instead.
    #[must_use]
    pub fn new(path: FilePath, snaps: bool) -> Self {
        let tree = FragTree::default();
        Self { path, snaps, tree, hash_kind: 0, from: 0, last: None, done: false, page: ENTRIES }
    }

    /// The same in pages of at most so many entries.
    #[must_use]
    pub fn by(self, page: u32) -> Self {
        Self { page, ..self }
    }

    /// What to ask next; none at the end.
    #[must_use]
    pub fn next(&self) -> Option<Ask> {
        if self.done {
            return None;
        }
        let frag = if self.snaps { Frag::ROOT } else { self.tree.leaf_of(self.from) };
        let hash = if self.last.is_none() && self.from > frag.value() { self.from } else { 0 };
        let args = Args::Readdir(ReaddirArgs {
            frag: frag.raw(),
            max_entries: self.page,
            max_bytes: BYTES,
            flags: 1,
            offset_hash: hash,
            snap_other: 0,
        });
        let op = if self.snaps { mds_op::LSSNAP } else { mds_op::READDIR };
        let mut ask = Ask::new(op, self.path.clone(), args);
        if let Some(last) = &self.last {
            ask.path2 = FilePath { ino: Ino(0), path: last.clone() };
        }
        Some(ask)
    }

    /// Takes an answer; its entries that did not come before.
    pub fn take(&mut self, reply: Reply) -> Vec<DirEntry> {
        if let Some(dir) = &reply.answer.target {
            self.heard(dir);
        }
        let DirListing { frag, flags, mut entries } = reply.listing.unwrap_or_default();
        let hash = |e: &DirEntry| dentry_hash(self.hash_kind, &e.name) & 0x00ff_ffff;
        if self.snaps {
            self.done = flags & readdir_flag::FRAG_END != 0 || entries.is_empty();
            self.last = entries.last().map(|e| e.name.clone());
            return entries;
        }
        if flags & readdir_flag::HASH_ORDER != 0 {
            let (from, last) = (self.from, self.last.clone());
            entries.retain(|e| match (hash(e), &last) {
                (h, Some(last)) => (h, &e.name) > (from, last),
                (h, None) => h >= from,
            });
        }
        let next = frag.frag.value() + frag.frag.span();
        if flags & readdir_flag::FRAG_END != 0 {
            self.done = next >= 1 << Frag::BITS_MAX || next <= self.from;
            (self.from, self.last) = (next, None);
        } else if let Some(e) = entries.last() {
            (self.from, self.last) = (hash(e), Some(e.name.clone()));
        } else {
            // A page without anything new would come for ever.
            self.done = true;
        }
        entries
    }

    fn heard(&mut self, dir: &InodeStat) {
        self.tree = dir.fragtree.clone();
        self.hash_kind = dir.dir.hash;
    }
}
