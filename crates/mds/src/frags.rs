//! Directories of many entries are several fragments: splitting one that is large, merging those
//! of a directory that is small again.
//!
//! One record has all of it: the new fragments whole, that the old ones are gone, and the inode's
//! tree of fragments. The old objects go once it is durable; that of the first fragment stays, for
//! it has the backtrace, and loses its entries.
//!
//! Source: the peer's `MDBalancer::maybe_fragment`, `CDir::split`, `CDir::merge`.

use bytes::Bytes;
use maps::fs::{DirFrag, Frag, NestInfo, dentry_hash, object_name};
use types::Ino;

use crate::rank::{Job, Rank};
use crate::record::Change;
use crate::tree::{Fragment, Link, Tree, Txn, nest_add};
use crate::{Io, IoOp};

impl Tree {
    /// What a fragment's entries sum up to: files, directories, and all below.
    pub fn sums(&self, fragment: &Fragment) -> (i64, i64, NestInfo) {
        let (mut files, mut dirs, mut nest) = (0, 0, NestInfo::default());
        for entry in fragment.entries.values() {
            let is_dir = match &entry.link {
                Link::Primary(ino) => {
                    let inode = &self.at(*ino).store.inode;
                    nest_add(&mut nest, &inode.dir.accounted_rstat, 1);
                    inode.is_dir()
                }
                Link::Remote { d_type, .. } => *d_type == maps::fs::dtype::DIR,
            };
            *(if is_dir { &mut dirs } else { &mut files }) += 1;
        }
        (files, dirs, nest)
    }

    /// Gives the entries of `old` fragments, which are all of some part of a directory, to `new`
    /// ones, by their hashes. The tree of fragments is the caller's.
    fn deal(&mut self, txn: &mut Txn, ino: Ino, old: &[Frag], new: &[Frag]) {
        let node = self.at_mut(ino);
        let kind = node.store.inode.dir.hash;
        let taken: Vec<Fragment> = old.iter().filter_map(|frag| node.frags.remove(frag)).collect();
        let mut fnode = taken.first().map(|f| f.fnode).unwrap_or_default();
        let mut whole = (0, 0, NestInfo::default());
        for f in &taken {
            let n = &f.fnode;
            fnode.version = fnode.version.max(n.version);
            fnode.snap_purged_thru = fnode.snap_purged_thru.min(n.snap_purged_thru);
            fnode.fragstat.mtime = fnode.fragstat.mtime.max(n.fragstat.mtime);
            fnode.fragstat.change_attr = fnode.fragstat.change_attr.max(n.fragstat.change_attr);
            fnode.rstat.rctime = fnode.rstat.rctime.max(n.rstat.rctime);
            whole.0 += n.fragstat.nfiles;
            whole.1 += n.fragstat.nsubdirs;
            nest_add(&mut whole.2, &n.rstat, 1);
        }
        fnode.version += 1;
        let mut made: Vec<(Frag, Fragment)> = new
            .iter()
            .map(|f| (*f, Fragment { fnode, fresh: true, ..Fragment::default() }))
            .collect();
        let place = |made: &[(Frag, Fragment)], name: &[u8]| {
            let hash = dentry_hash(kind, name) & 0xff_ffff;
            made.iter().position(|(f, _)| f.contains_hash(hash)).unwrap_or(0)
        };
        for fragment in taken {
            for (name, entry) in fragment.entries {
                let at = place(&made, &name);
                made[at].1.entries.insert(name, entry);
            }
            for ((name, last), past) in fragment.past {
                let at = place(&made, &name);
                made[at].1.past.insert((name, last), past);
            }
        }
        for (n, (frag, mut fragment)) in made.into_iter().enumerate() {
            let (files, dirs, nest) = self.sums(&fragment);
            let f = &mut fragment.fnode;
            let rctime = f.rstat.rctime;
            (f.fragstat.nfiles, f.fragstat.nsubdirs) = (files, dirs);
            let version = f.rstat.version;
            f.rstat = NestInfo { version, rctime, ..nest };
            whole.0 -= files;
            whole.1 -= dirs;
            nest_add(&mut whole.2, &nest, -1);
            if n + 1 == new.len() {
                // What was wrong before is not made worse: the sums of all stay as they are.
                f.fragstat.nfiles += whole.0;
                f.fragstat.nsubdirs += whole.1;
                nest_add(&mut f.rstat, &whole.2, 1);
            }
            (f.accounted_fragstat, f.accounted_rstat) = (f.fragstat, f.rstat);
            let dir = DirFrag { ino, frag };
            txn.begin_frag(dir);
            for name in fragment.entries.keys() {
                txn.entry(dir, name);
            }
            for (name, last) in fragment.past.keys() {
                txn.past(dir, name, *last);
            }
            self.at_mut(ino).frags.insert(frag, fragment);
        }
        for frag in old {
            let dir = DirFrag { ino, frag: *frag };
            self.dirty.remove(&dir);
            txn.other.push(Change::Cleared(dir));
        }
    }
}

impl Rank {
    /// Splits and merges what is due; one directory at a time.
    pub fn fragment_tick(&mut self) {
        if self.read_only.is_some() || !self.is_active() {
            return;
        }
        let (split, merge) =
            (self.world.config.options.split_entries, self.world.config.options.merge_entries);
        let found = self.tree.dirty.iter().find_map(|dir| {
            let fragment = self.tree.fragment(*dir)?;
            let node = self.tree.at(dir.ino);
            // Neither the root nor a rank's own directory.
            let (_, _) = node.at.as_ref()?;
            let entries = fragment.entries.len() + fragment.past.len();
            if entries > split && dir.frag.bits() + SPLIT_BITS <= Frag::BITS_MAX {
                return Some((*dir, true));
            }
            if node.store.fragtree.is_empty() || entries >= merge {
                return None;
            }
            let mut all = 0;
            for leaf in node.store.fragtree.leaves() {
                let f = node.frags.get(&leaf)?;
                all += f.entries.len() + f.past.len();
            }
            (all < merge).then_some((*dir, false))
        });
        if let Some((dir, is_split)) = found {
            if is_split {
                self.fragment(
                    dir.ino,
                    &[dir.frag],
                    &dir.frag.split(SPLIT_BITS).collect::<Vec<_>>(),
                );
            } else {
                let leaves: Vec<Frag> = self.tree.at(dir.ino).store.fragtree.leaves().collect();
                self.fragment(dir.ino, &leaves, &[Frag::ROOT]);
            }
        }
    }

    /// Makes the `new` fragments of a directory of the `old` ones: one is split, or all of one
    /// branch are merged. `false` when it cannot be now.
    pub fn fragment(&mut self, ino: Ino, old: &[Frag], new: &[Frag]) -> bool {
        let frags = &self.tree.at(ino).frags;
        let writing = |f: &Frag| frags.get(f).is_none_or(|f| f.dirty.writing_since.is_some());
        if old.iter().any(writing) || self.purger.active.contains_key(&ino) {
            return false; // later
        }
        let mut txn = Txn::at(self.world.time());
        // So that nothing is owed to the inode.
        self.tree.touch(&mut txn, ino);
        let is_split = old.len() == 1;
        let tree = &mut self.tree.at_mut(ino).store.fragtree;
        let changed = if is_split {
            tree.split(old[0], new[0].bits() - old[0].bits())
        } else {
            tree.merge(new[0])
        };
        if changed {
            let counted = &mut self.counted.mds;
            let done = if is_split { &mut counted.dir_split } else { &mut counted.dir_merge };
            *done += 1;
            // What was settled is recorded with the new fragments.
            txn.forget_frags(ino, old);
            self.tree.deal(&mut txn, ino, old, new);
            self.tree.touch(&mut txn, ino);
        }
        self.commit(txn);
        if !changed {
            return false;
        }
        tracing::debug!(%ino, from = old.len(), to = new.len(), "a directory's fragments");
        for frag in old {
            let ops = if *frag == Frag::ROOT {
                vec![IoOp::Create { exclusive: false }, IoOp::OmapClear]
            } else {
                vec![IoOp::Remove]
            };
            let id = self.job(Job::Nothing);
            let object = object_name(ino, frag.raw().into());
            let pool = self.world.meta();
            let snapc = (types::SnapId(0), Vec::new());
            self.io_behind(Io { id, pool, object, nspace: Bytes::new(), snapc, ops });
        }
        true
    }
}

/// A fragment becomes 2 to this many: the peer's `mds_bal_split_bits`.
const SPLIT_BITS: u32 = 3;
