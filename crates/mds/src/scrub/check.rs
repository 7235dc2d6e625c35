//! What a scrub compares, and how it is mended.
//!
//! Each comparison holds at any time, also while clients change the tree: a fragment's sums follow
//! its entries at once, and what the directory's inode was not told yet is the difference between a
//! fragment's sums and the `accounted` ones beside them.
//!
//! Source: the peer's `CDir::check_rstats`, `CInode::validate_disk_state`,
//! `MDCache::repair_inode_stats`.

use maps::fs::{Backtrace, DirFrag, Frag, NestInfo, SnapRealm};
use types::{Denc, Ino};

use crate::tree::{Tree, Txn, nest_add};

fn same_sums(a: &NestInfo, b: &NestInfo) -> bool {
    (a.rbytes, a.rfiles, a.rsubdirs, a.rsnaps) == (b.rbytes, b.rfiles, b.rsubdirs, b.rsnaps)
}

impl Tree {
    /// A directory's fragments in memory whose sums are not those of their entries.
    pub fn wrong_frags(&self, ino: Ino) -> Vec<Frag> {
        let Some(node) = self.node(ino) else { return Vec::new() };
        let wrong = node.frags.iter().filter(|(_, fragment)| {
            let (files, dirs, nest) = self.sums(fragment);
            let f = &fragment.fnode;
            (f.fragstat.nfiles, f.fragstat.nsubdirs) != (files, dirs) || !same_sums(&f.rstat, &nest)
        });
        wrong.map(|(frag, _)| *frag).collect()
    }

    /// What a directory's inode has to say by what its fragments told it: files, directories, and
    /// all below. All fragments are in memory.
    fn told(&self, ino: Ino) -> (i64, i64, NestInfo) {
        let node = self.at(ino);
        let mut nest = NestInfo { rsubdirs: 1, ..NestInfo::default() }; // itself
        nest.rsnaps = node.realm().snaps.len() as i64;
        let (mut files, mut dirs) = (0, 0);
        for f in node.frags.values().map(|f| &f.fnode) {
            files += f.accounted_fragstat.nfiles;
            dirs += f.accounted_fragstat.nsubdirs;
            nest_add(&mut nest, &f.accounted_rstat, 1);
        }
        (files, dirs, nest)
    }

    /// Whether a directory's inode says something else than its fragments told it. All fragments
    /// are in memory.
    pub fn is_wrong_dir(&self, ino: Ino) -> bool {
        let (files, dirs, nest) = self.told(ino);
        let dir = &self.at(ino).store.inode.dir;
        (dir.dirstat.nfiles, dir.dirstat.nsubdirs) != (files, dirs) || !same_sums(&dir.rstat, &nest)
    }

    /// Counts the entries of these fragments anew, and then what the directory's inode says. All
    /// fragments are in memory.
    pub fn mend_sums(&mut self, txn: &mut Txn, ino: Ino, wrong: &[Frag]) {
        for frag in wrong {
            let dir = DirFrag { ino, frag: *frag };
            let Some(fragment) = self.fragment(dir) else { continue };
            let (files, dirs, nest) = self.sums(fragment);
            let Some(fragment) = self.fragment_mut(dir) else { continue };
            let f = &mut fragment.fnode;
            (f.fragstat.nfiles, f.fragstat.nsubdirs) = (files, dirs);
            f.rstat = NestInfo { version: f.rstat.version, rctime: f.rstat.rctime, ..nest };
        }
        // Now nothing is owed to the inode, and what it says can be compared.
        self.touch(txn, ino);
        if self.is_wrong_dir(ino) {
            let (files, dirs, nest) = self.told(ino);
            let dir = &mut self.at_mut(ino).store.inode.dir;
            (dir.dirstat.nfiles, dir.dirstat.nsubdirs) = (files, dirs);
            dir.rstat = NestInfo { version: dir.rstat.version, rctime: dir.rstat.rctime, ..nest };
            self.touch(txn, ino);
        }
    }

    /// Whether an inode's realm can be read, and has snapshots that there are.
    pub fn is_wrong_realm(&self, ino: Ino) -> bool {
        let bytes = &self.at(ino).store.snap_realm;
        let has = |realm: SnapRealm| realm.snaps.keys().all(|s| self.snaps.contains_key(s));
        !bytes.is_empty() && !SnapRealm::from_shared(bytes).is_ok_and(has)
    }

    /// Whether a stored backtrace leads to where an inode is. One that was written before a
    /// directory above was renamed does. Versions are not compared: one in memory may have been
    /// stored with the backtrace, and not with the entry, when a server died.
    pub fn is_right_trace(&self, ino: Ino, trace: &Backtrace) -> bool {
        let at = self.node(ino).and_then(|n| n.at.as_ref());
        let Some((dir, name)) = at else { return trace.ino == ino };
        let first = trace.ancestors.first();
        trace.ino == ino && first.is_some_and(|a| a.dirino == *dir && a.dname == *name)
    }

    /// Whether an inode's backtrace is to be stored, or being stored.
    pub fn is_trace_due(&self, ino: Ino) -> bool {
        let due = self.node(ino).is_none_or(|n| n.trace_since.is_some() || n.is_stray());
        due || self.traces.contains(&ino) || self.traces_writing.contains_key(&ino)
    }
}
